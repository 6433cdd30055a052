package btltest

import (
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
		{"woken-by-fragment", directed(testWokenByFragment)},
		{"woken-by-inline", directed(testWokenByInline)},
		{"woken-by-room", directed(testWokenByRoom)},
		{"woken-by-first-contact", directed(testWokenByFirst)},
		{"disarmed", directed(testDisarmed)},
	}
}

// bell is the side's bell. It is nil if there is none, and then the reason is logged.
func (h *harness) bell(s *side) progress.Wakeup {
	b := h.pair.WakeupA
	if s == h.b {
		b = h.pair.WakeupB
		if h.pair.Remote {
			h.t.Log("the bell of another process is not to be heard here")
			return nil
		}
	}
	if b == nil {
		h.t.Log("the module is no Idler")
		return nil
	}
	require.Implements(h.t, (*progress.Idler)(nil), s.m)
	return b
}

// arm arms a side as its engine does, after everything else has come to rest.
func (h *harness) arm(s *side, bell progress.Wakeup) {
	h.t.Helper()
	h.turns(20)
	bell.Wake() // so that the sleep that swallows old rings is short
	bell.Sleep(int64(time.Millisecond))
	s.mu.Lock()
	require.True(h.t, s.m.(progress.Idler).Arm(), "Arm of %s, with nothing under way", s.name)
	s.mu.Unlock()
	s.progress()
	h.check()
}

// isWoken runs others and drives the other side, and expects that this wakes the sleeping side s.
// One goroutine sleeps and drives alternately, so the turns end with the wake-up. If a second
// goroutine slept, turns would follow the wake-up until the scheduler runs the sleeper. In a
// simulation each turn moves the time, so a late sleeper could wake after its deadlines.
func (h *harness) isWoken(s *side, bell progress.Wakeup, others func()) {
	h.t.Helper()
	deadline := time.Now().Add(h.pair.Patience)
	others()
	for !bell.Sleep(napNanos) {
		// The wake-up may need progress of the other side.
		h.rest(s.other.progress())
		h.check()
		require.True(h.t, time.Now().Before(deadline), "%s slept on", s.name)
	}
	s.mu.Lock()
	s.m.(progress.Idler).Disarm()
	s.mu.Unlock()
}

// testWokenByFragment: a fragment that arrives rings the bell of an armed side, which looks only
// then.
func testWokenByFragment(h *harness, from, to *side) {
	bell := h.bell(to)
	if bell == nil {
		return
	}
	h.connect()
	for i := range 20 {
		h.mustSend(from, 8, 16)
		h.settle()
		h.arm(to, bell)
		h.isWoken(to, bell, func() { require.NoError(h.t, from.send(from.newSend(8, 100*i+8))) })
		h.settle()
	}
}

func testWokenByInline(h *harness, from, to *side) {
	bell := h.bell(to)
	if bell == nil || h.lacks(from, btl.CapInline) {
		return
	}
	h.connect()
	h.warmUp()
	for range 20 {
		h.arm(to, bell)
		h.isWoken(to, bell, func() { require.True(h.t, from.inline(0, 8)) })
		h.settle()
	}
}

// testWokenByFirst: the first fragment ever, from a peer that has only just connected.
func testWokenByFirst(h *harness, from, to *side) {
	bell := h.bell(to)
	if bell == nil {
		return
	}
	h.arm(to, bell)
	h.isWoken(to, bell, func() {
		h.connectSide(from, h.newGeneration())
		tr := from.newSend(8, 16)
		for deadline := time.Now().Add(h.pair.Patience); from.send(tr) != nil; {
			require.True(h.t, time.Now().Before(deadline), "no resources to begin with")
			h.rest(from.progress())
		}
	})
	h.settle()
}

// testWokenByRoom: the bell of a side whose posts were refused for lack of room rings when there is
// room.
func testWokenByRoom(h *harness, from, to *side) {
	bell := h.bell(from)
	if bell == nil {
		return
	}
	h.connect()
	for range 5 {
		h.flood(from, 100)
		bell.Wake()
		bell.Sleep(int64(time.Millisecond))
		from.mu.Lock()
		armed := from.m.(progress.Idler).Arm()
		from.mu.Unlock()
		require.True(h.t, armed)
		from.progress()
		if from.send(from.newSend(8, 100)) == btl.ErrResource {
			h.isWoken(from, bell, func() {})
		}
		h.mustSend(from, 8, 100)
		h.settle()
	}
}

// testDisarmed: Disarm may follow any Arm, and no fragment is lost by it.
func testDisarmed(h *harness, from, to *side) {
	if h.bell(to) == nil {
		return
	}
	h.connect()
	for range 20 {
		to.mu.Lock()
		to.m.(progress.Idler).Arm()
		to.m.(progress.Idler).Disarm()
		to.mu.Unlock()
		h.mustSend(from, 8, 16)
		h.settle()
	}
}
