package comm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

// checkDifferentForms has one rank make each collective in another form.
func checkDifferentForms(w *Comm, how coll.How) {
	other := [...][]revocable{revocables(blocking), revocables(nonblocking), revocables(persistent)}
	for i, c := range other[how] {
		if i >= len(other[nonblocking]) {
			break // Split and Dup have one form
		}
		count, odd, call := revokeSizes[i%len(revokeSizes)], i%w.Size(), c.call
		called := other[(int(how)+1+i%2)%3][i]
		if w.Rank() == odd {
			call = called.call
		}
		what := fmt.Sprintf("rank %d: %s of %d elements but %s at rank %d", w.Rank(), c.name, count, called.name, odd)
		a := newArgs(w, count, 0)
		err := scene(a, call)
		isDifferent(what, err)
		if err == nil && c.needs && called.needs {
			failf("%s: no error", what)
		}
		a.after(w, what)
	}
}

func TestOtherFormAtOneRankFails(t *testing.T) { forEachRevokingForm(t, checkDifferentForms) }

// reductions are the collectives with an operation.
func reductions(how coll.How, op Op[int64]) map[calls.ID]beginCall {
	r := reductionOf(op, []CollOption{InRankOrder()})
	return map[calls.ID]beginCall{
		calls.Reduce: func(a *args) (request.Request, error) {
			return a.w.reduce(how, bytesOf(a.in), bytesOf(a.out), r, a.root, elemOf[int64]())
		},
		calls.Allreduce: func(a *args) (request.Request, error) {
			return a.w.allreduce(how, bytesOf(a.in), bytesOf(a.out), r, elemOf[int64]())
		},
		calls.Scan: func(a *args) (request.Request, error) {
			return a.w.scan(how, calls.Scan, bytesOf(a.in), bytesOf(a.out), r, elemOf[int64]())
		},
		calls.Exscan: func(a *args) (request.Request, error) {
			return a.w.scan(how, calls.Exscan, bytesOf(a.in), bytesOf(a.out), r, elemOf[int64]())
		},
		calls.ReduceScatter: func(a *args) (request.Request, error) {
			return a.w.reduceScatter(how, bytesOf(a.allIn), bytesOf(a.out), a.counts, r, elemOf[int64]())
		},
		calls.ReduceScatterBlock: func(a *args) (request.Request, error) {
			return a.w.reduceScatterBlock(how, bytesOf(a.allIn), bytesOf(a.out), r, elemOf[int64]())
		},
	}
}

// TestPanickingOperationFailsEachReduction: the operation panics at one rank. A blocking call
// panics in turn; in other forms the panic becomes the request's error. No rank hangs, and the
// communicator is unfit afterwards at all ranks.
func TestPanickingOperationFailsEachReduction(t *testing.T) {
	for how := blocking; how <= persistent; how++ {
		for id := range reductions(how, nil) {
			t.Run(how.Of(id).String(), func(t *testing.T) {
				for _, count := range []int{1, 500} {
					run(t, 4, func(w *Comm) {
						const odd = 2
						called := []int{0}
						call := completing(how, reductions(how, func(in, inout []int64) {
							if w.Rank() == odd {
								called[0] = 1
								panic(errOperation)
							}
						})[id])
						d := must(w.Dup())
						err := panicked(func() error { return call(newArgs(d, count, 1)) })
						switch {
						case w.Rank() != odd:
							assert.True(t, err == nil || errors.Is(err, ErrComm), err)
						case called[0] > 0:
							assert.ErrorIs(t, err, errOperation)
						}
						check(Bcast(w, called, odd))
						if called[0] > 0 {
							assert.ErrorIs(t, d.Barrier(), ErrComm)
						} else {
							check(d.Barrier())
						}
					})
				}
			})
		}
	}
}

var errOperation = errors.New("this operation panics")

// panicked calls f, and returns its error or the value of its panic.
func panicked(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v (%w)", p, asError(p))
		}
	}()
	return f()
}

func asError(p any) error {
	err, _ := p.(error)
	return err
}

// TestOperationMayCallLibrary: an operation may make calls that do not wait.
func TestOperationMayCallLibrary(t *testing.T) {
	for how := blocking; how <= persistent; how++ {
		for id := range reductions(how, nil) {
			t.Run(how.Of(id).String(), func(t *testing.T) {
				run(t, 4, func(w *Comm) {
					other := must(Irecv(w, []int{0}, w.Rank(), 5))
					check(completing(how, reductions(how, func(in, inout []int64) {
						_, _, err := w.Iprobe(AnySource, AnyTag)
						check(err)
						_, _, err = other.Test()
						check(err)
						check(Send(w, []int{1}, ProcNull, w.Size()))
					})[id])(newArgs(w, 300, 1)))
					check(Send(w, []int{0}, w.Rank(), 5))
					must(other.Wait())
				})
			})
		}
	}
}

// TestNonblockingCollectivesAndContexts: a call with an ended context counts. A wait that a
// context ends leaves the collective active.
func TestNonblockingCollectivesAndContexts(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, n := range []int{2, 3, 5} {
		run(t, n, func(w *Comm) {
			for i, c := range revocables(nonblocking) {
				v := newArgs(w.WithContext(ended), 100, i%n)
				_, err := c.begin(v)
				assert.ErrorIs(t, err, context.Canceled, c.name)
				assert.ErrorIs(t, err, ErrGivenUp, c.name)
				late := (i + 1) % n
				if w.Rank() == late {
					for r := range n {
						if r != late {
							must(Recv(w, []int{0}, r, 3))
						}
					}
				}
				r := must(c.begin(newArgs(w, 100, i%n)))
				if w.Rank() != late {
					if _, err := r.WaitContext(ended); c.needs {
						assert.ErrorIs(t, err, context.Canceled, c.name)
					}
					check(Send(w, []int{0}, late, 3))
				}
				must(r.Wait())
			}
		})
	}
}

