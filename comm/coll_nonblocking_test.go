package comm

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/request"
)

// Many nonblocking collectives are under way at a time, and each rank waits for them in another
// order.
func TestManyNonblockingCollectives(t *testing.T) {
	const calls = 500
	for _, n := range []int{1, 2, 3, 5, 8} {
		run(t, n, func(w *Comm) {
			var reqs []request.Request
			out := make([][]int64, calls)
			for i := range calls {
				out[i] = make([]int64, 1+i%300)
				for j := range out[i] {
					out[i][j] = int64(w.Rank() + i + j)
				}
				switch i % 3 {
				case 0:
					reqs = append(reqs, must(Iallreduce(w, nil, out[i], Sum)))
				case 1:
					reqs = append(reqs, must(Ibcast(w, out[i], i%n)))
				case 2:
					reqs = append(reqs, must(w.Ibarrier()))
				}
			}
			random := rand.New(rand.NewPCG(uint64(w.Rank()), 1))
			random.Shuffle(calls, func(i, j int) { reqs[i], reqs[j] = reqs[j], reqs[i] })
			for _, r := range reqs {
				st := must(r.Wait())
				require.Equal(t, request.Empty(), st)
			}
			for i := range calls {
				for j, got := range out[i] {
					want := int64(w.Rank() + i + j)
					switch i % 3 {
					case 0:
						want = int64(n*(n-1)/2 + n*(i+j))
					case 1:
						want = int64(i%n + i + j)
					}
					if got != want {
						failf("call %d, element %d: %d, not %d", i, j, got, want)
					}
				}
			}
		})
	}
}

// A blocking call completes what nonblocking calls wait for.
func TestNonblockingCollectivesProgressInOtherCalls(t *testing.T) {
	run(t, 2, func(w *Comm) {
		r := must(w.Ibarrier())
		if w.Rank() == 0 {
			check(Send(w, make([]int, 100_000), 1, 0))
			must(Recv(w, make([]int, 1), 1, 1))
		} else {
			must(Recv(w, make([]int, 100_000), 0, 0))
			check(Send(w, make([]int, 1), 0, 1))
		}
		check(w.Barrier())
		_, done, err := r.Test()
		check(err)
		require.True(t, done, "the barrier was begun after it")
	})
}

// Blocking calls set up shared memory, and use it. Later calls of the other forms do not: they
// return before the other ranks have called.
func TestCollectivesAfterBarriersReturnBeforeOthersCall(t *testing.T) {
	run(t, 3, func(w *Comm) {
		for range 3 {
			check(w.Barrier())
		}
		in, sum, other := []int{1}, []int{0}, []int{0}
		kept := []request.Request{must(w.BarrierInit()), must(AllreduceInit(w, in, sum, Sum))}
		for range 3 {
			if w.Rank() > 0 {
				must(Recv(w, make([]int, 1), 0, 0))
			}
			reqs := []request.Request{must(w.Ibarrier()), must(Iallreduce(w, in, other, Sum))}
			check(request.StartAll(kept...))
			if w.Rank() == 0 {
				check(Send(w, in, 1, 0))
				check(Send(w, in, 2, 0))
			}
			for _, r := range append(reqs, kept...) {
				must(r.Wait())
			}
			require.Equal(t, []int{3, 3}, []int{sum[0], other[0]})
			check(w.Barrier())
		}
		for _, r := range kept {
			check(r.Free())
		}
	})
}

