package job

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mpigo/mpigo/internal/wireup"
)

// verdict is why the job failed.
type verdict struct {
	status  int
	line    string // without "mpirun-go: "; "" says nothing
	why     error  // for the end of line, asked late; nil: nothing
	rank    *rank  // whose fault it is, nil: no rank's
	weight  weight
	follows bool                 // when it was passed, the rank was not ending, but another one was
	left    *wireup.BarrierError // of weight leftWaiting: who has left
}

// weight orders what may be said of ranks that fail together, the least telling first.
// When a process dies, those that talk to it fail in turn, and what they say of it, an
// abort as a rule, may arrive here before its end does.
type weight int

const (
	leftWaiting weight = iota // it ended because another rank has left a barrier
	abort                     // it asked for the end of the job
	death                     // it ended without a word
	hostLost                  // its host was lost: no rank's fault
)

// failed is whether the job fails, be it that the verdict is still open.
func (r *run) failed() bool { return r.verdict != nil || len(r.held) > 0 }

// blame fails the job with v, the failure of a rank. While other ranks are ending too and
// have not been heard of, or if v itself says that there is another one, v is held, for
// culpritGrace at most. Nothing is ended until then, or the rank that is the cause would
// seem to die of it.
//
// A rank whose death has led to v is ending by now: the rank of v cannot have known of it
// earlier. So one that aborts while all others are well does not wait here.
func (r *run) blame(v *verdict) {
	if r.verdict != nil {
		return
	}
	if r.cfg.Remote {
		r.holdForAll(v)
		return
	}
	if v.rank == nil {
		r.fail(v)
		return
	}
	apart := !v.rank.ended && !v.rank.Ending()
	if len(r.held) == 0 {
		r.after(culpritGrace, r.choose)
		r.suspects = r.ending(v.rank)
	}
	v.follows = apart && r.othersEnd(v.rank)
	r.held = append(r.held, v)
	r.settle()
}

// holdForAll holds v for as long as it takes to hear of what happens on other hosts at the same time: which ranks
// are ending there cannot be seen from here.
func (r *run) holdForAll(v *verdict) {
	if len(r.held) == 0 {
		r.after(culpritGrace, r.choose)
	}
	r.held = append(r.held, v)
	r.passOn(v)
}

// ending lists the ranks that are ending and have not been heard of, with the given one only if
// there are others.
func (r *run) ending(of *rank) []*rank {
	var all []*rank
	others := false
	for _, k := range r.ranks {
		if !k.ended && k.Ending() {
			all = append(all, k)
			others = others || k != of
		}
	}
	if !others {
		return nil
	}
	return all
}

// othersEnd is whether ranks but the given one are ending and have not been heard of. Suspects
// answer that without a look at all ranks, of which each may be about to fail.
func (r *run) othersEnd(but *rank) bool {
	if slices.ContainsFunc(r.suspects, func(k *rank) bool { return k != but && !k.ended }) {
		return true
	}
	return len(r.ending(but)) > 0
}

// settle chooses among the verdicts that are held once it knows enough.
func (r *run) settle() {
	if len(r.held) == 0 {
		return
	}
	for _, v := range r.held {
		r.passOn(v)
	}
	r.suspects = slices.DeleteFunc(r.suspects, func(k *rank) bool { return k.ended })
	if !r.cfg.Remote && len(r.suspects) == 0 && slices.ContainsFunc(r.held, func(v *verdict) bool { return v.weight > leftWaiting }) {
		r.choose()
	}
}

// waiting makes v the verdict on a rank that a barrier has failed, if its wire-up ended so.
func (v *verdict) waiting(brokenBy error) {
	if errors.As(brokenBy, &v.left) {
		v.line += fmt.Sprintf(" (%v)", v.left)
		v.weight = leftWaiting
	}
}

// passOn turns v against the rank that v's has waited for in vain, if that one never joined
// and has ended as if all were well: by itself this is no failure, since programs that do
// not use the library may be ranks too.
func (r *run) passOn(v *verdict) {
	if v.left == nil || v.left.State != wireup.StateNeverInited {
		return
	}
	k := r.rank(v.left.Rank)
	if k == nil || !k.ended || !k.exit.OK() {
		return
	}
	v.rank, v.left, v.weight, v.status = k, nil, death, 1
	v.line = r.describe(k) + " exited with status 0, but without Init, which other ranks have called"
}

// rank is the one with that number, nil if it was not started.
func (r *run) rank(number int) *rank {
	for _, k := range r.ranks {
		if k.Rank == number {
			return k
		}
	}
	return nil
}

// choose ends the job with the nearest verdict, if there is one.
func (r *run) choose() {
	if v := r.nearest(); v != nil {
		r.fail(v)
	}
}

// nearest is the verdict that is nearest to the cause of those held, nil if none is.
func (r *run) nearest() *verdict {
	if len(r.held) == 0 {
		return nil
	}
	return slices.MinFunc(r.held, nearer) // of equals the first
}

// nearer orders verdicts by how near they are to the cause: by weight, and those of equal
// weight as their ranks have ended. A process can be missed by others before it has ended
// altogether, hence follows.
func nearer(v, w *verdict) int {
	if v.follows != w.follows && v.weight == w.weight {
		if v.follows {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(w.weight, v.weight), compareEnds(v.rank, w.rank))
}

// compareEnds orders ranks as they have ended. Of one host the order is known; of several it is that in which they were heard of.
func compareEnds(k, l *rank) int {
	if k != nil && l != nil && k.ended && l.ended && k.node != l.node {
		return cmp.Compare(k.seen, l.seen)
	}
	return cmp.Compare(order(k), order(l))
}

// order is a rank's place among those that have ended; those that have not come last.
func order(k *rank) int {
	if k != nil && k.ended {
		return k.place
	}
	return math.MaxInt
}
