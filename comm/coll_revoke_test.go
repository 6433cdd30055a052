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

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// These tests check for every collective that a wrong call of one rank has no bad effects: no rank
// hangs, the library writes to no buffer after the call has returned, the next collective works,
// and no message or operation remains.

// args are the arguments of a rank for any collective call.
type args struct {
	w                 *Comm
	root              int
	wholeIn, wholeOut []int64 // with an element more than all parts
	allIn, allOut     []int64 // a part for each rank
	in, out           []int64 // one part
	longOut           []int64 // out with an element more
	counts            []int   // lengths of the parts
}

func newArgs(w *Comm, count, root int) *args {
	n := w.Size() * count
	in, out := make([]int64, n+1), make([]int64, n+1)
	return &args{w, root, in, out, in[:n], out[:n], in[:count], out[:count], out[:count+1],
		slices.Repeat([]int{count}, w.Size())}
}

// revocable is a collective in some form.
type revocable struct {
	how     coll.How
	id      calls.ID
	variant string // "" for the usual arguments
	name    string // of call and variant
	rooted  bool
	needs   bool // no rank can finish it before every rank has called it
	begin   beginCall
	// refused are calls with bad arguments.
	refused []refusal
}

// beginCall makes a call, whose request complete completes.
type beginCall func(a *args) (request.Request, error)

// call makes a call and completes it.
func (c *revocable) call(a *args) error { return completing(c.how, c.begin)(a) }

type refusal struct {
	want   error
	atRoot bool // only the root can see it
	begin  beginCall
}

