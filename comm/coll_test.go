package comm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm/internal/coll"
)

// collSizes are the numbers of ranks that every algorithm is tested with.
var collSizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16}

// collTunings make each collective take each of its algorithms.
var collTunings = map[string]*coll.Tuning{
	"defaults": nil,
	"whole": { // every length is short
		BcastTreeBytes: 1 << 40, ReduceTreeBytes: 1 << 40, AllreduceDoublingBytes: 1 << 40, ScanDoublingBytes: 1 << 40,
		GatherTreeBytes: 1 << 40, AllgatherBruckBytes: 1 << 40, AlltoallBruckBytes: 1 << 40,
		AlltoallFlightBytes: 1 << 40, PieceBytes: 1 << 40,
	},
	"flat": {FlatRanks: 100, FlatBytes: 1 << 40, AlltoallFlightBytes: 1 << 40, PieceBytes: 1 << 40},
	"parts": { // every length is long, but fits in one piece
		BcastTreeBytes: -1, ReduceTreeBytes: -1, AllreduceDoublingBytes: -1, ScanDoublingBytes: -1,
		GatherTreeBytes: -1, AllgatherBruckBytes: -1, AlltoallBruckBytes: -1,
		AlltoallFlightBytes: 0, PieceBytes: 1 << 40,
	},
	"pieces": { // every vector is cut into small pieces
		BcastTreeBytes: -1, ReduceTreeBytes: -1, AllreduceDoublingBytes: -1, ScanDoublingBytes: -1,
		GatherTreeBytes: -1, AllgatherBruckBytes: -1, AlltoallBruckBytes: -1,
		AlltoallFlightBytes: 3000, PieceBytes: 40,
	},
}

// runColl runs body at n ranks and fails the test on an error.
func runColl(t testing.TB, n int, body func(w *Comm) error) {
	t.Helper()
	require.NoError(t, RunLocal(n, body))
}

// forEachTuning runs body for each size and tuning, in a communicator that has that tuning.
func forEachTuning(t *testing.T, body func(w *Comm) error) {
	for name, tuning := range collTunings {
		sizes := collSizes
		if tuning != nil {
			sizes = []int{1, 2, 3, 4, 5, 7, 8}
		}
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s %d ranks", name, n), func(t *testing.T) {
				runColl(t, n, func(w *Comm) error {
					w.team.SetTuning(tuning)
					return body(w)
				})
			})
		}
	}
}

// CheckCollectives makes every check of results, for a job of processes.
func CheckCollectives(w *Comm) error {
	return errors.Join(w.Barrier(), checkBcast(w), checkGather(w), checkScatter(w), checkAllgather(w), checkAlltoall(w),
		checkCollectivesOfStructs(w), checkReduce(w), checkAllreduce(w), checkAllreduceGivesTheSameBits(w),
		checkScan(w), checkReduceScatters(w), checkGathervAndScatterv(w), checkAllgatherv(w), checkAlltoallv(w))
}

