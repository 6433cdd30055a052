package request

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/progress"
)

// Only the transitions of the table are legal. Any other one panics and changes nothing.
func TestTransitions(t *testing.T) {
	legal := map[[2]State]bool{
		{Idle, Inactive}: true, {Idle, Active}: true,
		{Inactive, Active}: true, {Inactive, Idle}: true,
		{Active, Complete}:   true,
		{Complete, Inactive}: true, {Complete, Idle}: true,
	}
	move := func(o *op, to State) {
		switch {
		case to == Inactive && o.state == Complete:
			_, _ = o.Take()
		case to == Inactive:
			o.InitPersistent()
		case to == Active && o.state == Inactive:
			o.start()
		case to == Active:
			o.Activate()
		case to == Complete:
			o.Complete(message, nil)
		case to == Idle:
			o.retire()
		}
	}
	for from := Idle; from <= Complete; from++ {
		for to := Idle; to <= Complete; to++ {
			t.Run(from.String()+" to "+to.String(), func(t *testing.T) {
				r := newRank()
				r.Lock()
				defer r.Unlock()
				o := r.get("")
				for _, step := range []State{Inactive, Active, Complete}[:from] {
					move(o, step)
				}
				require.Equal(t, from, o.State())
				if legal[[2]State{from, to}] {
					move(o, to)
					assert.Equal(t, to, o.State())
					return
				}
				assert.PanicsWithValue(t, "request: illegal transition "+from.String()+" → "+to.String(),
					func() { move(o, to) })
				assert.Equal(t, from, o.State())
			})
		}
	}
}

// No call waits for an inactive persistent request.
func TestCallsOverInactiveRequestReturn(t *testing.T) {
	r := newRank()
	o, h := r.persistent("p")
	for range 3 {
		for _, name := range []string{"Wait", "Test", "GetStatus", "WaitAny", "TestAny", "WaitAllStatus", "TestAll", "WaitSome", "TestSome", "Completed"} {
			byName[name](t, r, []Request{h})
			assert.Equal(t, "inactive", stateOf(t, h), name)
		}
		require.NoError(t, h.Start())
		o.complete(message, nil)
		st, err := h.Wait()
		assert.NoError(t, err)
		assert.Equal(t, message, st)
	}
	assert.Equal(t, []string{"start p", "start p", "start p"}, r.calls)
}

// StartAll starts all requests, in order, or none. An operation may complete in its Start.
func TestStartAllStartsAllOrNone(t *testing.T) {
	r := newRank()
	a, ha := r.persistent("a")
	_, hb := r.persistent("b")
	a.onStart = a.deliver
	require.ErrorIs(t, StartAll(ha, hb, Request{}), ErrRequest)
	require.ErrorIs(t, StartAll(ha, hb, ha), ErrRequest)
	assert.Empty(t, r.calls)
	require.NoError(t, StartAll(hb, ha), "StartAll after failed calls")
	assert.Equal(t, []string{"start b", "start a"}, r.calls)
	assert.Equal(t, "p-active p-complete", statesOf(t, []Request{hb, ha}))
}

// An active operation that was freed goes on. It is released, with its buffer, only when it has
// completed.
func TestFreeOfActiveReleasesAfterCompletion(t *testing.T) {
	for _, err := range []error{nil, errBoom} {
		for _, persistent := range []bool{false, true} {
			r := newRank()
			o, h := r.active("x")
			if persistent {
				o, h = r.persistent("x")
				require.NoError(t, h.Start())
			}
			copied := h
			require.NoError(t, h.Free())
			assert.Equal(t, "null null", statesOf(t, []Request{h, copied}))
			assert.ErrorIs(t, copied.Free(), ErrRequest)
			assert.NotContains(t, r.calls, "release x")
			r.locked(func() {
				assert.False(t, o.Outstanding(), "Outstanding after Free")
				assert.Equal(t, Active, o.State())
			})
			o.complete(message, err)
			assert.Contains(t, r.calls, "release x")
			r.locked(func() { assert.Equal(t, Idle, o.State()) })
			assert.True(t, h.IsNull())
		}
	}
}

func TestFreeOfRequestThatIsNotActiveReleasesAtOnce(t *testing.T) {
	for _, state := range []string{"inactive", "complete", "p-complete", "failed", "p-cancelled"} {
		r := newRank()
		h := r.make(t, state)
		o := h.o.op.(*op)
		require.NoError(t, h.Free())
		assert.Equal(t, "release "+o.name, r.calls[len(r.calls)-1])
		assert.Len(t, r.free, 1)
	}
}

// The operation is released, and with it its buffer, once and only after completion.
func TestReleaseOnlyAfterCompletion(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := newRank()
	o, h := r.active("x")
	require.ErrorIs(t, errOf(h.WaitContext(ended)), context.Canceled)
	require.NoError(t, h.Cancel()) // the operation ignores it
	_, done, err := h.Test()
	require.NoError(t, err)
	require.False(t, done)
	require.NoError(t, errOf(TestAll([]Request{h}, nil)))
	assert.Equal(t, []string{"cancel x"}, r.calls)
	o.complete(message, nil)
	_, done, err = h.GetStatus()
	require.NoError(t, err)
	require.True(t, done)
	assert.Equal(t, []string{"cancel x"}, r.calls, "before the completion is observed")
	require.NoError(t, errOf(h.Wait()))
	require.NoError(t, errOf(h.Wait()))
	assert.Equal(t, []string{"cancel x", "release x"}, r.calls)
}