func revocables(how coll.How) []revocable {
	none := request.Request{}
	free := func(c *Comm, err error) error {
		if err == nil && c != nil {
			err = c.Free()
		}
		return err
	}
	list := []revocable{
		{id: calls.Barrier, needs: true, begin: func(a *args) (request.Request, error) { return a.w.barrier(how) }},
		{id: calls.Bcast, rooted: true, begin: func(a *args) (request.Request, error) { return a.w.bcast(how, bytesOf(a.out), a.root, elemOf[int64]()) },
			refused: []refusal{
				{ErrRoot, false, func(a *args) (request.Request, error) { return a.w.bcast(how, bytesOf(a.out), -1, elemOf[int64]()) }},
			}},
		{id: calls.Reduce, rooted: true, begin: func(a *args) (request.Request, error) {
			return a.w.reduce(how, bytesOf(a.in), bytesOf(a.out), reductionOf(Sum[int64], nil), a.root, elemOf[int64]())
		},
			refused: []refusal{
				{ErrRoot, false, func(a *args) (request.Request, error) {
					return a.w.reduce(how, bytesOf(a.in), bytesOf(a.out), reductionOf(Sum[int64], nil), a.w.Size(), elemOf[int64]())
				}},
				{ErrOp, false, func(a *args) (request.Request, error) {
					return a.w.reduce(how, bytesOf(a.in), bytesOf(a.out), reductionOf(Op[int64](nil), nil), a.root, elemOf[int64]())
				}},
				{ErrCount, true, func(a *args) (request.Request, error) {
					return a.w.reduce(how, bytesOf(a.in), bytesOf(a.longOut), reductionOf(Sum[int64], nil), a.root, elemOf[int64]())
				}},
				{ErrBuffer, true, func(a *args) (request.Request, error) {
					return a.w.reduce(how, bytesOf(a.in), bytesOf(a.in), reductionOf(Sum[int64], nil), a.root, elemOf[int64]())
				}},
			}},
		{id: calls.Allreduce, needs: true, begin: func(a *args) (request.Request, error) {
			return a.w.allreduce(how, bytesOf(a.in), bytesOf(a.out), reductionOf(Sum[int64], nil), elemOf[int64]())
		},
			refused: []refusal{
				{ErrOp, false, func(a *args) (request.Request, error) {
					return a.w.allreduce(how, bytesOf(a.in), bytesOf(a.out), reductionOf(Op[int64](nil), nil), elemOf[int64]())
				}},
				{ErrCount, false, func(a *args) (request.Request, error) {
					return a.w.allreduce(how, bytesOf(a.in), bytesOf(a.longOut), reductionOf(Sum[int64], nil), elemOf[int64]())
				}},
				{ErrBuffer, false, func(a *args) (request.Request, error) {
					return a.w.allreduce(how, bytesOf(a.in), bytesOf(a.in), reductionOf(Sum[int64], nil), elemOf[int64]())
				}},
			}},
		{id: calls.Allreduce, variant: "in order", needs: true, begin: func(a *args) (request.Request, error) {
			return a.w.allreduce(how, bytesOf(a.in), bytesOf(a.out), reductionOf(Sum[int64], []CollOption{InRankOrder()}), elemOf[int64]())
		}},
		{id: calls.Scan, begin: func(a *args) (request.Request, error) {
			return a.w.scan(how, calls.Scan, bytesOf(a.in), bytesOf(a.out), reductionOf(Sum[int64], nil), elemOf[int64]())
		},
			refused: []refusal{
				{ErrOp, false, func(a *args) (request.Request, error) {
					return a.w.scan(how, calls.Scan, bytesOf(a.in), bytesOf(a.out), reductionOf(Op[int64](nil), nil), elemOf[int64]())
				}},
				{ErrCount, false, func(a *args) (request.Request, error) {
					return a.w.scan(how, calls.Scan, bytesOf(a.in), bytesOf(a.longOut), reductionOf(Sum[int64], nil), elemOf[int64]())
				}},
			}},
		{id: calls.Exscan, begin: func(a *args) (request.Request, error) {
			return a.w.scan(how, calls.Exscan, bytesOf(a.in), bytesOf(a.out), reductionOf(Sum[int64], nil), elemOf[int64]())
		},
			refused: []refusal{
				{ErrOp, false, func(a *args) (request.Request, error) {
					return a.w.scan(how, calls.Exscan, bytesOf(a.in), bytesOf(a.out), reductionOf(Op[int64](nil), nil), elemOf[int64]())
				}},
			}},
		{id: calls.Gather, rooted: true, begin: func(a *args) (request.Request, error) {
			return a.w.gather(how, bytesOf(a.in), bytesOf(a.allOut), 8, a.root, elemOf[int64]())
		},
			refused: []refusal{
				{ErrRoot, false, func(a *args) (request.Request, error) {
					return a.w.gather(how, bytesOf(a.in), bytesOf(a.allOut), 8, ProcNull, elemOf[int64]())
				}},
				{ErrCount, true, func(a *args) (request.Request, error) {
					return a.w.gather(how, bytesOf(a.in), bytesOf(a.wholeOut), 8, a.root, elemOf[int64]())
				}},
			}},
		{id: calls.Scatter, rooted: true, begin: func(a *args) (request.Request, error) {
			return a.w.scatter(how, bytesOf(a.allIn), bytesOf(a.out), 8, a.root, elemOf[int64]())
		},
			refused: []refusal{
				{ErrRoot, false, func(a *args) (request.Request, error) {
					return a.w.scatter(how, bytesOf(a.allIn), bytesOf(a.out), 8, 99, elemOf[int64]())
				}},
				{ErrCount, true, func(a *args) (request.Request, error) {
					return a.w.scatter(how, bytesOf(a.wholeIn), bytesOf(a.out), 8, a.root, elemOf[int64]())
				}},
			}},
		{id: calls.Allgather, needs: true, begin: func(a *args) (request.Request, error) {
			return a.w.allgather(how, bytesOf(a.in), bytesOf(a.allOut), 8, elemOf[int64]())
		},
			refused: []refusal{
				{ErrCount, false, func(a *args) (request.Request, error) {
					return a.w.allgather(how, bytesOf(a.in), bytesOf(a.wholeOut), 8, elemOf[int64]())
				}},
				{ErrBuffer, false, func(a *args) (request.Request, error) {
					return a.w.allgather(how, bytesOf(a.out), bytesOf(a.allOut), 8, elemOf[int64]())
				}},
			}},
		{id: calls.Alltoall, needs: true, begin: func(a *args) (request.Request, error) {
			return a.w.alltoall(how, bytesOf(a.allIn), bytesOf(a.allOut), 8, elemOf[int64]())
		},
			refused: []refusal{
				{ErrCount, false, func(a *args) (request.Request, error) {
					return a.w.alltoall(how, bytesOf(a.allIn), bytesOf(a.wholeOut), 8, elemOf[int64]())
				}},
				{ErrCount, false, func(a *args) (request.Request, error) {
					return a.w.alltoall(how, nil, bytesOf(a.wholeOut), 8, elemOf[int64]())
				}},
			}},
		{id: calls.Alltoall, variant: "in place", needs: true, begin: func(a *args) (request.Request, error) {
			return a.w.alltoall(how, nil, bytesOf(a.allOut), 8, elemOf[int64]())
		}},
		{id: calls.ReduceScatter, needs: true, begin: func(a *args) (request.Request, error) {
			return a.w.reduceScatter(how, bytesOf(a.allIn), bytesOf(a.out), a.counts, reductionOf(Sum[int64], nil), elemOf[int64]())
		},
			refused: []refusal{
				{ErrCount, false, func(a *args) (request.Request, error) {
					return a.w.reduceScatter(how, bytesOf(a.allIn), bytesOf(a.out), a.counts[1:], reductionOf(Sum[int64], nil), elemOf[int64]())
				}},
				{ErrOp, false, func(a *args) (request.Request, error) {
					return a.w.reduceScatter(how, bytesOf(a.allIn), bytesOf(a.out), a.counts, reductionOf(Op[int64](nil), nil), elemOf[int64]())
				}},
			}},
		{id: calls.ReduceScatterBlock, needs: true, begin: func(a *args) (request.Request, error) {
			return a.w.reduceScatterBlock(how, bytesOf(a.allIn), bytesOf(a.out), reductionOf(Sum[int64], nil), elemOf[int64]())
		},
			refused: []refusal{
				{ErrCount, false, func(a *args) (request.Request, error) {
					return a.w.reduceScatterBlock(how, bytesOf(a.wholeIn), bytesOf(a.out), reductionOf(Sum[int64], nil), elemOf[int64]())
				}},
			}},
		{id: calls.Gatherv, rooted: true, begin: func(a *args) (request.Request, error) {
			return a.w.gatherv(how, bytesOf(a.in), bytesOf(a.allOut), layoutOf[int64](a.counts, nil), a.root, elemOf[int64]())
		},
			refused: []refusal{
				{ErrCount, true, func(a *args) (request.Request, error) {
					return a.w.gatherv(how, bytesOf(a.in), bytesOf(a.allOut), layoutOf[int64](a.counts[1:], nil), a.root, elemOf[int64]())
				}},
			}},
		{id: calls.Scatterv, rooted: true, begin: func(a *args) (request.Request, error) {
			return a.w.scatterv(how, bytesOf(a.allIn), bytesOf(a.out), layoutOf[int64](a.counts, nil), a.root, elemOf[int64]())
		},
			refused: []refusal{
				{ErrCount, true, func(a *args) (request.Request, error) {
					return a.w.scatterv(how, bytesOf(a.allIn), bytesOf(a.out), layoutOf[int64](a.counts, []int{1}), a.root, elemOf[int64]())
				}},
			}},
		{id: calls.Allgatherv, needs: true, begin: func(a *args) (request.Request, error) {
			return a.w.allgatherv(how, bytesOf(a.in), bytesOf(a.allOut), layoutOf[int64](a.counts, nil), elemOf[int64]())
		},
			refused: []refusal{
				{ErrCount, false, func(a *args) (request.Request, error) {
					return a.w.allgatherv(how, bytesOf(a.in), bytesOf(a.allOut), layoutOf[int64](nil, nil), elemOf[int64]())
				}},
			}},
		{id: calls.Alltoallv, needs: true, begin: func(a *args) (request.Request, error) {
			return a.w.alltoallv(how, bytesOf(a.allIn), layoutOf[int64](a.counts, nil), bytesOf(a.allOut), layoutOf[int64](a.counts, nil), elemOf[int64]())
		},
			refused: []refusal{
				{ErrCount, false, func(a *args) (request.Request, error) {
					return a.w.alltoallv(how, bytesOf(a.allIn), layoutOf[int64](a.counts, nil), bytesOf(a.allOut), layoutOf[int64](nil, nil), elemOf[int64]())
				}},
			}},
		{id: calls.Alltoallv, variant: "in place", needs: true, begin: func(a *args) (request.Request, error) {
			return a.w.alltoallv(how, nil, layoutOf[int64](nil, nil), bytesOf(a.allOut), layoutOf[int64](a.counts, nil), elemOf[int64]())
		}},
		{id: calls.Split, needs: true, begin: func(a *args) (request.Request, error) { return none, free(a.w.Split(0, 0)) },
			refused: []refusal{
				{ErrCount, false, func(a *args) (request.Request, error) { return none, free(a.w.Split(-9, 0)) }},
			}},
		{id: calls.Dup, needs: true, begin: func(a *args) (request.Request, error) { return none, free(a.w.Dup()) }},
	}
	for i := range list {
		c := &list[i]
		c.how, c.id = how, how.Of(c.id)
		c.name = strings.TrimSpace(c.id.String() + " " + c.variant)
		// The Init call waits for all ranks.
		c.needs = c.needs || how == persistent
	}
	if how != blocking { // Split and Dup only block
		list = list[:len(list)-2]
	}
	return list
}