// same returns an error unless got equals want.
func same[T comparable](what string, want, got []T) error {
	if slices.Equal(want, got) {
		return nil
	}
	if len(want) != len(got) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

// rootsOf lists the roots to test: all for a short buffer, and some for a long one.
func rootsOf(n, count int) []int {
	switch {
	case count > 1000:
		return []int{n / 2}
	case count > 100:
		return slices.Compact([]int{0, n / 2, n - 1})
	}
	roots := make([]int, n)
	for r := range roots {
		roots[r] = r
	}
	return roots
}

// countsFor lists the lengths to test, for a rank or for all ranks.
func countsFor(w *Comm) []int {
	counts := []int{0, 1, 7, 1000}
	tiny := w.team.Tuning().PieceBytes < 1000 // too many pieces would take too long
	if n := w.Size(); (n == 2 || n == 5) && !tiny {
		counts = append(counts, 100_000)
	}
	return counts
}

// mark is element i of the contribution of a rank.
func mark(rank, i int) int32 { return int32(rank*7919 + i*31 + 1) }

func marks(rank, count int) []int32 {
	s := make([]int32, count)
	for i := range s {
		s[i] = mark(rank, i)
	}
	return s
}

func TestBarrier(t *testing.T) {
	for _, n := range collSizes {
		var arrived atomic.Int64
		runColl(t, n, func(w *Comm) error {
			for round := range 20 {
				arrived.Add(1)
				if err := w.Barrier(); err != nil {
					return err
				}
				if got := int(arrived.Load()); got < (round+1)*n {
					return fmt.Errorf("%d ranks: past barrier %d when %d calls had been made", n, round, got)
				}
			}
			return nil
		})
	}
}

// TestCollectivesAndMessagesDoNotMix: collectives of one communicator match neither those of
// another one nor messages.
func TestCollectivesAndMessagesDoNotMix(t *testing.T) {
	runColl(t, 4, func(w *Comm) error {
		other, err := w.Dup()
		if err != nil {
			return err
		}
		next, before := (w.Rank()+1)%4, (w.Rank()+3)%4
		for i := range 50 {
			// The root runs ahead: bcasts do not wait for the ranks that receive.
			a, b := []int{i}, []int{-i}
			if w.Rank() != 0 {
				a[0], b[0] = 0, 0
			}
			if err := Send(w, []int{1000 + i}, next, 0); err != nil {
				return err
			}
			if w.Rank()%2 == 0 {
				err = errors.Join(Bcast(w, a, 0), Bcast(other, b, 0))
			} else {
				err = errors.Join(Bcast(other, b, 0), Bcast(w, a, 0))
			}
			if err != nil {
				return err
			}
			got := []int{0}
			if _, err := Recv(w, got, before, 0); err != nil {
				return err
			}
			if a[0] != i || b[0] != -i || got[0] != 1000+i {
				return fmt.Errorf("round %d: %d, %d, %d", i, a[0], b[0], got[0])
			}
		}
		return nil
	})
}

type notPlain struct {
	N    int
	Next *notPlain
}

// TestCollectiveWithBadArgumentsIsRefused: arguments are checked in the documented order before
// anything is sent, and the next collective works.
func TestCollectiveWithBadArgumentsIsRefused(t *testing.T) {
	var freed *Comm
	calls := []struct {
		name string
		want error
		text string
		call func(w *Comm) error
	}{
		{"type", ErrType, "field Next", func(w *Comm) error { return Bcast(freed, make([]notPlain, 1), 9) }},
		{"type of an empty slice", ErrType, "", func(w *Comm) error { return Allgather[string](w, nil, nil) }},
		{"nil communicator", ErrComm, "", func(w *Comm) error { return Bcast(freed, make([]int, 1), 9) }},
		{"nil communicator's barrier", ErrComm, "", func(w *Comm) error { return freed.Barrier() }},
		{"root over", ErrRoot, "3 is not in 0…2", func(w *Comm) error { return Bcast(w, make([]int, 1), 3) }},
		{"root negative", ErrRoot, "", func(w *Comm) error { return Gather(w, make([]int, 1), nil, -1) }},
		{"root before lengths", ErrRoot, "", func(w *Comm) error {
			return Scatter(w, make([]int, 1), make([]int, 7), ProcNull)
		}},
		{"reduce root", ErrRoot, "", func(w *Comm) error { return Reduce(w, make([]int, 1), make([]int, 2), Sum, 3) }},
		{"no operation", ErrOp, "", func(w *Comm) error { return Allreduce(w, make([]int, 1), make([]int, 1), nil) }},
		{"reduce without an operation", ErrOp, "", func(w *Comm) error {
			return Reduce(w, make([]int, 1), make([]int, 1), nil, 0)
		}},
		{"allreduce lengths", ErrCount, "out has 3 elements where 2 are due", func(w *Comm) error {
			return Allreduce(w, make([]int, 2), make([]int, 3), Sum)
		}},
		{"allreduce empty in", ErrCount, "", func(w *Comm) error { return Allreduce(w, []int{}, make([]int, 3), Sum) }},
		{"reduce lengths", ErrCount, "", func(w *Comm) error {
			return Reduce(w, make([]int, 2), make([]int, 3), Sum, w.Rank())
		}},
		{"gather lengths", ErrCount, "out has 5 elements where 6 are due", func(w *Comm) error {
			return Gather(w, make([]int, 2), make([]int, 5), w.Rank())
		}},
		{"gather in place, uneven", ErrCount, "no multiple of the 3 ranks", func(w *Comm) error {
			return Gather(w, nil, make([]int, 5), w.Rank())
		}},
		{"scatter lengths", ErrCount, "in has 5 elements where 6 are due", func(w *Comm) error {
			return Scatter(w, make([]int, 5), make([]int, 2), w.Rank())
		}},
		{"scatter in place, uneven", ErrCount, "", func(w *Comm) error {
			return Scatter(w, make([]int, 5), nil, w.Rank())
		}},
		{"allgather lengths", ErrCount, "", func(w *Comm) error { return Allgather(w, make([]int, 2), make([]int, 7)) }},
		{"allgather in place, uneven", ErrCount, "", func(w *Comm) error { return Allgather(w, nil, make([]int, 7)) }},
		{"alltoall lengths", ErrCount, "", func(w *Comm) error { return Alltoall(w, make([]int, 3), make([]int, 6)) }},
		{"alltoall uneven", ErrCount, "", func(w *Comm) error { return Alltoall(w, make([]int, 4), make([]int, 4)) }},
		{"alltoall in place, uneven", ErrCount, "", func(w *Comm) error { return Alltoall(w, nil, make([]int, 4)) }},
		{"scan lengths", ErrCount, "", func(w *Comm) error { return Scan(w, make([]int, 1), make([]int, 2), Sum) }},
		{"exscan without an operation", ErrOp, "", func(w *Comm) error { return Exscan(w, nil, make([]int, 2), nil) }},
		{"reduce scatter: counts", ErrCount, "2 counts for 3 ranks", func(w *Comm) error {
			return ReduceScatter(w, make([]int, 2), make([]int, 1), []int{1, 1}, Sum)
		}},
		{"reduce scatter: negative", ErrCount, "count of rank 1 is -1", func(w *Comm) error {
			return ReduceScatter(w, make([]int, 2), make([]int, 1), []int{1, -1, 2}, Sum)
		}},
		{"reduce scatter: huge", ErrCount, "", func(w *Comm) error {
			return ReduceScatter(w, make([]int, 2), make([]int, 1), []int{1, math.MaxInt / 8, math.MaxInt/8 + 1}, Sum)
		}},
		{"reduce scatter: in", ErrCount, "in has 4 elements where 3 are due", func(w *Comm) error {
			return ReduceScatter(w, make([]int, 4), make([]int, 1), []int{1, 1, 1}, Sum)
		}},
		{"reduce scatter: out", ErrCount, "out has 2 elements where 1 are due", func(w *Comm) error {
			return ReduceScatter(w, make([]int, 3), make([]int, 2), []int{1, 1, 1}, Sum)
		}},
		{"reduce scatter in place", ErrCount, "out has 1 elements where 3 are due", func(w *Comm) error {
			return ReduceScatter(w, nil, make([]int, 1), []int{1, 1, 1}, Sum)
		}},
		{"reduce scatter block", ErrCount, "", func(w *Comm) error {
			return ReduceScatterBlock(w, make([]int, 4), make([]int, 1), Sum)
		}},
		{"reduce scatter block, nil out", ErrCount, "", func(w *Comm) error {
			return ReduceScatterBlock(w, make([]int, 3), nil, Sum)
		}},
		{"reduce scatter block in place", ErrCount, "", func(w *Comm) error {
			return ReduceScatterBlock(w, nil, make([]int, 4), Sum)
		}},
		{"gatherv: counts", ErrCount, "0 counts of out for 3 ranks", func(w *Comm) error {
			return Gatherv(w, make([]int, 1), make([]int, 3), nil, nil, w.Rank())
		}},
		{"gatherv: displacements", ErrCount, "1 displacements of out", func(w *Comm) error {
			return Gatherv(w, make([]int, 1), make([]int, 3), []int{1, 1, 1}, []int{0}, w.Rank())
		}},
		{"gatherv: too far", ErrCount, "rank 2 has 1 elements at 3 of out, which has 3", func(w *Comm) error {
			return Gatherv(w, make([]int, 1), make([]int, 3), []int{1, 1, 1}, []int{0, 1, 3}, w.Rank())
		}},
		{"gatherv: far too far", ErrCount, "", func(w *Comm) error {
			return Gatherv(w, make([]int, 1), make([]int, 3), []int{1, math.MaxInt, 1}, []int{0, 1, 3}, w.Rank())
		}},
		{"gatherv: own part", ErrCount, "in has 2 elements where 1 are due", func(w *Comm) error {
			return Gatherv(w, make([]int, 2), make([]int, 3), []int{1, 1, 1}, nil, w.Rank())
		}},
		{"scatterv: before", ErrCount, "", func(w *Comm) error {
			return Scatterv(w, make([]int, 3), make([]int, 1), []int{1, 1, 1}, []int{0, -1, 1}, w.Rank())
		}},
		{"scatterv: own part", ErrCount, "", func(w *Comm) error {
			return Scatterv(w, make([]int, 3), make([]int, 2), []int{1, 1, 1}, nil, w.Rank())
		}},
		{"allgatherv: negative", ErrCount, "", func(w *Comm) error {
			return Allgatherv(w, make([]int, 1), make([]int, 3), []int{1, 1, -1}, nil)
		}},
		{"allgatherv of one buffer", ErrBuffer, "", func(w *Comm) error {
			buf := make([]int, 3)
			return Allgatherv(w, buf[w.Rank():w.Rank()+1], buf, []int{1, 1, 1}, nil)
		}},
		{"alltoallv: sends", ErrCount, "of in", func(w *Comm) error {
			return Alltoallv(w, make([]int, 2), []int{1, 1, 1}, nil, make([]int, 3), []int{1, 1, 1}, nil)
		}},
		{"alltoallv: receives", ErrCount, "of out", func(w *Comm) error {
			return Alltoallv(w, make([]int, 3), []int{1, 1, 1}, nil, make([]int, 2), []int{1, 1, 1}, nil)
		}},
		{"alltoallv to itself", ErrCount, "expects 2", func(w *Comm) error {
			counts := []int{1, 1, 1}
			counts[w.Rank()] = 2
			return Alltoallv(w, make([]int, 3), []int{1, 1, 1}, nil, make([]int, 4), counts, nil)
		}},
		{"allreduce of one buffer", ErrBuffer, "overlap", func(w *Comm) error {
			buf := make([]int, 4)
			return Allreduce(w, buf[:3], buf[1:], Sum)
		}},
		{"gather into its own part", ErrBuffer, "pass nil for in place", func(w *Comm) error {
			buf := make([]int, 3)
			return Gather(w, buf[w.Rank():w.Rank()+1], buf, w.Rank())
		}},
		{"alltoall of one buffer", ErrBuffer, "", func(w *Comm) error {
			buf := make([]int, 3)
			return Alltoall(w, buf, buf)
		}},
	}
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			errs := make([]error, 3)
			runColl(t, 3, func(w *Comm) error {
				errs[w.Rank()] = c.call(w)
				return w.Barrier()
			})
			for _, err := range errs {
				assert.ErrorIs(t, err, c.want)
				assert.ErrorContains(t, err, c.text)
				e := new(Error)
				require.ErrorAs(t, err, &e)
				assert.Equal(t, Undefined, e.Tag)
			}
		})
	}
}