// The end of a context ends the wait and not the operation. The error names the operation, and
// the object has no waiter left.
func TestContextEndEndsOnlyWait(t *testing.T) {
	r := newRank()
	o, h := r.active("x")
	ctx, cancel := context.WithCancel(t.Context())
	done := spawn(func() error { return errOf(h.WaitContext(ctx)) })
	r.waiting(t, o, 1)
	cancel()
	err := within(t, done, "the wait")
	assert.ErrorIs(t, err, context.Canceled)
	assert.EqualError(t, err, "op x: context canceled")
	assert.Equal(t, "active", stateOf(t, h))
	r.waiting(t, o, 0)
	o.complete(message, nil)
	st, err := h.WaitContext(ctx)
	assert.NoError(t, err, "WaitContext of a complete request")
	assert.Equal(t, message, st)
}

// A late completion of one start of a persistent request completes nothing.
func TestLateCompletionPanics(t *testing.T) {
	r := newRank()
	o, h := r.persistent("p")
	require.NoError(t, h.Start())
	o.complete(message, errBoom)
	require.ErrorIs(t, errOf(h.Wait()), errBoom)
	r.locked(func() { assert.Panics(t, func() { o.Complete(message, nil) }) })
	assert.Equal(t, "inactive", stateOf(t, h))
	require.NoError(t, h.Start())
	assert.Equal(t, "p-active", stateOf(t, h))
	o.complete(cancelled, nil)
	st, err := h.Wait()
	assert.NoError(t, err, "a start after one that failed")
	assert.Equal(t, cancelled, st)
}

// The completion of a later start does not signal a waiter of an earlier one.
func TestLaterStartDoesNotSignalEarlierWaiter(t *testing.T) {
	r := newRank()
	o, h := r.persistent("p")
	w := new(progress.Waiter)
	for range 3 {
		for start := range 2 {
			require.NoError(t, h.Start())
			if start == 0 {
				r.locked(func() {
					w.Reset(2)
					o.watch(w)
				})
			}
			o.complete(message, nil)
			require.NoError(t, errOf(h.Wait()))
		}
		r.locked(func() { assert.False(t, w.Done(), "done after one of two signals") })
	}
}

// A call with a stale handle must not touch the operation that its object is now.
func TestCallsOverStaleHandleTouchNothing(t *testing.T) {
	for name := range byName {
		t.Run(name, func(t *testing.T) {
			r := newRank()
			o, h := r.active("old")
			o.complete(message, nil)
			require.NoError(t, errOf(h.Wait()))
			again, fresh := r.persistent("new")
			require.Same(t, o, again)
			for range 2 {
				got := byName[name](t, r, []Request{h})
				assert.Equal(t, byName[name](t, newRank(), []Request{{}}), got)
				assert.False(t, fresh.IsNull())
				if !fresh.IsActive() {
					require.NoError(t, fresh.Start())
				}
			}
			assert.Equal(t, []string{"release old", "start new"}, r.calls)
		})
	}
}

func TestHandlesCompareEqualWithinGeneration(t *testing.T) {
	r := newRank()
	o, h := r.active("x")
	_, other := r.active("y")
	assert.Equal(t, h, o.Handle())
	assert.NotEqual(t, h, other)
	assert.NotEqual(t, h, Request{})
	require.NoError(t, h.Free())
	assert.NotEqual(t, h, o.Handle(), "a later handle of the same object")
}

// The operation decides whether Cancel cancels it. The status says how it ended.
func TestStatusAfterCancel(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		for _, obeys := range []bool{false, true} {
			t.Run(fmt.Sprintf("persistent %v, the operation obeys %v", persistent, obeys), func(t *testing.T) {
				r := newRank()
				want, state, after := message, "active", "null"
				if persistent {
					state, after = "p-active", "inactive"
				}
				h := r.make(t, state)
				o := h.o.op.(*op)
				if obeys {
					want = cancelled
					o.onCancel = func() { o.Complete(cancelled, nil) }
				}
				require.NoError(t, h.Cancel())
				if obeys {
					require.NoError(t, h.Cancel(), "Cancel of a complete request")
				} else {
					o.complete(message, nil)
				}
				st, err := h.Wait()
				assert.NoError(t, err)
				assert.Equal(t, want, st)
				assert.Equal(t, after, stateOf(t, h))
				if persistent {
					require.NoError(t, h.Start(), "Start after Cancel")
					o.complete(message, nil)
					st, err := h.Wait()
					assert.NoError(t, err)
					assert.Equal(t, message, st)
				}
			})
		}
	}
}

