package btltest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// napNanos is how long the tests sleep between two turns of the other side. It is short, because
// the other side may need many turns to wake the sleeper.
const napNanos = int64(20 * time.Microsecond)

func idleTests() []namedTest {
	return []namedTest{
		{"woken-by-fragment", sleeping(testWokenByFragment)},
		{"woken-by-inline", sleeping(testWokenByInline)},
		{"woken-by-room", sleeping(testWokenByRoom)},
		{"woken-by-first-contact", sleeping(testWokenByFirst)},
		{"disarmed", sleeping(testDisarmed)},
	}
}

// sleeper is a side that sleeps on its wakeup.
type sleeper struct {
	*side
	wakeup progress.Wakeup
}

// sleeping runs a test in both directions. The sleeping side is s. If it cannot sleep here, the
// test does nothing.
func sleeping(run func(h *harness, s sleeper)) func(*testing.T, Maker) {
	return directed(func(h *harness, _, to *side) {
		wakeup := h.pair.WakeupA
		if to == h.b {
			wakeup = h.pair.WakeupB
		}
		switch {
		case h.pair.Remote && to == h.b:
			h.t.Log("the module is in another process, which does not sleep")
		case wakeup == nil:
			h.t.Log("the module is no Idler")
		default:
			require.Implements(h.t, (*progress.Idler)(nil), to.m)
			run(h, sleeper{to, wakeup})
		}
	})
}

// forgetWakeups makes sure that an old wakeup does not end the next sleep.
func (s sleeper) forgetWakeups() {
	s.wakeup.Wake() // so that this sleep is short
	s.wakeup.Sleep(int64(time.Millisecond))
}

// armNow calls Arm and then Progress, like an engine.
func (s sleeper) armNow() {
	s.h.t.Helper()
	s.mu.Lock()
	require.True(s.h.t, s.m.(progress.Idler).Arm(), "Arm of %s, with nothing under way", s.name)
	s.mu.Unlock()
	s.progress()
	s.h.check()
}

// arm arms the side after everything else has come to rest.
func (s sleeper) arm() {
	s.h.t.Helper()
	s.h.turns(20)
	s.forgetWakeups()
	s.armNow()
}

// isWoken runs others and drives the other side, and expects that this wakes the sleeping side. One
// goroutine alternately sleeps and drives, so the turns end with the wakeup. If a second goroutine
// slept, turns would continue after the wakeup until the scheduler runs the sleeper. In a
// simulation, each turn advances the time, so a late sleeper could wake after its deadlines.
func (s sleeper) isWoken(others func()) {
	h := s.h
	h.t.Helper()
	isOver := h.patience()
	others()
	for !s.wakeup.Sleep(napNanos) {
		// The wakeup may need progress of the other side.
		h.rest(s.other.progress())
		h.check()
		require.False(h.t, isOver(), "%s slept on", s.name)
	}
	s.mu.Lock()
	s.m.(progress.Idler).Disarm()
	s.mu.Unlock()
}

// testWokenByFragment: a fragment that arrives wakes an armed side, which polls only after the
// wakeup.
func testWokenByFragment(h *harness, s sleeper) {
	h.connect()
	for i := range 20 {
		h.mustSend(s.other, 8, 16)
		h.settle()
		s.arm()
		s.isWoken(func() { require.NoError(h.t, s.other.send(s.other.newSend(8, 100*i+8))) })
		h.settle()
	}
}

func testWokenByInline(h *harness, s sleeper) {
	if h.lacks(s.other, btl.CapInline) {
		return
	}
	h.connect()
	h.warmUp()
	for range 20 {
		s.arm()
		s.isWoken(func() { require.True(h.t, s.other.inline(0, 8)) })
		h.settle()
	}
}

// testWokenByFirst: the first fragment ever, from a peer that has only just connected, wakes a
// side.
func testWokenByFirst(h *harness, s sleeper) {
	s.arm()
	s.isWoken(func() {
		h.connectSide(s.other, h.newGeneration())
		tr := s.other.newSend(8, 16)
		for isOver := h.patience(); s.other.send(tr) != nil; {
			h.rest(s.other.progress())
			require.False(h.t, isOver(), "no resources for the first fragment")
		}
	})
	h.settle()
}

// testWokenByRoom: a side whose posts were refused for lack of room is woken when there is room.
func testWokenByRoom(h *harness, s sleeper) {
	h.connect()
	for range 5 {
		h.flood(s.side, 100)
		s.forgetWakeups()
		s.armNow()
		if s.send(s.newSend(8, 100)) == btl.ErrResource {
			s.isWoken(func() {})
		}
		h.mustSend(s.side, 8, 100)
		h.settle()
	}
}

// testDisarmed: Disarm may follow any Arm, and loses no fragment.
func testDisarmed(h *harness, s sleeper) {
	h.connect()
	for range 20 {
		s.mu.Lock()
		s.m.(progress.Idler).Arm()
		s.m.(progress.Idler).Disarm()
		s.mu.Unlock()
		h.mustSend(s.other, 8, 16)
		h.settle()
	}
}
