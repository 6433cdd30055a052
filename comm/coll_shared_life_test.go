package comm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm/internal/coll"
)

// TestFreeWhileSharedMemoryIsSetUp: another goroutine frees the communicator while the first
// collective sets memory up. The collective completes.
func TestFreeWhileSharedMemoryIsSetUp(t *testing.T) {
	runUnchecked(t, 3, func(w *Comm) {
		for range 10 {
			d := must(w.Dup())
			d.team.SetTuning(sharedTunings["short"])
			if w.Rank() != 1 {
				must(Recv(w, []int{0}, 1, 0))
				check(d.Barrier())
				check(d.Free())
				continue
			}
			freed := make(chan error, 1)
			go func() {
				awaitRunning(d)
				freed <- d.Free()
				for _, r := range []int{0, 2} {
					check(Send(w, []int{0}, r, 0))
				}
			}()
			check(d.Barrier())
			check(<-freed)
		}
	})
}

// TestRanksWithDifferentSharedBytesUseMessages: the setting coll.shared.bytes differs between
// ranks, of one host or of several.
func TestRanksWithDifferentSharedBytesUseMessages(t *testing.T) {
	for _, c := range []struct {
		blocks    []int
		placement string // "" is one host
	}{
		{[]int{1024, 512, 1024}, ""},
		{[]int{512, 1024, 1024}, ""},
		{[]int{0, 512, 512}, ""},
		{[]int{512, 512, 0}, ""},
		{[]int{1024, 1024, 512, 512}, "by twos"},
		{[]int{512, 512, 1024, 1024}, "by twos"},
		{[]int{512, 512, 0, 0}, "by twos"},
		{[]int{512, 1024, 512, 1024}, "in turns"},
		{[]int{512, 512, 512, 1024}, "by twos"},
	} {
		blocks, n := c.blocks, len(c.blocks)
		t.Run(fmt.Sprint(blocks, c.placement), func(t *testing.T) {
			runUnchecked(t, n, func(w *Comm) {
				if c.placement != "" {
					placeOnHosts(w, placements[c.placement])
				}
				locked(w, func() int {
					w.job.hub = coll.NewHub(w.job.pml, blocks[w.Rank()], func(int) {})
					return 0
				})
				d := must(w.Dup())
				d.team.SetTuning(sharedTunings["short"])
				check(d.Barrier())
				for _, elements := range []int{1, 30, 50, 500} {
					sum := make([]int, elements)
					for i := range sum {
						sum[i] = i
					}
					check(Allreduce(d, nil, sum, Sum))
					for i := range sum {
						if sum[i] != n*i {
							failf("%d elements: element %d is %d", elements, i, sum[i])
						}
					}
				}
				CheckResultsOfStarts(must(w.Dup())) // in which no call has found that out
				assert.False(t, shares(d))
			})
		})
	}
}

// SharingMemory returns a new communicator whose ranks share memory. Short vectors, or all, use the
// path for short vectors.
func SharingMemory(w *Comm, way string) *Comm { return sharing(w, sharedTunings[way]) }

// AwaitArrivals returns when the given number of ranks has arrived at this rank's next collective
// in shared memory.
func AwaitArrivals(d *Comm, ranks int) {
	for locked(d, d.team.Arrived) != ranks {
		runtime.Gosched()
	}
}

// TestCollectivesThatFailWhileSharedMemoryIsSetUp: a rank makes another call while the others set
// memory up. No rank hangs, and the next collectives work.
func TestCollectivesThatFailWhileSharedMemoryIsSetUp(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			t.Parallel()
			runUnchecked(t, n, func(w *Comm) {
				defer hurry(w)()
				for odd := range n {
					for _, what := range []string{"bcast", "bcast of 40 bytes", "allgather", "reduce", "scan", "refused"} {
						d := must(w.Dup())
						d.team.SetTuning(sharedTunings["short"])
						isOdd := w.Rank() == odd
						var err error
						switch {
						case !isOdd:
							err = Allreduce(d, make([]int64, 40), make([]int64, 40), Sum)
						case what == "bcast":
							_ = Bcast(d, make([]int64, 41), odd) // it need not wait
						case what == "bcast of 40 bytes": // as many as the set-up sends first
							_ = Bcast(d, make([]int64, 5), odd)
						case what == "allgather":
							err = Allgather(d, make([]int64, 3), make([]int64, 3*n))
						case what == "reduce": // as long as the others
							_ = Reduce(d, []int64{-1}, make([]int64, 1), Sum, (odd+1)%n)
						case what == "scan":
							_ = Scan(d, []int64{-1}, make([]int64, 1), Sum)
						case what == "refused":
							err = Allreduce(d, make([]int64, 3), make([]int64, 4), Sum)
						}
						if err == nil && !isOdd {
							failf("rank %d: %s at rank %d: no error", w.Rank(), what, odd)
						}
						isDifferent(what, err)
						for range 2 {
							if err := errors.Join(d.Barrier(), Allreduce(d, make([]int64, 3), make([]int64, 3), Sum)); err != nil {
								failf("rank %d: after %s at rank %d: %w", w.Rank(), what, odd, err)
							}
						}
						check(d.Free())
					}
				}
			})
		})
	}
}