// The starts of persistent collectives may come in another order at each rank.
func TestPersistentCollectives(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8} {
		run(t, n, func(w *Comm) {
			in, sum := make([]int, 100), make([]int, 100)
			b := make([]int, 70)
			reqs := []request.Request{
				must(AllreduceInit(w, in, sum, Sum)),
				must(BcastInit(w, b, n-1)),
				must(w.BarrierInit()),
			}
			for _, r := range reqs {
				assert.True(t, r.IsPersistent())
				assert.False(t, r.IsActive())
				assert.Equal(t, request.Empty(), must(r.Wait()))
			}
			random := rand.New(rand.NewPCG(uint64(w.Rank()), 1))
			for start := range 50 {
				for i := range in {
					in[i] = w.Rank()*start + i
				}
				clear(b)
				if w.Rank() == n-1 {
					for i := range b {
						b[i] = start * i
					}
				}
				order := random.Perm(len(reqs))
				for _, i := range order {
					check(reqs[i].Start())
				}
				assert.ErrorIs(t, reqs[0].Start(), ErrRequest)
				check(request.WaitAll(reqs[order[1]], reqs[order[0]], reqs[order[2]]))
				for i := range sum {
					if want := n*(n-1)/2*start + n*i; sum[i] != want {
						failf("start %d: element %d of the sum is %d, not %d", start, i, sum[i], want)
					}
				}
				for i := range b {
					if b[i] != start*i {
						failf("start %d: element %d of the broadcast is %d", start, i, b[i])
					}
				}
			}
			for _, r := range reqs {
				check(r.Free())
				assert.True(t, r.IsNull())
			}
		})
	}
}

// Calls of different forms do not match.
func TestFormsOfCollectivesDoNotMatch(t *testing.T) {
	for name, other := range map[string]func(w *Comm) (request.Request, error){
		"nonblocking": func(w *Comm) (request.Request, error) { return w.Ibarrier() },
		"persistent":  func(w *Comm) (request.Request, error) { return w.BarrierInit() },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 3, func(w *Comm) {
				if w.Rank() > 0 {
					assert.ErrorIs(t, w.Barrier(), ErrComm)
					return
				}
				r, err := other(w)
				if err == nil {
					_, err = r.Wait()
				}
				assert.ErrorIs(t, err, ErrComm)
			})
		})
	}
}

// panicking is an operation that panics, with an error of the runtime or with a value.
func panicking(value any) Op[int] {
	return func(in, inout []int) {
		if value == nil {
			inout[len(inout)] = 0
		}
		panic(value)
	}
}

// TestPanicOfOperationEndsItsCollective: an operation that panics ends its own collective at all
// ranks, and no other call. The error of the request has the value, the line and the stack.
func TestPanicOfOperationEndsItsCollective(t *testing.T) {
	tooBad := errors.New("too bad")
	for _, value := range []any{tooBad, nil, 7} {
		for how := nonblocking; how <= persistent; how++ {
			runUnchecked(t, 4, func(w *Comm) {
				op := Op[int](Sum[int])
				if w.Rank() == 0 {
					op = panicking(value)
				}
				in, out := bytesOf(make([]int, 100)), bytesOf(make([]int, 100))
				r := must(w.allreduce(how, in, out, reductionOf(op, nil), elemOf[int]()))
				if how == persistent {
					check(r.Start())
				}
				must(SendrecvReplace(w, []int{1}, (w.Rank()+1)%4, 0, (w.Rank()+3)%4, 0))
				_, err := r.Wait()
				assert.Error(t, err)
				var p *PanicError
				switch {
				case w.Rank() != 0:
					assert.ErrorIs(t, err, ErrComm)
				case assert.ErrorAs(t, err, &p):
					assert.Regexp(t, `^world: (iallreduce|persistent allreduce) \(coll_nonblocking_test.go:\d+\): the operation panicked at `+
						`coll_nonblocking_test.go:\d+: (too bad|runtime error: .*|7)$`, err.Error())
					assert.Contains(t, string(p.Stack), ".panicking.")
					assert.Contains(t, string(p.Stack), "/"+p.Line, "the line is in the stack")
					if value == nil {
						assert.ErrorAs(t, err, new(runtime.Error))
					} else {
						assert.Equal(t, value, p.Value)
						assert.Equal(t, value == tooBad, errors.Is(err, tooBad))
					}
				}
				must(SendrecvReplace(w, []int{1}, (w.Rank()+1)%4, 0, (w.Rank()+3)%4, 0))
			})
		}
	}
}

