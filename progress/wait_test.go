package progress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parkedBehind starts a goroutine that drives and n goroutines that park, in order. Each channel
// gets the result of a wait, the driver's first.
func parkedBehind(ctx context.Context, t *testing.T, e *Engine, n int) ([]*Waiter, []<-chan error) {
	var ws []*Waiter
	var dones []<-chan error
	for i := range n + 1 {
		w := waiter(1)
		ws = append(ws, w)
		dones = append(dones, spawn(func() error { return waitIn(ctx, e, w) }))
		if i == 0 {
			eventually(t, e, func() bool { return e.driver == w }, "the first drives")
		} else {
			eventually(t, e, func() bool { return w.parked }, "the next one parks")
		}
	}
	return ws, dones
}

func TestWaitThatIsOverReturnsWithoutPolling(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name string
		ctx  context.Context
		need int
		stop bool
		want error
	}{
		{"done", nil, 0, false, nil},
		{"done, context ended", ended, 0, false, nil},
		{"done, stopped", nil, 0, true, nil},
		{"context ended", ended, 1, false, context.Canceled},
		{"context ended, stopped", ended, 1, true, context.Canceled},
		{"stopped", t.Context(), 1, true, ErrStopped},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := New(Config{})
			if test.stop {
				e.Stop(nil)
			}
			assert.Equal(t, test.want, waitIn(test.ctx, e, waiter(test.need)))
			assert.Equal(t, Counters{}, e.Counters(), "no polls")
		})
	}
}

func TestContextEndEndsWait(t *testing.T) {
	for _, test := range []struct {
		name string
		cfg  Config
	}{
		{"spinning", Config{SpinTurns: 1 << 40}},
		{"yielding", Config{NoSleep: true}},
		{"asleep", Config{}},
		{"idle", Config{Idle: runtime.Gosched}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := New(test.cfg)
			ctx, cancel := context.WithCancel(t.Context())
			ws, dones := parkedBehind(ctx, t, e, 2)
			eventually(t, e, func() bool { return e.Counters().Turns > 50 || e.Counters().Sleeps > 0 }, "the driver turns")
			cancel()
			for i, done := range dones {
				assert.Equal(t, context.Canceled, within(t, done, "the wait"))
				locked(e, func() { assert.False(t, ws[i].Done()) })
			}
			assert.Nil(t, e.driver)
			assert.Empty(t, e.parked)
			// The same waiter is reused for another wait, which does not see the end of the old
			// context.
			locked(e, func() {
				e.AddPoller(&pollFunc{after(3, ws[0].Signal)})
				assert.NoError(t, e.Wait(context.Background(), ws[0]))
			})
		})
	}
}

// The end of one wait's context does not end the other waits.
func TestContextEndEndsOnlyItsOwnWait(t *testing.T) {
	e := New(Config{})
	driver, stopDriver := context.WithCancel(t.Context())
	parked, stopParked := context.WithCancel(t.Context())
	ws, dones := parkedBehind(driver, t, e, 0)
	ws2 := []*Waiter{waiter(1), waiter(1)}
	var dones2 []<-chan error
	for i, ctx := range []context.Context{parked, nil} {
		dones2 = append(dones2, spawn(func() error { return waitIn(ctx, e, ws2[i]) }))
		eventually(t, e, func() bool { return ws2[i].parked }, "the goroutine parks")
	}
	stopParked()
	assert.Equal(t, context.Canceled, within(t, dones2[0], "the parked wait"))
	locked(e, func() { assert.Same(t, ws[0], e.driver) })
	stopDriver()
	assert.Equal(t, context.Canceled, within(t, dones[0], "the driver"))
	eventually(t, e, func() bool { return e.driver == ws2[1] }, "the last goroutine drives")
	locked(e, ws2[1].Signal)
	assert.NoError(t, within(t, dones2[1], "the last wait"))
}

