package comm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

// setLastProposed sets the counter of the last context id that a rank has proposed.
func setLastProposed(w *Comm, counter uint64) {
	w.job.eng.Lock()
	defer w.job.eng.Unlock()
	last := reflect.ValueOf(w.job.pml).Elem().FieldByName("ids").FieldByName("proposed")
	*(*uint64)(unsafe.Pointer(last.UnsafeAddr())) = counter
}

// TestDupWithoutContextIDsFailsEverywhere: when one rank has no ids left, Dup and Split fail at all
// ranks, even if another rank would have given the id.
func TestDupWithoutContextIDsFailsEverywhere(t *testing.T) {
	run(t, 3, func(w *Comm) {
		if w.Rank() == 1 {
			setLastProposed(w, 1<<44-2) // of 3 ranks
		}
		last := must(w.Dup())
		for _, call := range []func() (*Comm, error){
			w.Dup, last.Dup,
			func() (*Comm, error) { return w.Split(w.Rank(), 0) },
			func() (*Comm, error) { return w.Split(Undefined, 0) },
			func() (*Comm, error) { return w.SplitHost(0) },
		} {
			c, err := call()
			assert.Nil(t, c)
			assert.ErrorIs(t, err, ErrComm)
			assert.ErrorContains(t, err, "context ids exhausted: rank 1 has none left")
		}
		check(errors.Join(last.Barrier(), last.Free(), w.Barrier()))
	})
}

// giveUpSplit calls Split at the last rank of w, which gives up after the ranks have exchanged
// their contributions. The other ranks then have the communicator. Before it gives up, it waits
// until each of them has sent a message in w, after messages in the new communicator.
func giveUpSplit(w, parent *Comm) {
	s := must(parent.begin(blocking, calls.Split, nil))
	defer parent.endCollective(s)
	must(parent.gatherMembers(s, calls.Split, splitMember{}))
	func() {
		w.job.eng.Unlock()
		defer w.job.eng.Lock()
		for r := range w.Size() - 1 {
			must(Recv(w, []int{0}, r, 1))
		}
		if strays(w) == "" {
			failf("no fragment is kept")
		}
	}()
	s.Revoke(coll.Failed)
}

// strays describes the fragments that a rank keeps for communicators that it does not have.
func strays(w *Comm) (found string) {
	for _, s := range locked(w, w.job.pml.Leftovers) {
		if strings.Contains(s, "unknown contexts") {
			found = s
		}
	}
	return found
}

// CheckRevoked gives up a Split at the last rank of w after the others have got the communicator,
// and checks every call there. freeParent frees the parent before the REVOKE arrives; deep makes
// the parent by two Dups. All ranks that wait get an error, and the rank that gave up keeps no
// fragment.
func CheckRevoked(w *Comm, freeParent, deep bool) {
	parent := must(w.Dup())
	if deep {
		parent = must(parent.Dup())
	}
	gone := w.Size() - 1
	if w.Rank() == gone {
		giveUpSplit(w, parent)
		awaitTrue(w, func() bool { return strays(w) == "" })
		check(errors.Join(parent.Free(), w.Barrier()))
		return
	}
	n := must(parent.Split(0, 0))
	// Operations that begin before the other rank gives up.
	var waiting []func() error
	begin := func(r request.Request, err error) {
		waiting = append(waiting, func() error {
			if err == nil {
				_, err = r.Wait()
			}
			return err
		})
	}
	for range 3 {
		check(Send(n, []int{1}, gone, 1))
	}
	begin(Issend(n, []int{1}, gone, 2))
	begin(Isend(n, make([]byte, 1<<20), gone, 2))
	begin(Irecv(n, []int{1}, gone, 2))
	begin(Irecv(n, []int{1}, AnySource, 2))
	started := must(RecvInit(n, []int{1}, gone, AnyTag))
	begin(started, started.Start())
	if freeParent {
		check(parent.Free())
	}
	check(Send(w, []int{1}, gone, 1))
	waiting = append(waiting,
		n.Barrier, n.Barrier,
		func() error { return Bcast(n, []int{1}, 0) },
		func() error { _, err := n.Dup(); return err },
		func() error { return Ssend(n, []int{1}, gone, 3) },
		func() error { return Send(n, []int{1}, gone, 3) },
		func() error { return Bsend(n, []int{1}, gone, 3) },
		func() error { _, err := Recv(n, []int{1}, gone, 3); return err },
		func() error { _, err := Recv(n, []int{1}, AnySource, 3); return err },
		func() error { _, err := n.Probe(gone, 3); return err },
		func() error { _, _, err := n.Iprobe(gone, 3); return err },
		func() error { begin(started, started.Start()); return waiting[len(waiting)-1]() },
	)
	for i, call := range slices.Clone(waiting) {
		if err := call(); !errors.Is(err, ErrComm) || !strings.Contains(err.Error(), fmt.Sprintf("the call that made it failed at rank %d", gone)) {
			failf("call %d: %w", i, err)
		}
	}
	// The other ranks go on.
	for r := range gone {
		me, in := n.Rank(), []int{-1}
		must(Sendrecv(n, []int{me}, (me+r)%gone, 4, in, (me+gone-r)%gone, 4))
		check(same("received", []int{(me + gone - r) % gone}, in))
	}
	if !freeParent {
		check(parent.Free())
	}
	check(errors.Join(started.Free(), n.Free(), w.Barrier()))
}