// completing is a call in some form that is completed at once.
func completing(how coll.How, begin beginCall) func(a *args) error {
	return func(a *args) error {
		r, err := begin(a)
		return complete(how, r, err)
	}
}

// complete completes a call in any form. A persistent collective is started once, and freed.
func complete(how coll.How, r request.Request, err error) error {
	if err != nil || how == blocking {
		return err
	}
	if how == persistent {
		if err := r.Start(); err != nil {
			return err
		}
	}
	if _, err = r.Wait(); how == persistent {
		err = errors.Join(err, r.Free())
	}
	return err
}

// revokeTuning makes short buffers take the algorithms of long ones.
var revokeTuning = &coll.Tuning{
	ReduceScatterHalvingBytes: 500, BcastTreeBytes: 64, ReduceTreeBytes: 64, AllreduceDoublingBytes: 64, ScanDoublingBytes: 64,
	GatherTreeBytes: 64, GatherTreeRanks: 3, AllgatherBruckBytes: 128, AlltoallBruckBytes: 32, AlltoallBruckRanks: 3,
	AlltoallFlightBytes: 1000, PieceBytes: 128, FlatRanks: 5, FlatBytes: 256,
}

// sharedRevokeTuning is revokeTuning with shared memory.
func sharedRevokeTuning() *coll.Tuning {
	t := *revokeTuning
	t.SharedBytes, t.SharedShortBytes = 1<<40, 64
	return &t
}

