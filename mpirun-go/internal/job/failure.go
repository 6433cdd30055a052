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
type failure struct {
	status        int
	line          string // without "mpirun-go: "; "" says nothing
	cause         error  // for the end of line, asked late; nil: nothing
	rank          *rank  // whose fault it is, nil: no rank's
	priority      priority
	othersExiting bool                 // when it was passed, the rank was not ending, but another one was
	barrierErr    *wireup.BarrierError // of weight leftWaiting: who has left
}

// weight orders what may be said of ranks that fail together, the least telling first.
// When a process dies, those that talk to it fail in turn, and what they say of it, an
// abort as a rule, may arrive here before its end does.
type priority int

const (
	barrierFailed priority = iota // it ended because another rank has left a barrier
	aborted                       // it asked for the end of the job
	exited                        // it ended without a word
	hostLost                      // its host was lost: no rank's fault
)

// failed is whether the job fails, be it that the verdict is still open.
func (r *run) failed() bool { return r.failure != nil || len(r.pending) > 0 }

// blame fails the job with v, the failure of a rank. While other ranks are ending too and
// have not been heard of, or if v itself says that there is another one, v is held, for
// culpritGrace at most. Nothing is ended until then, or the rank that is the cause would
// seem to die of it.
//
// A rank whose death has led to v is ending by now: the rank of v cannot have known of it
// earlier. So one that aborts while all others are well does not wait here.
func (r *run) addFailure(v *failure) {
	if r.failure != nil {
		return
	}
	if r.cfg.Remote {
		r.addPending(v)
		return
	}
	if v.rank == nil {
		r.fail(v)
		return
	}
	apart := !v.rank.exited && !v.rank.Exiting()
	if len(r.pending) == 0 {
		r.after(rootCauseGrace, r.chooseFailure)
		r.exiting = r.exitingRanks(v.rank)
	}
	v.othersExiting = apart && r.othersExiting(v.rank)
	r.pending = append(r.pending, v)
	r.chooseIfReady()
}

// holdForAll holds v for as long as it takes to hear of what happens on other hosts at the same time: which ranks
// are ending there cannot be seen from here.
func (r *run) addPending(v *failure) {
	if len(r.pending) == 0 {
		r.after(rootCauseGrace, r.chooseFailure)
	}
	r.pending = append(r.pending, v)
	r.blameMissingInit(v)
}

// ending lists the ranks that are ending and have not been heard of, with the given one only if
// there are others.
func (r *run) exitingRanks(of *rank) []*rank {
	var all []*rank
	others := false
	for _, k := range r.ranks {
		if !k.exited && k.Exiting() {
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
func (r *run) othersExiting(but *rank) bool {
	if slices.ContainsFunc(r.exiting, func(k *rank) bool { return k != but && !k.exited }) {
		return true
	}
	return len(r.exitingRanks(but)) > 0
}

// settle chooses among the verdicts that are held once it knows enough.
func (r *run) chooseIfReady() {
	if len(r.pending) == 0 {
		return
	}
	for _, v := range r.pending {
		r.blameMissingInit(v)
	}
	r.exiting = slices.DeleteFunc(r.exiting, func(k *rank) bool { return k.exited })
	if !r.cfg.Remote && len(r.exiting) == 0 && slices.ContainsFunc(r.pending, func(v *failure) bool { return v.priority > barrierFailed }) {
		r.chooseFailure()
	}
}

// waiting makes v the verdict on a rank that a barrier has failed, if its wire-up ended so.
func (v *failure) setBarrierError(brokenBy error) {
	if errors.As(brokenBy, &v.barrierErr) {
		v.line += fmt.Sprintf(" (%v)", v.barrierErr)
		v.priority = barrierFailed
	}
}

// passOn turns v against the rank that v's has waited for in vain, if that one never joined
// and has ended as if all were well: by itself this is no failure, since programs that do
// not use the library may be ranks too.
func (r *run) blameMissingInit(v *failure) {
	if v.barrierErr == nil || v.barrierErr.State != wireup.StateNeverInited {
		return
	}
	k := r.rank(v.barrierErr.Rank)
	if k == nil || !k.exited || !k.exit.OK() {
		return
	}
	v.rank, v.barrierErr, v.priority, v.status = k, nil, exited, 1
	v.line = r.rankName(k) + " exited with status 0, but without Init, which other ranks have called"
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
func (r *run) chooseFailure() {
	if v := r.rootCause(); v != nil {
		r.fail(v)
	}
}

// nearest is the verdict that is nearest to the cause of those held, nil if none is.
func (r *run) rootCause() *failure {
	if len(r.pending) == 0 {
		return nil
	}
	return slices.MinFunc(r.pending, compareFailures) // of equals the first
}

// nearer orders verdicts by how near they are to the cause: by weight, and those of equal
// weight as their ranks have ended. A process can be missed by others before it has ended
// altogether, hence follows.
func compareFailures(v, w *failure) int {
	if v.othersExiting != w.othersExiting && v.priority == w.priority {
		if v.othersExiting {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(w.priority, v.priority), compareExits(v.rank, w.rank))
}

// compareEnds orders ranks as they have ended. Of one host the order is known; of several it is that in which they were heard of.
func compareExits(k, l *rank) int {
	if k != nil && l != nil && k.exited && l.exited && k.host != l.host {
		return cmp.Compare(k.arrival, l.arrival)
	}
	return cmp.Compare(exitOrder(k), exitOrder(l))
}

// order is a rank's place among those that have ended; those that have not come last.
func exitOrder(k *rank) int {
	if k != nil && k.exited {
		return k.exitOrder
	}
	return math.MaxInt
}
