package comm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/race"
)

// collSizes are the numbers of ranks that every algorithm is tested with.
var collSizes = []int{1, 2, 3, 4, 5, 7, 8, 9, 16}

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
	"shared, last combines": sharedTuning(1 << 40),
	"shared, all combine":   sharedTuning(-1),
	"shared, few":           fewTuning(100),
	"pieces": { // every vector is cut into small pieces
		BcastTreeBytes: -1, ReduceTreeBytes: -1, AllreduceDoublingBytes: -1, ScanDoublingBytes: -1,
		GatherTreeBytes: -1, AllgatherBruckBytes: -1, AlltoallBruckBytes: -1,
		AlltoallFlightBytes: 3000, PieceBytes: 40, ReduceScatterHalvingBytes: 1 << 40,
	},
}

// forEachTuning runs body for each size and tuning, in a communicator that has that tuning.
func forEachTuning(t *testing.T, body func(w *Comm)) {
	for name, tuning := range collTunings {
		sizes := collSizes
		switch {
		case race.Enabled, tuning != nil && !race.All():
			sizes = []int{2, 5}
		case tuning != nil:
			sizes = []int{1, 2, 3, 5, 8}
		}
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s %d ranks", name, n), func(t *testing.T) {
				run(t, n, func(w *Comm) {
					w.team.SetTuning(tuning)
					body(w)
				})
			})
		}
	}
}

// CheckCollectives makes checks of results, for a job of processes.
func CheckCollectives(w *Comm) {
	check(w.Barrier())
	checkCollectivesOfStructs(w)
	checkAllreduceGivesSameBits(w)
}

