package request

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/progress"
)

// Several goroutines wait for one request: all return, one of them with its status.
func TestSeveralGoroutinesWaitForOneRequest(t *testing.T) {
	const goroutines, rounds = 5, 150
	for _, persistent := range []bool{false, true} {
		r := newRank()
		o, h := r.persistent("")
		for range rounds {
			if persistent {
				require.NoError(t, h.Start())
			} else {
				o, h = r.active("")
			}
			var got [goroutines]string
			var wg sync.WaitGroup
			for i := range goroutines {
				wg.Go(func() {
					switch i {
					case 0, 1, 2:
						got[i] = outcomeText(h.Wait())
					case 3:
						_, st, err := WaitAny(Request{}, h)
						got[i] = outcomeText(st, err)
					case 4:
						sts := make([]Status, 2)
						err := WaitAllStatus([]Request{h, h}, sts)
						if got[i] = outcomeText(sts[0], err); sts[0] == Empty() {
							got[i] = outcomeText(sts[1], err)
						}
					}
				})
			}
			if rand.IntN(2) == 0 {
				runtime.Gosched()
			}
			o.complete(message, nil)
			wg.Wait()
			served := 0
			for _, s := range got {
				switch s {
				case "message":
					served++
				case "empty":
				default:
					assert.Fail(t, "a goroutine got "+s)
				}
			}
			assert.Equal(t, 1, served)
		}
	}
}

// The end of one goroutine's context does not end the waits of the others.
func TestContextEndEndsOneOfSeveralWaits(t *testing.T) {
	for leaver := range 3 {
		r := newRank()
		o, h := r.active("")
		ctx, cancel := context.WithCancel(t.Context())
		var dones []<-chan string
		for i := range 3 {
			waits := context.Background()
			if i == leaver {
				waits = ctx
			}
			dones = append(dones, spawn(func() string { return outcomeText(h.WaitContext(waits)) }))
			r.waiting(t, o, i+1)
		}
		cancel()
		assert.Equal(t, "canceled", within(t, dones[leaver], "the wait whose context ended"))
		r.waiting(t, o, 2)
		o.complete(message, nil)
		count := map[string]int{}
		for i, done := range dones {
			if i != leaver {
				count[within(t, done, "another wait")]++
			}
		}
		assert.Equal(t, map[string]int{"message": 1, "empty": 1}, count)
	}
}

// waitsForNothing are calls that wait, and their results if the request is taken away.
var waitsForNothing = map[string]string{
	"Wait": "empty", "WaitAny": "-3 empty", "WaitAllStatus": "ok [empty]", "WaitSome": "-3 ok",
	"Completed": "",
}

// If a request is freed, abandoned or observed elsewhere, the waits for it end.
func TestRequestTakenAwayDuringWaitEndsIt(t *testing.T) {
	free := func(_ *op, h Request) error { return h.Free() }
	take := func(o *op, _ Request) error { // as Test does on another goroutine
		o.rank.Lock()
		defer o.rank.Unlock()
		o.Complete(message, nil)
		return errOf(o.Take())
	}
	for wait, want := range waitsForNothing {
		for _, row := range []struct {
			name, state string
			do          func(o *op, h Request) error
		}{
			{"Free", "active", free},
			{"Free, persistent", "p-active", free},
			{"Abandon", "active", func(o *op, _ Request) error {
				o.rank.locked(o.Abandon)
				return nil
			}},
			{"Take", "active", take},
			{"Take, persistent", "p-active", take},
			{"Complete and Abandon", "active", func(o *op, h Request) error {
				o.rank.Lock()
				defer o.rank.Unlock()
				o.Complete(message, nil)
				o.Abandon()
				return nil
			}},
		} {
			t.Run(wait+"/"+row.name, func(t *testing.T) {
				r := newRank()
				reqs := []Request{r.make(t, row.state)}
				o := reqs[0].o.op.(*op)
				first := spawn(func() string { return byName[wait](t, r, reqs) })
				r.waiting(t, o, 1)
				second := spawn(func() string { return byName[wait](t, r, reqs) })
				r.waiting(t, o, 2)
				require.NoError(t, row.do(o, reqs[0]))
				assert.Equal(t, want, within(t, first, wait))
				assert.Equal(t, want, within(t, second, wait))
				// No waiter is left that the object's next operation could signal.
				r.locked(func() {
					if o.State() == Active {
						o.Complete(message, nil)
					}
					assert.Nil(t, o.waiter)
					assert.Empty(t, o.moreWaiters)
				})
			})
		}
	}
}

