package request_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// countdown is an operation that completes after some turns of progress. It embeds its request and
// is a poller of its engine. The bytes of its status are its number of turns.
type countdown struct {
	request.Object
	eng         *progress.Engine
	turns, left int
}

func newCountdown(eng *progress.Engine, turns int) *countdown {
	eng.Lock()
	defer eng.Unlock()
	c := &countdown{eng: eng, turns: turns}
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

// Release implements request.Operation. An owner of many operations would put them in a pool here.
func (c *countdown) Release() {}

// Describe implements request.Operation.
func (c *countdown) Describe(err error) error {
	return fmt.Errorf("countdown from %d: %w", c.turns, err)
}

// Begin starts the operation and returns its handle, as Isend and Irecv do.
func (c *countdown) Begin() request.Request {
	c.eng.Lock()
	defer c.eng.Unlock()
	c.Activate()
	c.Start()
	return c.Handle()
}

// Prepare returns the handle of a persistent request, as SendInit and RecvInit do.
func (c *countdown) Prepare() request.Request {
	c.eng.Lock()
	defer c.eng.Unlock()
	c.InitPersistent()
	return c.Handle()
}

// begin starts countdowns on one new engine.
func begin(turns ...int) []request.Request {
	eng := progress.New(progress.Config{})
	var reqs []request.Request
	for _, n := range turns {
		reqs = append(reqs, newCountdown(eng, n).Begin())
	}
	return reqs
}

// A persistent request is inactive between its starts; Wait then returns at once.
func Example_persistent() {
	r := newCountdown(progress.New(progress.Config{}), 5).Prepare()
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

// Wait makes the handle, and every copy of it, null. Wait of a null handle returns at once.
func ExampleRequest_Wait() {
	r := begin(10)[0]
	copied := r
	st, err := r.Wait()
	fmt.Println(st.Bytes, "turns,", err)
	fmt.Println("null:", r.IsNull(), copied.IsNull())
	_, err = r.Wait()
	fmt.Println(err)
	// Output:
	// 10 turns, <nil>
	// null: true true
	// <nil>
}

// The end of a context ends the wait, not the operation.
func ExampleRequest_WaitContext() {
	r := begin(10)[0]
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

// Done is for select: the request makes progress meanwhile.
func ExampleRequest_Done() {
	r := begin(10)[0]
	select {
	case <-r.Done():
		st, err := r.Wait() // returns at once
		fmt.Println(st.Bytes, "turns,", err)
	case <-time.After(time.Minute):
		fmt.Println("late")
	}
	// Output: 10 turns, <nil>
}

// Each Test makes one turn of progress.
func ExampleRequest_Test() {
	r := begin(3)[0]
	for {
		st, done, err := r.Test()
		fmt.Println(done, st.Bytes, err)
		if done {
			break
		}
	}
	// Output:
	// false 0 <nil>
	// false 0 <nil>
	// true 3 <nil>
}

// GetStatus does not observe the completion: the request must still be waited for, or freed.
func ExampleRequest_GetStatus() {
	r := begin(1)[0]
	st, done, err := r.GetStatus()
	fmt.Println(done, st.Bytes, err, "null:", r.IsNull())
	st, err = r.Wait()
	fmt.Println(st.Bytes, err, "null:", r.IsNull())
	// Output:
	// true 1 <nil> null: false
	// 1 <nil> null: true
}

// Start of an active request fails and changes nothing.
func ExampleRequest_Start() {
	r := newCountdown(progress.New(progress.Config{}), 5).Prepare()
	fmt.Println(r.Start())
	fmt.Println(r.Start())
	_, err := r.Wait()
	fmt.Println(err)
	// Output:
	// <nil>
	// countdown from 5: start: invalid request: the request is active
	// <nil>
}

// Cancel does not wait. The status says whether the operation was cancelled.
func ExampleRequest_Cancel() {
	r := begin(1000)[0]
	fmt.Println(r.Cancel())
	st, err := r.Wait()
	fmt.Println(st.Cancelled, err)
	// Output:
	// <nil>
	// true <nil>
}

// An active operation that is freed goes on in the background.
func ExampleRequest_Free() {
	r := begin(10)[0]
	fmt.Println(r.Free(), r.IsNull())
	fmt.Println(r.Free())
	// Output:
	// <nil> true
	// free: invalid request: the handle is null
}

func ExampleRequest_IsNull() {
	var r request.Request
	fmt.Println(r.IsNull())
	r = begin(1)[0]
	fmt.Println(r.IsNull())
	// Output:
	// true
	// false
}

func ExampleRequest_IsActive() {
	r := newCountdown(progress.New(progress.Config{}), 1).Prepare()
	fmt.Println(r.IsActive())
	fmt.Println(r.Start(), r.IsActive())
	// Output:
	// false
	// <nil> true
}

func ExampleRequest_IsPersistent() {
	eng := progress.New(progress.Config{})
	fmt.Println(newCountdown(eng, 1).Begin().IsPersistent())
	fmt.Println(newCountdown(eng, 1).Prepare().IsPersistent())
	// Output:
	// false
	// true
}

// StartAll starts all requests or none.
func ExampleStartAll() {
	eng := progress.New(progress.Config{})
	a, b := newCountdown(eng, 1).Prepare(), newCountdown(eng, 2).Prepare()
	fmt.Println(request.StartAll(a, b))
	fmt.Println(request.WaitAll(a, b))
	fmt.Println(request.StartAll(a, request.Request{}))
	fmt.Println("active:", a.IsActive())
	// Output:
	// <nil>
	// <nil>
	// request 1: start: invalid request: the handle is null
	// active: false
}

func ExampleWaitAll() {
	reqs := begin(30, 10, 20)
	fmt.Println(request.WaitAll(reqs...))
	fmt.Println(reqs[0].IsNull(), reqs[1].IsNull(), reqs[2].IsNull())
	// Output:
	// <nil>
	// true true true
}

// Null requests get the empty status.
func ExampleWaitAllStatus() {
	reqs := append(begin(30, 10), request.Request{})
	sts := make([]request.Status, len(reqs))
	fmt.Println(request.WaitAllStatus(reqs, sts))
	fmt.Println(sts[0].Bytes, sts[1].Bytes, sts[2] == request.Empty())
	// Output:
	// <nil>
	// 30 10 true
}

// WaitAny ignores null requests, so a loop can pass the same list until it returns Undefined.
func ExampleWaitAny() {
	reqs := begin(30, 10, 20)
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

// WaitSome returns all requests that are complete when its wait ends.
func ExampleWaitSome() {
	reqs := begin(20, 10, 10)
	indices, sts := make([]int, len(reqs)), make([]request.Status, len(reqs))
	for {
		n, err := request.WaitSome(reqs, indices, sts)
		if n == request.Undefined {
			break
		}
		for k, i := range indices[:n] {
			fmt.Println("request", i, "after", sts[k].Bytes, "turns,", err)
		}
	}
	// Output:
	// request 1 after 10 turns, <nil>
	// request 2 after 10 turns, <nil>
	// request 0 after 20 turns, <nil>
}

// TestAll observes the completions only when all requests are complete.
func ExampleTestAll() {
	reqs := begin(1, 3)
	for {
		all, err := request.TestAll(reqs, nil)
		fmt.Println(all, err, reqs[0].IsNull())
		if all {
			break
		}
	}
	// Output:
	// false <nil> false
	// false <nil> false
	// true <nil> true
}

func ExampleTestAny() {
	reqs := begin(3, 2)
	for {
		i, st, flag, err := request.TestAny(reqs...)
		if flag && i == request.Undefined {
			break
		}
		fmt.Println(flag, i, st.Bytes, err)
	}
	// Output:
	// false -3 0 <nil>
	// true 1 2 <nil>
	// true 0 3 <nil>
}

func ExampleTestSome() {
	reqs := begin(2, 2)
	indices := make([]int, len(reqs))
	for {
		n, err := request.TestSome(reqs, indices, nil)
		if n == request.Undefined {
			break
		}
		fmt.Println(n, err, indices[:n])
	}
	// Output:
	// 0 <nil> []
	// 2 <nil> [0 1]
}

func ExampleCompleted() {
	for i, st := range request.Completed(context.Background(), begin(20, 10)...) {
		fmt.Println("request", i, "after", st.Bytes, "turns,", st.Err)
	}
	// Output:
	// request 1 after 10 turns, <nil>
	// request 0 after 20 turns, <nil>
}

// The number of elements depends on the element type.
func ExampleCount() {
	st := request.Status{Source: 0, Tag: 1, Bytes: 12}
	fmt.Println(request.Count[int32](st))
	fmt.Println(request.Count[float64](st))
	// Output:
	// 3 true
	// 1 false
}

func ExampleEmpty() {
	st := request.Empty()
	fmt.Println(st.Source == request.AnySource, st.Tag == request.AnyTag, st.Count, st.Bytes, st.Cancelled)
	// Output:
	// true true 0 0 false
}
