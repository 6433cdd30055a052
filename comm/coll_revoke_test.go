package comm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"

	"github.com/mpigo/mpigo/comm/internal/coll"
)

// These tests check for every collective that a wrong call of one rank has no bad effects: no rank
// hangs, nothing writes to buffers after their call has returned, the next collective works, and
// nothing is left behind.

// collBuffers are the buffers of a rank, of size·count+1 elements each.
type collBuffers struct {
	in, out []int64
	count   int
}

func newCollBuffers(w *Comm, count int) *collBuffers {
	n := w.Size()*count + 1
	return &collBuffers{make([]int64, n), make([]int64, n), count}
}

func (b *collBuffers) one(s []int64) []int64 { return s[:b.count] }

func (b *collBuffers) all(s []int64) []int64 { return s[:len(s)-1] }

func (b *collBuffers) counts() []int { return slices.Repeat([]int{b.count}, (len(b.in)-1)/b.count) }

// revocable is a collective.
type revocable struct {
	name   string
	rooted bool
	// needs says that no rank can finish it before every rank has called it.
	needs bool
	call  func(w *Comm, b *collBuffers, root int) error
	// refused are calls with bad arguments.
	refused []refusal
}

type refusal struct {
	name   string
	want   error
	atRoot bool // only the root can see it
	call   func(w *Comm, b *collBuffers, root int) error
}