// revokeSizes are lengths in elements on both sides of each threshold of revokeTuning, for some
// number of ranks.
var revokeSizes = []int{1, 6, 12, 50, 160}

// scene makes a collective call that fails at one rank. Afterwards it writes to the buffers, which
// belong to the user then. Their contents must not change.
func scene(a *args, call func(a *args) error) error {
	err := call(a)
	for i := range a.wholeIn {
		a.wholeIn[i], a.wholeOut[i] = -77, -78
	}
	return err
}

// after checks that the next collective of w works, and that the buffers of a scene have not
// changed. what names the scene in errors.
func (a *args) after(w *Comm, what string) {
	n := w.Size()
	in, sum, want := make([]int64, 100), make([]int64, 100), make([]int64, 100)
	for i := range in {
		in[i], want[i] = int64(w.Rank()+i), int64(n*(n-1)/2+n*i)
	}
	check(errors.Join(Allreduce(w, in, sum, Sum), same(what+": the next collective", want, sum)))
	for i := range a.wholeIn {
		if a.wholeIn[i] != -77 || a.wholeOut[i] != -78 {
			failf("%s: element %d was written to after the call", what, i)
		}
	}
}

// CheckRefused makes each collective with each kind of bad arguments at one rank. Each number of
// ranks takes a third of the lengths.
func CheckRefused(w *Comm, how coll.How) {
	n := w.Size()
	for _, c := range revocables(how) {
		for k, f := range c.refused {
			for i, count := range revokeSizes {
				if (i+k+n)%3 != 0 {
					continue
				}
				root, odd := (k+i)%n, (2*k+3*i)%n
				if f.atRoot {
					odd = root
				}
				what := fmt.Sprintf("rank %d: %s refused with %v: %d elements, root %d, odd one %d",
					w.Rank(), c.name, f.want, count, root, odd)
				a, call := newArgs(w, count, root), c.call
				if w.Rank() == odd {
					call = completing(how, f.begin)
				}
				err := scene(a, call)
				switch {
				case w.Rank() == odd:
					if !errors.Is(err, f.want) {
						failf("%s: %w", what, err)
					}
				case err == nil && c.needs:
					failf("%s: no error", what)
				case err != nil:
					isGivenUp(what, err, fmt.Sprintf("rank %d gave up on this", odd), "its arguments were refused there")
				}
				a.after(w, what)
			}
		}
	}
}

