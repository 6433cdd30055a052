package ibverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// TestBothEndsLost: both ends of a rail lose their devices, and open them anew, at other addresses
// than their cards say. By another rail they find each other.
func TestBothEndsLost(t *testing.T) {
	w, other := newWorld(t, Config{}), newWorld(t, Config{})
	for rank, r := range w.ranks {
		m, second := r.m, other.ranks[rank].m
		second.me[0] ^= 0x80 // another module, and not another's twin
		c, ok := parseRailAddress(second.Address())
		require.True(t, ok)
		c.nonce = second.me
		copy(second.Address(), c.encode())
		s := new(Siblings)
		for _, of := range []*module{m, second} {
			of.cfg.Siblings = s
			s.add(of)
		}
	}
	w.connect()
	w.works()
	other.connect()
	for _, r := range w.ranks {
		r.hca.Raise(verbs.EventDeviceFatal, 0)
	}
	w.until("both to have closed their devices", func() bool {
		return w.ranks[0].ep.State() == btl.Drained && w.ranks[1].ep.State() == btl.Drained && w.ranks[0].m.h == nil && w.ranks[1].m.h == nil
	})
	for _, r := range w.ranks {
		r.hca.Revive()
		r.ended = nil
		r.connect()
	}
	w.until("a connection", func() bool {
		other.turn()
		return w.ranks[0].end().phase == phaseReady && w.ranks[1].end().phase == phaseReady
	})
	w.works()
	other.works()
}

// TestMovedAndBehind: a rank has another address since its device was lost, and asks for an earlier
// epoch than its peer, which still asks at the old address. They find each other without other
// rails.
func TestMovedAndBehind(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a, b := w.ranks[0], w.ranks[1]
	b.hca.Raise(verbs.EventDeviceFatal, 0)
	w.until("the device to be closed", func() bool { return b.ep.State() == btl.Drained && b.m.h == nil })
	for range 3 { // so much has been asked by then
		a.ep.Fail(nil)
		w.until("Drained", func() bool { return a.ep.State() == btl.Drained })
		a.connect()
	}
	b.hca.Revive()
	b.connect()
	require.Less(t, b.ep.Epoch(), a.ep.Epoch())
	w.until("a connection", func() bool { return a.end().phase == phaseReady && b.end().phase == phaseReady })
	for _, r := range w.ranks {
		r.ended = nil
	}
	w.works()
}

// TestAddressIsGone: a device whose port has no address any more may be about to be removed. The
// removal waits until no process has the device open.
func TestAddressIsGone(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a := w.ranks[0]
	gids, err := a.m.h.dev.GIDs(1)
	require.NoError(t, err)
	for i := range gids { // the best last
		a.hca.ChangeGID(1, gids[len(gids)-1-i].Index, verbs.GID{})
	}
	a.fails(btl.AllPeers, btl.ClassPath, btl.SideLocal, verbs.EventGIDChange.Native())
	require.NotNil(t, a.m.h, "Drained does not wait for that")
	w.until("the device to be closed", func() bool { return a.m.h == nil })
	_, err = a.m.Connect(1, w.ranks[1].m.Address())
	require.ErrorIs(t, err, errNoGID)
	for _, gid := range gids {
		a.hca.ChangeGID(1, gid.Index, gid.GID)
	}
	w.mend()
}

// TestAddressIsGoneOnce: what happens to a device that is to be closed fails the rail no second
// time.
func TestAddressIsGoneOnce(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a := w.ranks[0]
	gids, err := a.m.h.dev.GIDs(1)
	require.NoError(t, err)
	a.hca.SetLink(1, false)
	for i := range gids { // the best last
		a.hca.ChangeGID(1, gids[len(gids)-1-i].Index, verbs.GID{})
	}
	a.fails(btl.AllPeers, btl.ClassPath, btl.SideLocal, verbs.EventGIDChange.Native())
	a.hca.SetLink(1, true)
	a.hca.Raise(verbs.EventSMChange, 1)
	a.hca.SetLink(1, false)
	w.until("the device to be closed", func() bool { return a.m.h == nil })
	require.Len(t, a.failed, 1)
	require.Len(t, a.drained, 1)
	a.hca.SetLink(1, true)
	for _, gid := range gids {
		a.hca.ChangeGID(1, gid.Index, gid.GID)
	}
	w.mend()
}
