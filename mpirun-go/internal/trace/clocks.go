package trace

import (
	"math"

	"github.com/mpigo/mpigo/internal/trace"
)

// align converts the times of all events to the clock of rank 0's host. It assumes that a clock
// that was compared at the start and at the end of the job drifts evenly in between. The remaining
// error, which is smaller than the error of the comparison, shows in messages that are received
// before they are sent. align moves the clock of a host by the least that corrects all of them.
// Further calls do nothing.
func (j *Job) align() {
	if j.isAligned {
		return
	}
	j.isAligned = true
	byHost := make(map[string][]*trace.File)
	var hosts []string
	for _, f := range j.Files {
		if byHost[f.Host] == nil {
			hosts = append(hosts, f.Host)
		}
		byHost[f.Host] = append(byHost[f.Host], f)
	}
	for _, host := range hosts {
		var clocks []trace.Clock
		for _, f := range byHost[host] {
			if len(f.Clocks) > 0 {
				clocks = f.Clocks
			}
		}
		for _, f := range byHost[host] {
			for i := range f.Events {
				e := &f.Events[i]
				end := e.At + e.Nanos
				e.At -= ahead(clocks, e.At)
				e.Nanos = end - ahead(clocks, end) - e.At
			}
			f.Written -= ahead(clocks, f.Written)
		}
	}
	if len(hosts) < 2 {
		return
	}
	isDone := make(map[int]bool) // ranks whose clock is right
	between := j.between()
	for i, host := range hosts {
		if i > 0 {
			shift(byHost[host], correction(byHost[host], between[host], isDone))
		}
		for _, f := range byHost[host] {
			isDone[f.Rank] = true
		}
	}
}

func shift(files []*trace.File, by int64) {
	for _, f := range files {
		for i := range f.Events {
			f.Events[i].At += by
		}
		f.Written += by
	}
}

// ahead returns by how much a clock is ahead, at a time that the clock shows.
func ahead(clocks []trace.Clock, at int64) int64 {
	switch len(clocks) {
	case 0:
		return 0
	case 1:
		return clocks[0].Ahead
	}
	first, last := clocks[0], clocks[len(clocks)-1]
	if last.At <= first.At {
		return first.Ahead
	}
	drift := float64(last.Ahead-first.Ahead) / float64(last.At-first.At)
	if math.Abs(drift) > maxDrift {
		return first.Ahead
	}
	return first.Ahead + int64(drift*float64(at-first.At))
}

// maxDrift bounds by how much a clock may run faster than another one. Clocks of computers differ
// by less than a thousandth. A comparison that shows more is wrong.
const maxDrift = 0.1

// correction returns by how much the events of a host have to move, so that no message between the
// host and the ranks whose clock is right is received before it is sent. It is 0 if there is no
// such message, or if no single number corrects all messages.
func correction(host []*trace.File, messages []message, isDone map[int]bool) int64 {
	here := make(map[int]bool)
	for _, f := range host {
		here[f.Rank] = true
	}
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	for _, m := range messages {
		spare := m.matched.At - m.sent.At
		switch {
		case here[m.receiver] && isDone[m.sender]:
			least = max(least, -spare)
		case here[m.sender] && isDone[m.receiver]:
			most = min(most, spare)
		}
	}
	switch {
	case least > most:
		return 0
	case least > 0:
		return least
	case most < 0:
		return most
	}
	return 0
}

// between lists, for each host, the messages from and to other hosts.
func (j *Job) between() map[string][]message {
	hosts := make(map[int]string)
	for _, f := range j.Files {
		hosts[f.Rank] = f.Host
	}
	by := make(map[string][]message)
	for _, m := range j.messages() {
		if from, to := hosts[m.sender], hosts[m.receiver]; from != to {
			by[from], by[to] = append(by[from], m), append(by[to], m)
		}
	}
	return by
}

// message is a message whose two ends are both in the trace.
type message struct {
	sender, receiver int
	sent, matched    *trace.Event
}

// key names a message: numbers between two ranks are used again only after 2³² messages.
type key struct {
	sender, receiver int
	context          uint64
	number           uint32
}

// messages lists the messages whose two ends are both in the trace, in the order of receivers.
func (j *Job) messages() (list []message) {
	sent := make(map[key]*trace.Event)
	for _, f := range j.Files {
		for i := range f.Events {
			if e := &f.Events[i]; e.Type == trace.Sent {
				sent[key{f.Rank, e.Peer, e.Context, e.Number}] = e
			}
		}
	}
	for _, f := range j.Files {
		for i := range f.Events {
			if e := &f.Events[i]; e.Type == trace.Matched {
				k := key{e.Peer, f.Rank, e.Context, e.Number}
				if s := sent[k]; s != nil {
					delete(sent, k)
					list = append(list, message{e.Peer, f.Rank, s, e})
				}
			}
		}
	}
	return list
}