// A context that ends after its wait must not end the next wait with the same waiter. With one
// processor, the function that the end of the context starts does not run before the next wait.
func TestContextEndAfterWaitDoesNotEndNextWait(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e := New(Config{NoSleep: true})
	e.Lock()
	defer e.Unlock()
	w := waiter(1)
	p := new(pollFunc)
	e.AddPoller(p)
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		p.find = after(3, func() { w.Signal(); cancel() })
		assert.NoError(t, e.Wait(ctx, w))
		w.Reset(1)
		p.find = after(100, w.Signal)
		assert.NoError(t, e.Wait(context.Background(), w))
		w.Reset(1)
	}
}

// Contexts end at random moments; the waiters come from the pool.
func TestContextEndRacesWithSignal(t *testing.T) {
	e := New(Config{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				e.Lock()
				w := e.GetWaiter(1)
				e.After(0, w.Signal)
				go cancel()
				if err := e.Wait(ctx, w); err == nil {
					assert.True(t, w.Done())
					e.PutWaiter(w)
				} else { // the timer still refers to w, so it must not go back to the pool
					assert.Equal(t, context.Canceled, err)
				}
				w = e.GetWaiter(1)
				e.After(0, w.Signal)
				assert.NoError(t, e.Wait(context.Background(), w))
				e.PutWaiter(w)
				e.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestStopEndsAllWaits(t *testing.T) {
	for _, cause := range []error{nil, assert.AnError} {
		want := cause
		if want == nil {
			want = ErrStopped
		}
		e := New(Config{})
		locked(e, func() { assert.NoError(t, e.Stopped()) })
		_, dones := parkedBehind(context.Background(), t, e, 3)
		e.Stop(cause)
		for _, done := range dones {
			assert.Equal(t, want, within(t, done, "the wait"))
		}
		e.Stop(errors.New("a second cause"))
		assert.Equal(t, want, wait(e, waiter(1)))
		locked(e, func() { assert.Equal(t, want, e.Stopped()) })
		assert.Nil(t, e.driver)
		assert.Empty(t, e.parked)
	}
}

// Parked waits end without the driver's help, because it may be in Config.Idle.
func TestStopEndsParkedWaitsWithoutTheDriver(t *testing.T) {
	idling, release := make(chan struct{}, 1), make(chan struct{})
	e := New(Config{Idle: func() { idling <- struct{}{}; <-release }})
	driver := spawn(func() error { return wait(e, waiter(1)) })
	<-idling
	w := waiter(1)
	parked := spawn(func() error { return wait(e, w) })
	eventually(t, e, func() bool { return w.parked }, "the goroutine parks")
	e.Stop(nil)
	assert.Equal(t, ErrStopped, within(t, parked, "the parked wait"))
	close(release)
	assert.Equal(t, ErrStopped, within(t, driver, "the driver"))
}

// A wait that is done when the engine stops returns nil.
func TestStopOfDoneWaitReturnsNil(t *testing.T) {
	e := New(Config{})
	ws, dones := parkedBehind(context.Background(), t, e, 3)
	locked(e, func() {
		ws[0].Signal()
		ws[2].Signal()
		e.stopErr = assert.AnError // as Stop does, but under the same lock as the signals
		for _, w := range e.parked {
			e.unpark(w)
		}
		e.Wake()
	})
	assert.NoError(t, within(t, dones[0], "the driver"))
	assert.Equal(t, assert.AnError, within(t, dones[1], "not done"))
	assert.NoError(t, within(t, dones[2], "done"))
	assert.Equal(t, assert.AnError, within(t, dones[3], "not done"))
}

func TestHandOverFindsAnotherDriver(t *testing.T) {
	for _, test := range []struct {
		name  string
		ended []int // the waits that end at once; 0 drives, the others are parked in order
	}{
		{"the driver leaves", []int{0}},
		{"a parked goroutine leaves", []int{1}},
		{"the driver and the next one leave", []int{0, 1}},
		{"the driver and the last one leave", []int{0, 3}},
		{"all but the last leave", []int{0, 1, 2}},
		{"all leave", []int{0, 1, 2, 3}},
		{"all leave, in reverse order", []int{3, 2, 1, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := New(Config{YieldNanos: 1000})
			ws, dones := parkedBehind(context.Background(), t, e, 3)
			locked(e, func() {
				// Each has parked once, and once more if the driver has slept so long that it made
				// them record their origins.
				assert.GreaterOrEqual(t, e.Counters().Parks, uint64(3))
				assert.LessOrEqual(t, e.Counters().Parks, uint64(6))
			})
			stays := map[int]bool{0: true, 1: true, 2: true, 3: true}
			locked(e, func() {
				for _, i := range test.ended {
					delete(stays, i)
					ws[i].Signal()
				}
			})
			for _, i := range test.ended {
				assert.NoError(t, within(t, dones[i], "the wait"))
			}
			for len(stays) > 0 {
				// One of the remaining goroutines drives.
				driver := -1
				var turns uint64
				eventually(t, e, func() bool {
					for i := range stays {
						if e.driver == ws[i] {
							driver, turns = i, e.Counters().Turns
						}
					}
					return driver >= 0
				}, "a remaining goroutine drives")
				locked(e, e.Wake)
				eventually(t, e, func() bool { return e.Counters().Turns > turns }, "the engine turns")
				locked(e, ws[driver].Signal)
				assert.NoError(t, within(t, dones[driver], "the driver's wait"))
				delete(stays, driver)
			}
			eventually(t, e, func() bool { return e.coming == 0 }, "no woken goroutine waits for the lock")
			assert.Nil(t, e.driver)
			assert.Empty(t, e.parked)
		})
	}
}

// A panic ends the driver's wait. The other waits continue.
func TestPanicWhileDrivingHandsOver(t *testing.T) {
	for _, where := range []string{"poller", "timer", "idle"} {
		t.Run(where, func(t *testing.T) {
			var cfg Config
			var armed atomic.Bool
			boom := func() {
				if armed.Swap(false) {
					panic("boom")
				}
			}
			if where == "idle" {
				cfg.Idle = boom
			}
			e := New(cfg)
			ws := []*Waiter{waiter(1), waiter(1), waiter(1)}
			first := spawn(func() (err error) {
				defer func() { err = fmt.Errorf("recovered: %v", recover()) }()
				return wait(e, ws[0])
			})
			eventually(t, e, func() bool { return e.driver == ws[0] }, "the goroutine drives")
			others := []<-chan error{
				spawn(func() error { return wait(e, ws[1]) }),
				spawn(func() error { return wait(e, ws[2]) }),
			}
			eventually(t, e, func() bool { return len(e.parked) == 2 }, "the other goroutines park")
			armed.Store(true)
			switch where {
			case "poller":
				locked(e, func() { e.AddPoller(&pollFunc{func() int { boom(); return 0 }}) })
			case "timer":
				locked(e, func() { e.After(0, boom) })
			}
			assert.EqualError(t, within(t, first, "the panic"), "recovered: boom")
			eventually(t, e, func() bool { return e.driver == ws[1] || e.driver == ws[2] }, "another goroutine drives")
			locked(e, func() { ws[1].Signal(); ws[2].Signal() })
			for _, done := range others {
				assert.NoError(t, within(t, done, "the other waits"))
			}
		})
	}
}

// network is a poller that signals the posted waiters in random order, a few at a turn. The
// engine's lock guards it.
type network struct {
	random *rand.Rand
	posted []*Waiter
}

func (n *network) Progress() int {
	events := 0
	for len(n.posted) > 0 && n.random.IntN(3) == 0 {
		i := n.random.IntN(len(n.posted))
		w := n.posted[i]
		n.posted = append(n.posted[:i], n.posted[i+1:]...)
		w.Signal()
		events++
	}
	return events
}

// Arm promises to wake if nothing is posted: then no event can come.
func (n *network) Arm() bool { return len(n.posted) == 0 }
func (n *network) Disarm()   {}

// Many goroutines post and wait at once, while one at a time drives. Each wait must end.
func TestManyGoroutinesWait(t *testing.T) {
	for _, test := range []struct {
		name  string
		cfg   Config
		procs int
	}{
		{"the zero configuration", Config{}, 2},
		{"the zero configuration, one processor", Config{}, 1},
		{"spinning", Config{SpinTurns: 100, YieldNanos: 1000}, 2},
		{"NoSleep, yields to processes", Config{NoSleep: true, Processor: SystemProcessor()}, 2},
		{"Config.Idle", Config{Idle: runtime.Gosched}, 2},
		{"four processors", Config{SpinTurns: 10}, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			const goroutines, rounds = 8, 1500
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(test.procs))
			e := New(test.cfg)
			net := &network{random: rand.New(rand.NewPCG(1, 2))}
			locked(e, func() { e.AddPoller(net) })
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(3, uint64(g)))
					for range rounds {
						e.Lock()
						need := 1 + random.IntN(3)
						w := e.GetWaiter(need)
						for range need {
							net.posted = append(net.posted, w)
						}
						e.Wake()
						switch random.IntN(8) {
						case 0: // another goroutine may complete it first
							e.Unlock()
							runtime.Gosched()
							e.Lock()
						case 1:
							e.Poll()
						}
						err := e.Wait(context.Background(), w)
						if err != nil || !w.Done() || need > 0 && w.need != 0 {
							assert.Fail(t, "wait ended early", "%v, %d signals missing", err, w.need)
						}
						e.PutWaiter(w)
						e.Unlock()
					}
				})
			}
			wg.Wait()
			locked(e, func() {
				assert.Nil(t, e.driver)
				assert.Empty(t, e.parked)
				assert.Zero(t, e.coming)
				assert.Zero(t, e.wanted.Load())
				assert.Empty(t, net.posted)
				assert.LessOrEqual(t, len(e.waiters), goroutines, "the pool reuses waiters")
			})
		})
	}
}

