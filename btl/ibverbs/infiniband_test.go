package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

const infiniBand = verbs.LinkInfiniBand

// path is the route of the rank's end of the connection, in its queue pair.
func (r *testRank) path() verbs.AHAttr {
	r.w.t.Helper()
	attr, err := r.end().qp.Query()
	require.NoError(r.w.t, err)
	return attr.AH
}

// losesPath expects that the rank's whole rail fails because of an event of its port.
func (r *testRank) losesPath(event verbs.EventType) {
	r.w.t.Helper()
	r.fails(btl.AllPeers, btl.ClassPath, btl.SideLocal, event.Native())
}

// missEvents takes events of the rank's device, so that its module does not see them.
func (r *testRank) missEvents(n int) {
	r.w.t.Helper()
	for range n {
		ev, ok, err := r.m.h.dev.NextEvent()
		require.NoError(r.w.t, err)
		require.True(r.w.t, ok)
		r.m.h.dev.AckEvent(ev)
	}
}

// TestLIDChanges: the rail fails when its port gets another LID, and comes back with that LID. The
// peer uses the new LID.
func TestLIDChanges(t *testing.T) {
	for _, cfg := range []Config{{}, withRings(Config{}), {GlobalRoute: true}} {
		w, a, b := connectedWorld(t, infiniBand, cfg)
		before := b.path().DLID
		ah := a.m.peers.Of(1)[0].ah
		require.NoError(t, a.send("in flight"))
		a.hca.ChangeLID(1)
		a.losesPath(verbs.EventLIDChange)
		require.False(t, a.m.peers.Of(1)[0].ah == ah, "an address handle from before is still in use")
		w.recovers()
		require.NotEqual(t, before, b.path().DLID)
		require.Equal(t, a.m.h.port.LID, b.path().DLID)
		require.Equal(t, cfg.GlobalRoute, b.path().IsGlobal)
		b.hca.ChangeLID(1)
		w.recovers()
		require.Equal(t, b.m.h.port.LID, a.path().DLID)
	}
}

// TestPeerLearnsLIDFromDOWN: the peer of a port that has got another LID can ask for the next
// connection, although it gets no REQ.
func TestPeerLearnsLIDFromDOWN(t *testing.T) {
	w, a, b := connectedWorld(t, infiniBand, Config{})
	a.hca.ChangeLID(1)
	a.losesPath(verbs.EventLIDChange)
	w.until("the peer to know", b.isDrained)
	b.connect()
	w.until("a connection", b.isReady)
}

// TestReplayedDOWNMovesNoAddress: if this end knows that an incarnation has failed, a DOWN of that
// incarnation may be a replay, and changes no address.
func TestReplayedDOWNMovesNoAddress(t *testing.T) { onEachFabric(t, testReplayedDOWNMovesNoAddress) }

func testReplayedDOWNMovesNoAddress(t *testing.T, link verbs.LinkLayer) {
	w, a, b := connectedWorld(t, link, Config{})
	msg := a.message(msgDOWN, a.ep.Epoch())
	msg.address.lid, msg.address.qkey = msg.address.lid^1, msg.address.qkey^1
	b.ep.Fail(nil)
	w.until("Drained", b.isDrained)
	known := b.m.peers.Of(0)[0].address
	b.m.handle(msg)
	require.Equal(t, known, b.m.peers.Of(0)[0].address)
	w.recovers()
	b.m.handle(msg)
	require.Equal(t, known, b.m.peers.Of(0)[0].address)
	w.works()

	// A request of this end was lost, so the peer asks for the same incarnation later.
	_, a, b = newWorld(t, link, Config{})
	b.connect()
	known = b.m.peers.Of(0)[0].address
	msg.epoch, msg.toNonce, msg.fromNonce = b.ep.Epoch(), b.m.me, a.m.me
	b.m.handle(msg)
	require.Equal(t, known, b.m.peers.Of(0)[0].address)
}

// TestConnectBeforeEventOfNewLID: no connection is made from a LID that the port has lost, even if
// the event is still in the queue, or none comes.
func TestConnectBeforeEventOfNewLID(t *testing.T) {
	for _, silent := range []bool{false, true} {
		w, a, b := newWorld(t, infiniBand, Config{})
		before := a.m.h.port.LID
		a.hca.ChangeLID(1)
		if silent {
			a.missEvents(1)
		}
		_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
		require.ErrorIs(t, err, errMoved)
		w.until("the rail to be drained", func() bool { return len(a.drained) == 1 })
		require.NotEqual(t, before, a.m.h.port.LID)
		a.connect()
		w.until("a connection", a.isReady)
	}
}

