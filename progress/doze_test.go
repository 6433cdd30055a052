package progress

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDozeHandlesEventsUntilAGoroutineWaits: a dozing goroutine makes turns when it is woken. A
// goroutine that waits disarms the pollers and polls by itself.
func TestDozeHandlesEventsUntilAGoroutineWaits(t *testing.T) {
	e := New(Config{})
	p := &idler{promises: true}
	events, handled := 0, 0
	p.find = func() int {
		n := events
		events, handled = 0, handled+n
		return n
	}
	locked(e, func() { e.AddPoller(p) })
	// doze dozes until an event is handled or Doze gives way. Doze also ends when another goroutine
	// wants the lock, which this test takes for its checks.
	doze := func() <-chan error {
		return spawn(func() error {
			e.Lock()
			defer e.Unlock()
			for before := handled; handled == before; {
				if e.Doze() {
					return errGaveWay
				}
			}
			return nil
		})
	}
	asleep := func() bool { return e.inSleep && p.arms == p.disarms+1 }

	for range 3 {
		dozing := doze()
		eventually(t, e, asleep, "it sleeps")
		locked(e, func() {
			events++
			e.Wake()
		})
		require.NoError(t, within(t, dozing, "Doze"))
	}
	require.Equal(t, 3, handled)
	require.Equal(t, p.arms, p.disarms)

	dozing := doze()
	eventually(t, e, asleep, "it sleeps")
	w := waiter(1)
	waiting := spawn(func() error { return wait(e, w) })
	eventually(t, e, func() bool { return e.driver == w }, "the other goroutine drives")
	require.ErrorIs(t, within(t, dozing, "Doze"), errGaveWay)
	require.ErrorIs(t, within(t, doze(), "Doze"), errGaveWay, "while another goroutine drives")
	locked(e, w.Signal)
	require.NoError(t, within(t, waiting, "the wait"))
	require.Equal(t, p.arms, p.disarms)

	dozing = doze()
	eventually(t, e, asleep, "it sleeps")
	locked(e, e.Undoze)
	require.ErrorIs(t, within(t, dozing, "Doze"), errGaveWay)
	require.NoError(t, e.Close())
	require.ErrorIs(t, within(t, doze(), "Doze"), errGaveWay, "of a stopped engine")
}

var errGaveWay = errors.New("gave way")

// queued is a task that counts its runs.
type queued struct{ run func() }

func (q *queued) Run() { q.run() }

// TestQueuedTasksRunAfterTheTurn: tasks that pollers queue run when all pollers were polled, in
// order, and tasks that they queue run too. A Waiter queues its task when all signals have come.
func TestQueuedTasksRunAfterTheTurn(t *testing.T) {
	e := New(Config{})
	defer e.Close()
	var order []string
	say := func(what string) { order = append(order, what) }
	last := &queued{func() { say("last") }}
	var w Waiter
	locked(e, func() {
		w.ResetTask(2, e, &queued{func() {
			say("task")
			e.Queue(last)
		}})
		require.True(t, w.IsTask())
		e.AddPoller(&pollFunc{func() int {
			say("first poller")
			w.Signal()
			return 1
		}})
		e.AddPoller(&pollFunc{func() int {
			say("second poller")
			return 0
		}})
		e.Turn()
		e.Turn()
		e.Turn() // a signal too many
	})
	turn := []string{"first poller", "second poller"}
	require.Equal(t, slices.Concat(turn, turn, []string{"task", "last"}, turn), order)
}

// TestQueuedTaskRunsInSpin: a wait that polls only one poller also runs the tasks that result.
func TestQueuedTaskRunsInSpin(t *testing.T) {
	e := New(Config{SpinTurns: 1000})
	defer e.Close()
	w := waiter(1)
	locked(e, func() {
		e.AddPoller(&pollFunc{after(3, func() { e.Queue(&queued{w.Signal}) })})
		require.Zero(t, e.Spin(&w.need, nil))
	})
	require.True(t, w.Done())
}

// TestDozeLetsOthersHaveTheLock: Doze gives way to others even if each turn has an event.
func TestDozeLetsOthersHaveTheLock(t *testing.T) {
	e := New(Config{})
	locked(e, func() { e.AddPoller(&pollFunc{func() int { return 1 }}) })
	stop, began := false, make(chan struct{})
	dozing := spawn(func() error {
		e.Lock()
		defer e.Unlock()
		close(began)
		for !stop {
			e.Doze()
		}
		return nil
	})
	<-began
	locked(e, func() { stop = true })
	require.NoError(t, within(t, dozing, "Doze"))
	require.NoError(t, e.Close())
}

// TestPollEndsDoze: a goroutine that polls once does not leave the dozing one asleep without a
// wakeup.
func TestPollEndsDoze(t *testing.T) {
	e := New(Config{})
	p := &idler{promises: true}
	locked(e, func() { e.AddPoller(p) })
	for _, poll := range []func(){func() { e.Poll() }, func() { need := int32(1); e.Spin(&need, nil) }} {
		var gaveWay bool
		dozing := spawn(func() error {
			e.Lock()
			defer e.Unlock()
			for !gaveWay && e.stopErr == nil {
				gaveWay = e.Doze()
			}
			return nil
		})
		eventually(t, e, func() bool {
			asleep := e.inSleep && e.dozing
			if asleep {
				poll()
				require.False(t, e.dozing)
			}
			return asleep
		}, "it sleeps")
		require.NoError(t, within(t, dozing, "Doze"))
		require.True(t, gaveWay)
		require.Equal(t, p.arms, p.disarms)
	}
	require.NoError(t, e.Close())
}