// Owners of operations use objects without a handle.
func TestObjectMethodsOfOwners(t *testing.T) {
	r := newRank()
	o := r.get("x")
	assert.Equal(t, Idle, o.State())
	r.Lock()
	defer r.Unlock()
	assert.False(t, o.Outstanding())

	o.Activate()
	assert.True(t, o.Outstanding())
	assert.False(t, o.Persistent())
	r.due = append(r.due, o.deliver)
	assert.NoError(t, o.Await(context.Background()))
	assert.True(t, o.Outstanding(), "Outstanding before the completion is observed")
	assert.NoError(t, o.Await(context.Background()), "Await of a complete object")
	st, err := o.Take()
	assert.NoError(t, err)
	assert.Equal(t, message, st)
	assert.Equal(t, []string{"release x"}, r.calls)
	assert.False(t, o.Outstanding())

	o = r.get("y")
	o.InitPersistent()
	assert.False(t, o.Outstanding())
	assert.True(t, o.Persistent())
	assert.NoError(t, o.Await(context.Background()), "Await of an inactive object")
	o.Abandon()
	assert.Equal(t, Idle, o.State())

	o = r.get("z")
	o.Activate()
	o.Complete(message, errBoom)
	_, err = o.Take()
	assert.EqualError(t, err, "op z: boom")
	assert.EqualError(t, o.About(errBang), "op z: bang")
}

// OnBound reports every object once, when it is bound and when it is not used any more.
func TestOnBoundReportsObjects(t *testing.T) {
	r := newRank()
	r.get("before")
	var bound []any
	r.OnBound(func(obj any) { bound = append(bound, obj) },
		func(obj any) { bound = slices.DeleteFunc(bound, func(b any) bool { return b == obj }) })
	a, b := r.get("a"), r.get("b")
	assert.Equal(t, []any{&a.Object, &b.Object}, bound)
	a.Activate()
	a.Complete(message, nil)
	_, _ = a.Take()
	assert.Same(t, a, r.get("again"))
	assert.Len(t, bound, 2)
	a.Unbind()
	assert.Equal(t, []any{&b.Object}, bound)
}

// A wait for operations that turns of progress complete does not allocate.
func TestCallsAllocateNothing(t *testing.T) {
	r := newRank()
	const n = 8
	var ops [n]*op
	var persistent [n]Request
	for i := range ops {
		o, h := r.persistent("")
		o.onStart = func() { r.due = append(r.due, o.deliver) }
		ops[i], persistent[i] = o, h
	}
	activate := func() Request { // as Isend does
		r.Lock()
		defer r.Unlock()
		o := r.get("")
		o.Activate()
		r.due = append(r.due, o.deliver)
		return o.Handle()
	}
	var reqs [n]Request
	activateAll := func() {
		for i := range reqs {
			reqs[i] = activate()
		}
	}
	var sts [n]Status
	var indices [n]int
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	for _, row := range []struct {
		name string
		run  func()
	}{
		{"Start and Wait", func() {
			check(persistent[0].Start())
			check(errOf(persistent[0].Wait()))
		}},
		{"Wait", func() { check(errOf(activate().Wait())) }},
		{"WaitContext with a context that never ends", func() {
			check(errOf(activate().WaitContext(context.Background())))
		}},
		{"Test", func() {
			h := activate()
			for done := false; !done; {
				var err error
				_, done, err = h.Test()
				check(err)
			}
		}},
		{"GetStatus and Free", func() {
			h := activate()
			for done := false; !done; {
				var err error
				_, done, err = h.GetStatus()
				check(err)
			}
			check(h.Free())
		}},
		{"StartAll and WaitAll of 8", func() {
			check(StartAll(persistent[:]...))
			check(WaitAll(persistent[:]...))
		}},
		{"WaitAll of 8", func() {
			activateAll()
			check(WaitAll(reqs[:]...))
		}},
		{"WaitAllStatus of 8", func() {
			activateAll()
			check(WaitAllStatus(reqs[:], sts[:]))
		}},
		{"WaitAny of 8", func() {
			activateAll()
			for i := 0; i != Undefined; {
				var err error
				i, _, err = WaitAny(reqs[:]...)
				check(err)
			}
		}},
		{"TestAny of 8", func() {
			activateAll()
			for i, flag := 0, false; !flag || i != Undefined; {
				var err error
				i, _, flag, err = TestAny(reqs[:]...)
				check(err)
			}
		}},
		{"WaitSome of 8", func() {
			activateAll()
			for i := 0; i != Undefined; {
				var err error
				i, err = WaitSome(reqs[:], indices[:], sts[:])
				check(err)
			}
		}},
		{"TestSome of 8", func() {
			activateAll()
			for i := 0; i != Undefined; {
				var err error
				i, err = TestSome(reqs[:], indices[:], sts[:])
				check(err)
			}
		}},
		{"TestAll of 8", func() {
			activateAll()
			for flag := false; !flag; {
				var err error
				flag, err = TestAll(reqs[:], sts[:])
				check(err)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			for range 10 {
				row.run() // warm-up
			}
			assert.Zero(t, testing.AllocsPerRun(200, row.run))
		})
	}
	assert.LessOrEqual(t, len(r.free), n, "number of pooled objects")
}