// isGivenUp checks the error of a rank whose collective another rank has revoked.
func isGivenUp(what string, err error, texts ...string) {
	e := (*Error)(nil)
	if !errors.Is(err, ErrComm) || !errors.As(err, &e) || e.Tag != Undefined {
		failf("%s: another error: %w", what, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			failf("%s: not %q: %w", what, text, err)
		}
	}
}

// isDifferent checks the error, if any, of a rank after a mismatch of arguments.
func isDifferent(what string, err error) {
	e := (*Error)(nil)
	if err != nil && (!errors.As(err, &e) || e.Tag != Undefined ||
		!errors.Is(err, ErrComm) && !errors.Is(err, ErrCount) && !errors.Is(err, ErrTruncate)) {
		failf("%s: another error: %w", what, err)
	}
}

// differ makes a collective call that differs at one rank. format and its operands describe the
// difference.
func differ(a *args, call func(a *args) error, format string, operands ...any) {
	what := fmt.Sprintf("rank %d: ", a.w.Rank()) + fmt.Sprintf(format, operands...)
	isDifferent(what, scene(a, call))
	a.after(a.w, what)
}

// CheckDifferentLengths calls each collective with a different length at one rank. Each number of
// ranks takes a fifth of the pairs of lengths.
func CheckDifferentLengths(w *Comm, how coll.How) {
	n := w.Size()
	for k, c := range revocables(how) {
		for i, usual := range revokeSizes {
			for j, other := range revokeSizes {
				if i == j || (i+j+k+n)%5 != 0 {
					continue
				}
				root, count := (i+j)%n, usual
				odd := (root + j%2) % n
				if w.Rank() == odd {
					count = other
				}
				differ(newArgs(w, count, root), c.call, "%s: %d elements, %d at rank %d, root %d", c.name, usual, other, odd, root)
			}
		}
	}
}

// CheckDifferentRoots calls each collective with a different root at one rank.
func CheckDifferentRoots(w *Comm, how coll.How) {
	n := w.Size()
	for _, c := range revocables(how) {
		for i, count := range revokeSizes {
			root := i % n
			odd := (root + i/2) % n
			a := newArgs(w, count, (root+b2i(w.Rank() == odd))%n)
			if c.rooted {
				differ(a, c.call, "%s: %d elements, root %d but at rank %d", c.name, count, root, odd)
			}
		}
	}
}

// CheckDifferentCalls makes a different collective at one rank.
func CheckDifferentCalls(w *Comm, how coll.How) {
	all := revocables(how)
	for i, c := range all {
		other := all[(i*5+w.Size())%len(all)]
		count, odd, call := revokeSizes[i%len(revokeSizes)], i%w.Size(), c.call
		if w.Rank() == odd {
			call = other.call
		}
		differ(newArgs(w, count, 0), call, "%s of %d elements but %s at rank %d", c.name, count, other.name, odd)
	}
}