// TestREQBeforeEventOfNewLID: a peer whose request comes before the event gets a REJ that lets it
// ask again.
func TestREQBeforeEventOfNewLID(t *testing.T) {
	w, a, b := newWorld(t, infiniBand, Config{})
	a.connect()
	msg := a.message(msgREQ, a.ep.Epoch())
	msg.end = a.end().end()
	b.hca.ChangeLID(1)
	b.m.handle(msg)
	require.Nil(t, b.m.peers.Of(0)[0].ep)
	why := rejectionFor(errMoved)
	require.True(t, why.retry)
	require.Contains(t, why.text, "is changing")
	w.until("the rail to be drained", func() bool { return len(b.drained) == 1 })
	b.connect()
	w.until("a connection", func() bool { return a.isReady() && b.isReady() })
}

// TestPortComesUpWithNewLID: a port is down, and has another LID when it is up again. Connect does
// not use the old LID.
func TestPortComesUpWithNewLID(t *testing.T) {
	for _, silent := range []bool{false, true} {
		w, a, b := newWorld(t, infiniBand, Config{PortGrace: time.Hour})
		a.hca.SetLink(1, false)
		a.progress()
		a.hca.ChangeLID(1)
		a.hca.SetLink(1, true)
		if silent {
			a.missEvents(2)
		}
		_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
		require.ErrorContains(t, err, "port 1 of sim0 is down")
		w.until("the rail to be drained", func() bool { return len(a.drained) == 1 })
		a.connect()
		w.until("a connection", a.isReady)
	}
}

// TestPeerMovesBeforeFirstConnection: a rank that has never been connected to a peer, and whose
// requests go to a LID that the peer has lost, finds it over another rail.
func TestPeerMovesBeforeFirstConnection(t *testing.T) {
	w, a, b := newWorld(t, infiniBand, Config{})
	other := w.withSiblings(Config{})
	other.connect()
	a.hca.ChangeLID(1)
	w.until("the rail to be drained", func() bool { return len(a.drained) == 1 })
	b.connect()
	w.until("a connection", func() bool {
		other.turn()
		return b.isReady()
	})
}

// TestSubnetManagerEventsHarmNothing: the subnet manager moves, or asks for new subscriptions.
func TestSubnetManagerEventsHarmNothing(t *testing.T) {
	w, a, _ := connectedWorld(t, infiniBand, Config{})
	epoch := a.ep.Epoch()
	for range 3 {
		for _, ev := range []verbs.EventType{verbs.EventSMChange, verbs.EventClientReregister, verbs.EventPKeyChange, verbs.EventGIDChange} {
			a.hca.Raise(ev, 1)
			require.NoError(t, a.send("in flight"))
		}
		w.stays(a)
	}
	require.Equal(t, epoch, a.ep.Epoch())
}

// TestPortIsReadAgain: each event that says that the subnet manager may have changed something
// makes the rank query the port's address and partition key, even if no event reported their
// changes.
func TestPortIsReadAgain(t *testing.T) { onEachFabric(t, testPortIsReadAgain) }

func testPortIsReadAgain(t *testing.T, link verbs.LinkLayer) {
	changes := map[string]func(a *testRank){
		"GID": func(a *testRank) {
			gid := a.m.h.gid
			gid.GID[15] ^= 0x40
			a.hca.ChangeGID(1, gid.Index, gid.GID)
		},
		"partition key": func(a *testRank) { a.hca.SetPKeys(1, 0, 0xffff) },
	}
	if link == infiniBand {
		changes["LID"] = func(a *testRank) { a.hca.ChangeLID(1) }
	}
	for _, event := range []verbs.EventType{
		verbs.EventSMChange, verbs.EventClientReregister, verbs.EventLIDChange, verbs.EventPKeyChange, verbs.EventGIDChange,
	} {
		if event == verbs.EventLIDChange && link == infiniBand {
			continue // this event gives the port another LID, so the rail fails anyway
		}
		for name, change := range changes {
			t.Run(event.String()+"/"+name, func(t *testing.T) {
				w, a, _ := connectedWorld(t, link, Config{})
				address, index := a.m.h.address(), a.m.h.pkeyIndex
				change(a)
				a.missEvents(1)
				w.turns(100)
				require.Empty(t, a.failed)
				a.hca.Raise(event, 1)
				a.losesPath(event)
				require.True(t, address != a.m.h.address() || index != a.m.h.pkeyIndex)
				w.recovers()
			})
		}
	}
}