func revocables() []revocable {
	newComm := func(c *Comm, err error) error {
		if err == nil && c != nil {
			err = c.Free()
		}
		return err
	}
	return []revocable{
		{name: "barrier", needs: true, call: func(w *Comm, b *collBuffers, root int) error { return w.Barrier() }},
		{name: "bcast", rooted: true, call: func(w *Comm, b *collBuffers, root int) error { return Bcast(w, b.one(b.out), root) },
			refused: []refusal{
				{"root", ErrRoot, false, func(w *Comm, b *collBuffers, root int) error { return Bcast(w, b.one(b.out), -1) }},
			}},
		{name: "reduce", rooted: true,
			call: func(w *Comm, b *collBuffers, root int) error { return Reduce(w, b.one(b.in), b.one(b.out), Sum, root) },
			refused: []refusal{
				{"root", ErrRoot, false, func(w *Comm, b *collBuffers, root int) error {
					return Reduce(w, b.one(b.in), b.one(b.out), Sum, w.Size())
				}},
				{"op", ErrOp, false, func(w *Comm, b *collBuffers, root int) error {
					return Reduce(w, b.one(b.in), b.one(b.out), nil, root)
				}},
				{"length", ErrCount, true, func(w *Comm, b *collBuffers, root int) error {
					return Reduce(w, b.one(b.in), b.out[:b.count+1], Sum, root)
				}},
				{"overlap", ErrBuffer, true, func(w *Comm, b *collBuffers, root int) error {
					return Reduce(w, b.one(b.in), b.one(b.in), Sum, root)
				}},
			}},
		{name: "allreduce", needs: true,
			call: func(w *Comm, b *collBuffers, root int) error { return Allreduce(w, b.one(b.in), b.one(b.out), Sum) },
			refused: []refusal{
				{"op", ErrOp, false, func(w *Comm, b *collBuffers, root int) error {
					return Allreduce(w, b.one(b.in), b.one(b.out), nil)
				}},
				{"length", ErrCount, false, func(w *Comm, b *collBuffers, root int) error {
					return Allreduce(w, b.one(b.in), b.out[:b.count+1], Sum)
				}},
				{"overlap", ErrBuffer, false, func(w *Comm, b *collBuffers, root int) error {
					return Allreduce(w, b.one(b.in), b.one(b.in), Sum)
				}},
			}},
		{name: "allreduce in order", needs: true, call: func(w *Comm, b *collBuffers, root int) error {
			return Allreduce(w, b.one(b.in), b.one(b.out), Sum, InRankOrder())
		}},
		{name: "scan",
			call: func(w *Comm, b *collBuffers, root int) error { return Scan(w, b.one(b.in), b.one(b.out), Sum) },
			refused: []refusal{
				{"op", ErrOp, false, func(w *Comm, b *collBuffers, root int) error { return Scan(w, b.one(b.in), b.one(b.out), nil) }},
				{"length", ErrCount, false, func(w *Comm, b *collBuffers, root int) error {
					return Scan(w, b.one(b.in), b.out[:b.count+1], Sum)
				}},
			}},
		{name: "exscan",
			call: func(w *Comm, b *collBuffers, root int) error { return Exscan(w, b.one(b.in), b.one(b.out), Sum) },
			refused: []refusal{
				{"op", ErrOp, false, func(w *Comm, b *collBuffers, root int) error {
					return Exscan(w, b.one(b.in), b.one(b.out), nil)
				}},
			}},
		{name: "gather", rooted: true,
			call: func(w *Comm, b *collBuffers, root int) error { return Gather(w, b.one(b.in), b.all(b.out), root) },
			refused: []refusal{
				{"root", ErrRoot, false, func(w *Comm, b *collBuffers, root int) error {
					return Gather(w, b.one(b.in), b.all(b.out), ProcNull)
				}},
				{"length", ErrCount, true, func(w *Comm, b *collBuffers, root int) error {
					return Gather(w, b.one(b.in), b.out, root)
				}},
			}},
		{name: "scatter", rooted: true,
			call: func(w *Comm, b *collBuffers, root int) error { return Scatter(w, b.all(b.in), b.one(b.out), root) },
			refused: []refusal{
				{"root", ErrRoot, false, func(w *Comm, b *collBuffers, root int) error {
					return Scatter(w, b.all(b.in), b.one(b.out), 99)
				}},
				{"length", ErrCount, true, func(w *Comm, b *collBuffers, root int) error {
					return Scatter(w, b.in, b.one(b.out), root)
				}},
			}},
		{name: "allgather", needs: true,
			call: func(w *Comm, b *collBuffers, root int) error { return Allgather(w, b.one(b.in), b.all(b.out)) },
			refused: []refusal{
				{"length", ErrCount, false, func(w *Comm, b *collBuffers, root int) error { return Allgather(w, b.one(b.in), b.out) }},
				{"overlap", ErrBuffer, false, func(w *Comm, b *collBuffers, root int) error {
					return Allgather(w, b.one(b.out), b.all(b.out))
				}},
			}},
		{name: "alltoall", needs: true,
			call: func(w *Comm, b *collBuffers, root int) error { return Alltoall(w, b.all(b.in), b.all(b.out)) },
			refused: []refusal{
				{"length", ErrCount, false, func(w *Comm, b *collBuffers, root int) error { return Alltoall(w, b.all(b.in), b.out) }},
				{"uneven", ErrCount, false, func(w *Comm, b *collBuffers, root int) error { return Alltoall(w, nil, b.out) }},
			}},
		{name: "alltoall in place", needs: true,
			call: func(w *Comm, b *collBuffers, root int) error { return Alltoall(w, nil, b.all(b.out)) }},
		{name: "reduce scatter", needs: true,
			call: func(w *Comm, b *collBuffers, root int) error {
				return ReduceScatter(w, b.all(b.in), b.one(b.out), b.counts(), Sum)
			},
			refused: []refusal{
				{"counts", ErrCount, false, func(w *Comm, b *collBuffers, root int) error {
					return ReduceScatter(w, b.all(b.in), b.one(b.out), b.counts()[1:], Sum)
				}},
				{"op", ErrOp, false, func(w *Comm, b *collBuffers, root int) error {
					return ReduceScatter(w, b.all(b.in), b.one(b.out), b.counts(), nil)
				}},
			}},
		{name: "reduce scatter block", needs: true,
			call: func(w *Comm, b *collBuffers, root int) error {
				return ReduceScatterBlock(w, b.all(b.in), b.one(b.out), Sum)
			},
			refused: []refusal{
				{"length", ErrCount, false, func(w *Comm, b *collBuffers, root int) error {
					return ReduceScatterBlock(w, b.in, b.one(b.out), Sum)
				}},
			}},
		{name: "gatherv", rooted: true,
			call: func(w *Comm, b *collBuffers, root int) error {
				return Gatherv(w, b.one(b.in), b.all(b.out), b.counts(), nil, root)
			},
			refused: []refusal{
				{"counts", ErrCount, true, func(w *Comm, b *collBuffers, root int) error {
					return Gatherv(w, b.one(b.in), b.all(b.out), b.counts()[1:], nil, root)
				}},
			}},
		{name: "scatterv", rooted: true,
			call: func(w *Comm, b *collBuffers, root int) error {
				return Scatterv(w, b.all(b.in), b.one(b.out), b.counts(), nil, root)
			},
			refused: []refusal{
				{"counts", ErrCount, true, func(w *Comm, b *collBuffers, root int) error {
					return Scatterv(w, b.all(b.in), b.one(b.out), b.counts(), []int{1}, root)
				}},
			}},
		{name: "allgatherv", needs: true,
			call: func(w *Comm, b *collBuffers, root int) error {
				return Allgatherv(w, b.one(b.in), b.all(b.out), b.counts(), nil)
			},
			refused: []refusal{
				{"counts", ErrCount, false, func(w *Comm, b *collBuffers, root int) error {
					return Allgatherv(w, b.one(b.in), b.all(b.out), nil, nil)
				}},
			}},
		{name: "alltoallv", needs: true,
			call: func(w *Comm, b *collBuffers, root int) error {
				return Alltoallv(w, b.all(b.in), b.counts(), nil, b.all(b.out), b.counts(), nil)
			},
			refused: []refusal{
				{"counts", ErrCount, false, func(w *Comm, b *collBuffers, root int) error {
					return Alltoallv(w, b.all(b.in), b.counts(), nil, b.all(b.out), nil, nil)
				}},
			}},
		{name: "alltoallv in place", needs: true,
			call: func(w *Comm, b *collBuffers, root int) error {
				return Alltoallv(w, nil, nil, nil, b.all(b.out), b.counts(), nil)
			}},
		{name: "split", needs: true,
			call: func(w *Comm, b *collBuffers, root int) error { return newComm(w.Split(0, 0)) },
			refused: []refusal{
				{"colour", ErrCount, false, func(w *Comm, b *collBuffers, root int) error { return newComm(w.Split(-9, 0)) }},
			}},
		{name: "dup", needs: true, call: func(w *Comm, b *collBuffers, root int) error { return newComm(w.Dup()) }},
	}
}

