package job

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mpigo/mpigo/internal/wireup"
)

// failure is the reason why the job fails.
type failure struct {
	status   int
	line     string // message without "mpirun-go: "; "": none
	cause    error  // appended to line; its text is final only at report time; nil: none
	rank     *rank  // the rank at fault; nil: none
	priority priority
	// At the time of the failure another rank was exiting, and this one was not.
	othersExiting bool
	barrierErr    *wireup.BarrierError // of priority barrierFailed: the rank that left the barrier
}

// priority orders failures of ranks that fail together; the highest is nearest to the cause. When a
// process dies, its peers fail in turn, usually by an abort. Their failures may reach the launcher
// before the exit of the dead process does.
type priority int

const (
	barrierFailed priority = iota // the rank exited because another rank left a barrier
	followed                      // the rank aborted the job because another rank had failed
	aborted                       // the rank aborted the job
	exited                        // the rank exited, without an abort
	hostLost                      // a host was lost
)

// failed reports whether the job fails, even if the failure is still pending.
func (r *run) failed() bool { return r.failure != nil || len(r.pending) > 0 }

// addFailure fails the job for f, the failure of a rank or the loss of a host. f is pending, for at
// most rootCauseGrace, while other ranks are exiting whose exits have not been reported, or (for at
// most followedGrace, if it is an abort) if f itself says that another rank caused it. The ranks
// are not signalled during that time; otherwise the rank that caused the failure might appear to be
// killed by the signal.
//
// A rank whose death caused f is exiting already, because the rank of f cannot have noticed the
// death earlier. So if a rank aborts while all others are well, f is not delayed.
func (r *run) addFailure(f *failure) {
	if r.failure != nil {
		return
	}
	if r.cfg.Remote {
		r.addPending(f)
		return
	}
	if f.rank == nil {
		r.fail(f)
		return
	}
	running := !f.rank.exited && !f.rank.Exiting()
	if len(r.pending) == 0 {
		r.after(rootCauseGrace, r.chooseFailure)
		r.exiting = r.exitingRanks(f.rank)
	}
	f.othersExiting = running && r.othersExiting(f.rank)
	r.pending = append(r.pending, f)
	r.chooseIfReady()
}

// addPending makes f pending for remoteCauseGrace, which is long enough for reports about
// simultaneous exits on other hosts. The launcher cannot see which ranks are exiting there.
func (r *run) addPending(f *failure) {
	if len(r.pending) == 0 {
		r.after(remoteCauseGrace, r.chooseFailure)
	}
	r.pending = append(r.pending, f)
	r.blameMissingInit(f)
}

// exitingRanks lists the ranks that are exiting and whose exits have not been reported. It returns
// nil if failed is the only one.
func (r *run) exitingRanks(failed *rank) []*rank {
	var all []*rank
	others := false
	for _, k := range r.ranks {
		if !k.exited && k.Exiting() {
			all = append(all, k)
			others = others || k != failed
		}
	}
	if !others {
		return nil
	}
	return all
}

// othersExiting reports whether ranks other than failed are exiting whose exits have not been
// reported. It checks the ranks in r.exiting first, to avoid a look at all ranks: many ranks may
// fail together.
func (r *run) othersExiting(failed *rank) bool {
	if slices.ContainsFunc(r.exiting, func(k *rank) bool { return k != failed && !k.exited }) {
		return true
	}
	return len(r.exitingRanks(failed)) > 0
}

// chooseIfReady chooses the job's failure among the pending ones when no exit is awaited any more.
func (r *run) chooseIfReady() {
	if len(r.pending) == 0 {
		return
	}
	for _, f := range r.pending {
		r.blameMissingInit(f)
	}
	r.exiting = slices.DeleteFunc(r.exiting, func(k *rank) bool { return k.exited })
	if !r.cfg.Remote && len(r.exiting) == 0 && slices.ContainsFunc(r.pending, func(f *failure) bool { return f.priority > followed }) {
		r.chooseFailure()
	}
}

// setBarrierError gives f the priority barrierFailed if a failed barrier ended the rank's PMI
// connection.
func (f *failure) setBarrierError(connectionErr error) {
	if errors.As(connectionErr, &f.barrierErr) {
		f.line += fmt.Sprintf(" (%v)", f.barrierErr)
		f.priority = barrierFailed
	}
}

// blameMissingInit changes f to blame the rank that left the barrier, if that rank never called
// Init and exited with status 0. Such an exit alone is no failure, since programs that do not use
// the library may be ranks too.
func (r *run) blameMissingInit(f *failure) {
	if f.barrierErr == nil || f.barrierErr.State != wireup.StateNeverInited {
		return
	}
	k := r.rank(f.barrierErr.Rank)
	if k == nil || !k.exited || !k.exit.OK() {
		return
	}
	f.rank, f.barrierErr, f.priority, f.status = k, nil, exited, 1
	f.line = r.rankName(k) + " exited with status 0, but without Init, which other ranks have called"
}

// rank returns the rank with the given number, or nil if it has not started.
func (r *run) rank(number int) *rank {
	for _, k := range r.ranks {
		if k.Rank == number {
			return k
		}
	}
	return nil
}

// chooseFailure makes the pending failure that is nearest to the cause the job's failure.
func (r *run) chooseFailure() {
	if f := r.rootCause(); f != nil {
		r.fail(f)
	}
}

// rootCause returns the pending failure that is nearest to the cause, or nil if none is pending.
func (r *run) rootCause() *failure {
	if len(r.pending) == 0 {
		return nil
	}
	return slices.MinFunc(r.pending, compareFailures) // the first of equal ones
}

// compareFailures orders failures by their distance to the cause: by priority, then by the order of
// exits. Peers can notice the end of a process before its exit is complete, so a failure while
// another rank was exiting comes after one without.
func compareFailures(f, g *failure) int {
	if f.othersExiting != g.othersExiting && f.priority == g.priority {
		if f.othersExiting {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(g.priority, f.priority), compareExits(f.rank, g.rank))
}

// compareExits orders ranks by their exits. For ranks of one host the order is exact; for ranks of
// several hosts it is the order in which the exits were reported.
func compareExits(k, l *rank) int {
	if k != nil && l != nil && k.exited && l.exited && k.host != l.host {
		return cmp.Compare(k.arrival, l.arrival)
	}
	return cmp.Compare(exitOrder(k), exitOrder(l))
}

// exitOrder returns a rank's position in the order of exits. A rank that has not exited comes last.
func exitOrder(k *rank) int {
	if k != nil && k.exited {
		return k.exitOrder
	}
	return math.MaxInt
}