// become abandons an operation and makes its object another operation, which is complete. Lock
// held.
func (o *op) become(t *testing.T) Request {
	o.Abandon()
	o.Complete(message, nil)
	again := o.rank.get("another")
	assert.Same(t, o, again)
	again.Activate()
	again.Complete(message, errBang)
	return again.Handle()
}

// When a wait ends, the object of its handle may be another operation already, and complete. The
// wait must not observe it.
func TestObjectReusedDuringWaitIsNotObserved(t *testing.T) {
	for wait, want := range waitsForNothing {
		t.Run(wait, func(t *testing.T) {
			r := newRank()
			o, h := r.active("")
			done := spawn(func() string { return byName[wait](t, r, []Request{h}) })
			r.waiting(t, o, 1)
			var another Request
			r.locked(func() { another = o.become(t) })
			assert.Equal(t, want, within(t, done, wait))
			assert.Equal(t, "complete", stateOf(t, another))
		})
	}
}

// A call of the Test family releases the lock while it yields.
func TestObjectReusedDuringTestIsNotObserved(t *testing.T) {
	for test, want := range map[string]string{
		"Test": "done empty", "GetStatus": "done empty", "TestAny": "true -3 empty", "TestAll": "true ok [empty]", "TestSome": "-3 ok",
	} {
		t.Run(test, func(t *testing.T) {
			r := newRank()
			var o *op
			var another Request
			r.Engine = progress.New(progress.Config{Idle: func() { r.locked(func() { another = o.become(t) }) }})
			o, h := r.active("")
			assert.Equal(t, want, byName[test](t, r, []Request{h}))
			assert.Equal(t, "complete", stateOf(t, another))
			assert.True(t, h.IsNull())
		})
	}
}

// During a call over two requests, one is cancelled, freed, fails, or is observed elsewhere. The
// table says whether the call goes on waiting for the other.
func TestOneOfTwoRequestsEndsDuringWait(t *testing.T) {
	cancelIt := func(o *op, h Request) { o.onCancel = func() { o.Complete(cancelled, nil) }; _ = h.Cancel() }
	freeIt := func(_ *op, h Request) { _ = h.Free() }
	failIt := func(o *op, _ Request) { o.complete(message, errBoom) }
	testIt := func(o *op, h Request) {
		o.rank.Lock()
		o.Complete(message, nil)
		_, _ = o.Take() // as Test does on another goroutine
		o.rank.Unlock()
	}
	for _, row := range []struct {
		name, wait string
		do         func(o *op, h Request)
		waitsOn    bool // until the other request is complete too
		want       string
	}{
		{"cancelled", "WaitAllStatus", cancelIt, true, "ok [cancelled message]"},
		{"freed", "WaitAllStatus", freeIt, true, "ok [empty message]"},
		{"failed", "WaitAllStatus", failIt, false, "instatus+boom [message/boom pending]"},
		{"observed elsewhere", "WaitAllStatus", testIt, true, "ok [empty message]"},
		{"cancelled", "WaitAny", cancelIt, false, "0 cancelled"},
		{"freed", "WaitAny", freeIt, true, "1 message"},
		{"failed", "WaitAny", failIt, false, "0 message/boom"},
		{"observed elsewhere", "WaitAny", testIt, true, "1 message"},
		{"cancelled", "WaitSome", cancelIt, false, "1 ok 0:cancelled"},
		{"freed", "WaitSome", freeIt, true, "1 ok 1:message"},
		{"failed", "WaitSome", failIt, false, "1 instatus+boom 0:message/boom"},
		{"observed elsewhere", "WaitSome", testIt, true, "1 ok 1:message"},
		{"cancelled", "Completed", cancelIt, true, "0:cancelled 1:message"},
		{"freed", "Completed", freeIt, true, "1:message"},
		{"failed", "Completed", failIt, true, "0:message/boom 1:message"},
		{"observed elsewhere", "Completed", testIt, true, "1:message"},
	} {
		t.Run(row.wait+" "+row.name, func(t *testing.T) {
			r := newRank()
			reqs := r.makeAll(t, "active active")
			a, b := reqs[0].o.op.(*op), reqs[1].o.op.(*op)
			done := spawn(func() string { return byName[row.wait](t, r, reqs) })
			r.waiting(t, b, 1)
			row.do(a, reqs[0])
			if row.waitsOn {
				turns := r.turns()
				r.eventually(t, func() bool { return r.Counters().Turns > turns+10 }, "the call goes on waiting")
				r.waiting(t, b, 1)
				b.complete(message, nil)
			}
			assert.Equal(t, row.want, within(t, done, row.wait))
			r.waiting(t, b, 0)
		})
	}
}