// TestContextThatEndsWhileSharedMemoryIsSetUp: every rank gets an error.
func TestContextThatEndsWhileSharedMemoryIsSetUp(t *testing.T) {
	for _, n := range []int{2, 4, 7} {
		for early := range n {
			runUnchecked(t, n, func(w *Comm) {
				defer hurry(w)()
				d := must(w.Dup())
				d.team.SetTuning(sharedTunings["short"])
				late := (early + 1) % n
				switch w.Rank() {
				case early:
					ctx, cancel := context.WithCancel(context.Background())
					stopped := make(chan struct{})
					go func() {
						defer close(stopped)
						awaitRunning(d)
						cancel()
					}()
					assert.ErrorIs(t, d.WithContext(ctx).Barrier(), context.Canceled)
					<-stopped
					check(Send(w, []int{0}, late, 0))
				case late:
					must(Recv(w, []int{0}, early, 0))
					assert.ErrorIs(t, d.Barrier(), ErrComm)
				default:
					assert.ErrorIs(t, d.Barrier(), ErrComm)
				}
				assert.ErrorIs(t, d.Barrier(), ErrComm, "unfit at one rank")
				check(w.Barrier())
			})
		}
	}
}

// TestCollectivesOfSeveralGoroutinesThroughSharedMemory: each goroutine of a rank has communicators
// of its own. While they wait, other goroutines exchange messages.
func TestCollectivesOfSeveralGoroutinesThroughSharedMemory(t *testing.T) {
	const goroutines, rounds = 4, 60
	runUnchecked(t, 3, func(w *Comm) {
		var running sync.WaitGroup
		for g := range goroutines {
			d, talk := must(w.Dup()), must(w.Dup())
			d.team.SetTuning(sharedTunings[[]string{"short", "long", "mixed"}[g%3]])
			running.Go(func() {
				for i := range rounds {
					count := 1 + (i*37+g)%300
					sum := make([]int, count)
					for j := range sum {
						sum[j] = i + j + w.Rank()
					}
					check(Allreduce(d, nil, sum, Sum))
					for j := range sum {
						if sum[j] != 3*(i+j)+3 {
							failf("rank %d, round %d: element %d is %d", w.Rank(), i, j, sum[j])
						}
					}
					check(d.Barrier())
					if i%20 == 0 { // a communicator comes and goes
						e := sharing(d, sharedTunings["mixed"])
						check(e.Free())
					}
				}
			})
			running.Go(func() {
				next, before := (w.Rank()+1)%3, (w.Rank()+2)%3
				in := []int{0}
				for i := range 3 * rounds {
					must(Sendrecv(talk, []int{i}, next, 0, in, before, 0))
				}
			})
		}
		running.Wait()
	}, WithSetting("coll.shared.bytes", "512"))
}

// TestOnlyRanksOfOneHostShareMemory: of four ranks, two each are on one host.
func TestOnlyRanksOfOneHostShareMemory(t *testing.T) {
	runUnchecked(t, 4, func(w *Comm) {
		locked(w, func() int {
			w.job.hosts = []int{0, 0, 1, 1}
			return 0
		})
		for _, c := range []*Comm{must(w.Dup()), must(w.Split(w.Rank()/2, 0)), must(w.Split(w.Rank()%2, 0))} {
			c.team.SetTuning(sharedTunings["short"])
			for range 3 {
				sum := []int{w.Rank()}
				check(errors.Join(c.Barrier(), Allreduce(c, nil, sum, Sum)))
				want := 0
				for rank := range c.Size() {
					want += c.group[rank]
				}
				check(same("sum", []int{want}, sum))
			}
			assert.Equal(t, c.group[0]/2 == c.group[1]/2, shares(c))
		}
	})
}
