package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// changes are the ways in which a rank gets another address.
var changes = map[string]func(r *testRank){
	"another LID": func(r *testRank) { r.hca.ChangeLID(1) },
	"another device": func(r *testRank) {
		r.hca.Raise(verbs.EventDeviceFatal, 0)
		r.w.until("the device to be closed", func() bool { return r.m.h == nil })
		r.hca.Revive()
	},
	"another GID": func(r *testRank) {
		gid := r.m.h.gid
		gid.GID[15] ^= 0x80
		r.hca.ChangeGID(1, gid.Index, gid.GID)
	},
}

// bothMove gives both ranks other addresses, and neither learns the other's.
func bothMove(t *testing.T, link verbs.LinkLayer, change func(r *testRank)) (w *world, moved *int) {
	w, a, b := connectedWorld(t, link, Config{ConnectTimeout: time.Hour})
	moved = new(int)
	for _, r := range w.ranks {
		r.m.cfg.Moved = func() { *moved++ }
	}
	before := [][]byte{a.m.Address(), b.m.Address()}
	for _, r := range w.ranks {
		change(r)
	}
	w.until("new addresses", func() bool {
		w.clock.skip(time.Millisecond)
		return *moved == 2 && a.isDrained() && b.isDrained() && a.m.ModuleError() == nil && b.m.ModuleError() == nil
	})
	for i, r := range w.ranks {
		require.NotEqual(t, before[i], r.m.Address())
		require.Equal(t, before[i], r.published)
		c, ok := parseRailAddress(r.m.Address())
		require.True(t, ok)
		require.Equal(t, r.m.h.address(), c.address)
	}
	w.turns(500) // all reports of the failures are lost
	return w, moved
}

// TestPeersThatBothMoveConnectOnceTheyAreTold: if both ends of a rail have got other addresses at
// the same time, they connect again once they get each other's address, before they ask for the
// connection or meanwhile.
func TestPeersThatBothMoveConnectOnceTheyAreTold(t *testing.T) {
	for name, change := range changes {
		link := infiniBand
		if name == "another GID" {
			link = verbs.LinkEthernet
		}
		for _, meanwhile := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w, moved := bothMove(t, link, change)
				a, b := w.ranks[0], w.ranks[1]
				if meanwhile {
					for _, r := range w.ranks {
						r.connect()
					}
					w.turns(500)
					require.False(t, a.isReady() || b.isReady())
					a.m.PeerMoved(1, b.m.Address())
					w.until("a connection", func() bool { return a.isReady() && b.isReady() })
				}
				a.published, b.published = nil, nil
				w.connect()
				w.works()
				require.Equal(t, 2, *moved)
			})
		}
	}
}

// TestPublishedAddressIsNoOlderThanMessages: the address in a peer's message takes precedence over
// the first address that it has published, but not over one that it publishes later.
func TestPublishedAddressIsNoOlderThanMessages(t *testing.T) {
	at := func(lid uint16) address { return address{lid: lid, qpn: 7} }
	p := &peer{address: at(2)}
	p.learn(address{})
	p.learn(at(1))
	require.Equal(t, at(2), p.address)
	p.learn(at(1))
	require.Equal(t, at(2), p.address)
	p.learn(at(3))
	require.Equal(t, at(3), p.address)
	p.address = at(4)
	p.learn(at(3))
	require.Equal(t, at(4), p.address)
	p = &peer{}
	p.learn(at(1))
	require.Equal(t, at(1), p.address)
}

// TestPeerMovedIgnoresWhatIsNoAddress: PeerMoved ignores bytes that are not an address of the
// peer's module.
func TestPeerMovedIgnoresWhatIsNoAddress(t *testing.T) {
	_, a, b := connectedWorld(t, infiniBand, Config{})
	p := a.m.peers.Of(1)[0]
	known := p.address
	c, _ := parseRailAddress(b.m.Address())
	c.address.lid++
	other := c
	other.nonce[0]++
	absent := railAddress{rank: 1, size: 2, nonce: c.nonce, frag: c.frag}
	for _, bad := range [][]byte{nil, []byte("nonsense"), a.m.Address(), other.encode(), absent.encode()} {
		a.m.PeerMoved(1, bad)
	}
	a.m.PeerMoved(0, c.encode())
	require.Equal(t, known, p.address)
	a.m.PeerMoved(1, c.encode())
	require.Equal(t, c.address, p.address)
	require.Equal(t, btl.Up, a.ep.State(), "the connection does not need it")
}

// TestPortWithoutLIDPublishesNothing: a port that is down may have no LID. The address that it
// would publish is not valid, and peers would not try again after it.
func TestPortWithoutLIDPublishesNothing(t *testing.T) {
	_, a, _ := connectedWorld(t, infiniBand, Config{})
	before := a.m.Address()
	lid := a.m.h.port.LID
	a.m.h.port.LID = 0
	a.m.publish()
	require.Equal(t, before, a.m.Address())
	a.m.h.port.LID = lid + 1
	a.m.publish()
	require.NotEqual(t, before, a.m.Address())
	a.m.h.port.LID = lid
}