// rootsOf lists the roots to test: all of few ranks for a short buffer, and some otherwise.
func rootsOf(n, count int) []int {
	switch {
	case count > 1000:
		return []int{n / 2}
	case count > 100 || n > 5:
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
	if n := w.Size(); n == 2 && !tiny && !race.Brief() {
		counts = append(counts, 50_000)
	}
	return counts
}

// TestCollectivesMoveStructs: elements may have any type without pointers, of any size.
func TestCollectivesMoveStructs(t *testing.T) { forEachTuning(t, checkCollectivesOfStructs) }

func checkCollectivesOfStructs(w *Comm) {
	type particle struct {
		Pos  [3]float64
		Kind uint8
	}
	type none struct{}
	of := func(r int) particle { return particle{[3]float64{float64(r), 1, 2}, uint8(r)} }
	n := w.Size()
	one, all := []particle{of(w.Rank())}, make([]particle, n)
	var want []particle
	for r := range n {
		want = append(want, of(r))
	}
	swapped, part := make([]particle, n), make([]particle, 1)
	check(errors.Join(
		Allgather(w, one, all), same("allgather", want, all),
		Alltoall(w, all, swapped), same("alltoall", slices.Repeat(one, n), swapped),
		Scatter(w, all, part, n-1), same("scatter", one, part),
		Bcast(w, one, 0), same("bcast", want[:1], one),
		Bcast(w, make([]none, 5), 0),
		Allgather(w, make([]none, 2), make([]none, 2*n)),
		Allreduce(w, make([]none, 2), make([]none, 2), func(in, inout []none) {}),
	))
}

// TestAllreduceGivesSameBitsAtAllRanks: this includes sums that depend on the order.
func TestAllreduceGivesSameBitsAtAllRanks(t *testing.T) {
	forEachTuning(t, checkAllreduceGivesSameBits)
}

func checkAllreduceGivesSameBits(w *Comm) {
	random := rand.New(rand.NewPCG(1, uint64(w.Rank())))
	for _, count := range []int{1, 7, 1500} {
		in, out := make([]float32, count), make([]float32, count)
		for i := range in {
			in[i] = float32(random.NormFloat64() * math.Pow(10, float64(random.IntN(9))))
		}
		check(Allreduce(w, in, out, Sum))
		root := slices.Clone(out)
		check(errors.Join(Bcast(w, root, 0), same("bits", bits(root), bits(out))))
	}
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i := range x {
		b[i] = math.Float32bits(x[i])
	}
	return b
}

func TestBarrier(t *testing.T) {
	for _, n := range collSizes {
		var arrived atomic.Int64
		run(t, n, func(w *Comm) {
			for round := range 20 {
				arrived.Add(1)
				check(w.Barrier())
				if got := int(arrived.Load()); got < (round+1)*n {
					failf("%d ranks: past barrier %d when %d calls had been made", n, round, got)
				}
			}
		})
	}
}

// TestCollectivesAndMessagesDoNotMix: collectives of one communicator match neither those of
// another one nor messages.
func TestCollectivesAndMessagesDoNotMix(t *testing.T) {
	runUnchecked(t, 4, func(w *Comm) {
		other := must(w.Dup())
		next, before := (w.Rank()+1)%4, (w.Rank()+3)%4
		for i := range 50 {
			// The root runs ahead: bcasts do not wait for the ranks that receive.
			a, b, got := []int{i}, []int{-i}, []int{0}
			if w.Rank() != 0 {
				a[0], b[0] = 0, 0
			}
			check(Send(w, []int{1000 + i}, next, 0))
			if w.Rank()%2 == 0 {
				check(errors.Join(Bcast(w, a, 0), Bcast(other, b, 0)))
			} else {
				check(errors.Join(Bcast(other, b, 0), Bcast(w, a, 0)))
			}
			must(Recv(w, got, before, 0))
			check(same("received", []int{i, -i, 1000 + i}, []int{a[0], b[0], got[0]}))
		}
	})
}

type notPlain struct {
	N    int
	Next *notPlain
}

func ints(n int) []int { return make([]int, n) }

// TestCollectiveWithBadArgumentsIsRefused: arguments are checked in the documented order before
// anything is sent, and the next collective works.
func TestCollectiveWithBadArgumentsIsRefused(t *testing.T) {
	run(t, 3, func(w *Comm) {
		refused := func(name string, err, want error, text string) {
			assert.ErrorIs(t, err, want, name)
			assert.ErrorContains(t, err, text, name)
			var e *Error
			if assert.ErrorAs(t, err, &e, name) {
				assert.Equal(t, Undefined, e.Tag, name)
			}
			check(w.Barrier())
		}
		var freed *Comm
		me, ones, three, four := w.Rank(), []int{1, 1, 1}, ints(3), ints(4)
		refused("type", Bcast(freed, make([]notPlain, 1), 9), ErrType, "field Next")
		refused("type of an empty slice", Allgather[string](w, nil, nil), ErrType, "")
		refused("nil communicator", Bcast(freed, ints(1), 9), ErrComm, "")
		refused("nil communicator's barrier", freed.Barrier(), ErrComm, "")
		refused("root over", Bcast(w, ints(1), 3), ErrRoot, "3 is not in 0…2")
		refused("root negative", Gather(w, ints(1), nil, -1), ErrRoot, "")
		refused("root before lengths", Scatter(w, ints(1), ints(7), ProcNull), ErrRoot, "")
		refused("reduce root", Reduce(w, ints(1), ints(2), Sum, 3), ErrRoot, "")
		refused("no operation", Allreduce(w, ints(1), ints(1), nil), ErrOp, "")
		refused("reduce without an operation", Reduce(w, ints(1), ints(1), nil, 0), ErrOp, "")
		refused("allreduce lengths", Allreduce(w, ints(2), ints(3), Sum), ErrCount, "out has 3 elements, not 2")
		refused("allreduce empty in", Allreduce(w, []int{}, ints(3), Sum), ErrCount, "")
		refused("reduce lengths", Reduce(w, ints(2), ints(3), Sum, me), ErrCount, "")
		refused("gather lengths", Gather(w, ints(2), ints(5), me), ErrCount, "out has 5 elements, not 6")
		refused("gather in place, uneven", Gather(w, nil, ints(5), me), ErrCount, "not a multiple of the 3 ranks")
		refused("scatter lengths", Scatter(w, ints(5), ints(2), me), ErrCount, "in has 5 elements, not 6")
		refused("scatter in place, uneven", Scatter(w, ints(5), nil, me), ErrCount, "")
		refused("allgather lengths", Allgather(w, ints(2), ints(7)), ErrCount, "")
		refused("allgather in place, uneven", Allgather(w, nil, ints(7)), ErrCount, "")
		refused("alltoall lengths", Alltoall(w, ints(3), ints(6)), ErrCount, "")
		refused("alltoall uneven", Alltoall(w, ints(4), ints(4)), ErrCount, "")
		refused("alltoall in place, uneven", Alltoall(w, nil, ints(4)), ErrCount, "")
		refused("scan lengths", Scan(w, ints(1), ints(2), Sum), ErrCount, "")
		refused("exscan without an operation", Exscan(w, nil, ints(2), nil), ErrOp, "")
		refused("reduce scatter: counts", ReduceScatter(w, ints(2), ints(1), []int{1, 1}, Sum),
			ErrCount, "2 counts for 3 ranks")
		refused("reduce scatter: negative", ReduceScatter(w, ints(2), ints(1), []int{1, -1, 2}, Sum),
			ErrCount, "count of rank 1 is -1")
		huge := []int{1, math.MaxInt / 8, math.MaxInt/8 + 1}
		refused("reduce scatter: huge", ReduceScatter(w, ints(2), ints(1), huge, Sum), ErrCount, "")
		refused("reduce scatter: in", ReduceScatter(w, ints(4), ints(1), ones, Sum),
			ErrCount, "in has 4 elements, not 3")
		refused("reduce scatter: out", ReduceScatter(w, ints(3), ints(2), ones, Sum),
			ErrCount, "out has 2 elements, not 1")
		refused("reduce scatter in place", ReduceScatter(w, nil, ints(1), ones, Sum),
			ErrCount, "out has 1 elements, not 3")
		refused("reduce scatter block", ReduceScatterBlock(w, ints(4), ints(1), Sum), ErrCount, "")
		refused("reduce scatter block, nil out", ReduceScatterBlock(w, ints(3), nil, Sum), ErrCount, "")
		refused("reduce scatter block in place", ReduceScatterBlock(w, nil, ints(4), Sum), ErrCount, "")
		refused("gatherv: counts", Gatherv(w, ints(1), ints(3), nil, nil, me), ErrCount, "0 counts of out for 3 ranks")
		refused("gatherv: displacements", Gatherv(w, ints(1), ints(3), ones, []int{0}, me),
			ErrCount, "1 displacements of out")
		refused("gatherv: too far", Gatherv(w, ints(1), ints(3), ones, []int{0, 1, 3}, me),
			ErrCount, "rank 2 has 1 elements at 3 of out, which has 3")
		huge = []int{1, math.MaxInt, 1}
		refused("gatherv: far too far", Gatherv(w, ints(1), ints(3), huge, []int{0, 1, 3}, me), ErrCount, "")
		refused("gatherv: own part", Gatherv(w, ints(2), ints(3), ones, nil, me),
			ErrCount, "in has 2 elements, not 1")
		refused("scatterv: before", Scatterv(w, ints(3), ints(1), ones, []int{0, -1, 1}, me), ErrCount, "")
		refused("scatterv: own part", Scatterv(w, ints(3), ints(2), ones, nil, me), ErrCount, "")
		refused("allgatherv: negative", Allgatherv(w, ints(1), ints(3), []int{1, 1, -1}, nil), ErrCount, "")
		refused("allgatherv of one buffer", Allgatherv(w, three[me:me+1], three, ones, nil), ErrBuffer, "")
		refused("alltoallv: sends", Alltoallv(w, ints(2), ones, nil, ints(3), ones, nil), ErrCount, "of in")
		refused("alltoallv: receives", Alltoallv(w, ints(3), ones, nil, ints(2), ones, nil), ErrCount, "of out")
		more := slices.Clone(ones)
		more[me] = 2
		refused("alltoallv to itself", Alltoallv(w, ints(3), ones, nil, ints(4), more, nil), ErrCount, "expects 2")
		refused("allreduce of one buffer", Allreduce(w, four[:3], four[1:], Sum), ErrBuffer, "overlap")
		refused("gather into its own part", Gather(w, three[me:me+1], three, me), ErrBuffer, "pass nil for in place")
		refused("alltoall of one buffer", Alltoall(w, three, three), ErrBuffer, "")
	})
}

func TestCollectiveAfterFreeOrFinalizeFails(t *testing.T) {
	run(t, 2, func(w *Comm) {
		d := must(w.Dup())
		check(d.Free())
		assert.ErrorIs(t, d.Barrier(), ErrComm)
		check(w.Finalize())
		assert.ErrorIs(t, w.Barrier(), ErrFinalized)
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
				runUnchecked(t, 3, func(w *Comm) {
					if w.Rank() == odd {
						err := bare(w)
						assert.ErrorIs(t, err, ErrComm)
						assert.NotErrorIs(t, err, ErrCount)
						assert.NotContains(t, err.Error(), "slices")
						assert.Regexp(t, `rank \d (is in another collective|has noticed that the ranks make different calls)`, err.Error())
					} else {
						_ = Allreduce(w, nil, []int{1}, Sum) // may fail
					}
					check(w.Barrier())
				})
			})
		}
	}
}