// Pairs of goroutines signal each other in turn, without pollers, so each round hands over the
// driving.
func TestPairsThatSignalEachOtherHandOver(t *testing.T) {
	const teams, rounds = 4, 1000
	for _, cfg := range []Config{{}, {SpinTurns: 1000}, {NoSleep: true}} {
		e := New(cfg)
		var wg sync.WaitGroup
		for range teams {
			balls := [2]*Waiter{waiter(1), waiter(1)}
			for side := range balls {
				wg.Go(func() {
					for round := range rounds {
						e.Lock()
						if round%2 == side {
							balls[1-side].Signal()
						} else {
							if err := e.Wait(context.Background(), balls[side]); err != nil {
								assert.NoError(t, err)
							}
							balls[side].Reset(1)
						}
						e.Unlock()
					}
				})
			}
		}
		wg.Wait()
		assert.Zero(t, e.coming)
		assert.Nil(t, e.driver)
	}
}

// A driver that spins, or finds events at every turn, must release the lock to a goroutine in Lock.
func TestLockDuringDriveSucceedsSoon(t *testing.T) {
	for _, test := range []struct {
		name   string
		cfg    Config
		events int // at every turn
	}{
		{"driver spins", Config{SpinTurns: 1 << 40}, 0},
		{"driver finds events at every turn", Config{}, 1},
		{"driver yields", Config{NoSleep: true}, 0},
		{"driver sleeps", Config{}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			const posts = 2000
			e := New(test.cfg)
			kept := 0 // turns while a goroutine wanted the lock
			locked(e, func() {
				e.AddPoller(&idler{promises: true, pollFunc: pollFunc{func() int {
					if e.wanted.Load() != 0 {
						kept++
					}
					return test.events
				}}})
			})
			w := waiter(1)
			done := spawn(func() error { return wait(e, w) })
			eventually(t, e, func() bool { return e.driver == w }, "the goroutine drives")
			prompt := 0 // locks that were free after a few turns
			for range posts {
				before := 0
				locked(e, func() { before = kept })
				locked(e, func() {
					if kept-before < 50 {
						prompt++
					}
				})
			}
			locked(e, w.Finish)
			require.NoError(t, within(t, done, "the driver"))
			// The system may stop the goroutine that wants the lock, while the driver turns.
			assert.Greater(t, prompt, posts/10, "of %d locks, with a driver that turns meanwhile", posts)
		})
	}
}

