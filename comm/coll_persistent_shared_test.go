package comm

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

// Persistent collectives of ranks of one host, whose starts go through shared memory.

// sharedInit is one of them. v has room for an equal part of each rank.
type sharedInit struct {
	name string
	init func(d *Comm, v []int, root int) (request.Request, error)
}

var sharedInits = []sharedInit{
	{"barrier", func(d *Comm, _ []int, _ int) (request.Request, error) { return d.BarrierInit() }},
	{"bcast", func(d *Comm, v []int, root int) (request.Request, error) { return BcastInit(d, v, root) }},
	{"reduce", func(d *Comm, v []int, root int) (request.Request, error) {
		return ReduceInit(d, slices.Clone(v), v, Sum, root)
	}},
	{"allreduce", func(d *Comm, v []int, _ int) (request.Request, error) { return AllreduceInit(d, nil, v, Sum) }},
	{"allgather", func(d *Comm, v []int, _ int) (request.Request, error) { return AllgatherInit(d, nil, v) }},
	{"alltoall", func(d *Comm, v []int, _ int) (request.Request, error) {
		return AlltoallInit(d, slices.Clone(v), v)
	}},
}

// initShared makes the requests of all of them, with parts of the given number of elements.
func initShared(d *Comm, part, root int) (reqs []request.Request) {
	for _, c := range sharedInits {
		reqs = append(reqs, must(c.init(d, make([]int, part*d.Size()), root)))
	}
	return reqs
}

// startAll starts requests, beginning with one of them, and waits for all.
func startAll(reqs []request.Request, first int) {
	for i := range reqs {
		check(reqs[(first+i)%len(reqs)].Start())
	}
	for _, r := range reqs {
		must(r.Wait())
	}
}

// CheckStartsSendNothing checks that starts of w, which is on one host, receive no message, in any
// order.
func CheckStartsSendNothing(w *Comm, part int) {
	reqs := initShared(w, part, w.Size()-1)
	check(w.Barrier())
	before := locked(w, w.job.pml.Stats).Received
	for range 50 {
		startAll(reqs, w.Rank())
	}
	if n := locked(w, w.job.pml.Stats).Received - before; n > 0 {
		failf("rank %d of %d: parts of %d elements: starts have received %d messages", w.Rank(), w.Size(), part, n)
	}
	for _, r := range reqs {
		check(r.Free())
	}
}

// CheckResultsOfStarts checks the results of starts, with short and long buffers.
func CheckResultsOfStarts(d *Comm) {
	n, rank := d.Size(), d.Rank()
	for _, part := range []int{1, 40, 3000} {
		whole := n * part
		in := make([]int, whole)
		for i := range in {
			in[i] = 100_000*rank + i
		}
		of := func(rank, i int) int { return 100_000*rank + i }
		sum := func(i int) int { return 100_000*(n*(n-1)/2) + n*i }
		for _, c := range []struct {
			name string
			out  []int
			init func(out []int) (request.Request, error)
			want func(i int) int
		}{
			{"bcast", slices.Clone(in), func(out []int) (request.Request, error) { return BcastInit(d, out, n-1) },
				func(i int) int { return of(n-1, i) }},
			{"allreduce", make([]int, whole), func(out []int) (request.Request, error) { return AllreduceInit(d, in, out, Sum) },
				sum},
			{"allgather", make([]int, whole), func(out []int) (request.Request, error) { return AllgatherInit(d, in[:part], out) },
				func(i int) int { return of(i/part, i%part) }},
			{"alltoall", make([]int, whole), func(out []int) (request.Request, error) { return AlltoallInit(d, in, out) },
				func(i int) int { return of(i/part, rank*part+i%part) }},
			{"reduce", make([]int, whole), func(out []int) (request.Request, error) { return ReduceInit(d, in, out, Sum, 0) },
				func(i int) int {
					if rank != 0 {
						return 0
					}
					return sum(i)
				}},
			{"reducescatterblock", make([]int, part),
				func(out []int) (request.Request, error) { return ReduceScatterBlockInit(d, in, out, Sum) },
				func(i int) int { return sum(rank*part + i) }},
		} {
			r := must(c.init(c.out))
			for range 3 {
				check(startAndWait(r))
			}
			check(r.Free())
			for i, got := range c.out {
				if want := c.want(i); got != want {
					failf("rank %d of %d: %s: element %d of %d is %d, not %d", rank, n, c.name, i, len(c.out), got, want)
				}
			}
		}
	}
}

