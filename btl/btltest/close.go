package btltest

import (
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

func closeTests() []namedTest {
	return []namedTest{
		{"fresh", each(testCloseFresh)},
		{"outstanding", directed(func(h *harness, s, _ *side) { h.connect(); testCloseOutstanding(h, s) })},
		{"silent", injected(testCloseSilent)},
		{"failed", directed(testCloseFailed)},
		{"peer-closed", directed(testPeerClosed)},
		{"silent-peer-closed", directed(testSilentPeerClosed)},
	}
}

// isClosed checks what a closed module returns.
func (h *harness) isClosed(s *side) {
	h.t.Helper()
	require.NoError(h.t, s.close(), "second Close")
	_, err := s.m.Connect(s.path(), h.b.address())
	require.Error(h.t, err, "Connect after Close")
	if s.ep != nil {
		require.Equal(h.t, btl.ErrFailed, s.send(s.newSend(8, 16)), "Send after Close")
		require.NotEqual(h.t, btl.Up, s.state())
	}
	for range 10 {
		require.Zero(h.t, s.progress(), "Progress after Close")
	}
	s.failRail(errTest) // must not report an event
	if s.ep != nil {
		s.fail(errTest)
	}
	h.turns(10)
	h.check()
}

func testCloseFresh(h *harness) {
	require.NoError(h.t, h.a.close())
	h.isClosed(h.a)
}

// testCloseOutstanding: outstanding operations end with an error, inside Close.
func testCloseOutstanding(h *harness, s *side) {
	h.mustSend(s, 8, 16)
	h.settle()
	h.flood(s, 100)
	h.closeWithOutstanding(s)
}

// testCloseSilent: operations that an injected fault withholds end like others.
func testCloseSilent(h *harness, s, _ *side, in btl.Injector) {
	in.Inject(btl.Fault{Kind: btl.FaultSilence, Peer: s.peer, Count: 2})
	require.NoError(h.t, s.send(s.newSend(8, 16)))
	require.NoError(h.t, s.send(s.newSend(8, 16)))
	require.Equal(h.t, 2, in.Fired())
	require.Len(h.t, s.outstanding, 2)
	h.flood(s, 100)
	h.closeWithOutstanding(s)
}

// closeWithOutstanding closes a side with operations under way.
func (h *harness) closeWithOutstanding(s *side) {
	h.t.Helper()
	before := s.failures + s.railFailures + s.drains
	require.NoError(h.t, s.close())
	require.Empty(h.t, s.outstanding)
	h.isClosed(s)
	require.Equal(h.t, before, s.failures+s.railFailures+s.drains, "Events after Close")
}

// testCloseFailed: Close between Failed and Drained.
func testCloseFailed(h *harness, s, other *side) {
	h.connect()
	h.flood(s, 100)
	s.fail(errTest)
	require.NoError(h.t, s.close())
	s.failing = false // no Drained will come
	require.Empty(h.t, s.outstanding)
	h.isClosed(s)
}

// testPeerClosed: operations to a closed module end, and do not succeed.
func testPeerClosed(h *harness, s, other *side) {
	h.connect()
	h.exchange()
	require.NoError(h.t, other.close())
	h.until(s.name+" to find out", func() bool {
		if s.state() == btl.Up {
			_ = s.send(s.newSend(8, 16)) // may be refused for lack of resources
		}
		return s.state() == btl.Drained
	})
	h.untilDrained(s)
	h.settle()
	require.Equal(h.t, 1, h.arrived(s))
}

// testSilentPeerClosed: the endpoint to a peer that closes fails, even if neither side has ever
// sent.
func testSilentPeerClosed(h *harness, s, other *side) {
	h.connect()
	h.turns(20)
	require.NoError(h.t, other.close())
	h.untilDrained(s)
	require.Equal(h.t, 1, s.failures)
}
