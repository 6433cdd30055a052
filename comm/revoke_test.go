package comm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"

	"github.com/mpigo/mpigo/comm/internal/coll"
)

// giveUpSplit calls Split at a rank that gives up after the ranks have exchanged their
// contributions. Before it gives up it calls meanwhile.
func giveUpSplit(c *Comm, color int, meanwhile func() error) error {
	s, err := c.begin("split", nil)
	if err != nil {
		return err
	}
	defer c.endCollective(s)
	if _, err := c.gatherMembers(s, splitMember{color: color}); err != nil {
		return err
	}
	c.job.eng.Unlock()
	err = meanwhile()
	c.job.eng.Lock()
	s.Revoke(coll.Failed)
	return err
}

// strays describes the fragments that a rank keeps for communicators that it does not have.
func strays(w *Comm) (found string) {
	w.job.eng.Lock()
	defer w.job.eng.Unlock()
	for _, s := range w.job.pml.Leftovers() {
		if strings.Contains(s, "unknown contexts") {
			found = s
		}
	}
	return found
}

// CheckRevoked has the last rank of w give up a Split by which the others have got a communicator,
// and checks every call there. freeParent frees the parent before the others hear of it; deep makes
// the parent by two Dups. All ranks that wait get an error, and nothing stays at the rank that gave
// up.
func CheckRevoked(w *Comm, freeParent, deep bool) error {
	parent, err := w.Dup()
	if err != nil {
		return err
	}
	if deep {
		if parent, err = parent.Dup(); err != nil {
			return err
		}
	}
	gone := w.Size() - 1
	if w.Rank() == gone {
		err := giveUpSplit(parent, 0, func() error {
			for r := range gone { // all have the communicator, and have begun to use it
				if _, err := Recv(w, []int{0}, r, 1); err != nil {
					return err
				}
			}
			if strays(w) == "" {
				return errors.New("nothing is parked")
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := awaitTrue(w, func() bool { return strays(w) == "" }); err != nil {
			return err
		}
		return errors.Join(parent.Free(), w.Barrier())
	}
	n, err := parent.Split(0, 0)
	if err != nil {
		return err
	}
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
		if err := Send(n, []int{1}, gone, 1); err != nil {
			return err
		}
	}
	begin(Issend(n, []int{1}, gone, 2))
	begin(Isend(n, make([]byte, 1<<20), gone, 2))
	begin(Irecv(n, []int{1}, gone, 2))
	begin(Irecv(n, []int{1}, AnySource, 2))
	started, err := RecvInit(n, []int{1}, gone, AnyTag)
	if err != nil {
		return err
	}
	begin(started, started.Start())
	if freeParent {
		if err := parent.Free(); err != nil {
			return err
		}
	}
	if err := Send(w, []int{1}, gone, 1); err != nil {
		return err
	}
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
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	// The other ranks go on.
	me := n.Rank()
	for r := range gone {
		in := []int{-1}
		if _, err := Sendrecv(n, []int{me}, (me+r)%gone, 4, in, (me+gone-r)%gone, 4); err != nil || in[0] != (me+gone-r)%gone {
			return fmt.Errorf("with rank %d: got %d, %w", r, in[0], err)
		}
	}
	if !freeParent {
		err = parent.Free()
	}
	return errors.Join(err, started.Free(), n.Free(), w.Barrier())
}

// TestSplitGivenUpRevokesCommunicator: a rank gives up a Split that the others have finished.
func TestSplitGivenUpRevokesCommunicator(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		for _, freeParent := range []bool{false, true} {
			for _, deep := range []bool{false, true} {
				require.NoError(t, RunLocal(n, func(w *Comm) error { return CheckRevoked(w, freeParent, deep) }),
					"%d ranks, freeParent=%v, deep=%v", n, freeParent, deep)
			}
		}
	}
}

// TestSplitGivenUpRevokesFreedCommunicator: the others have freed the communicator before they hear
// of it, but sends are under way.
func TestSplitGivenUpRevokesFreedCommunicator(t *testing.T) {
	require.NoError(t, RunLocal(3, func(w *Comm) error {
		if w.Rank() == 2 {
			err := giveUpSplit(w, 0, func() error {
				for r := range 2 {
					if _, err := Recv(w, []int{0}, r, 1); err != nil {
						return err
					}
				}
				assert.NotEmpty(t, strays(w))
				return nil
			})
			return errors.Join(err, awaitTrue(w, func() bool { return strays(w) == "" }))
		}
		n, err := w.Split(0, 0)
		if err != nil {
			return err
		}
		assert.NoError(t, Send(n, []int{1}, 2, 1))
		s, err := Issend(n, []int{1}, 2, 1)
		if err != nil {
			return err
		}
		if err := errors.Join(n.Free(), Send(w, []int{1}, 2, 1)); err != nil {
			return err
		}
		_, err = s.Wait()
		assert.ErrorIs(t, err, ErrComm)
		assert.ErrorContains(t, err, "the call that made it failed at rank 2")
		return nil
	}))
}

// TestSplitGivenUpBeforeFinalizeEnds: the rank that gives up calls Finalize at once. So do the
// others, some with sends under way that no call waits for.
func TestSplitGivenUpBeforeFinalizeEnds(t *testing.T) {
	require.NoError(t, RunLocal(3, func(w *Comm) error {
		if w.Rank() == 2 {
			return giveUpSplit(w, 0, func() error {
				for r := range 2 {
					if _, err := Recv(w, []int{0}, r, 1); err != nil {
						return err
					}
				}
				return nil
			})
		}
		n, err := w.Split(0, 0)
		if err != nil {
			return err
		}
		s, err := Issend(n, []int{1}, 2, 1)
		if err != nil {
			return err
		}
		if err := errors.Join(s.Free(), Send(w, []int{1}, 2, 1)); err != nil {
			return err
		}
		if w.Rank() == 1 {
			assert.ErrorIs(t, n.Barrier(), ErrComm)
		}
		return nil
	}))
}

// SplitsGivenUp makes Splits in which the contexts of some ranks end at random moments. Every rank
// that gets a communicator uses it: it calls a barrier, and exchanges a message with each other
// member. Each call must end, with an error if and only if it needs a rank that has no
// communicator. SplitsGivenUp returns how many Splits ended unequally.
func SplitsGivenUp(w *Comm, rounds int, seed uint64) (unequal int, err error) {
	rng := rand.New(rand.NewPCG(seed, uint64(w.Rank())))
	for i := range rounds {
		u, err := splitGivenUp(w, rng, i)
		if err != nil {
			return 0, fmt.Errorf("split %d: %w", i, err)
		}
		if u {
			unequal++
		}
	}
	return unequal, nil
}

func splitGivenUp(w *Comm, rng *rand.Rand, i int) (unequal bool, err error) {
	parent, err := w.Dup()
	if err != nil {
		return false, err
	}
	view, size := parent, w.Size()
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
		if err := parent.Free(); err != nil {
			return false, err
		}
	}
	var used *splitUse
	if split == nil {
		used = useSplit(n, i%2 == 0)
		if err := n.Free(); err != nil {
			return false, err
		}
		if !freesFirst {
			if err := parent.Free(); err != nil {
				return false, err
			}
		}
	}
	// Which ranks have a communicator?
	has := make([]int, size)
	mine := []int{0}
	if split == nil {
		mine[0] = 1
	}
	if err := Allgather(w, mine, has); err != nil {
		return false, err
	}
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
			return false, split
		}
		return unequal, nil
	}
	all := true
	for r, err := range used.with {
		// In the order of −rank, of this rank's colour.
		world := size - 1 - r
		if colors == 2 {
			world = w.Rank()%2 + 2*(len(used.with)-1-r)
		}
		all = all && has[world] == 1
		if has[world] == 1 && err != nil || has[world] == 0 && !errors.Is(err, ErrComm) {
			return false, fmt.Errorf("with rank %d, which has %d: %w", r, has[world], err)
		}
	}
	if all && used.barrier != nil || !all && !errors.Is(used.barrier, ErrComm) {
		return false, fmt.Errorf("barrier (%v have one): %w", has, used.barrier)
	}
	return unequal, nil
}