func TestCollectiveAfterFreeOrFinalizeFails(t *testing.T) {
	runColl(t, 2, func(w *Comm) error {
		d, err := w.Dup()
		if err != nil {
			return err
		}
		if err := d.Free(); err != nil {
			return err
		}
		if err := d.Barrier(); !errors.Is(err, ErrComm) {
			return fmt.Errorf("after free: %v", err)
		}
		if err := w.Finalize(); err != nil {
			return err
		}
		if err := w.Barrier(); !errors.Is(err, ErrFinalized) {
			return fmt.Errorf("after finalize: %v", err)
		}
		return nil
	})
}

// TestMismatchWithCallWithoutBuffersNamesTheCall: the error of a call without slices says that the
// calls differ, and not that lengths do.
func TestMismatchWithCallWithoutBuffersNamesTheCall(t *testing.T) {
	for name, bare := range map[string]func(w *Comm) error{
		"barrier": (*Comm).Barrier,
		"dup":     func(w *Comm) error { _, err := w.Dup(); return err },
		"split":   func(w *Comm) error { _, err := w.Split(0, 0); return err },
	} {
		for _, odd := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s at rank %d", name, odd), func(t *testing.T) {
				errs := make([]error, 3)
				runColl(t, 3, func(w *Comm) error {
					if w.Rank() == odd {
						errs[odd] = bare(w)
					} else {
						errs[w.Rank()] = Allreduce(w, nil, []int{1}, Sum)
					}
					return w.Barrier()
				})
				assert.ErrorIs(t, errs[odd], ErrComm)
				assert.NotErrorIs(t, errs[odd], ErrCount)
				assert.NotContains(t, errs[odd].Error(), "slices")
				assert.Regexp(t, `rank \d (is in another collective|gave up on this .*: its arguments)`, errs[odd].Error())
			})
		}
	}
}