// TestMismatchIsReportedWhereItIsSeen: arguments that differ between ranks are an error at the
// ranks that can detect it. No rank hangs, and the communicator stays fit.
func TestMismatchIsReportedWhereItIsSeen(t *testing.T) {
	const n = 6
	runUnchecked(t, n, func(w *Comm) {
		more, atRoot, twos := b2i(w.Rank() == 2), b2i(w.Rank() == 0), slices.Repeat([]int{2}, n)
		twosAndMore := append([]int{2 + more}, twos[1:]...)
		// There must be an error at the ranks of fails. At others there may be one.
		mismatch := func(name string, err error, fails ...int) {
			switch {
			case err == nil:
				assert.NotContains(t, fails, w.Rank(), name)
			case errors.Is(err, ErrComm):
				assert.Regexp(t, `rank \d (gave up on this|has noticed|has finished this|counts|is in another)`, err.Error(), name)
			default:
				assert.ErrorIs(t, err, ErrCount, name)
				assert.Regexp(t, `rank \d sent`, err.Error(), name)
			}
			check(w.Barrier())
		}
		mismatch("bcast longer at the root", Bcast(w, ints(2+3*atRoot), 0), 1, 2)
		mismatch("bcast shorter at the root", Bcast(w, ints(5-3*atRoot), 0), 1, 2)
		mismatch("allreduce", Allreduce(w, ints(1+more), ints(1+more), Sum), 2)
		mismatch("reduce", Reduce(w, ints(1+more), ints(1+more), Sum, 0), 0)
		mismatch("gather long", Gather(w, ints(5000+more), ints((5000+more)*n), 0), 0)
		mismatch("gather", Gather(w, ints(2+more), ints((2+more)*n), 0), 0)
		mismatch("scatter", Scatter(w, ints((2+more)*n), ints(2+more), 0), 2)
		mismatch("allgather", Allgather(w, ints(2+more), ints((2+more)*n)), 2)
		mismatch("alltoall", Alltoall(w, ints((2+more)*n), ints((2+more)*n)), 2)
		mismatch("alltoall long", Alltoall(w, ints((50_000+more)*n), ints((50_000+more)*n)), 2)
		mismatch("alltoall in place", Alltoall(w, nil, ints((2+more)*n)), 2)
		mismatch("scan", Scan(w, nil, ints(2+more), Sum), 2, 3)
		mismatch("reduce scatter", ReduceScatterBlock(w, nil, ints((2+more)*n), Sum), 2)
		mismatch("gatherv", Gatherv(w, ints(2+more), ints(12), twos, nil, 0), 0)
		mismatch("allgatherv", Allgatherv(w, nil, ints(20), []int{more, 1, 2, 3, 4, 5}, nil), 2)
		mismatch("alltoallv", Alltoallv(w, ints(20), twosAndMore, nil, ints(20), twosAndMore, nil), 2)
		mismatch("long allreduce", Allreduce(w, nil, ints(100_000+9*more), Sum), 2)
		if w.Rank() == 2 {
			mismatch("bcast where others call barrier", Bcast(w, ints(1), 2))
		} else {
			mismatch("barrier where another calls bcast", w.Barrier())
		}
	})
}