// forEachRevoking runs body with each number of ranks and with two eager limits, and checks that
// no message or operation remains.
func forEachRevoking(t *testing.T, how coll.How, body func(w *Comm)) {
	for n := 2; n <= 8; n++ {
		for i, eager := range []string{"1", "4K", "shared", "hosts"} {
			if how != blocking && (i >= 2 || (n+i+int(how))%2 > 0) {
				continue // only blocking calls go through shared memory
			}
			if race.Enabled && n != 3 && n != 5 && n != 8 {
				continue
			}
			t.Run(fmt.Sprintf("%d ranks, eager %s", n, eager), func(t *testing.T) {
				t.Parallel()
				var clean, left atomic.Int32
				tuning := revokeTuning
				ranksPerHost := n
				if eager == "hosts" {
					ranksPerHost = max(n/2, 1)
				}
				if i >= 2 {
					tuning, eager = sharedRevokeTuning(), "4K"
				}
				run(t, n, func(w *Comm) {
					defer hurry(w)()
					placeOnHosts(w, func(rank int) int { return rank / ranksPerHost })
					w.team.SetTuning(tuning)
					body(w)
					leavesNothing(w, &clean, &left)
				}, WithSetting("pml.eager.bytes", eager))
			})
		}
	}
}

// forEachRevokingForm is forEachRevoking for each form of the calls.
func forEachRevokingForm(t *testing.T, body func(w *Comm, how coll.How)) {
	for how, name := range []string{"blocking", "nonblocking", "persistent"} {
		t.Run(name, func(t *testing.T) {
			forEachRevoking(t, coll.How(how), func(w *Comm) { body(w, coll.How(how)) })
		})
	}
}

// hurry makes a rank sleep only briefly, so that it soon probes for a mismatch.
func hurry(w *Comm) (stop func()) {
	locked(w, func() int64 {
		w.job.hub.Patience = int64(time.Millisecond)
		return 0
	})
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
func leavesNothing(w *Comm, clean, left *atomic.Int32) {
	check(w.Barrier())
	n := int32(w.Size())
	rest := func() string {
		return locked(w, func() string {
			w.job.eng.Poll()
			p := w.job.pml
			if p.Busy() == 0 && len(p.Pending()) == 0 && len(p.Unreceived()) == 0 && p.Stats().UnexpectedBytes == 0 {
				return ""
			}
			return fmt.Sprintf("busy %d, pending %v, not received %v, %d bytes", p.Busy(), p.Pending(), p.Unreceived(), p.Stats().UnexpectedBytes)
		})
	}
	deadline := time.Now().Add(time.Minute)
	for counted := false; clean.Load() < n; runtime.Gosched() {
		what := rest()
		if what == "" && !counted {
			clean.Add(1)
			counted = true
		}
		if what != "" && time.Now().After(deadline) {
			failf("left behind: %s", what)
		}
	}
	if what := rest(); what != "" {
		failf("left behind: %s", what)
	}
	// No rank goes on before all have checked.
	for left.Add(1); left.Load() < n; runtime.Gosched() {
		rest()
	}
}

func TestCollectiveRefusedByOneRankFailsEverywhere(t *testing.T) {
	forEachRevokingForm(t, CheckRefused)
}

func TestCollectivesWithOtherLengthAtOneRankFail(t *testing.T) {
	forEachRevokingForm(t, CheckDifferentLengths)
}

func TestCollectivesWithOtherRootAtOneRankFail(t *testing.T) {
	forEachRevokingForm(t, CheckDifferentRoots)
}

func TestOtherCollectiveAtOneRankFails(t *testing.T) { forEachRevokingForm(t, CheckDifferentCalls) }

// CheckRevokedCollectives makes every check of wrong calls, for a job of processes.
func CheckRevokedCollectives(w *Comm) {
	defer hurry(w)()
	w.team.SetTuning(revokeTuning)
	for how := blocking; how <= persistent; how++ {
		CheckRefused(w, how)
		CheckEndedContexts(w, how)
		CheckDifferentLengths(w, how)
		CheckDifferentRoots(w, how)
		CheckDifferentCalls(w, how)
	}
}

// CallAll makes a communicator for each form of each collective, and the Init calls, calls desert,
// and then, unless desert returns true, calls each collective in its communicator, and starts the
// persistent ones. It requires ErrProcFailed of each collective that needs all ranks. The others
// may only fail with that error.
func CallAll(w *Comm, desert func() bool) {
	var list []revocable
	for how := blocking; how <= persistent; how++ {
		list = append(list, revocables(how)...)
	}
	comms, inits := make([]*Comm, len(list)), make([]request.Request, len(list))
	for i, c := range list {
		comms[i] = must(w.Dup())
		if c.how == persistent {
			inits[i] = must(c.begin(newArgs(comms[i], 1000, 0)))
		}
	}
	if desert() {
		return
	}
	for i, c := range list {
		var err error
		if c.how == persistent {
			err = complete(c.how, inits[i], nil)
		} else {
			err = c.call(newArgs(comms[i], 1000, 0))
		}
		isNeeded := c.needs && c.how != persistent
		if err == nil && isNeeded || err != nil && !errors.Is(err, ErrProcFailed) {
			failf("%s: %w", c.name, err)
		}
		if c.how == persistent { // another Init call, perhaps in a communicator that is unfit now
			err := c.call(newArgs(comms[i], 1000, 0))
			if !errors.Is(err, ErrProcFailed) && !errors.Is(err, ErrComm) {
				failf("%s again: %w", c.name, err)
			}
		}
	}
}

// TestLengthsOnBothSidesOfDefaultThresholdsFail: with the default thresholds, one rank moves a
// vector in pieces and the others whole. No message or operation remains afterwards.
func TestLengthsOnBothSidesOfDefaultThresholdsFail(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 8} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			t.Parallel()
			var clean, left atomic.Int32
			run(t, n, func(w *Comm) {
				defer hurry(w)()
				for _, counts := range [][2]int{{50_000, 100_000}, {100_000, 50_000}, {3 << 14, 7 << 14}, {2000, 9000}} {
					differs := func(name string, odd int, call func(in, out []int64) error) {
						what := fmt.Sprintf("rank %d: %s of %d elements, %d at rank %d", w.Rank(), name, counts[0], counts[1], odd)
						count := counts[b2i(w.Rank() == odd)]
						isDifferent(what, call(make([]int64, count), make([]int64, count)))
						check(w.Barrier())
					}
					differs("bcast", 0, func(_, out []int64) error { return Bcast(w, out, 0) })
					differs("reduce", n-1, func(in, out []int64) error { return Reduce(w, in, out, Sum, 0) })
					differs("allreduce", 0, func(in, out []int64) error { return Allreduce(w, in, out, Sum) })
					differs("scan", n-1, func(in, out []int64) error { return Scan(w, in, out, Sum) })
				}
				leavesNothing(w, &clean, &left)
			})
		})
	}
}