// TestMismatchIsReportedWhereItIsSeen: arguments that differ between ranks are an error at the
// ranks that can see it. No rank hangs, and the communicator stays fit.
func TestMismatchIsReportedWhereItIsSeen(t *testing.T) {
	calls := []struct {
		name string
		// fails says at which ranks there must be an error. At other ranks there may be one.
		fails func(rank int) bool
		call  func(w *Comm, odd bool) error
	}{
		{"bcast longer at the root", func(r int) bool { return r == 1 || r == 2 }, func(w *Comm, odd bool) error {
			return Bcast(w, make([]int, 2+3*b2i(w.Rank() == 0)), 0)
		}},
		{"bcast shorter at the root", func(r int) bool { return r == 1 || r == 2 }, func(w *Comm, odd bool) error {
			return Bcast(w, make([]int, 5-3*b2i(w.Rank() == 0)), 0)
		}},
		{"allreduce", func(r int) bool { return r == 2 }, func(w *Comm, odd bool) error {
			return Allreduce(w, make([]int, 1+b2i(odd)), make([]int, 1+b2i(odd)), Sum)
		}},
		{"reduce", func(r int) bool { return r == 0 }, func(w *Comm, odd bool) error {
			return Reduce(w, make([]int, 1+b2i(odd)), make([]int, 1+b2i(odd)), Sum, 0)
		}},
		{"gather long", func(r int) bool { return r == 0 }, func(w *Comm, odd bool) error {
			n := 5000 + b2i(odd)
			return Gather(w, make([]int, n), make([]int, n*w.Size()), 0)
		}},
		{"gather", func(r int) bool { return r == 0 }, func(w *Comm, odd bool) error {
			n := 2 + b2i(odd)
			return Gather(w, make([]int, n), make([]int, n*w.Size()), 0)
		}},
		{"scatter", func(r int) bool { return r == 2 }, func(w *Comm, odd bool) error {
			n := 2 + b2i(odd)
			return Scatter(w, make([]int, n*w.Size()), make([]int, n), 0)
		}},
		{"allgather", func(r int) bool { return r == 2 }, func(w *Comm, odd bool) error {
			n := 2 + b2i(odd)
			return Allgather(w, make([]int, n), make([]int, n*w.Size()))
		}},
		{"alltoall", func(r int) bool { return r == 2 }, func(w *Comm, odd bool) error {
			n := 2 + b2i(odd)
			return Alltoall(w, make([]int, n*w.Size()), make([]int, n*w.Size()))
		}},
		{"alltoall long", func(r int) bool { return r == 2 }, func(w *Comm, odd bool) error {
			n := 50_000 + b2i(odd)
			return Alltoall(w, make([]int, n*w.Size()), make([]int, n*w.Size()))
		}},
		{"alltoall in place", func(r int) bool { return r == 2 }, func(w *Comm, odd bool) error {
			n := 2 + b2i(odd)
			return Alltoall(w, nil, make([]int, n*w.Size()))
		}},
		{"scan", func(r int) bool { return r == 2 || r == 3 }, func(w *Comm, odd bool) error {
			return Scan(w, nil, make([]int, 2+b2i(odd)), Sum)
		}},
		{"reduce scatter", func(r int) bool { return r == 2 }, func(w *Comm, odd bool) error {
			return ReduceScatterBlock(w, nil, make([]int, (2+b2i(odd))*w.Size()), Sum)
		}},
		{"gatherv", func(r int) bool { return r == 0 }, func(w *Comm, odd bool) error {
			return Gatherv(w, make([]int, 2+b2i(odd)), make([]int, 12), []int{2, 2, 2, 2, 2, 2}, nil, 0)
		}},
		{"allgatherv", func(r int) bool { return r == 2 }, func(w *Comm, odd bool) error {
			counts := []int{0, 1, 2, 3, 4, 5}
			counts[0] += b2i(odd)
			return Allgatherv(w, nil, make([]int, 20), counts, nil)
		}},
		{"alltoallv", func(r int) bool { return r == 2 }, func(w *Comm, odd bool) error {
			counts := []int{2, 2, 2, 2, 2, 2}
			counts[0] += b2i(odd)
			return Alltoallv(w, make([]int, 20), counts, nil, make([]int, 20), counts, nil)
		}},
		{"long allreduce", func(r int) bool { return r == 2 }, func(w *Comm, odd bool) error {
			n := 100_000 + 9*b2i(odd)
			return Allreduce(w, nil, make([]int, n), Sum)
		}},
		{"a barrier that is a bcast for one", func(r int) bool { return false }, func(w *Comm, odd bool) error {
			if odd {
				return Bcast(w, make([]int, 1), 2)
			}
			return w.Barrier()
		}},
	}
	const n = 6
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			errs := make([]error, n)
			runColl(t, n, func(w *Comm) error {
				errs[w.Rank()] = c.call(w, w.Rank() == 2)
				return w.Barrier()
			})
			for rank, err := range errs {
				if err != nil && !errors.Is(err, ErrComm) {
					assert.ErrorIs(t, err, ErrCount)
					assert.Regexp(t, `rank \d sent`, err.Error())
				} else if err != nil {
					assert.Regexp(t, `rank \d (gave up on this|has finished this|counts|is in another)`, err.Error())
				}
				if c.fails(rank) {
					assert.Error(t, err, "rank %d", rank)
				}
			}
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestCollectiveThatGivesUpMakesCommunicatorUnfit: calls of other ranks that wait for it end, and
// so do later collectives.
func TestCollectiveThatGivesUpMakesCommunicatorUnfit(t *testing.T) {
	const n = 5
	for _, count := range []int{1, 50_000} {
		runColl(t, n, func(w *Comm) error {
			d, err := w.Dup()
			if err != nil {
				return err
			}
			buf := make([]int, count)
			switch w.Rank() {
			case 1:
				// The others cannot finish without rank 0, which is late.
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				go func() {
					awaitPending(ctx, w) // otherwise the call would not count
					cancel()
				}()
				err = Allreduce(d.WithContext(ctx), nil, buf, Sum)
				if !errors.Is(err, context.Canceled) {
					return fmt.Errorf("the one that gave up: %v", err)
				}
				if err := Send(w, []int{1}, 0, 5); err != nil {
					return err
				}
				for range 3 {
					if err := Allreduce(d, nil, buf, Sum); !errors.Is(err, ErrComm) {
						return fmt.Errorf("after giving up: %v", err)
					}
				}
				if err := d.Barrier(); !errors.Is(err, ErrComm) {
					return fmt.Errorf("after giving up: %v", err)
				}
				if _, err := d.Dup(); !errors.Is(err, ErrComm) {
					return fmt.Errorf("after giving up: %v", err)
				}
			case 0:
				if _, err := Recv(w, []int{0}, 1, 5); err != nil {
					return err
				}
				fallthrough
			default:
				for i := range 4 {
					if err := Allreduce(d, nil, buf, Sum); err == nil {
						return fmt.Errorf("allreduce %d without rank 1 succeeded", i)
					}
				}
			}
			return w.Barrier()
		})
	}
}

func TestCollectiveWithEndedContextDoesNotCount(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	runColl(t, 3, func(w *Comm) error {
		if w.Rank() == 1 {
			if err := w.WithContext(ctx).Barrier(); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("ended context: %v", err)
			}
		}
		return w.Barrier()
	})
}