// TestPKeyMoves: the partition key moves to another entry of the port's table. The rail fails, and
// comes back with the new entry. Its datagram address stays the same, so this works even if the key
// moves at both ends.
func TestPKeyMoves(t *testing.T) { onEachFabric(t, testPKeyMoves) }

func testPKeyMoves(t *testing.T, link verbs.LinkLayer) {
	device := simhca.DeviceConfig{ResetFromErrOnly: true}
	w, a, b := connectedWorld(t, link, Config{}, device, device)
	at := a.m.h.address()
	a.hca.SetPKeys(1, 0x8001, 0, 0xffff)
	a.losesPath(verbs.EventPKeyChange)
	w.recovers()
	attr, err := a.end().qp.Query()
	require.NoError(t, err)
	require.Equal(t, uint16(2), attr.PKeyIndex)
	require.Equal(t, at, a.m.h.address())
	require.Len(t, a.m.h.free, udSendDepth)

	for _, r := range w.ranks {
		r.failed, r.drained = nil, nil
		r.hca.SetPKeys(1, 0, 0xffff)
	}
	a.losesPath(verbs.EventPKeyChange)
	b.losesPath(verbs.EventPKeyChange)
	w.recovers()
}

// TestPKeyMovesBeforeConnect: the key's entry is looked up when a connection is made, although the
// event has not arrived yet.
func TestPKeyMovesBeforeConnect(t *testing.T) {
	w, a, b := newWorld(t, infiniBand, Config{})
	a.hca.SetPKeys(1, 0x8001, 0xffff)
	_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
	require.ErrorIs(t, err, errMoved)
	w.until("the rail to be drained", func() bool { return len(a.drained) == 1 })
	a.connect()
	w.until("a connection", a.isReady)
}

// TestPKeyIsRemoved: the rail fails while the port's table lacks its partition key. It comes back
// with the key.
func TestPKeyIsRemoved(t *testing.T) {
	for _, silent := range []bool{false, true} {
		w, a, b := connectedWorld(t, infiniBand, Config{})
		a.hca.SetPKeys(1, 0x8001, 0x8002)
		a.losesPath(verbs.EventPKeyChange)
		require.ErrorContains(t, a.failed[0], "port 1 has no partition key 0xffff (ibverbs.pkey), it has 0x8001, 0x8002")
		w.turns(200)
		for range 2 {
			_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
			require.ErrorContains(t, err, "port 1 has no partition key 0xffff")
			w.turns(100)
		}
		require.Len(t, a.failed, 1)
		a.hca.SetPKeys(1, 0x8001, 0xffff)
		if silent { // the next Connect queries it
			a.missEvents(1)
			_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
			require.Error(t, err)
		}
		w.until("the rail to be drained again", func() bool { return len(a.drained) == 2 })
		w.recovers()
	}
}

// TestPKeySetting: the user's partition is found in the table, as a full member if the table has it
// twice.
func TestPKeySetting(t *testing.T) { onEachFabric(t, testPKeySetting) }

func testPKeySetting(t *testing.T, link verbs.LinkLayer) {
	table := simhca.DeviceConfig{PKeys: []uint16{0xffff, 0x0123, 0, 0x8123, 0x8001}}
	for _, key := range []uint16{0x8123, 0x123} {
		w, a, _ := connectedWorld(t, link, Config{PKey: key}, table, table)
		attr, err := a.end().qp.Query()
		require.NoError(t, err)
		require.Equal(t, uint16(3), attr.PKeyIndex)
		a.hca.SetPKeys(1, 0x8123)
		w.recovers()
	}
	f := simhca.NewFabric(simhca.Config{Virtual: true, Link: link})
	cfg := Config{Rail: "ibverbs", Size: 1, Events: new(testRank), Provider: f.NewNode(table), Device: "sim0", PKey: 0x8777}
	_, err := New(cfg)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "rail ibverbs: device sim0: port 1 has no partition key 0x8777 (ibverbs.pkey), it has 0xffff, 0x0123, 0x8123, 0x8001: ")
	cfg.PKey, cfg.Provider = 0, f.NewNode(simhca.DeviceConfig{PKeys: []uint16{0, 0x8000}})
	_, err = New(cfg)
	require.ErrorContains(t, err, "device sim0: port 1 has no partition key: ")
	cfg.PKey = 0x8000
	_, err = New(cfg)
	require.ErrorContains(t, err, "partition key")
}