// A woken goroutine runs soon, even with one processor and a driver that finds events at every
// turn.
func TestWokenGoroutineRunsSoonOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e := New(Config{SpinTurns: 1 << 40})
	driver, parked := waiter(1), waiter(1)
	drives := spawn(func() error { return wait(e, driver) })
	eventually(t, e, func() bool { return e.driver == driver }, "the first drives")
	var signalled, served uint64 // in turns
	parks := spawn(func() error {
		e.Lock()
		defer e.Unlock()
		err := e.Wait(context.Background(), parked)
		served = e.Counters().Turns
		driver.Signal()
		return err
	})
	eventually(t, e, func() bool { return parked.parked }, "the second parks")
	locked(e, func() {
		e.AddPoller(&pollFunc{func() int {
			if !parked.Done() {
				signalled = e.Counters().Turns
				parked.Signal()
			}
			return 1
		}})
	})
	require.NoError(t, within(t, parks, "the parked wait"))
	require.NoError(t, within(t, drives, "the driver"))
	assert.Less(t, served-signalled, uint64(1000), "turns from the signal to the end of the wait")
}

// A goroutine in Poll may complete the operation that another goroutine waits for.
func TestPollAndWaitTogether(t *testing.T) {
	const rounds = 500
	e := New(Config{})
	net := &network{random: rand.New(rand.NewPCG(5, 6))}
	locked(e, func() { e.AddPoller(net) })
	var wg sync.WaitGroup
	var finished atomic.Int32
	for range 3 {
		wg.Go(func() {
			defer finished.Add(1)
			for range rounds {
				locked(e, func() {
					w := e.GetWaiter(1)
					net.posted = append(net.posted, w)
					if err := e.Wait(context.Background(), w); err != nil {
						assert.NoError(t, err)
					}
					e.PutWaiter(w)
				})
			}
		})
		wg.Go(func() {
			for finished.Load() < 3 {
				locked(e, func() { e.Poll() })
			}
		})
	}
	wg.Wait()
	assert.Nil(t, e.driver)
}

func TestContextDeadlineEndsWaitOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		var wg sync.WaitGroup
		for i := range 4 {
			patience := time.Duration(i+1) * 12345678 * time.Nanosecond
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				start := time.Now()
				assert.Equal(t, context.DeadlineExceeded, waitIn(ctx, e, waiter(1)))
				assert.Equal(t, patience, time.Since(start))
			})
		}
		wg.Wait()
	})
}

// A context ends a wait even if every turn has an event.
func TestContextEndEndsBusyWait(t *testing.T) {
	for _, spin := range []int{0, 100} {
		e := New(Config{SpinTurns: spin})
		locked(e, func() { e.AddPoller(&pollFunc{func() int { return 1 }}) })
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		assert.ErrorIs(t, waitIn(ctx, e, waiter(1)), context.DeadlineExceeded)
		cancel()
	}
}

// A burst of waiting goroutines does not keep its memory forever.
func TestPoolOfWaitersIsBounded(t *testing.T) {
	const n = 2 * maxWaiters
	e := New(Config{})
	ws, done := parkedBehind(context.Background(), t, e, n)
	locked(e, func() {
		for _, w := range ws {
			w.Signal()
		}
	})
	for _, d := range done {
		require.NoError(t, within(t, d, "a wait"))
	}
	locked(e, func() {
		assert.LessOrEqual(t, cap(e.parked), maxWaiters)
		for range n {
			e.PutWaiter(new(Waiter))
		}
		assert.Equal(t, maxWaiters, len(e.waiters))
	})
}

