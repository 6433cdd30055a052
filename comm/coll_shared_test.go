package comm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

// sharedTunings use each path through shared memory, from the first collective on.
var sharedTunings = map[string]*coll.Tuning{
	"short": sharedTuning(1 << 40),
	"long":  sharedTuning(-1),
	"mixed": sharedTuning(100),
	"few":   fewTuning(1 << 40),
}

// sharedTuning lets the rank that arrives last combine vectors of up to the given number of bytes.
func sharedTuning(shortBytes int) *coll.Tuning {
	t := *coll.DefaultTuning(false)
	t.SharedBytes, t.SharedShortBytes, t.SharedReduceBytes, t.SharedFewRanks = 1<<40, shortBytes, 0, 0
	t.SharedAfter, t.SharedBlockBytes = 0, 0
	lowerLimits(&t)
	return &t
}

// fewTuning is sharedTuning in which each rank looks at the slots of all others.
func fewTuning(shortBytes int) *coll.Tuning {
	t := sharedTuning(shortBytes)
	t.SharedFewRanks = 1 << 10
	return t
}

// messagesOnly is a tuning in which no collective uses shared memory.
func messagesOnly() *coll.Tuning {
	t := *coll.DefaultTuning(false)
	t.SharedBytes = 0
	lowerLimits(&t)
	return &t
}

// lowerLimits makes reductions of more than 4 KiB use a chain. Hosts exchange ranges of a vector of
// more than 2 KiB, and pieces of 1 KiB.
func lowerLimits(t *coll.Tuning) {
	t.ReduceTreeBytes, t.PieceBytes, t.HostPieceBytes, t.LeaderBytes = 4<<10, 1<<10, 1<<10, 2<<10
}

// shares reports whether the ranks of w share memory.
func shares(w *Comm) bool { return locked(w, w.team.SharedMemory) != nil }

// sharing returns a new communicator whose ranks share memory.
func sharing(w *Comm, tuning *coll.Tuning) *Comm {
	d := must(w.Dup())
	d.team.SetTuning(tuning)
	check(d.Barrier())
	if !shares(d) {
		failf("rank %d: no memory is shared", w.Rank())
	}
	return d
}

// TestSharedMemoryDoesNotChangeResults: sums of floating-point numbers, whose bits depend on the
// order, are the same as with messages.
func TestSharedMemoryDoesNotChangeResults(t *testing.T) {
	flat := *coll.DefaultTuning(true)
	flat.SharedBytes = 0
	for n := 2; n <= 9; n++ {
		if race.Enabled && n > 5 {
			break
		}
		if !race.All() && !slices.Contains([]int{2, 5, 8}, n) {
			continue
		}
		for _, block := range []string{"128", "8K", "256K"} {
			if race.Brief() && (block == "256K" || n == 2) { // a long block has the fewest steps
				continue
			}
			t.Run(fmt.Sprintf("%d ranks, blocks of %s", n, block), func(t *testing.T) {
				runUnchecked(t, n, func(w *Comm) {
					random := rand.New(rand.NewPCG(1, uint64(w.Rank())))
					byMessages, byRankZero := must(w.Dup()), must(w.Dup())
					byMessages.team.SetTuning(messagesOnly())
					byRankZero.team.SetTuning(&flat)
					for _, name := range slices.Sorted(maps.Keys(sharedTunings)) {
						d := sharing(w, sharedTunings[name])
						for _, count := range []int{1, 7, 60, 1500, 5000} {
							in := make([]float32, count)
							for i := range in {
								in[i] = float32(random.NormFloat64() * math.Pow(10, float64(random.IntN(9))))
							}
							for _, opts := range [][]CollOption{nil, {InRankOrder()}} {
								want, got := make([]float32, count), make([]float32, count)
								check(Allreduce(byMessages, in, want, Sum, opts...))
								check(Allreduce(d, in, got, Sum, opts...))
								check(same(fmt.Sprintf("%s: %d", name, count), bits(want), bits(got)))
								check(Allreduce(byRankZero, in, got, Sum, opts...))
								check(same(fmt.Sprintf("flat: %d", count), bits(want), bits(got)))
								for root := range min(n, 5) {
									clear(want)
									clear(got)
									check(Reduce(byMessages, in, want, Sum, root, opts...))
									check(Reduce(d, in, got, Sum, root, opts...))
									check(same(fmt.Sprintf("%s: reduce to %d: %d", name, root, count), bits(want), bits(got)))
								}
							}
						}
						check(d.Free())
					}
				}, WithSetting("coll.shared.bytes", block))
			})
		}
	}
}