// TestSplitGivenUpRevokesCommunicator: a rank gives up a Split that the others have finished.
func TestSplitGivenUpRevokesCommunicator(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		for _, freeParent := range []bool{false, true} {
			for _, deep := range []bool{false, true} {
				run(t, n, func(w *Comm) { CheckRevoked(w, freeParent, deep) })
			}
		}
	}
}

// TestSplitGivenUpRevokesFreedCommunicator: the others have freed the communicator before the
// REVOKE arrives, but sends are under way.
func TestSplitGivenUpRevokesFreedCommunicator(t *testing.T) {
	run(t, 3, func(w *Comm) {
		if w.Rank() == 2 {
			giveUpSplit(w, w)
			awaitTrue(w, func() bool { return strays(w) == "" })
			return
		}
		n := must(w.Split(0, 0))
		assert.NoError(t, Send(n, []int{1}, 2, 1))
		s := must(Issend(n, []int{1}, 2, 1))
		check(errors.Join(n.Free(), Send(w, []int{1}, 2, 1)))
		_, err := s.Wait()
		assert.ErrorIs(t, err, ErrComm)
		assert.ErrorContains(t, err, "the call that made it failed at rank 2")
	})
}

// TestSplitGivenUpBeforeFinalizeEnds: the rank that gives up calls Finalize at once. So do the
// others, some with sends under way that no call waits for.
func TestSplitGivenUpBeforeFinalizeEnds(t *testing.T) {
	run(t, 3, func(w *Comm) {
		if w.Rank() == 2 {
			giveUpSplit(w, w)
			return
		}
		n := must(w.Split(0, 0))
		check(must(Issend(n, []int{1}, 2, 1)).Free())
		check(Send(w, []int{1}, 2, 1))
		if w.Rank() == 1 {
			assert.ErrorIs(t, n.Barrier(), ErrComm)
		}
	})
}

// SplitsGivenUp makes Splits in which the contexts of some ranks end at random moments. Every rank
// that gets a communicator uses it: it calls a barrier, and exchanges a message with each other
// member. Each call must end, with an error if and only if it needs a rank that has no
// communicator. SplitsGivenUp returns how many Splits ended unequally.
func SplitsGivenUp(w *Comm, rounds int, seed uint64) (unequal int) {
	rng := rand.New(rand.NewPCG(seed, uint64(w.Rank())))
	for i := range rounds {
		unequal += b2i(splitGivenUp(w, rng, i))
	}
	return unequal
}

