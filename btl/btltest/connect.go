package btltest

import (
	"errors"
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

func connectTests() []namedTest {
	return []namedTest{
		{"attributes", each(testAttributes)},
		{"first", each(testFirst)},
		{"again", each(testConnectAgain)},
		{"one-sided", directed(testOneSided)},
		{"bad-addresses", directed(testBadAddresses)},
		{"damaged-addresses", directed(testDamagedAddresses)},
	}
}

// testAttributes: a module's attributes are plausible, and it has the methods for its capabilities.
func testAttributes(h *harness) {
	h.connect()
	for i, s := range []*side{h.a, h.b} {
		at := s.m.Attrs()
		require.NotEmpty(h.t, at.Name)
		require.GreaterOrEqual(h.t, at.LatencyNanos, int64(0))
		require.GreaterOrEqual(h.t, at.BandwidthMBps, int64(0))
		require.GreaterOrEqual(h.t, at.MaxSendBytes, btl.MaxHeaderBytes, "a header has to fit")
		require.LessOrEqual(h.t, at.EagerBytes, at.MaxSendBytes)
		require.LessOrEqual(h.t, at.InlineBytes, at.MaxSendBytes)
		require.NotEmpty(h.t, s.m.Address())
		require.Equal(h.t, s.m.Address(), s.m.Address())
		if at.Caps&btl.CapInline != 0 {
			require.Implements(h.t, (*btl.Inliner)(nil), s.ep)
			require.Positive(h.t, at.InlineBytes)
		}
		if at.Caps&btl.CapPut != 0 {
			require.Implements(h.t, (*btl.Putter)(nil), s.ep)
			require.Implements(h.t, (*btl.Registrar)(nil), s.m)
		}
		if at.Caps&btl.CapGet != 0 {
			require.Implements(h.t, (*btl.Getter)(nil), s.ep)
			require.Implements(h.t, (*btl.Registrar)(nil), s.m)
		}
		require.Implements(h.t, (*btl.StaleSender)(nil), s.ep, "C9")
		if [...]progress.Wakeup{h.pair.WakeupA, h.pair.WakeupB}[i] == nil {
			require.NotImplements(h.t, (*progress.Idler)(nil), s.m, "the pair has to name the wakeup of %s", s.name)
		}
	}
}

func testFirst(h *harness) {
	h.connect()
	for _, s := range []*side{h.a, h.b} {
		require.Equal(h.t, uint32(1), s.ep.Epoch(), "epoch of the first incarnation")
	}
	h.exchange()
}

// testConnectAgain: as long as an endpoint is not Drained, Connect returns it.
func testConnectAgain(h *harness) {
	h.connect()
	for _, s := range []*side{h.a, h.b} {
		ep, err := s.m.Connect(s.path(), s.other.address())
		require.NoError(h.t, err)
		require.True(h.t, ep == s.ep, "another endpoint while it is Up")
		s.fail(errors.New("to see"))
		if s.state() == btl.Failed {
			ep, err := s.m.Connect(s.path(), s.other.address())
			require.NoError(h.t, err)
			require.True(h.t, ep == s.ep, "another endpoint while it is Failed")
		}
	}
	h.reconnect()
}

// testOneSided: a peer that has not connected receives fragments, and may connect later.
func testOneSided(h *harness, from, to *side) {
	h.connectSide(from, h.newGeneration())
	for i := range 20 {
		h.mustSend(from, 0, 10*i)
	}
	h.settle()
	h.connectSide(to, h.lastGen)
	for i := range 20 {
		h.mustSend(to, 0, 10*i)
		h.mustSend(from, 0, 10*i)
	}
}

// testBadAddresses: Connect refuses bytes that are not an address of the peer (C8).
func testBadAddresses(h *harness, s, other *side) {
	address := other.address()
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	type attempt struct {
		what    string
		peer    int
		address []byte
	}
	attempts := []attempt{
		{"nil", s.peer, nil},
		{"empty", s.peer, []byte{}},
		{"zeroes", s.peer, make([]byte, len(address))},
		{"random", s.peer, random(len(address))},
		{"random and long", s.peer, random(10000)},
		{"negative rank", -1, address},
		{"all peers", btl.AllPeers, address},
		{"huge rank", 1 << 40, address},
		{"address of another rank", s.rank, address},
	}
	for n := range len(address) {
		attempts = append(attempts, attempt{"cut short", s.peer, address[:n]})
	}
	for _, a := range attempts {
		ep, err := s.m.Connect(btl.Path{Peer: a.peer}, a.address)
		require.Error(h.t, err, a.what)
		require.Nil(h.t, ep, a.what)
		var be *btl.Error
		require.True(h.t, errors.Is(err, btl.ErrUnreachable) || errors.As(err, &be), "%s: %v is neither ErrUnreachable nor a *btl.Error", a.what, err)
	}
	// The modules still work.
	h.connect()
	h.exchange()
}

// testDamagedAddresses: no damage to an address makes Connect panic or hang. The BTL decides
// whether it recognizes a damaged address.
func testDamagedAddresses(h *harness, s, other *side) {
	address := other.address()
	for i := range address {
		for _, flip := range []byte{1, 0x80, 0xff} {
			bad := append([]byte(nil), address...)
			bad[i] ^= flip
			h.mayConnect(s, bad)
		}
	}
}

func (h *harness) mayConnect(s *side, address []byte) {
	h.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ep, err := s.m.Connect(s.path(), address); err == nil {
		require.NotNil(h.t, ep)
	}
}
