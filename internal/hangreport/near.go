package hangreport

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/internal/observe"
)

// nearMisses returns the waiting receives for which a message has arrived that differs in only one
// respect: the tag, the communicator or the source. In a deadlock, the difference is the cause.
// Otherwise a later call of the rank may still receive the message.
func (v *view) nearMisses(ofDeadlock bool) (out []Cause) {
	for i := range v.ranks {
		isDeadlocked := slices.Contains(v.certain.Ranks, i) || slices.Contains(v.possible.Ranks, i)
		if isDeadlocked != ofDeadlock || v.ranks[i].Report == nil || v.ranks[i].left {
			continue
		}
		if c, ok := v.nearMiss(i); ok {
			out = append(out, c)
		}
	}
	return foldNear(out)
}

// nearMiss returns the nearest miss of a rank.
func (v *view) nearMiss(rank int) (Cause, bool) {
	r := &v.ranks[rank]
	best, rankOfBest := Cause{}, len(misses)
	for _, w := range r.Waits {
		ops := r.ops(w)
		for _, p := range ops {
			if !isRecv(p) {
				continue
			}
			for _, m := range r.Report.Unreceived {
				kind := missOf(p, m)
				if kind >= rankOfBest {
					continue
				}
				rankOfBest = kind
				best = Cause{
					Kind: KindNearMiss, Ranks: []int{rank}, Waiting: []int{rank},
					Text: fmt.Sprintf("rank %d: %s %s, but the message from %d, tag %d%s that has arrived has %s", rank,
						where(v.names, w, ops), operation(p, peerName(p.Peer)), m.Source, m.Tag, inComm(m.Comm), misses[kind]),
				}
			}
		}
	}
	return best, rankOfBest < len(misses)
}

// misses lists the respects in which a message may fail to match a receive, nearest first. Never
// written.
var misses = [...]string{"another tag", "another communicator", "another source"}

// missOf returns the index in misses of the respect in which a message fails to match a receive, or
// len(misses) if it is not a near miss.
func missOf(p observe.Pending, m observe.Message) int {
	source := p.Peer < 0 || p.Peer == m.Source
	tag := p.Tag < 0 || p.Tag == m.Tag
	comm := p.Comm == m.Comm
	switch {
	case source && comm && !tag:
		return 0
	case source && tag && !comm:
		return 1
	case tag && comm && !source:
		return 2
	}
	return len(misses)
}

func inComm(name string) string {
	if name == "world" {
		return ""
	}
	return ", in " + name
}

// foldNear keeps the first few near misses and counts the others.
func foldNear(list []Cause) []Cause {
	const most = 1
	if len(list) <= most {
		return list
	}
	out := list[:most]
	var others []int
	for _, c := range list[most:] {
		others = append(others, c.Ranks...)
	}
	out[most-1].Ranks = append(out[most-1].Ranks, others...)
	out[most-1].Text += fmt.Sprintf("; %s %s likewise", named(others), verb(others, "waits", "wait"))
	return out
}