// TestCollectiveGivenUpByContextFailsEverywhere: the context of one rank ends while the rank waits
// for a late one.
func TestCollectiveGivenUpByContextFailsEverywhere(t *testing.T) {
	forEachRevokingForm(t, func(w *Comm, how coll.How) {
		if how == nonblocking {
			return // see TestNonblockingCollectivesAndContexts
		}
		n := w.Size()
		for i, c := range revocables(how) {
			count := revokeSizes[(i+n)%len(revokeSizes)]
			root, giver := i%n, (i/2)%n
			late := (giver + 1 + i%(n-1)) % n
			what := fmt.Sprintf("rank %d: %s of %d elements, root %d, given up by %d, %d is late", w.Rank(), c.name, count, root, giver, late)
			d := must(w.Dup())
			d.team.SetTuning(w.team.Tuning())
			if d.team.Tuning().SharedBytes > 0 {
				check(d.Barrier())
			}
			a := newArgs(d, count, root)
			var err error
			cancelled := 0
			switch w.Rank() {
			case giver:
				ctx, cancel := context.WithCancel(context.Background())
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					awaitPending(ctx, w)
					cancel()
				}()
				a.w = d.WithContext(ctx)
				err = scene(a, c.call)
				cancel()
				<-stopped
				// Dup ignores the context.
				if err != nil && (c.id == calls.Dup || !errors.Is(err, context.Canceled) || !errors.Is(err, ErrGivenUp)) {
					failf("%s: %w", what, err)
				}
				cancelled = b2i(err != nil)
				check(Send(w, []int{cancelled}, late, 0))
				err = nil
			case late:
				if c.id == calls.Dup {
					err = scene(a, c.call)
					must(Recv(w, []int{0}, giver, 0))
				} else {
					must(Recv(w, []int{0}, giver, 0))
					err = scene(a, c.call)
				}
			default:
				err = scene(a, c.call)
			}
			if err != nil {
				isGivenUp(what, err, fmt.Sprintf("rank %d gave up on this", giver), "the context of its call has ended")
			}
			a.after(w, what)
			// The communicator is unfit if the collective was given up.
			was := []int{cancelled}
			check(Bcast(w, was, giver))
			err = d.Barrier()
			switch {
			case (was[0] != 0) != (err != nil):
				failf("%s: given up: %v, and then %w", what, was[0] != 0, err)
			case err != nil && w.Rank() != giver:
				isGivenUp(what, err, fmt.Sprintf("rank %d gave up on this barrier", giver), "unfit there")
			}
			check(d.Free())
		}
	})
}