func splitGivenUp(w *Comm, rng *rand.Rand, i int) (unequal bool) {
	parent, size := must(w.Dup()), w.Size()
	view := parent
	if rng.IntN(size) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(150))*time.Microsecond)
		defer cancel()
		view = parent.WithContext(ctx)
	}
	color, colors := 0, 1
	if i%3 == 0 && size > 3 {
		color, colors = w.Rank()%2, 2
	}
	freesFirst := rng.IntN(2) == 0
	n, split := view.Split(color, -w.Rank())
	if freesFirst || split != nil {
		check(parent.Free())
	}
	var barrier error
	var with []error // by rank
	if split == nil {
		with, barrier = useSplit(n, i%2 == 0)
		check(n.Free())
		if !freesFirst {
			check(parent.Free())
		}
	}
	// Which ranks have a communicator?
	has := make([]int, size)
	check(Allgather(w, []int{b2i(split == nil)}, has))
	for c := range colors {
		sum, members := 0, 0
		for r := range size {
			if r%colors == c {
				sum, members = sum+has[r], members+1
			}
		}
		unequal = unequal || sum > 0 && sum < members
	}
	if split != nil {
		if !errors.Is(split, context.DeadlineExceeded) && !errors.Is(split, ErrComm) {
			failf("split %d: %w", i, split)
		}
		return unequal
	}
	all := true
	for r, err := range with {
		// In the order of −rank, of this rank's colour.
		world := size - 1 - r
		if colors == 2 {
			world = w.Rank()%2 + 2*(len(with)-1-r)
		}
		all = all && has[world] == 1
		if has[world] == 1 && err != nil || has[world] == 0 && !errors.Is(err, ErrComm) {
			failf("split %d: with rank %d, which has %d: %w", i, r, has[world], err)
		}
	}
	if all && barrier != nil || !all && !errors.Is(barrier, ErrComm) {
		failf("split %d: barrier (%v have a communicator): %w", i, has, barrier)
	}
	return unequal
}

// SplitRounds is the number of Splits that a test makes: some of n, or the number in the
// environment.
func SplitRounds(n int) int {
	if more, err := strconv.Atoi(os.Getenv("MPIGO_TEST_SPLITS")); err == nil {
		return more
	}
	return race.Some(n)
}

// useSplit uses a communicator, and returns the errors of messages, by rank, and of the barrier.
func useSplit(n *Comm, barrierFirst bool) (with []error, barrier error) {
	me, size := n.Rank(), n.Size()
	with = make([]error, size)
	if barrierFirst {
		barrier = n.Barrier()
	}
	long := make([]int, 20_000)
	requests := make([][]request.Request, size)
	for r := range size {
		for tag, send := range []func() (request.Request, error){
			func() (request.Request, error) { return Issend(n, []int{me}, r, 0) },
			func() (request.Request, error) { return Isend(n, []int{me}, r, 1) },
			func() (request.Request, error) { return Isend(n, long, r, 2) },
		} {
			s, serr := send()
			v, verr := Irecv(n, make([]int, len(long)), r, tag)
			requests[r] = append(requests[r], s, v)
			with[r] = errors.Join(with[r], serr, verr)
		}
	}
	for r, of := range requests {
		for _, req := range of {
			_, err := req.Wait()
			with[r] = errors.Join(with[r], err)
		}
	}
	if !barrierFirst {
		barrier = n.Barrier()
	}
	return with, barrier
}

// TestSplitsGivenUpAtRandomMoments: another goroutine of each rank makes progress, or not.
func TestSplitsGivenUpAtRandomMoments(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		for _, driven := range []bool{false, true} {
			run(t, n, func(w *Comm) {
				rounds := SplitRounds(150)
				if driven {
					rounds /= 3 // because ranks are slow to get the lock
					ctx, cancel := context.WithCancel(context.Background())
					var other sync.WaitGroup
					other.Go(func() {
						for err := error(nil); err == nil; err = ctx.Err() {
							_, _, _ = w.Iprobe(AnySource, tagUB)
						}
					})
					defer other.Wait()
					defer cancel()
				}
				if unequal := SplitsGivenUp(w, rounds, 7); w.Rank() == 0 {
					t.Logf("%d ranks, driven=%v: %d unequal", n, driven, unequal)
				}
			})
		}
	}
}

// TestSplitRefusedByOneRankRevokesCommunicator: one rank refuses the context id of a communicator
// that the others get.
func TestSplitRefusedByOneRankRevokesCommunicator(t *testing.T) {
	run(t, 3, func(w *Comm) {
		if w.Rank() == 1 { // it has a context with this id already
			w.job.eng.Lock()
			w.job.pml.AddContext(1<<45|1<<20, w.members, 1, (*owner)(w.state))
			w.job.eng.Unlock()
		}
		check(w.Barrier())
		if w.Rank() == 0 {
			setLastProposed(w, 1<<19-1)
		}
		n, err := w.Split(0, 0)
		if w.Rank() == 1 {
			assert.ErrorContains(t, err, "in use")
		}
		if err != nil || w.Rank() == 1 {
			assert.ErrorIs(t, err, ErrComm)
		} else {
			assert.ErrorIs(t, n.Barrier(), ErrComm)
			assert.ErrorIs(t, Ssend(n, []int{1}, 1, 0), ErrComm)
		}
		check(w.Barrier())
	})
}
