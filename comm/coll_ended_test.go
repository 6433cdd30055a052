package comm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/request"
)

// ended returns a view of w whose context has ended.
func ended(w *Comm) *Comm {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return w.WithContext(ctx)
}

// isOwnEnd checks the error of a collective that this rank has given up because its context ended.
func isOwnEnd(what string, err, end error) {
	if e := (*Error)(nil); !errors.Is(err, ErrGivenUp) || !errors.Is(err, end) || !errors.As(err, &e) {
		failf("%s: another error: %w", what, err)
	}
}

// CheckEndedContexts makes each collective with an ended context at one rank. The collective fails
// at all ranks, and the next one works.
func CheckEndedContexts(w *Comm, how coll.How) {
	n := w.Size()
	for i, c := range revocables(how) {
		if c.id == calls.Dup {
			continue // ignores the context
		}
		count := revokeSizes[i%len(revokeSizes)]
		root, odd := i%n, (i/2)%n
		what := fmt.Sprintf("rank %d: %s of %d elements, root %d, context ended at %d", w.Rank(), c.name, count, root, odd)
		a := newArgs(w, count, root)
		if w.Rank() == odd {
			a.w = ended(w)
		}
		switch err := scene(a, c.call); {
		case w.Rank() == odd:
			isOwnEnd(what, err, context.Canceled)
		case err == nil && c.needs:
			failf("%s: no error", what)
		case err != nil:
			isGivenUp(what, err, fmt.Sprintf("rank %d gave up on this", odd), "the context of its call has ended")
		}
		a.after(w, what)
	}
}

func TestCollectiveWithEndedContextFailsEverywhere(t *testing.T) {
	forEachRevokingForm(t, CheckEndedContexts)
}

// TestCollectiveWithEndedContextBeforeSharedMemory: the other ranks are about to set up shared
// memory, or have set it up.
func TestCollectiveWithEndedContextBeforeSharedMemory(t *testing.T) {
	runUnchecked(t, 3, func(w *Comm) {
		for calls := range 4 {
			for odd := range w.Size() {
				d := must(w.Dup())
				for range calls {
					check(d.Barrier())
				}
				if w.Rank() == odd {
					isOwnEnd("barrier", ended(d).Barrier(), context.Canceled)
				} else if err := d.Barrier(); err == nil {
					failf("barrier %d without rank %d succeeded", calls, odd)
				}
				for range 3 {
					check(d.Barrier())
				}
				check(d.Free())
			}
		}
	})
}

// CheckEndedCreateGroup: each member in turn has a context that has ended, and the others wait.
func CheckEndedCreateGroup(w *Comm) {
	for odd := range w.Size() {
		c, err := (*Comm)(nil), error(nil)
		if w.Rank() == odd {
			c, err = ended(w).CreateGroup(w.Group(), 7)
			isOwnEnd("create group", err, context.Canceled)
		} else if c, err = w.CreateGroup(w.Group(), 7); !errors.Is(err, ErrComm) {
			failf("create group without rank %d: %w", odd, err)
		}
		if c != nil {
			failf("create group without rank %d made a communicator", odd)
		}
		c = must(w.CreateGroup(w.Group(), 7))
		check(errors.Join(c.Barrier(), c.Free()))
	}
}

func TestCreateGroupWithEndedContextFailsEverywhere(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		run(t, n, CheckEndedCreateGroup)
	}
}

// TestCreateGroupOfOthersIgnoresContext: the call of a rank that is not a member has no effect.
func TestCreateGroupOfOthersIgnoresContext(t *testing.T) {
	run(t, 2, func(w *Comm) {
		c, err := ended(w).CreateGroup(must(w.Group().Incl(1-w.Rank())), 1)
		assert.Nil(t, c)
		assert.NoError(t, err)
	})
}

// timedCalls are calls that a context may end.
var timedCalls = []func(c *Comm, in, out []int64) error{
	func(c *Comm, _, _ []int64) error { return c.Barrier() },
	func(c *Comm, in, out []int64) error { return Allreduce(c, in, out, Sum) },
	func(c *Comm, in, _ []int64) error { return Bcast(c, in, 1) },
	func(c *Comm, in, out []int64) error { return completed(Iallreduce(c, in, out, Sum)) },
	func(c *Comm, in, out []int64) error {
		r, err := AllreduceInit(c, in, out, Sum)
		return complete(persistent, r, err)
	},
	func(c *Comm, _, _ []int64) error { return freed(c.Split(0, 0)) },
	func(c *Comm, _, _ []int64) error { return freed(c.Create(c.Group())) },
	func(c *Comm, _, _ []int64) error { return freed(c.CreateGroup(c.Group(), 3)) },
	func(c *Comm, _, _ []int64) error { return freed(c.Cart([]int{c.Size()}, []bool{true})) },
	func(c *Comm, _, _ []int64) error {
		return freed(c.DistGraph(map[int][]int{c.Rank(): {0}}))
	},
}

func completed(r request.Request, err error) error { return complete(nonblocking, r, err) }

func freed(c *Comm, err error) error {
	if err == nil {
		err = c.Free()
	}
	return err
}

// CheckTimers makes collectives in three goroutines of each rank. Their contexts end at any moment:
// before the call, while it waits for the lock of the rank, and in it. No call may hang.
func CheckTimers(w *Comm, rounds int) {
	var group sync.WaitGroup
	failures := make(chan error, 3)
	for goroutine := range 3 {
		control, d := must(w.Dup()), must(w.Dup())
		group.Go(func() { failures <- timers(control, d, goroutine, rounds) })
	}
	group.Wait()
	for range 3 {
		check(<-failures)
	}
}

func timers(control, d *Comm, goroutine, rounds int) error {
	same := rand.New(rand.NewPCG(7, uint64(goroutine)))
	own := rand.New(rand.NewPCG(uint64(control.Rank())+8, uint64(goroutine)))
	in, out := make([]int64, 2000), make([]int64, 2000)
	for round := range rounds {
		n := 1 + same.IntN(len(in))
		call := timedCalls[same.IntN(len(timedCalls))]
		bad := []int{0}
		for range 1 + same.IntN(3) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(own.IntN(200))*time.Microsecond)
			err := call(d.WithContext(ctx), slices.Repeat([]int64{1}, n), out[:n])
			isDone := ctx.Err() != nil
			cancel()
			if err == nil {
				continue
			}
			bad[0] = 1
			if !errors.Is(err, ErrComm) && !(isDone && errors.Is(err, ErrGivenUp) && errors.Is(err, context.DeadlineExceeded)) {
				return fmt.Errorf("round %d of goroutine %d: %w", round, goroutine, err)
			}
		}
		if err := Allreduce(control, nil, bad, Sum); err != nil {
			return err
		}
		if bad[0] == 0 {
			continue
		}
		next, err := control.Dup()
		if err = errors.Join(err, d.Free()); err != nil {
			return err
		}
		d = next
	}
	return d.Free()
}

func TestCollectivesWithTimersInThreeGoroutinesEnd(t *testing.T) {
	for _, n := range []int{2, 3} {
		run(t, n, func(w *Comm) { CheckTimers(w, 100) })
	}
}