// TestCollectiveWithoutDeadRankFails: one rank makes no call. Ranks that wait for it learn that it
// is gone, and notify the others.
func TestCollectiveWithoutDeadRankFails(t *testing.T) {
	for n := 2; n <= 8; n++ {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			t.Parallel()
			for i, c := range slices.Concat(revocables(blocking), revocables(nonblocking), revocables(persistent)) {
				count := revokeSizes[(i+n)%len(revokeSizes)]
				root, dead := i%n, (i/2)%n
				what := fmt.Sprintf("%s of %d elements, root %d, without %d", c.name, count, root, dead)
				var done atomic.Int32
				run(t, n, func(w *Comm) {
					w.team.SetTuning(revokeTuning)
					if w.Rank() == dead {
						for done.Load() < int32(n-1) {
							runtime.Gosched() // it does nothing
						}
						return
					}
					defer done.Add(1)
					defer loseOnWait(w, dead)()
					err := scene(newArgs(w, count, root), c.call)
					if err == nil && c.needs || err != nil && !errors.Is(err, ErrProcFailed) {
						failf("%s: %w", what, err)
					}
					// Other ranks notify a rank that has not noticed it, now and in later calls.
					for range 2 {
						if err != nil && !namesLost(err, dead) {
							failf("%s: %w does not name rank %d", what, err, dead)
						}
						err = scene(newArgs(w, count, root), c.call)
					}
				})
			}
		})
	}
}

// namesLost reports whether an error that follows from the loss of a rank says which rank it is.
func namesLost(err error, rank int) bool {
	text := WithoutLines(err.Error())
	return strings.Contains(text, fmt.Sprintf("(peer %d)", rank)) || strings.Contains(text, fmt.Sprintf("(peer %d,", rank)) ||
		strings.Contains(text, fmt.Sprintf("it needs rank %d, which is lost", rank))
}

// loseOnWait tells the rank of w that a rank is gone, once it waits for that rank.
func loseOnWait(w *Comm, dead int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	told := make(chan struct{})
	go func() {
		defer close(told)
		for waits := false; !waits && ctx.Err() == nil; runtime.Gosched() {
			waits = locked(w, func() bool {
				if !slices.ContainsFunc(w.job.pml.Pending(), func(p pml.Pending) bool { return p.Peer == dead }) {
					return false
				}
				w.job.pml.Failed(w.job.modules[0], btl.Path{Peer: dead},
					&btl.Error{Rail: "test", Peer: dead, Class: btl.ClassPeerGone, Err: errors.New("killed")})
				return true
			})
		}
	}()
	return func() {
		cancel()
		<-told
	}
}

// TestRevocablesHaveEveryCollective: the list has all except those that need a topology.
func TestRevocablesHaveEveryCollective(t *testing.T) {
	for how := blocking; how <= persistent; how++ {
		listed := make(map[calls.ID]bool)
		for _, c := range revocables(how) {
			listed[c.id] = true
		}
		for _, id := range calls.All() {
			if id.HasAllForms() && id.Form() == calls.Form(how) && id.Flow() != calls.FromNeighbors {
				assert.True(t, listed[id], "%s is missing in revocables (coll_revoke_test.go)", id.Go())
			}
		}
	}
}