// Cancel and Free of a collective that is under way are errors.
func TestActiveCollectiveCannotBeCancelled(t *testing.T) {
	run(t, 2, func(w *Comm) {
		if w.Rank() == 0 {
			r := must(w.Ibarrier())
			assert.ErrorIs(t, r.Cancel(), ErrRequest)
			assert.ErrorIs(t, r.Free(), ErrRequest)
			check(Send(w, []int{1}, 1, 0))
			must(r.Wait())
		} else {
			must(Recv(w, []int{1}, 0, 0))
			must(must(w.Ibarrier()).Wait())
		}
	})
}

// A nonblocking collective goes on while a rank makes no calls.
func TestNonblockingCollectiveGoesOnWhileProgramComputes(t *testing.T) {
	for _, count := range []int{1, 100_000} {
		var done atomic.Int32
		run(t, 3, func(w *Comm) {
			for round := range int32(5) {
				r := must(Iallreduce(w, nil, make([]int, count), Sum))
				if w.Rank() == 0 {
					must(r.Wait())
					done.Add(1)
				}
				for done.Load() <= round { // no calls
					time.Sleep(10 * time.Microsecond)
				}
				must(r.Wait())
			}
		})
	}
}

// An operation that ends its goroutine ends its own collective only, whichever goroutine makes
// progress.
func TestOperationThatEndsItsGoroutine(t *testing.T) {
	run(t, 2, func(w *Comm) {
		r := must(Iallreduce(w, []int{1}, []int{0}, func(in, inout []int) { runtime.Goexit() }))
		_, err := r.Wait()
		assert.Error(t, err)
		must(SendrecvReplace(w, []int{1}, 1-w.Rank(), 0, 1-w.Rank(), 0))
	})
}

// When a rank becomes unfit for collectives, starts of persistent ones fail at all ranks.
func TestPersistentCollectivesOfUnfitCommunicator(t *testing.T) {
	runUnchecked(t, 3, func(w *Comm) {
		r := must(w.BarrierInit())
		check(r.Start())
		must(r.Wait())
		if w.Rank() == 0 {
			_, err := must(Iallreduce(w, []int{1}, []int{0}, func(in, inout []int) { panic("no") })).Wait()
			assert.Error(t, err)
			check(r.Start())
			_, err = r.Wait()
			assert.ErrorIs(t, err, ErrComm)
		} else {
			failing := must(Iallreduce(w, []int{1}, []int{0}, Sum))
			check(r.Start()) // rank 0 is unfit
			_, err := r.Wait()
			assert.ErrorIs(t, err, ErrComm)
			_, err = failing.Wait()
			assert.ErrorIs(t, err, ErrComm)
		}
		check(r.Free())
	})
}

// A communicator may be freed by one goroutine while another one receives in it, and an operation
// runs.
func TestFreeDuringBlockingReceive(t *testing.T) {
	for range 20 {
		runUnchecked(t, 2, func(w *Comm) {
			c := must(w.Dup())
			freed := make(chan error, 1)
			var once sync.Once
			op := func(in, inout []int) {
				once.Do(func() {
					go func() { freed <- c.Free() }()
					freed <- <-freed
				})
			}
			if w.Rank() == 1 {
				r := must(Iallreduce(w, []int{1}, []int{0}, func(in, inout []int) {}))
				must(r.Wait())
				check(Send(c, []int{7}, 0, 0))
				check(c.Free())
				return
			}
			r := must(Iallreduce(w, []int{1}, []int{0}, op))
			got := []int{0}
			if _, err := Recv(c, got, 1, 0); err == nil {
				assert.Equal(t, 7, got[0])
			} else {
				assert.ErrorIs(t, err, ErrComm, "it was freed before")
			}
			must(r.Wait())
			check(<-freed)
		})
	}
}
