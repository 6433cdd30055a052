package request_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// countdown is an operation that takes some turns of progress. It embeds its request, and
// is a poller of its engine.
type countdown struct {
	request.Object
	turns, left int
}

func newCountdown(eng *progress.Engine, turns int) *countdown {
	eng.Lock()
	defer eng.Unlock()
	c := &countdown{turns: turns}
	c.Bind(eng, c)
	eng.AddPoller(c)
	return c
}

// Progress implements progress.Poller.
func (c *countdown) Progress() int {
	if c.State() != request.Active {
		return 0
	}
	if c.left--; c.left > 0 {
		return 0
	}
	st := request.Empty()
	st.Bytes = int64(c.turns)
	c.Complete(st, nil)
	return 1
}

// Start implements request.Operation.
func (c *countdown) Start() { c.left = c.turns }

// Cancel implements request.Operation.
func (c *countdown) Cancel() {
	st := request.Empty()
	st.Cancelled = true
	c.Complete(st, nil)
}

// Release implements request.Operation. Who makes many would keep them in a pool.
func (c *countdown) Release() {}

// Describe implements request.Operation.
func (c *countdown) Describe(err error) error {
	return fmt.Errorf("countdown from %d: %w", c.turns, err)
}

// Begin is as Isend and its kin are: it starts the operation and gives its handle.
func (c *countdown) Begin() request.Request {
	c.Engine().Lock()
	defer c.Engine().Unlock()
	c.Activate()
	c.Start()
	return c.Handle()
}

// Prepare is as SendInit and its kin are: the request can be started again and again.
func (c *countdown) Prepare() request.Request {
	c.Engine().Lock()
	defer c.Engine().Unlock()
	c.InitPersistent()
	return c.Handle()
}

// An operation of one's own embeds an Object.
func Example_operation() {
	eng := progress.New(progress.Config{})
	r := newCountdown(eng, 10).Begin()
	copied := r
	st, err := r.Wait()
	fmt.Println(st.Bytes, "turns,", err)
	fmt.Println("null:", r.IsNull(), copied.IsNull())
	// Output:
	// 10 turns, <nil>
	// null: true true
}

// A persistent request is inactive between its starts, and then nothing to wait for.
func Example_persistent() {
	eng := progress.New(progress.Config{})
	r := newCountdown(eng, 5).Prepare()
	for range 3 {
		if err := r.Start(); err != nil {
			fmt.Println(err)
		}
		st, err := r.Wait()
		fmt.Println(st.Bytes, "turns,", err)
	}
	_, err := r.Wait()
	fmt.Println("null:", r.IsNull(), "active:", r.IsActive(), "wait:", err)
	fmt.Println(r.Free(), r.IsNull())
	fmt.Println(r.Start())
	// Output:
	// 5 turns, <nil>
	// 5 turns, <nil>
	// 5 turns, <nil>
	// null: false active: false wait: <nil>
	// <nil> true
	// start: invalid request: the handle is null
}

// A context ends the wait, not the operation.
func ExampleRequest_WaitContext() {
	eng := progress.New(progress.Config{})
	r := newCountdown(eng, 10).Begin()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.WaitContext(ctx)
	fmt.Println(err)
	fmt.Println("active:", r.IsActive(), "canceled:", errors.Is(err, context.Canceled))
	_, err = r.Wait()
	fmt.Println(err)
	// Output:
	// countdown from 10: context canceled
	// active: true canceled: true
	// <nil>
}

// Cancel asks; the status tells.
func ExampleRequest_Cancel() {
	eng := progress.New(progress.Config{})
	r := newCountdown(eng, 1000).Begin()
	fmt.Println(r.Cancel())
	st, err := r.Wait()
	fmt.Println(st.Cancelled, err)
	// Output:
	// <nil>
	// true <nil>
}

func ExampleWaitAny() {
	eng := progress.New(progress.Config{})
	reqs := []request.Request{
		newCountdown(eng, 30).Begin(),
		newCountdown(eng, 10).Begin(),
		newCountdown(eng, 20).Begin(),
	}
	for {
		i, st, err := request.WaitAny(reqs...)
		if i == request.Undefined {
			break
		}
		fmt.Println("request", i, "after", st.Bytes, "turns,", err)
	}
	// Output:
	// request 1 after 10 turns, <nil>
	// request 2 after 20 turns, <nil>
	// request 0 after 30 turns, <nil>
}

func ExampleCompleted() {
	eng := progress.New(progress.Config{})
	slow := newCountdown(eng, 20).Begin()
	fast := newCountdown(eng, 10).Begin()
	for i, st := range request.Completed(context.Background(), slow, fast) {
		fmt.Println("request", i, "after", st.Bytes, "turns,", st.Err)
	}
	// Output:
	// request 1 after 10 turns, <nil>
	// request 0 after 20 turns, <nil>
}

// How many elements a message has depends on what one takes it for.
func ExampleCount() {
	st := request.Status{Source: 0, Tag: 1, Bytes: 12}
	fmt.Println(request.Count[int32](st))
	fmt.Println(request.Count[float64](st))
	// Output:
	// 3 true
	// 1 false
}