// Waiters shows the calls that wait: for which operations, for how many of them, and whether their
// context may end.
func TestWaitersShowsEachKindOfCall(t *testing.T) {
	r := newRank()
	var ops [4]*op
	var reqs [4]Request
	for i := range ops {
		ops[i], reqs[i] = r.active("")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, c := range map[string]struct {
		call      func() error
		waited    int // number of operations that the call waits for
		need      int
		mayGiveUp bool
	}{
		"wait":              {func() error { return errOf(reqs[0].Wait()) }, 1, 1, false},
		"wait with context": {func() error { return errOf(reqs[0].WaitContext(ctx)) }, 1, 1, true},
		"wait all":          {func() error { return WaitAll(reqs[:3]...) }, 3, 3, false},
		"wait any":          {func() error { _, _, err := WaitAny(reqs[:2]...); return err }, 2, 1, false},
		"wait some":         {func() error { return errOf(WaitSome(reqs[:2], make([]int, 2), nil)) }, 2, 1, false},
	} {
		done := spawn(c.call)
		for i := range c.waited {
			r.waiting(t, ops[i], 1)
		}
		r.locked(func() {
			var w *progress.Waiter
			for i, o := range ops {
				ws := o.Waiters()
				if i >= c.waited {
					assert.Empty(t, ws, name)
					continue
				}
				require.Len(t, ws, 1, name)
				require.True(t, w == nil || ws[0] == w, "%s: several waiters for one call", name)
				w = ws[0]
			}
			assert.Equal(t, c.need, w.Need(), name)
			assert.Equal(t, c.mayGiveUp, w.MayGiveUp(), name)
		})
		for i := range c.waited {
			ops[i].complete(message, nil)
		}
		require.NoError(t, within(t, done, name))
		for i := range c.waited {
			require.NoError(t, errOf(reqs[i].Wait())) // the call may not have observed it
			ops[i], reqs[i] = r.active("")
		}
	}
}

// Goroutines share a list of persistent requests and restart them. Exactly one goroutine observes
// each completion.
func TestEachCompletionIsObservedOnce(t *testing.T) {
	const requests, rounds = 6, 2000
	r := newRank()
	var completions, observed atomic.Int64
	var reqs []Request
	for range requests {
		o, h := r.persistent("")
		o.onStart = func() {
			r.due = append(r.due, func() {
				completions.Add(1)
				o.Complete(message, nil)
			})
		}
		reqs = append(reqs, h)
	}
	require.NoError(t, StartAll(reqs...))
	saw := func(i int) {
		if observed.Add(1) <= rounds {
			assert.NoError(t, reqs[i].Start())
		}
	}
	var wg sync.WaitGroup
	for _, loop := range []func() bool{
		func() bool {
			i, _, err := WaitAny(reqs...)
			if i != Undefined {
				saw(i)
			}
			return i != Undefined && err == nil
		},
		func() bool {
			i, _, flag, err := TestAny(reqs...)
			if flag && i != Undefined {
				saw(i)
			}
			return i != Undefined && err == nil || !flag
		},
		func() bool {
			indices := make([]int, requests)
			n, err := WaitSome(reqs, indices, nil)
			for _, i := range indices[:max(n, 0)] {
				saw(i)
			}
			return n != Undefined && err == nil
		},
		func() bool {
			for i := range reqs {
				if st, err := reqs[i].Wait(); err == nil && st == message {
					saw(i)
				}
			}
			return slices.ContainsFunc(reqs, Request.IsActive)
		},
		func() bool {
			for i, st := range Completed(context.Background(), reqs...) {
				if st == message {
					saw(i)
				}
			}
			return false
		},
	} {
		wg.Go(func() {
			for loop() {
			}
		})
	}
	wg.Wait()
	// A goroutine may have started a request after the others had found none active.
	for {
		i, _, _ := WaitAny(reqs...)
		if i == Undefined {
			break
		}
		saw(i)
	}
	assert.Equal(t, completions.Load(), observed.Load())
	assert.GreaterOrEqual(t, observed.Load(), int64(rounds))
	for _, h := range reqs {
		assert.Equal(t, "inactive", stateOf(t, h))
	}
}

// Goroutines make random calls with the same requests, and replace them. No call hangs, and no
// object is released twice or while it is active.
func TestRandomConcurrentCalls(t *testing.T) {
	const goroutines, rounds = 6, 600
	r := newRank()
	var mu sync.Mutex
	shared := make([]Request, 8)
	pick := func(random *rand.Rand) (int, []Request) {
		mu.Lock()
		defer mu.Unlock()
		var list []Request
		for range 1 + random.IntN(4) {
			list = append(list, shared[random.IntN(len(shared))])
		}
		return random.IntN(len(shared)), list
	}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(g)))
			for range rounds {
				i, list := pick(random)
				h := list[0]
				var err error
				switch random.IntN(12) {
				case 0, 1, 2: // a new request replaces an old one
					r.Lock()
					o := r.get("")
					result := error(nil)
					if random.IntN(4) == 0 {
						result = errBoom
					}
					bring := func() { o.Complete(message, result) }
					if random.IntN(2) == 0 {
						o.Activate()
						r.due = append(r.due, bring)
					} else {
						o.InitPersistent()
						o.onStart = func() { r.due = append(r.due, bring) }
					}
					fresh := o.Handle()
					r.Unlock()
					mu.Lock()
					old := shared[i]
					shared[i] = fresh
					mu.Unlock()
					_ = old.Free()
				case 3:
					_ = h.Start()
				case 4:
					_ = StartAll(list...)
				case 5:
					err = errOf(h.Wait())
				case 6:
					_, _, err = h.Test()
				case 7:
					err = WaitAll(list...)
				case 8:
					_, _, err = WaitAny(list...)
				case 9:
					_, err = WaitSome(list, make([]int, len(list)), nil)
				case 10:
					_, err = TestAll(list, make([]Status, len(list)))
				case 11:
					ctx, cancel := context.WithCancel(context.Background())
					go cancel()
					_, err = h.WaitContext(ctx)
				}
				if err != nil && !errors.Is(err, errBoom) && !errors.Is(err, context.Canceled) {
					assert.NoError(t, err)
				}
			}
		})
	}
	wg.Wait()
	for _, h := range shared {
		_ = h.Free()
	}
	r.Lock()
	defer r.Unlock()
	for len(r.due) > 0 {
		r.Turn()
	}
	pool := map[*op]bool{}
	for _, o := range r.free {
		assert.False(t, pool[o], "released twice")
		assert.Equal(t, Idle, o.State())
		assert.Nil(t, o.waiter)
		assert.Empty(t, o.moreWaiters)
		pool[o] = true
	}
}