// revokeTuning makes short buffers take the algorithms of long ones.
var revokeTuning = &coll.Tuning{
	BcastTreeBytes: 64, ReduceTreeBytes: 64, AllreduceDoublingBytes: 64, ScanDoublingBytes: 64,
	GatherTreeBytes: 64, GatherTreeRanks: 3, AllgatherBruckBytes: 128, AlltoallBruckBytes: 32, AlltoallBruckRanks: 3,
	AlltoallFlightBytes: 1000, PieceBytes: 128, FlatRanks: 5, FlatBytes: 256,
}

// revokeSizes are lengths in elements on both sides of each threshold of revokeTuning, for some
// number of ranks.
var revokeSizes = []int{1, 6, 12, 50, 160}

// scene makes a collective call in which something goes wrong at one rank. It writes to the buffers
// afterwards, which are the user's then. Their contents must not change.
func scene(w *Comm, count int, act func(b *collBuffers) error) (*collBuffers, error) {
	b := newCollBuffers(w, count)
	err := act(b)
	for i := range b.in {
		b.in[i], b.out[i] = -77, -78
	}
	return b, err
}

// after checks that the next collective works, and that nothing has written to the buffers of a
// scene. what names the scene in errors.
func (b *collBuffers) after(w *Comm, what string) error {
	n := w.Size()
	sum := make([]int64, 100)
	in := make([]int64, 100)
	for i := range in {
		in[i] = int64(w.Rank() + i)
	}
	if err := Allreduce(w, in, sum, Sum); err != nil {
		return fmt.Errorf("%s: the next collective: %w", what, err)
	}
	for i := range sum {
		if want := int64(n*(n-1)/2 + n*i); sum[i] != want {
			return fmt.Errorf("%s: the next collective: %d, not %d", what, sum[i], want)
		}
	}
	for i := range b.in {
		if b.in[i] != -77 || b.out[i] != -78 {
			return fmt.Errorf("%s: element %d was written to after the call", what, i)
		}
	}
	return nil
}