// TestMemoryOfActiveStartCannotBeFreed: FreeAlloc of a buffer fails while a start uses it.
func TestMemoryOfActiveStartCannotBeFreed(t *testing.T) {
	runUnchecked(t, 2, func(w *Comm) {
		buf := must(Alloc[int](w, 1000))
		r := must(BcastInit(w, buf, 0))
		if w.Rank() == 1 {
			check(r.Start())
			assert.ErrorIs(t, FreeAlloc(w, buf), ErrPending)
			check(Send(w, []int{1}, 0, 0))
			must(r.Wait())
		} else {
			must(Recv(w, []int{0}, 1, 0))
			check(startAndWait(r))
		}
		check(r.Free())
		check(FreeAlloc(w, buf))
	})
}

func TestStartsOfOneHostSendNothing(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(sharedTunings)) {
		for _, n := range []int{2, 3, 8} {
			if race.Brief() && n != 3 {
				continue
			}
			runUnchecked(t, n, func(w *Comm) {
				w.team.SetTuning(sharedTunings[name])
				for _, part := range []int{1, 20, 3000} {
					CheckStartsSendNothing(w, part)
				}
			}, WithSetting("progress.sleep", "false"))
		}
	}
}

// TestStartsInSharedMemoryAllocateNothing: in the steady state.
func TestStartsInSharedMemoryAllocateNothing(t *testing.T) {
	if race.Brief() { // the test above makes the same starts
		return
	}
	const rounds = 400
	for _, name := range slices.Sorted(maps.Keys(sharedTunings)) {
		for _, n := range []int{2, 5} {
			runUnchecked(t, n, func(w *Comm) {
				w.team.SetTuning(sharedTunings[name])
				for _, part := range []int{1, 500} {
					reqs := initShared(w, part, 0)
					for i, r := range reqs {
						step := func() { // the barrier keeps ranks from running ahead
							check(startAndWait(r))
							check(w.Barrier())
						}
						for range 5 {
							step()
						}
						if w.Rank() == 0 {
							assert.Zero(t, testing.AllocsPerRun(rounds, step), "%s of %d, %s, %d ranks", sharedInits[i].name, part, name, n)
							continue
						}
						for range rounds + 1 {
							step()
						}
					}
				}
			}, WithSetting("progress.sleep", "false"))
		}
	}
}

// CheckStartsOfKilledRank starts persistent collectives at all ranks except one, which is then
// killed.
func CheckStartsOfKilledRank(w *Comm, killed int, kill func()) {
	d := must(w.Dup())
	var reqs []request.Request
	for _, part := range []int{1, 5000} {
		reqs = append(reqs, initShared(d, part, 0)...)
	}
	startAll(reqs, 0)
	if w.Rank() == killed {
		for range w.Size() - 1 {
			must(Recv(w, []int{0}, AnySource, 0))
		}
		kill()
	}
	for _, r := range reqs {
		check(r.Start())
	}
	check(Send(w, []int{0}, killed, 0))
	for i, r := range reqs {
		_, err := r.Wait()
		name := sharedInits[i%len(sharedInits)].name
		isDue := name != "bcast" && (name != "reduce" || w.Rank() == 0)
		if err == nil && isDue || err != nil && !errors.Is(err, ErrProcFailed) && !errors.Is(err, ErrComm) {
			failf("rank %d: %s: %w", w.Rank(), name, err)
		}
	}
}

// CheckMemoryOfStarts checks that Free of a persistent collective releases its shared memory, and
// that Finalize releases the memory of the others.
func CheckMemoryOfStarts(w *Comm) {
	mapped := func() int {
		return strings.Count(string(must(os.ReadFile("/proc/self/maps"))), "mpigo-sm-shared")
	}
	before := mapped()
	reqs := initShared(w, 10, 0)
	if got, want := mapped()-before, len(reqs); got != want {
		failf("%d persistent collectives have %d mappings", want, got)
	}
	startAll(reqs, 0)
	for _, r := range reqs {
		check(r.Free())
	}
	if n := mapped() - before; n > 0 {
		failf("%d mappings are left", n)
	}
	startAll(initShared(w, 10, 0), 0)
}
