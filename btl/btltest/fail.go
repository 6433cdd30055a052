package btltest

import (
	"errors"
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

func failTests() []namedTest {
	return []namedTest{
		{"endpoint", directed(testFailEndpoint)},
		{"endpoint-with-outstanding", directed(testFailOutstanding)},
		{"peer-finds-out", directed(testPeerFindsOut)},
		{"peer-reconnects-alone", directed(testReconnectAlone)},
		{"reconnect", driven(testReconnect)},
		{"rail", directed(testFailRail)},
		{"rail-without-endpoints", directed(testFailIdleRail)},
		{"endpoint-then-rail", directed(testFailBoth)},
		{"random", seeded(testRandomFailures)},
	}
}

var errTest = errors.New("failed by the test")

// refuses checks that a side's endpoint takes nothing.
func (h *harness) refuses(s *side) {
	h.t.Helper()
	require.NotEqual(h.t, btl.Up, s.state())
	require.Equal(h.t, btl.ErrFailed, s.send(s.newSend(8, 16)))
	if s.m.Attrs().Caps&btl.CapInline != 0 {
		require.False(h.t, s.inline(4, 8), "SendInline on an endpoint that is down")
	}
	for _, verb := range h.verbs(s) {
		require.Equal(h.t, btl.ErrFailed, s.post(&tracked{side: s, verb: verb}))
	}
}

// testFailEndpoint: Fail follows C4 with nothing outstanding.
func testFailEndpoint(h *harness, from, to *side) {
	h.connect()
	h.exchange()
	from.fail(errTest)
	h.refuses(from)
	h.untilDrained(from)
	h.refuses(from)
	require.ErrorIs(h.t, from.lastErr, errTest)
	require.Equal(h.t, btl.Drained, from.state())
	from.fail(errTest)
	h.turns(50)
	require.Equal(h.t, 1, from.failures, "calls of Failed")
	require.Equal(h.t, 1, from.drains, "calls of Drained")
	require.Zero(h.t, from.railFailures)
}

// testFailOutstanding: operations in flight end, and none is called back twice. Operations reported
// as delivered are delivered, and the next incarnation works.
func testFailOutstanding(h *harness, from, to *side) {
	h.connect()
	for range 3 {
		n := h.flood(from, 200)
		require.Positive(h.t, n)
		from.fail(errTest)
		h.refuses(from)
		h.untilDrained(from)
		h.settle()
		h.recover(to)
		h.exchange()
	}
}

// testPeerFindsOut: one end has failed, and the other does not know. Sends of the other end must
// not succeed (C2), and it must detect the failure.
func testPeerFindsOut(h *harness, from, to *side) {
	h.connect()
	h.exchange()
	from.fail(errTest)
	h.untilDrained(from)
	h.until(to.name+" to find out", func() bool {
		if to.state() != btl.Up {
			return true
		}
		err := to.send(to.newSend(8, 16))
		require.True(h.t, err == nil || err == btl.ErrResource || err == btl.ErrFailed, "%v", err)
		return false
	})
	h.untilDrained(to)
	h.settle()
	require.Equal(h.t, 1, h.arrived(to))
	h.connect()
	h.exchange()
}

// testReconnectAlone: one end begins a new incarnation while the other is still in the old one. The
// old one must then end.
func testReconnectAlone(h *harness, from, to *side) {
	h.connect()
	h.exchange()
	from.fail(errTest)
	h.untilDrained(from)
	h.connectSide(from, h.newGeneration())
	h.until("the old incarnation of "+to.name+" to end", func() bool {
		if from.state() == btl.Drained { // the peer was not ready for it
			h.connectSide(from, h.newGeneration())
		}
		if from.state() == btl.Up {
			_ = from.send(from.newSend(8, 16)) // may be refused for lack of resources
		}
		if to.state() == btl.Up {
			_ = to.send(to.newSend(8, 16)) // must not succeed; the ledger checks that
		}
		return to.state() == btl.Drained
	})
	h.untilDrained(to)
	if from.state() == btl.Up {
		h.connectSide(to, h.lastGen)
	} else {
		h.reconnect()
	}
	h.settle()
	h.exchange()
}

// testReconnect: several incarnations in a row, with traffic in each.
func testReconnect(h *harness) {
	rng := rand.New(rand.NewPCG(8, 9))
	h.connect()
	for range 6 {
		for range 40 {
			h.sendSomehow(h.a, rng, randomSize(rng, 1024))
			h.sendSomehow(h.b, rng, randomSize(rng, 1024))
		}
		first, second := h.a, h.b
		if rng.IntN(2) == 0 {
			first, second = second, first
		}
		first.fail(errTest)
		h.turns(rng.IntN(4))
		second.fail(errTest)
		h.reconnect()
	}
	h.exchange()
}

// testFailRail: Module.Fail follows C4 for all endpoints at once, and the rail can come back.
func testFailRail(h *harness, from, to *side) {
	h.connect()
	for i := range 2 {
		h.flood(from, 100)
		from.failRail(errTest)
		require.Equal(h.t, i+1, from.railFailures, "calls of Failed for the rail")
		h.refuses(from)
		h.until("the rail to be drained", h.guarded(func() bool { return !from.railFailing }))
		require.Equal(h.t, btl.Drained, from.state())
		require.ErrorIs(h.t, from.lastErr, errTest)
		require.Zero(h.t, from.failures, "calls of Failed for the peer")
		h.refuses(from)
		h.settle()
		to.fail(errTest) // as the layer above does; no effect if it has already failed
		h.reconnect()
		h.exchange()
	}
}

func testFailIdleRail(h *harness, from, to *side) {
	from.failRail(errTest)
	h.until("the rail to be drained", h.guarded(func() bool { return from.railFailures == 1 && !from.railFailing }))
	require.Equal(h.t, 1, from.drains)
	h.connect()
	h.exchange()
}

// testFailBoth: each Failed has its Drained.
func testFailBoth(h *harness, from, to *side) {
	h.connect()
	h.flood(from, 100)
	from.fail(errTest)
	from.failRail(errTest)
	h.until("both to be drained", h.guarded(func() bool { return !from.railFailing && !from.failing }))
	require.Equal(h.t, 1, from.failures)
	require.Equal(h.t, 1, from.railFailures)
	require.Equal(h.t, 2, from.drains)
	h.settle()
	h.recover(to)
	h.exchange()
}

// reviveBoth connects both sides again if one of them is not Up.
func (h *harness) reviveBoth() {
	h.t.Helper()
	for _, s := range []*side{h.a, h.b} {
		if s.state() != btl.Up {
			h.recover(s.other)
			return
		}
	}
}

// testRandomFailures: traffic both ways, with ends and rails that fail at any time.
func testRandomFailures(h *harness, rng *rand.Rand) {
	h.connect()
	failures := 0
	for i := range 600 {
		s := h.randomTraffic(rng, 6, 4096)
		switch {
		case rng.IntN(60) == 0 || i == 300:
			failures++
			s.fail(errTest)
		case rng.IntN(200) == 0:
			failures++
			s.failRail(errTest)
		}
		h.reviveBoth()
	}
	require.Positive(h.t, failures)
	h.settle()
}