// TestOnlyBlockingCollectivesGoThroughSharedMemory: nonblocking and persistent ones send messages,
// also while blocking ones go through shared memory.
func TestOnlyBlockingCollectivesGoThroughSharedMemory(t *testing.T) {
	for name, tuning := range sharedTunings {
		t.Run(name, func(t *testing.T) {
			runUnchecked(t, 4, func(w *Comm) {
				d := sharing(w, tuning)
				in, sums := make([]int, 100), [3][]int{make([]int, 100), make([]int, 100), make([]int, 100)}
				for i := range in {
					in[i] = w.Rank() + i
				}
				persistent := []request.Request{must(AllreduceInit(d, in, sums[0], Sum)), must(d.BarrierInit())}
				for range 3 {
					reqs := append([]request.Request{must(Iallreduce(d, in, sums[1], Sum)), must(d.Ibarrier())}, persistent...)
					check(request.StartAll(persistent...))
					check(errors.Join(d.Barrier(), Allreduce(d, in, sums[2], Sum)))
					check(request.WaitAll(reqs...))
					for i := range in {
						assert.Equal(t, [3]int{6 + 4*i, 6 + 4*i, 6 + 4*i}, [3]int{sums[0][i], sums[1][i], sums[2][i]})
					}
				}
				check(errors.Join(persistent[0].Free(), persistent[1].Free()))
				assert.True(t, shares(d))
			})
		})
	}
}

// TestCollectivesThroughSharedMemoryThatFail: a collective fails at one rank while the others are
// in shared memory, or on the way there. No rank hangs, and the next collective works or is
// refused.
func TestCollectivesThroughSharedMemoryThatFail(t *testing.T) {
	allreduce := func(w *Comm, count int) error {
		return Allreduce(w, make([]int64, count), make([]int64, count), Sum)
	}
	for name, tuning := range sharedTunings {
		for _, n := range []int{2, 3, 5, 8} {
			t.Run(fmt.Sprintf("%s %d ranks", name, n), func(t *testing.T) {
				t.Parallel()
				runUnchecked(t, n, func(w *Comm) {
					defer hurry(w)()
					for odd := range n {
						isOdd := w.Rank() == odd
						for _, what := range []string{"length", "call", "bcast", "allgather", "refused"} {
							d := sharing(w, tuning)
							var err error
							switch {
							case !isOdd && what == "allgather":
								err = d.Barrier()
							case !isOdd:
								err = allreduce(d, 40)
							case what == "length":
								err = allreduce(d, 47)
							case what == "call":
								err = d.Barrier()
							case what == "bcast":
								_ = Bcast(d, make([]int64, 41), odd) // it need not wait
							case what == "allgather":
								err = Allgather(d, make([]int64, 3), make([]int64, 3*n))
							case what == "refused":
								err = Allreduce(d, make([]int64, 3), make([]int64, 4), Sum)
							}
							if err == nil && (!isOdd || what != "bcast") {
								failf("rank %d: %s at rank %d: no error", w.Rank(), what, odd)
							}
							isDifferent(what, err)
							check(allreduce(d, 10))
							check(d.Barrier())
							if !shares(d) {
								failf("rank %d: %s: no memory is shared any more", w.Rank(), what)
							}
							check(d.Free())
						}
					}
				})
			})
		}
	}
}

// TestSharedMemoryCollectiveGivenUpByContext: the context of a rank ends while it waits in shared
// memory for a rank that is late.
func TestSharedMemoryCollectiveGivenUpByContext(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(sharedTunings)) {
		for _, c := range SharedCalls() {
			for _, n := range []int{2, 4, 7} {
				t.Run(fmt.Sprintf("%s %s, %d ranks", name, c.Name, n), func(t *testing.T) {
					givenUpByContext(t, n, c, func(w *Comm) *Comm { return sharing(w, sharedTunings[name]) })
				})
			}
		}
	}
}