// TestRankFreesCommunicatorWithoutTheCall: the ranks that wait for that rank get errors.
func TestRankFreesCommunicatorWithoutTheCall(t *testing.T) {
	for how := blocking; how <= persistent; how++ {
		for _, c := range revocables(how) {
			t.Run(c.name, func(t *testing.T) {
				run(t, 3, func(w *Comm) {
					defer hurry(w)()
					d := must(w.Dup())
					if w.Rank() != 1 {
						err := c.call(newArgs(d, 1000, 0))
						assert.True(t, err == nil && !c.needs || errors.Is(err, ErrComm), err)
					}
					check(errors.Join(d.Free(), w.Barrier()))
				})
			})
		}
	}
}

// TestRandomNonblockingCollectives makes many random calls, with up to 2,000 under way. Every kind
// of wait and test completes them.
func TestRandomNonblockingCollectives(t *testing.T) {
	most := race.Some(20_000)
	run(t, 3, func(w *Comm) {
		same, own := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(2, uint64(w.Rank())))
		kinds := revocables(nonblocking)
		var reqs []request.Request
		drop := func(indices ...int) {
			slices.Sort(indices)
			for _, i := range slices.Backward(indices) {
				reqs = slices.Delete(reqs, i, i+1)
			}
		}
		for i := range most {
			c := kinds[same.IntN(len(kinds))]
			reqs = append(reqs, must(c.begin(newArgs(w, same.IntN(4), same.IntN(3)))))
			if len(reqs) < 2000 && i < most-1 {
				continue
			}
			for keep := 1000 * b2i(i < most-1); len(reqs) > keep; {
				own.Shuffle(len(reqs), func(i, j int) { reqs[i], reqs[j] = reqs[j], reqs[i] })
				some := reqs[:min(len(reqs), 200)]
				indices := make([]int, len(some))
				switch own.IntN(7) {
				case 0:
					check(request.WaitAll(some...))
					reqs = reqs[len(some):]
				case 1:
					i, _, err := request.WaitAny(some...)
					check(err)
					drop(i)
				case 2:
					n := must(request.WaitSome(some, indices, nil))
					drop(indices[:n]...)
				case 3:
					if must(request.TestAll(some, nil)) {
						reqs = reqs[len(some):]
					}
				case 4:
					i, _, done, err := request.TestAny(some...)
					check(err)
					if done {
						drop(i)
					}
				case 5:
					n := must(request.TestSome(some, indices, nil))
					drop(indices[:n]...)
				case 6:
					must(some[0].Wait())
					drop(0)
				}
			}
		}
	})
}

// TestOperationOnLongVectors: more than 65,536 elements, in each form.
func TestOperationOnLongVectors(t *testing.T) {
	const count = 100_000
	for how := blocking; how <= persistent; how++ {
		for id := range reductions(how, nil) {
			t.Run(how.Of(id).String(), func(t *testing.T) {
				var elements atomic.Int64
				run(t, 3, func(w *Comm) {
					a := newArgs(w, count, 1)
					for i := range a.allIn {
						a.allIn[i] = int64(i % count)
					}
					check(completing(how, reductions(how, func(in, inout []int64) {
						elements.Add(int64(len(inout)))
						for i := range inout {
							inout[i] += in[i]
						}
					})[id])(a))
					times := map[calls.ID]int64{calls.Scan: int64(w.Rank()) + 1, calls.Exscan: int64(w.Rank()), calls.Reduce: 3 * int64(b2i(w.Rank() == 1))}
					factor, known := times[id]
					if !known {
						factor = 3
					}
					for i, got := range a.out {
						if got != factor*int64(i) {
							failf("element %d is %d, not %d", i, got, factor*int64(i))
						}
					}
				})
				assert.GreaterOrEqual(t, elements.Load(), int64(count))
			})
		}
	}
}

// TestAlltoallvWithNeighborsOnly has the cases of MPICH's alltoallv0: a rank exchanges elements
// only with its neighbours in a ring, or with none. It exchanges none with itself, and different
// numbers with each neighbour.
func TestAlltoallvWithNeighborsOnly(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		forEachForm(t, n, func(w *Comm, how coll.How) {
			for _, withoutRing := range []int{-1, 0} { // a rank that neither sends nor receives
				me, size := w.Rank(), int(sizeOf[int]())
				length := func(from, to int) int {
					if from == to || from == withoutRing || to == withoutRing || to != (from+1)%n && from != (to+1)%n {
						return 0
					}
					return 1 + min(from, to)
				}
				counts, displs, total := make([]int, n), make([]int, n), 0
				for r := range n {
					counts[r], displs[r] = length(me, r), total
					total += counts[r]
				}
				in, out := make([]int, total), make([]int, total)
				var want []int
				for r := range n {
					for i := range counts[r] {
						in[displs[r]+i] = 100*me + 10*r + i
						want = append(want, 100*r+10*me+i)
					}
				}
				l := layout{counts, displs, size}
				finish(w.alltoallv(how, bytesOf(in), l, bytesOf(out), l, elemOf[int]()))
				assert.Equal(t, want, append([]int(nil), out...))
				finish(w.alltoallv(how, nil, layout{nil, nil, size}, bytesOf(in), l, elemOf[int]()))
				assert.Equal(t, want, append([]int(nil), in...), "in place")
			}
		})
	}
}