// SplitRounds is how many Splits a test makes: n, or the number in the environment.
func SplitRounds(n int) int {
	if more, err := strconv.Atoi(os.Getenv("MPIGO_TEST_SPLITS")); err == nil {
		return more
	}
	return n
}

// splitUse has the results of using a communicator.
type splitUse struct {
	barrier error
	with    []error // by rank
}

func useSplit(n *Comm, barrierFirst bool) *splitUse {
	u := &splitUse{with: make([]error, n.Size())}
	if barrierFirst {
		u.barrier = n.Barrier()
	}
	me, size := n.Rank(), n.Size()
	long := make([]int, 20_000)
	var requests [][]request.Request
	for r := range size {
		var of []request.Request
		for tag, send := range []func() (request.Request, error){
			func() (request.Request, error) { return Issend(n, []int{me}, r, 0) },
			func() (request.Request, error) { return Isend(n, []int{me}, r, 1) },
			func() (request.Request, error) { return Isend(n, long, r, 2) },
		} {
			s, serr := send()
			v, verr := Irecv(n, make([]int, len(long)), r, tag)
			of = append(of, s, v)
			u.with[r] = errors.Join(u.with[r], serr, verr)
		}
		requests = append(requests, of)
	}
	for r, of := range requests {
		for _, req := range of {
			_, err := req.Wait()
			u.with[r] = errors.Join(u.with[r], err)
		}
	}
	if !barrierFirst {
		u.barrier = n.Barrier()
	}
	return u
}

