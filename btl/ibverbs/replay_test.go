package ibverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// TestReplayChangesNothing: messages of connections that are over, heard again, move no address,
// whatever they say.
func TestReplayChangesNothing(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a, b := w.ranks[0], w.ranks[1]
	old := a.m.h.address()
	old.qkey ^= 1 // where it was before its device was opened anew
	replay := func(kind kind, epoch uint32) *message {
		return &message{kind: kind, from: 0, to: 1, fromNonce: a.m.me, toNonce: b.m.me, epoch: epoch, address: old, end: a.end().end(), toQPN: b.end().qpn}
	}
	p := b.m.peers[0]
	known := p.address
	again := func(what string) {
		t.Helper()
		for _, kind := range []kind{msgREQ, msgREP, msgNAK, msgDOWN, msgDOWNACK} {
			b.m.handle(replay(kind, p.epoch-1))
			require.Equal(t, known, p.address, "%v, %s", kind, what)
		}
	}
	b.ep.Fail(nil)
	w.mend()
	again("up")
	b.ep.Fail(nil)
	w.until("Drained", func() bool { return b.ep.State() == btl.Drained })
	b.m.handle(replay(msgREQ, p.epoch))
	again("drained")
	w.mend()
}

// TestRepeatedREQ: of the connection that there is, one that was answered is answered again, and
// moves no address either.
func TestRepeatedREQ(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	for i, b := range w.ranks {
		a := w.ranks[1-i]
		p, e := b.m.peers[a.rank], b.end()
		known := p.address
		msg := &message{kind: msgREQ, from: uint32(a.rank), to: uint32(b.rank), fromNonce: a.m.me, toNonce: b.m.me, epoch: e.Epoch(), address: known, end: a.end().end()}
		msg.address.qkey ^= 1
		b.m.handle(msg)
		require.Equal(t, known, p.address)
	}
	w.works()
}

// TestRefusedWhereItIs: a peer that asks from a new address, for an epoch that is over here, gets
// its answer at that address, which is kept.
func TestRefusedWhereItIs(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a, b := w.ranks[0], w.ranks[1]
	a.hca.Raise(verbs.EventDeviceFatal, 0)
	w.until("Drained", func() bool { return a.ep.State() == btl.Drained && a.m.h == nil })
	a.hca.Revive()
	b.ep.Fail(nil)
	w.until("Drained", func() bool { return b.ep.State() == btl.Drained })
	b.m.peers[0].epoch = 9 // a has missed some
	a.connect()
	w.until("a connection", func() bool { return a.end().phase == phaseReady })
	require.Equal(t, uint32(10), a.ep.Epoch())
}

// TestFirstHeardOfByItsEnd: a peer whose first message ends a connection can be asked for a new
// one.
func TestFirstHeardOfByItsEnd(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.ranks[0], w.ranks[1]
	b.m.handle(&message{kind: msgDOWN, from: 0, to: 1, fromNonce: a.m.me, toNonce: b.m.me, epoch: 1, address: a.m.h.address()})
	b.connect()
	w.until("a connection", func() bool { return b.end().phase == phaseReady })
}