// TestSecondCollectiveAtOnceFails: two goroutines may be in collectives of two communicators at
// once, but not of one.
func TestSecondCollectiveAtOnceFails(t *testing.T) {
	runColl(t, 2, func(w *Comm) error {
		d, err := w.Dup()
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			if _, err := Recv(w, []int{0}, 0, 0); err != nil {
				return err
			}
			return errors.Join(w.Barrier(), d.Barrier())
		}
		done := make(chan error, 2)
		go func() { done <- w.Barrier() }()
		for busy := false; !busy; {
			w.job.eng.Lock()
			busy = w.team.Running() != nil
			w.job.eng.Unlock()
		}
		go func() { done <- d.Barrier() }()
		if err := w.Barrier(); !errors.Is(err, ErrComm) {
			return fmt.Errorf("second collective at once: %v", err)
		}
		if err := Send(w, []int{0}, 1, 0); err != nil {
			return err
		}
		return errors.Join(<-done, <-done)
	})
}

// TestSmallCollectivesAllocateNothing: that holds once the first of their kind has run.
func TestSmallCollectivesAllocateNothing(t *testing.T) {
	const rounds = 60
	ones := []int{1, 1, 1, 1}
	for _, n := range []int{1, 2, 3, 4} {
		in, all := make([][]int64, n), make([][]int64, n)
		for r := range n {
			in[r], all[r] = make([]int64, 1), make([]int64, n)
		}
		calls := map[string]func(w *Comm) error{
			"barrier": func(w *Comm) error { return w.Barrier() },
			"bcast":   func(w *Comm) error { return Bcast(w, in[w.Rank()], n-1) },
			"reduce":  func(w *Comm) error { return Reduce(w, in[w.Rank()], all[w.Rank()][:1], Sum, 0) },
			"allreduce": func(w *Comm) error {
				return Allreduce(w, in[w.Rank()], all[w.Rank()][:1], Max)
			},
			"allreduce in order": func(w *Comm) error {
				return Allreduce(w, in[w.Rank()], all[w.Rank()][:1], Max, InRankOrder())
			},
			"gather":    func(w *Comm) error { return Gather(w, in[w.Rank()], all[w.Rank()], 0) },
			"scatter":   func(w *Comm) error { return Scatter(w, all[w.Rank()], in[w.Rank()], 0) },
			"allgather": func(w *Comm) error { return Allgather(w, in[w.Rank()], all[w.Rank()]) },
			"alltoall":  func(w *Comm) error { return Alltoall(w, nil, all[w.Rank()]) },
			"scan":      func(w *Comm) error { return Scan(w, in[w.Rank()], all[w.Rank()][:1], Sum) },
			"exscan":    func(w *Comm) error { return Exscan(w, in[w.Rank()], all[w.Rank()][:1], Sum) },
			"reduce scatter": func(w *Comm) error {
				return ReduceScatter(w, all[w.Rank()], in[w.Rank()], ones[:n], Sum)
			},
			"reduce scatter block": func(w *Comm) error {
				return ReduceScatterBlock(w, all[w.Rank()], in[w.Rank()], Sum)
			},
			"gatherv":    func(w *Comm) error { return Gatherv(w, in[w.Rank()], all[w.Rank()], ones[:n], nil, 0) },
			"scatterv":   func(w *Comm) error { return Scatterv(w, all[w.Rank()], in[w.Rank()], ones[:n], nil, 0) },
			"allgatherv": func(w *Comm) error { return Allgatherv(w, in[w.Rank()], all[w.Rank()], ones[:n], nil) },
			"alltoallv": func(w *Comm) error {
				return Alltoallv(w, nil, nil, nil, all[w.Rank()], ones[:n], nil)
			},
		}
		names := slices.Sorted(maps.Keys(calls))
		allocs := make(map[string]float64)
		// A rank that goes to sleep, because others are slow, makes a timer.
		require.NoError(t, RunLocal(n, func(w *Comm) error {
			for range 2 { // the first time warms up the tables of the matching too
				for _, name := range names {
					var failed error
					step := func() {
						// The barrier keeps ranks that only send from running ahead.
						if err := errors.Join(calls[name](w), w.Barrier()); err != nil {
							failed = err
						}
					}
					// AllocsPerRun counts what all goroutines allocate, and runs once more than it
					// is told.
					if w.Rank() == 0 {
						allocs[name] = testing.AllocsPerRun(rounds, step)
					} else {
						for range rounds + 1 {
							step()
						}
					}
					if failed != nil {
						return fmt.Errorf("%s: %w", name, failed)
					}
				}
			}
			return nil
		}, WithSetting("progress.sleep", "false")))
		for _, name := range names {
			assert.Zero(t, allocs[name], "%d ranks: %s", n, name)
		}
	}
}