// givenUpByContext ends the context of rank 0 while the rank waits for the last rank.
func givenUpByContext(t *testing.T, n int, c SharedCall, open func(w *Comm) *Comm) {
	late := n - 1
	runUnchecked(t, n, func(w *Comm) {
		d := open(w)
		call := func(d *Comm) error { return c.Call(d, c.Root(late), Sum) }
		switch w.Rank() {
		case 0:
			ctx, cancel := context.WithCancel(context.Background())
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				awaitRunning(d)
				cancel()
			}()
			assert.ErrorIs(t, call(d.WithContext(ctx)), context.Canceled)
			<-stopped
			check(Send(w, []int{0}, late, 0))
		case late:
			must(Recv(w, []int{0}, 0, 0))
			assert.ErrorIs(t, call(d), ErrComm)
		default:
			if err := call(d); err != nil || c.Awaits(w.Rank()) {
				assert.ErrorIs(t, err, ErrComm)
			}
		}
		assert.ErrorIs(t, d.Barrier(), ErrComm, "unfit at rank 0")
		check(w.Barrier())
	})
}

// TestOperationThatPanicsInSharedMemoryFailsEveryRank: the operation panics at the rank that
// combines, which may be any.
func TestOperationThatPanicsInSharedMemoryFailsEveryRank(t *testing.T) {
	for name, tuning := range sharedTunings {
		for _, n := range []int{2, 3, 5} {
			t.Run(fmt.Sprintf("%s %d ranks", name, n), func(t *testing.T) {
				runUnchecked(t, n, func(w *Comm) {
					d := sharing(w, tuning)
					e := sharing(w, tuning)
					panicked := func(call func() error) (yes bool) {
						defer func() { yes = recover() != nil }()
						assert.ErrorIs(t, call(), ErrComm)
						return false
					}
					boom := func(in, inout []int) { panic("boom") }
					yes := panicked(func() error { return Allreduce(d, make([]int, 100), make([]int, 100), boom) })
					err := d.Barrier()
					assert.ErrorIs(t, err, ErrComm, "rank %d, panicked: %v", w.Rank(), yes)
					check(w.Barrier())
					// Only the root waits for the others. They may have returned.
					yes = panicked(func() error {
						return errors.Join(Reduce(e, make([]int, 100), make([]int, 100), boom, 0), e.Barrier())
					})
					assert.ErrorIs(t, e.Barrier(), ErrComm, "rank %d, panicked: %v", w.Rank(), yes)
					check(w.Barrier())
				})
			})
		}
	}
}

// SharedCall is a collective that goes through shared memory. A Reduce goes to rank 0.
type SharedCall struct {
	Name string
	Call func(d *Comm, root int, op Op[int]) error
}

// SharedCalls lists them.
func SharedCalls() []SharedCall {
	v := func(n int) []int { return make([]int, n) }
	return []SharedCall{
		{"barrier", func(d *Comm, _ int, _ Op[int]) error { return d.Barrier() }},
		{"allreduce", func(d *Comm, _ int, op Op[int]) error { return Allreduce(d, nil, v(100), op) }},
		{"reduce", func(d *Comm, root int, op Op[int]) error { return Reduce(d, v(100), v(100), op, root) }},
		{"bcast", func(d *Comm, root int, _ Op[int]) error { return Bcast(d, v(100), root) }},
		{"allgather", func(d *Comm, _ int, _ Op[int]) error { return Allgather(d, v(100), v(100*d.Size())) }},
		{"alltoall", func(d *Comm, _ int, _ Op[int]) error { return Alltoall(d, nil, v(100*d.Size())) }},
	}
}

// Root is a root with which the call waits for the late rank, which is not rank 0.
func (c SharedCall) Root(late int) int {
	if c.Name == "bcast" {
		return late
	}
	return 0
}

// Awaits reports whether a rank waits in the call, with that root, for the late rank, directly or
// through others.
func (c SharedCall) Awaits(rank int) bool { return c.Name != "reduce" || rank == 0 }