// TestCollectiveThatGivesUpMakesCommunicatorUnfit: calls of other ranks that wait for it end, and
// so do later collectives.
func TestCollectiveThatGivesUpMakesCommunicatorUnfit(t *testing.T) {
	for _, count := range []int{1, 50_000} {
		run(t, 5, func(w *Comm) {
			d, buf := must(w.Dup()), ints(count)
			switch w.Rank() {
			case 1:
				// The others cannot finish without rank 0, which is late.
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				go func() {
					awaitPending(ctx, w) // otherwise the communicator would stay fit
					cancel()
				}()
				assert.ErrorIs(t, Allreduce(d.WithContext(ctx), nil, buf, Sum), context.Canceled)
				check(Send(w, []int{1}, 0, 5))
				for range 3 {
					assert.ErrorIs(t, Allreduce(d, nil, buf, Sum), ErrComm)
				}
				assert.ErrorIs(t, d.Barrier(), ErrComm)
				_, err := d.Dup()
				assert.ErrorIs(t, err, ErrComm)
			case 0:
				must(Recv(w, []int{0}, 1, 5))
				fallthrough
			default:
				for i := range 4 {
					assert.Error(t, Allreduce(d, nil, buf, Sum), "allreduce %d without rank 1", i)
				}
			}
			check(w.Barrier())
		})
	}
}