// TestLimitedMembers: a limited member of a partition reaches a full one. Two limited members do
// not reach each other, and the error says so.
func TestLimitedMembers(t *testing.T) {
	limited := simhca.DeviceConfig{PKeys: []uint16{0x7fff}}
	w, _, _ := newWorld(t, infiniBand, Config{}, limited, simhca.DeviceConfig{})
	w.begin()
	_, a, _ := newWorld(t, infiniBand, Config{ConnectTimeout: 50 * time.Millisecond}, limited, limited)
	a.connect()
	a.fails(1, btl.ClassPath, btl.SideRemote, "")
	require.ErrorContains(t, a.failed[0], "this port is a limited member of partition 0x7fff, which reaches only full members")
}

// TestConnectToOtherPartitionFails: ports with keys of different partitions do not reach each
// other, and the error says so at once.
func TestConnectToOtherPartitionFails(t *testing.T) {
	_, a, b := newWorld(t, infiniBand, Config{}, simhca.DeviceConfig{PKeys: []uint16{0x8001}}, simhca.DeviceConfig{PKeys: []uint16{0x8002}})
	_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
	require.ErrorIs(t, err, btl.ErrUnreachable)
	require.ErrorContains(t, err, "partition key 0x8001 here, 0x8002 there")
	how := leads([][]byte{a.m.Address()}, [][]byte{b.m.Address(), a.m.Address()})
	require.Equal(t, []int{0, 2}, []int{how(0, 0), how(0, 1)})
}

// TestSubnetsDiffer: the route to a port of another subnet is global.
func TestSubnetsDiffer(t *testing.T) {
	w, a, b := connectedWorld(t, infiniBand, Config{ServiceLevel: 3, TrafficClass: 96, HopLimit: 5}, simhca.DeviceConfig{}, simhca.DeviceConfig{Subnet: 1})
	for _, r := range w.ranks {
		at := r.other().m.h
		require.Equal(t, verbs.AHAttr{Port: 1, DLID: at.port.LID, SL: 3, IsGlobal: true, DGID: at.gid.GID, HopLimit: 5, TrafficClass: 96}, r.path())
	}
	how := leads([][]byte{a.m.Address()}, [][]byte{b.m.Address(), a.m.Address()})
	require.Equal(t, []int{1, 2}, []int{how(0, 0), how(0, 1)})
	a.hca.ChangeLID(1)
	w.recovers()
}

// TestRouteSettings: the service level applies to all packets. The traffic class and the hop limit
// apply to global routes, which the user may require.
func TestRouteSettings(t *testing.T) {
	for _, global := range []bool{false, true} {
		w, a, b := connectedWorld(t, infiniBand, Config{ServiceLevel: 3, TrafficClass: 96, HopLimit: 5, GlobalRoute: global})
		want := verbs.AHAttr{Port: 1, DLID: b.m.h.port.LID, SL: 3}
		if global {
			want.IsGlobal, want.DGID, want.HopLimit, want.TrafficClass = true, b.m.h.gid.GID, 5, 96
		}
		require.Equal(t, want, a.path())
		require.Equal(t, want, a.m.h.path(&a.m.cfg, &a.m.peers.Of(1)[0].address), "of datagrams")
		a.ep.Fail(nil)
		w.recovers()
	}
	_, a, b := connectedWorld(t, verbs.LinkEthernet, Config{TrafficClass: 96})
	require.Equal(t, verbs.AHAttr{Port: 1, IsGlobal: true, DGID: b.m.h.gid.GID, SGIDIndex: 1, HopLimit: 64, TrafficClass: 96}, a.path())
}

// TestNewWithoutLIDFails: no subnet manager has given the port a LID.
func TestNewWithoutLIDFails(t *testing.T) {
	_, a, _ := newWorld(t, infiniBand, Config{})
	h := hca{dev: withoutLID{a.m.h.dev}}
	require.ErrorIs(t, h.queryPort(&a.m.cfg), errNoLID)
	a.m.cfg.GlobalRoute = true
	require.NoError(t, h.queryPort(&a.m.cfg))
}

// withoutLID is a device whose ports have no LID.
type withoutLID struct{ verbs.Device }

func (d withoutLID) QueryPort(port int) (verbs.PortAttr, error) {
	p, err := d.Device.QueryPort(port)
	p.LID = 0
	return p, err
}