// TestSharedMemoryCollectivesWithoutDeadRankFail: a rank is lost before it makes the call. The
// ranks that wait for it learn of it, and notify the others, which may have returned.
func TestSharedMemoryCollectivesWithoutDeadRankFail(t *testing.T) {
	for name, tuning := range sharedTunings {
		for _, c := range SharedCalls() {
			t.Run(name+" "+c.Name, func(t *testing.T) {
				withoutDeadRank(t, 1, c, func(w *Comm) *Comm { return sharing(w, tuning) })
			})
		}
	}
}

// withoutDeadRank runs four ranks. One of them makes no call, and is lost.
func withoutDeadRank(t *testing.T, dead int, c SharedCall, open func(w *Comm) *Comm) {
	const n = 4
	ended := make(chan struct{}, n)
	runUnchecked(t, n, func(w *Comm) {
		d := open(w)
		if w.Rank() == dead {
			for range n - 1 {
				<-ended
			}
			return
		}
		defer func() { ended <- struct{}{} }()
		defer loseOnWait(w, dead)()
		if err := c.Call(d, c.Root(dead), Sum); err != nil || c.Awaits(w.Rank()) {
			assert.ErrorIs(t, err, ErrProcFailed)
		}
	})
}

// TestBcastAheadOfDeadRankFails: a root waits for the other ranks only when no room is left. It
// then learns that one of them is gone.
func TestBcastAheadOfDeadRankFails(t *testing.T) {
	for _, count := range []int{1, 1000, 40_000} {
		t.Run(fmt.Sprint(count, " elements"), func(t *testing.T) {
			gone := make(chan struct{})
			run(t, 2, func(w *Comm) {
				d := sharing(w, sharedTunings["short"])
				if w.Rank() == 1 {
					<-gone
					return
				}
				defer close(gone)
				defer loseOnWait(w, 1)()
				var err error
				if count <= 1000 { // a longer one may have to wait for room
					check(Bcast(d, make([]int, count), 0))
				}
				for calls := 0; err == nil; calls++ {
					if calls > 100 {
						failf("%d calls succeed", calls)
					}
					err = Bcast(d, make([]int, count), 0)
				}
				assert.ErrorIs(t, err, ErrProcFailed)
			})
		})
	}
}

// TestRanksAheadInSharedMemoryKeepTheirData: roots and leaves run ahead of a slow rank, which still
// gets the right data.
func TestRanksAheadInSharedMemoryKeepTheirData(t *testing.T) {
	for name, tuning := range sharedTunings {
		for _, n := range []int{2, 3, 5} {
			t.Run(fmt.Sprintf("%s %d ranks", name, n), func(t *testing.T) {
				run(t, n, func(w *Comm) {
					d := sharing(w, tuning)
					random := rand.New(rand.NewPCG(uint64(n), 3)) // the same at all ranks
					for i := range 400 {
						count, root, slow := random.IntN(300), random.IntN(n), random.IntN(n)
						if w.Rank() == slow {
							for range 30 {
								runtime.Gosched()
							}
						}
						in, sum := slices.Repeat([]int{i + w.Rank()}, count), make([]int, count)
						if random.IntN(2) == 0 {
							check(Bcast(d, in, root))
							check(same("bcast", slices.Repeat([]int{i + root}, count), in))
							continue
						}
						check(Reduce(d, in, sum, Sum, root))
						if w.Rank() == root {
							check(same("reduce", slices.Repeat([]int{n*i + n*(n-1)/2}, count), sum))
						}
					}
				}, WithSetting("coll.shared.bytes", "4K"))
			})
		}
	}
}

