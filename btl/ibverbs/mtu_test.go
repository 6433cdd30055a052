package ibverbs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// paths expects both ends of the connection to use an MTU, in their queue pairs.
func (w *world) paths(mtu verbs.MTU) {
	w.t.Helper()
	for _, r := range w.ranks {
		attr, err := r.end().qp.Query()
		require.NoError(w.t, err)
		require.Equal(w.t, mtu, attr.PathMTU, "rank %d", r.rank)
		require.Equal(w.t, mtu, r.end().mtu, "rank %d", r.rank)
	}
}

// long is a fragment of several packets.
var long = strings.Repeat("0123456789abcdef", 500)

// carries shows that long fragments go both ways.
func (w *world) carries() {
	w.t.Helper()
	for _, r := range w.ranks {
		other := w.ranks[1-r.rank]
		before := len(other.arrived)
		require.NoError(w.t, r.send(long))
		w.until("a long fragment", func() bool { return len(other.arrived) > before || len(r.failed) > 0 && r.ep.State() == btl.Drained })
		require.Len(w.t, other.arrived, before+1, "%v", r.failed)
		require.Equal(w.t, long, other.arrived[before])
	}
	w.until("completions", func() bool { return w.ranks[0].under+w.ranks[1].under == 0 })
}

// TestMTULoweredAndConnectedAnew: a port's MTU gets smaller, which nothing tells. The connection
// fails at the next long packet, and the next incarnation has packets that pass, whichever end asks
// for it. When the port carries longer ones again, an incarnation after that uses them.
func TestMTULoweredAndConnectedAnew(t *testing.T) {
	for asker := range 2 {
		w := newWorld(t, Config{})
		w.connect()
		w.paths(verbs.MTU4096)
		w.carries()
		a, b := w.ranks[0], w.ranks[1]
		a.hca.SetMTU(1, verbs.MTU1024)
		require.NoError(t, a.send(long))
		a.fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
		w.until("the peer to know", func() bool { return b.ep.State() == btl.Drained })
		for _, r := range w.ranks {
			r.ended, r.failed, r.drained = nil, nil, nil
		}
		first, second := w.ranks[asker], w.ranks[1-asker]
		first.connect()
		w.until("the asker's end", func() bool { return first.end().phase == phaseReady })
		second.connect()
		w.until("the other end", func() bool { return second.end().phase == phaseReady })
		w.paths(verbs.MTU1024)
		w.carries()

		a.hca.SetMTU(1, verbs.MTU4096)
		w.carries()
		w.paths(verbs.MTU1024)
		b.ep.Fail(nil)
		w.mend()
		w.paths(verbs.MTU4096)
	}
}

// TestMTUsOfBothEnds: the smaller one is used, and both ends know it, also if both ask at once.
func TestMTUsOfBothEnds(t *testing.T) {
	for _, mtus := range [][2]verbs.MTU{{verbs.MTU512, verbs.MTU2048}, {verbs.MTU2048, verbs.MTU512}} {
		w := newWorld(t, Config{})
		for i, r := range w.ranks {
			r.hca.SetMTU(1, mtus[i])
		}
		w.connect()
		w.paths(verbs.MTU512)
		w.carries()
	}
}

// TestMTUOverTheOffer: an answer with a longer MTU than was offered is not from a peer of ours.
func TestMTUOverTheOffer(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.ranks[0], w.ranks[1]
	a.hca.SetMTU(1, verbs.MTU1024)
	a.connect()
	e := a.end()
	a.m.handle(&message{
		kind: msgREP, from: 1, fromNonce: b.m.me, toNonce: a.m.me, epoch: e.Epoch(), address: b.m.h.address(), toQPN: e.qpn,
		end: qpEnd{qpn: 77, mtu: verbs.MTU2048, recvDepth: minRecvDepth},
	})
	a.fails(1, btl.ClassProtocol, btl.SideRemote, "")
}