// CheckRefused has one rank make each collective with each kind of bad arguments. Each number of
// ranks takes a third of the lengths.
func CheckRefused(w *Comm) error {
	n := w.Size()
	for _, c := range revocables() {
		for k, f := range c.refused {
			for i, count := range revokeSizes {
				if (i+k+n)%3 != 0 {
					continue
				}
				root := (k + i) % n
				odd := (2*k + 3*i) % n
				if f.atRoot {
					odd = root
				}
				what := fmt.Sprintf("rank %d: %s: %s: %d elements, root %d, odd one %d", w.Rank(), c.name, f.name, count, root, odd)
				b, err := scene(w, count, func(b *collBuffers) error {
					if w.Rank() == odd {
						return f.call(w, b, root)
					}
					return c.call(w, b, root)
				})
				switch {
				case w.Rank() == odd:
					if !errors.Is(err, f.want) {
						return fmt.Errorf("%s: %w", what, err)
					}
				case err == nil && c.needs:
					return fmt.Errorf("%s: no error", what)
				case err != nil:
					want := fmt.Sprintf("rank %d gave up on this", odd)
					if err := isGivenUp(err, want, "its arguments were refused there"); err != nil {
						return fmt.Errorf("%s: %w", what, err)
					}
				}
				if err := b.after(w, what); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// isGivenUp checks the error of a rank whose collective another rank has revoked.
func isGivenUp(err error, texts ...string) error {
	e := (*Error)(nil)
	if !errors.Is(err, ErrComm) || !errors.As(err, &e) || e.Tag != Undefined {
		return fmt.Errorf("another error: %w", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			return fmt.Errorf("not %q: %w", text, err)
		}
	}
	return nil
}

// isDifferent checks the error of a rank after a mismatch of arguments.
func isDifferent(err error) error {
	e := (*Error)(nil)
	if err == nil || errors.As(err, &e) && e.Tag == Undefined &&
		(errors.Is(err, ErrComm) || errors.Is(err, ErrCount) || errors.Is(err, ErrTruncate)) {
		return nil
	}
	return fmt.Errorf("another error: %w", err)
}

// CheckDifferentLengths has one rank call each collective with another length than all others. Each
// number of ranks takes a fifth of the pairs of lengths.
func CheckDifferentLengths(w *Comm) error {
	n := w.Size()
	for k, c := range revocables() {
		for i, usual := range revokeSizes {
			for j, other := range revokeSizes {
				if i == j || (i+j+k+n)%5 != 0 {
					continue
				}
				root := (i + j) % n
				odd := (root + j%2) % n
				what := fmt.Sprintf("rank %d: %s: %d elements, %d at rank %d, root %d", w.Rank(), c.name, usual, other, odd, root)
				count := usual
				if w.Rank() == odd {
					count = other
				}
				b, err := scene(w, count, func(b *collBuffers) error { return c.call(w, b, root) })
				if err := isDifferent(err); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				if err := b.after(w, what); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// CheckDifferentRoots has one rank call with another root.
func CheckDifferentRoots(w *Comm) error {
	n := w.Size()
	for _, c := range revocables() {
		if !c.rooted {
			continue
		}
		for i, count := range revokeSizes {
			root := i % n
			odd := (root + i/2) % n
			what := fmt.Sprintf("rank %d: %s: %d elements, root %d but at rank %d", w.Rank(), c.name, count, root, odd)
			if w.Rank() == odd {
				root = (root + 1) % n
			}
			b, err := scene(w, count, func(b *collBuffers) error { return c.call(w, b, root) })
			if err := isDifferent(err); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if err := b.after(w, what); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckDifferentCalls has one rank make another collective.
func CheckDifferentCalls(w *Comm) error {
	all := revocables()
	for i, c := range all {
		other := all[(i*5+w.Size())%len(all)]
		count := revokeSizes[i%len(revokeSizes)]
		odd := i % w.Size()
		what := fmt.Sprintf("rank %d: %s of %d elements but %s at rank %d", w.Rank(), c.name, count, other.name, odd)
		call := c.call
		if w.Rank() == odd {
			call = other.call
		}
		b, err := scene(w, count, func(b *collBuffers) error { return call(w, b, 0) })
		if err := isDifferent(err); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := b.after(w, what); err != nil {
			return err
		}
	}
	return nil
}

// forEachRevoking runs body with each number of ranks and with two eager limits, and checks that
// nothing is left behind.
func forEachRevoking(t *testing.T, body func(w *Comm) error) {
	for n := 2; n <= 8; n++ {
		for _, eager := range []string{"1", "4K"} {
			t.Run(fmt.Sprintf("%d ranks, eager %s", n, eager), func(t *testing.T) {
				t.Parallel()
				var clean, left atomic.Int32
				require.NoError(t, RunLocal(n, func(w *Comm) error {
					defer hurry(w)()
					w.team.SetTuning(revokeTuning)
					if err := body(w); err != nil {
						return err
					}
					return leavesNothing(w, &clean, &left)
				}, WithSetting("pml.eager.bytes", eager)))
			})
		}
	}
}

// hurry lets a rank sleep only briefly, so that it soon probes for a mismatch.
func hurry(w *Comm) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				w.job.eng.Lock()
				w.job.eng.Wake()
				w.job.eng.Unlock()
			}
		}
	}()
	return func() { close(done) }
}

// leavesNothing waits until no rank has an operation under way or keeps a message.
func leavesNothing(w *Comm, clean, left *atomic.Int32) error {
	if err := w.Barrier(); err != nil {
		return err
	}
	n := int32(w.Size())
	rest := func() string {
		w.job.eng.Lock()
		defer w.job.eng.Unlock()
		w.job.eng.Poll()
		p := w.job.pml
		if p.Busy() == 0 && len(p.Pending()) == 0 && len(p.Unreceived()) == 0 && p.Stats().UnexpectedBytes == 0 {
			return ""
		}
		return fmt.Sprintf("busy %d, pending %v, not received %v, %d bytes", p.Busy(), p.Pending(), p.Unreceived(), p.Stats().UnexpectedBytes)
	}
	deadline := time.Now().Add(20 * time.Second)
	for counted := false; clean.Load() < n; runtime.Gosched() {
		what := rest()
		if what == "" && !counted {
			clean.Add(1)
			counted = true
		}
		if what != "" && time.Now().After(deadline) {
			return fmt.Errorf("rank %d: left behind: %s", w.Rank(), what)
		}
	}
	if what := rest(); what != "" {
		return fmt.Errorf("rank %d: left behind: %s", w.Rank(), what)
	}
	// No rank goes on before all have checked.
	for left.Add(1); left.Load() < n; runtime.Gosched() {
		rest()
	}
	return nil
}

func TestCollectiveRefusedByOneRankFailsEverywhere(t *testing.T) { forEachRevoking(t, CheckRefused) }

func TestCollectivesWithOtherLengthAtOneRankFail(t *testing.T) {
	forEachRevoking(t, CheckDifferentLengths)
}

func TestCollectivesWithOtherRootAtOneRankFail(t *testing.T) { forEachRevoking(t, CheckDifferentRoots) }

func TestOtherCollectiveAtOneRankFails(t *testing.T) { forEachRevoking(t, CheckDifferentCalls) }

// CheckRevokedCollectives makes every check of wrong calls, for a job of processes.
func CheckRevokedCollectives(w *Comm) error {
	defer hurry(w)()
	w.team.SetTuning(revokeTuning)
	return errors.Join(CheckRefused(w), CheckDifferentLengths(w), CheckDifferentRoots(w), CheckDifferentCalls(w))
}

// CallAll makes a communicator for each collective, calls desert, and then makes each collective in
// its communicator. It requires ErrProcFailed of each collective that needs all ranks. The others
// may only fail with that error.
func CallAll(w *Comm, desert func()) error {
	list := revocables()
	comms := make([]*Comm, len(list))
	for i := range list {
		var err error
		if comms[i], err = w.Dup(); err != nil {
			return err
		}
	}
	desert()
	for i, c := range list {
		err := c.call(comms[i], newCollBuffers(w, 1000), 0)
		if err == nil && c.needs || err != nil && !errors.Is(err, ErrProcFailed) {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// TestLengthsOnBothSidesOfDefaultThresholdsFail: with the default thresholds, one rank moves a
// vector in pieces and the others whole. Nothing is left behind when they have finished.
func TestLengthsOnBothSidesOfDefaultThresholdsFail(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 8} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			t.Parallel()
			var clean, left atomic.Int32
			require.NoError(t, RunLocal(n, func(w *Comm) error {
				defer hurry(w)()
				for _, counts := range [][2]int{{50_000, 100_000}, {100_000, 50_000}, {3 << 14, 7 << 14}, {2000, 9000}} {
					for k, name := range []string{"bcast", "reduce", "allreduce", "scan"} {
						odd := (k % 2) * (n - 1)
						what := fmt.Sprintf("rank %d: %s of %d elements, %d at rank %d", w.Rank(), name, counts[0], counts[1], odd)
						count := counts[b2i(w.Rank() == odd)]
						in, out := make([]int64, count), make([]int64, count)
						var err error
						switch name {
						case "bcast":
							err = Bcast(w, out, 0)
						case "reduce":
							err = Reduce(w, in, out, Sum, 0)
						case "allreduce":
							err = Allreduce(w, in, out, Sum)
						case "scan":
							err = Scan(w, in, out, Sum)
						}
						if err := isDifferent(err); err != nil {
							return fmt.Errorf("%s: %w", what, err)
						}
						if err := w.Barrier(); err != nil {
							return fmt.Errorf("%s: %w", what, err)
						}
					}
				}
				return leavesNothing(w, &clean, &left)
			}))
		})
	}
}

// TestCollectiveGivenUpByContextFailsEverywhere: the context of one rank ends while it waits for
// another one, which is late.
func TestCollectiveGivenUpByContextFailsEverywhere(t *testing.T) {
	forEachRevoking(t, func(w *Comm) error {
		n := w.Size()
		for i, c := range revocables() {
			count := revokeSizes[(i+n)%len(revokeSizes)]
			root, giver := i%n, (i/2)%n
			late := (giver + 1 + i%(n-1)) % n
			what := fmt.Sprintf("rank %d: %s of %d elements, root %d, given up by %d, %d is late", w.Rank(), c.name, count, root, giver, late)
			d, err := w.Dup()
			if err != nil {
				return err
			}
			d.team.SetTuning(revokeTuning)
			var b *collBuffers
			var calledOff bool
			switch w.Rank() {
			case giver:
				ctx, cancel := context.WithCancel(context.Background())
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					awaitPending(ctx, w)
					cancel()
				}()
				b, err = scene(d, count, func(b *collBuffers) error { return c.call(d.WithContext(ctx), b, root) })
				cancel()
				<-stopped
				calledOff = err != nil
				if calledOff && c.name == "dup" { // which ignores the context
					return fmt.Errorf("%s: %w", what, err)
				}
				if calledOff && !errors.Is(err, context.Canceled) {
					return fmt.Errorf("%s: %w", what, err)
				}
				err = nil
				if serr := Send(w, []int{b2i(calledOff)}, late, 0); serr != nil {
					return serr
				}
			case late:
				if c.name != "dup" {
					if _, err := Recv(w, []int{0}, giver, 0); err != nil {
						return err
					}
				}
				b, err = scene(d, count, func(b *collBuffers) error { return c.call(d, b, root) })
				if c.name == "dup" {
					if _, err := Recv(w, []int{0}, giver, 0); err != nil {
						return err
					}
				}
			default:
				b, err = scene(d, count, func(b *collBuffers) error { return c.call(d, b, root) })
			}
			if err != nil {
				if err := isGivenUp(err, fmt.Sprintf("rank %d gave up on this", giver), "it failed there"); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
			}
			if err := b.after(w, what); err != nil {
				return err
			}
			// The communicator is unfit if the collective was given up.
			told := []int{b2i(calledOff)}
			if err := Bcast(w, told, giver); err != nil {
				return err
			}
			err = d.Barrier()
			switch {
			case (told[0] != 0) != (err != nil):
				return fmt.Errorf("%s: given up: %v, and then %w", what, told[0] != 0, err)
			case err != nil && w.Rank() != giver:
				if err := isGivenUp(err, fmt.Sprintf("rank %d gave up on this barrier", giver), "unfit there"); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
			}
			if err := d.Free(); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestCollectiveWithoutDeadRankFails: one rank does not come. Ranks that wait for it learn that it
// is gone, and the others learn it from them.
func TestCollectiveWithoutDeadRankFails(t *testing.T) {
	for n := 2; n <= 8; n++ {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			t.Parallel()
			for i, c := range revocables() {
				count := revokeSizes[(i+n)%len(revokeSizes)]
				root, dead := i%n, (i/2)%n
				what := fmt.Sprintf("%s of %d elements, root %d, without %d", c.name, count, root, dead)
				var done atomic.Int32
				require.NoError(t, RunLocal(n, func(w *Comm) error {
					w.team.SetTuning(revokeTuning)
					if w.Rank() == dead {
						for done.Load() < int32(n-1) {
							runtime.Gosched() // it does nothing
						}
						return nil
					}
					defer done.Add(1)
					stop := loseOnWait(w, dead)
					defer stop()
					_, err := scene(w, count, func(b *collBuffers) error { return c.call(w, b, root) })
					switch {
					case err == nil && c.needs:
						return fmt.Errorf("%s: no error", what)
					case err != nil && !errors.Is(err, ErrProcFailed):
						return fmt.Errorf("%s: %w", what, err)
					}
					return nil
				}), what)
			}
		})
	}
}

// loseOnWait tells the rank of w that a rank is gone, once it waits for that rank.
func loseOnWait(w *Comm, dead int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	told := make(chan struct{})
	go func() {
		defer close(told)
		for waits := false; !waits; runtime.Gosched() {
			if ctx.Err() != nil {
				return
			}
			w.job.eng.Lock()
			for _, p := range w.job.pml.Pending() {
				waits = waits || p.Peer == dead
			}
			if waits {
				w.job.pml.Failed(w.job.modules[0], dead,
					&btl.Error{Rail: "test", Peer: dead, Class: btl.ClassPeerGone, Err: errors.New("killed")})
			}
			w.job.eng.Unlock()
		}
	}()
	return func() {
		cancel()
		<-told
	}
}