// TestSplitsGivenUpAtRandomMoments: another goroutine of each rank makes progress, or not.
func TestSplitsGivenUpAtRandomMoments(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		for _, driven := range []bool{false, true} {
			var unequal atomic.Int64
			require.NoError(t, RunLocal(n, func(w *Comm) error {
				if driven {
					ctx, cancel := context.WithCancel(context.Background())
					var other sync.WaitGroup
					other.Go(func() { _ = awaitTrue(w, func() bool { return ctx.Err() != nil }) })
					defer other.Wait()
					defer cancel()
				}
				rounds := SplitRounds(150)
				if driven { // because ranks are slow to get the lock
					rounds /= 3
				}
				u, err := SplitsGivenUp(w, rounds, 7)
				if w.Rank() == 0 {
					unequal.Store(int64(u))
				}
				return err
			}))
			t.Logf("%d ranks, driven=%v: %d unequal", n, driven, unequal.Load())
		}
	}
}

// TestSplitRefusedByOneRankRevokesCommunicator: one rank refuses the context id of a communicator
// that the others get.
func TestSplitRefusedByOneRankRevokesCommunicator(t *testing.T) {
	require.NoError(t, RunLocal(3, func(w *Comm) error {
		id := pml.ContextID(0)
		if w.Rank() == 1 { // it has a context with this id already
			w.job.eng.Lock()
			id = 1 << 20
			w.job.pml.AddContext(id, w.members, 1, (*owner)(w.state))
			w.job.eng.Unlock()
		}
		if err := w.Barrier(); err != nil {
			return err
		}
		if w.Rank() == 0 {
			setLastID(w, 1<<19-1)
		}
		n, err := w.Split(0, 0)
		if w.Rank() == 1 {
			assert.ErrorIs(t, err, ErrComm)
			assert.ErrorContains(t, err, "in use")
		} else if err == nil {
			assert.ErrorIs(t, n.Barrier(), ErrComm)
			assert.ErrorIs(t, Ssend(n, []int{1}, 1, 0), ErrComm)
		} else {
			assert.ErrorIs(t, err, ErrComm)
		}
		return w.Barrier()
	}))
}