// lookFunc is an Ahead.
type lookFunc func() (events int, able bool)

func (f lookFunc) Look() (events int, able bool) { return f() }

func TestSpinAsksAheadUntilItCannotLook(t *testing.T) {
	const spinTurns = 25*turnsPerAhead - 3
	for _, test := range []struct {
		name         string
		ableFor      int // calls of Look
		comesAt      int // the call that finds the event
		looks, turns int
	}{
		{"it finds the event", 100, 3, 3, 2},
		{"it never finds one", 100, 0, 25, 25},
		{"it cannot look", 0, 0, 1, spinTurns},
		{"it cannot look any more", 5, 0, 6, 5 + 20*turnsPerAhead - 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := New(Config{SpinTurns: spinTurns})
			polls, looks, need := 0, 0, int32(1)
			e.AddPoller(&pollFunc{})
			other := &pollFunc{find: func() int { polls++; return 0 }}
			e.AddPoller(other)
			ahead := lookFunc(func() (int, bool) {
				looks++
				if looks > test.ableFor {
					return 0, false
				}
				if looks == test.comesAt {
					need--
					return 1, true
				}
				return 0, true
			})
			locked(e, func() {
				before := e.turn
				empty := e.Spin(&need, ahead)
				require.Equal(t, test.looks, looks)
				require.EqualValues(t, test.turns, e.turn-before)
				if need > 0 {
					require.Equal(t, spinTurns, empty)
				}
			})
			// As without ahead, turns that do not run timers poll only the hot poller.
			if test.ableFor == 0 {
				require.Less(t, polls, spinTurns/5)
			}
		})
	}
}

// TestYieldUntilKeepsTheLockForAShortTime: it ends when the word is stored, after the given number
// of yields, or when another goroutine drives or wants the lock.
func TestYieldUntilKeepsTheLockForAShortTime(t *testing.T) {
	for _, test := range []struct {
		name    string
		cfg     Config
		prepare func(e *Engine, word *uint64)
		yielded int
		ok      bool
	}{
		{"stored before", Config{Processor: SystemProcessor()}, func(_ *Engine, word *uint64) { *word = 7 }, 0, true},
		{"never stored", Config{Processor: SystemProcessor()}, nil, 4, false},
		{"yields are futile", Config{Processor: SystemProcessor()}, func(e *Engine, _ *uint64) { e.quickYields.skip = 1 }, 0, false},
		{"no process to yield to", Config{}, nil, 0, false},
		{"another goroutine drives", Config{Processor: SystemProcessor()}, func(e *Engine, _ *uint64) { e.driver = waiter(1) }, 0, false},
		{"one was woken", Config{Processor: SystemProcessor()}, func(e *Engine, _ *uint64) { e.coming = 1 }, 0, false},
		{"one wants the lock", Config{Processor: SystemProcessor()}, func(e *Engine, _ *uint64) { e.wanted.Add(1) }, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := New(test.cfg)
			var word uint64
			if test.prepare != nil {
				test.prepare(e, &word)
			}
			yielded, ok := e.YieldUntil(&word, 7, 4)
			assert.Equal(t, test.yielded, yielded)
			assert.Equal(t, test.ok, ok)
			assert.Equal(t, uint64(test.yielded), e.Counters().Yields)
		})
	}
	e := New(Config{Processor: SystemProcessor()})
	var word uint64
	go atomic.StoreUint64(&word, 7)
	for yields, ok := 0, false; !ok; {
		yields, ok = e.YieldUntil(&word, 7, 1000)
		assert.LessOrEqual(t, yields, 1000)
	}
}