// TestSecondCollectiveAtOnceFails: two goroutines may be in collectives of different communicators
// at once, but not of the same one.
func TestSecondCollectiveAtOnceFails(t *testing.T) {
	run(t, 2, func(w *Comm) {
		d := must(w.Dup())
		if w.Rank() == 1 {
			must(Recv(w, []int{0}, 0, 0))
			check(errors.Join(w.Barrier(), d.Barrier()))
			return
		}
		done := make(chan error, 2)
		go func() { done <- w.Barrier() }()
		awaitRunning(w)
		go func() { done <- d.Barrier() }()
		assert.ErrorIs(t, w.Barrier(), ErrComm)
		check(Send(w, []int{0}, 1, 0))
		check(errors.Join(<-done, <-done))
	})
}

// TestSmallCollectivesAllocateNothing: only the first call of each kind allocates.
func TestSmallCollectivesAllocateNothing(t *testing.T) {
	const rounds = 60
	list := slices.DeleteFunc(revocables(blocking), func(c revocable) bool { return c.id == calls.Split || c.id == calls.Dup })
	for _, n := range []int{1, 2, 3, 4} {
		allocs := make(map[string]float64)
		// A rank that goes to sleep, because others are slow, makes a timer.
		runUnchecked(t, n, func(w *Comm) {
			a := newArgs(w, 1, 0)
			for range 2 { // the first time warms up the tables of the matching too
				for _, c := range list {
					step := func() {
						// The barrier keeps ranks that only send from running ahead.
						check(c.call(a))
						check(w.Barrier())
					}
					// AllocsPerRun counts the allocations of all goroutines, and calls step once
					// more than rounds.
					if w.Rank() == 0 {
						allocs[c.name] = testing.AllocsPerRun(rounds, step)
						continue
					}
					for range rounds + 1 {
						step()
					}
				}
			}
		}, WithSetting("progress.sleep", "false"))
		for name, count := range allocs {
			assert.Zero(t, count, "%d ranks: %s", n, name)
		}
		require.Len(t, allocs, len(list))
	}
}

// TestOperationThatPanicsFailsEveryRank: the rank whose operation panics or ends its goroutine
// fails, and no other rank hangs.
func TestOperationThatPanicsFailsEveryRank(t *testing.T) {
	for _, c := range []struct {
		ranks, panics int
		tuning        *coll.Tuning
	}{{2, 1, coll.DefaultTuning(false)}, {5, 1, coll.DefaultTuning(false)}, {5, 0, coll.DefaultTuning(true)}} {
		run(t, c.ranks, func(w *Comm) {
			d := must(w.Dup())
			d.team.SetTuning(c.tuning)
			call := func() error {
				return Allreduce(d, []int{1}, []int{0}, func(in, inout []int) {
					if w.Rank() == c.panics {
						panic("boom")
					}
				})
			}
			if w.Rank() == c.panics {
				assert.PanicsWithValue(t, "boom", func() { _ = call() })
				assert.ErrorIs(t, d.Barrier(), ErrComm)
			} else if err := call(); err != nil { // nil if it needs nothing more of that rank
				assert.ErrorIs(t, err, ErrComm)
			}
			check(w.Barrier())
		})
	}
}

// TestOperationMayCallIprobe: an operation may use calls that do not communicate.
func TestOperationMayCallIprobe(t *testing.T) {
	run(t, 2, func(w *Comm) {
		sum := []int{0}
		check(Allreduce(w, []int{1 + w.Rank()}, sum, func(in, inout []int) {
			_, _, err := w.Iprobe(AnySource, AnyTag)
			check(err)
			inout[0] += in[0]
		}))
		assert.Equal(t, 3, sum[0])
	})
}