// TestNonsenseInSharedMemoryCrashesNothing: a rank writes random data to the memory, and then makes
// no further call. The others may get wrong results, but they do not hang or crash.
func TestNonsenseInSharedMemoryCrashesNothing(t *testing.T) {
	const words = (8*2 + 3 + 3*8) * 16 // the entries, what the ranks have passed, the slots
	for seed := range uint64(60) {
		runUnchecked(t, 3, func(w *Comm) {
			defer hurry(w)()
			tuning := sharedTunings[[]string{"short", "long", "mixed"}[seed%3]]
			d := sharing(w, tuning)
			check(w.Barrier())
			if w.Rank() == 1 {
				random := rand.New(rand.NewPCG(seed, 1))
				mem := locked(d, d.team.SharedMemory)
				for range 1 + random.IntN(4) {
					i := random.IntN(words)
					v := []uint64{random.Uint64(), random.Uint64() % 100, 1 << 63, uint64(math.MaxUint64)}[random.IntN(4)]
					binary.LittleEndian.PutUint64(mem[8*i:], v)
				}
			}
			check(Bcast(w, make([]int, 1), 1)) // orders these stores before what follows
			if w.Rank() != 1 {
				for range 5 {
					if Allreduce(d, nil, make([]int, 200), Sum) != nil || Bcast(d, make([]int, 200), 0) != nil ||
						Reduce(d, make([]int, 200), make([]int, 200), Sum, 0) != nil ||
						Allgather(d, make([]int, 50), make([]int, 150)) != nil {
						break
					}
				}
			}
			check(d.Free())
		})
	}
}

// TestFreeWhileOthersCopyFromSharedMemory: a rank frees the communicator as soon as its last
// collective has returned.
func TestFreeWhileOthersCopyFromSharedMemory(t *testing.T) {
	runUnchecked(t, 4, func(w *Comm) {
		for range 50 {
			d := sharing(w, sharedTunings["mixed"])
			sum := make([]int, 1000)
			for i := range sum {
				sum[i] = i
			}
			check(errors.Join(Allreduce(d, nil, sum, Sum), d.Free()))
			for i := range sum {
				if sum[i] != 4*i {
					failf("element %d is %d", i, sum[i])
				}
			}
		}
	})
}

// TestSharedMemoryCollectivesAllocateNothing: in the steady state.
func TestSharedMemoryCollectivesAllocateNothing(t *testing.T) {
	if race.Brief() { // the tests above make the same calls
		return
	}
	// More than the requests that a rank makes the first time that it waits for long.
	const rounds = 300
	for _, name := range slices.Sorted(maps.Keys(sharedTunings)) {
		for _, n := range []int{2, 3, 8} {
			runUnchecked(t, n, func(w *Comm) {
				d := sharing(w, sharedTunings[name])
				in, out := make([]float64, 500), make([]float64, 500)
				for what, call := range []func(){
					func() { check(d.Barrier()) },
					func() { check(Allreduce(d, in[:1], out[:1], Sum)) },
					func() { check(Allreduce(d, in, out, Sum)) },
					func() { check(Allreduce(d, nil, out, Sum)) },
					func() { check(Bcast(d, out[:1], 0)) },
					func() { check(Bcast(d, out, 0)) },
					func() { check(Reduce(d, in[:1], out[:1], Sum, 0)) },
					func() { check(Reduce(d, in, out, Sum, 0)) },
					func() { check(Allgather(d, in[:1], out[:n])) },
					func() { check(Allgather(d, in[:500/n], out[:500/n*n])) },
					func() { check(Alltoall(d, in[:n], out[:n])) },
					func() { check(Alltoall(d, in[:500/n*n], out[:500/n*n])) },
				} {
					for range 5 {
						call()
					}
					if w.Rank() == 0 {
						assert.Zero(t, testing.AllocsPerRun(rounds, call), "%s, %d ranks, call %d", name, n, what)
						continue
					}
					for range rounds + 1 {
						call()
					}
				}
			}, WithSetting("progress.sleep", "false"))
		}
	}
}

// CheckShared checks that collectives of w, which is on one host, go through shared memory.
func CheckShared(w *Comm) {
	for range 4 {
		check(w.Barrier())
	}
	if !shares(w) {
		failf("rank %d: no memory is shared", w.Rank())
	}
	for i, length := range []int{1, 1000, 1 << 20} {
		v := make([]int, length)
		for j := range v {
			v[j] = i + j
		}
		check(Allreduce(w, nil, v, Sum))
		for j := range v {
			if v[j] != w.Size()*(i+j) {
				failf("rank %d: %d elements: element %d is %d", w.Rank(), length, j, v[j])
			}
		}
	}
}
