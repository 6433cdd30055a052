package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// neighbors are the link-layer addresses that a rank's system knows. A call that needs another
// address blocks.
type neighbors struct {
	t       *testing.T
	known   map[verbs.GID]bool
	waiting []lookupCall
	blocked []string // calls
}

// lookupCall is a call of Resolve that has not ended.
type lookupCall struct {
	gid  verbs.GID
	done func(error)
}

// watchNeighbors makes the rank's system know no address.
func (r *testRank) watchNeighbors() *neighbors {
	n := &neighbors{t: r.w.t, known: map[verbs.GID]bool{}}
	pd, _ := r.faultPD()
	createAH, createQP := pd.createAH, pd.createQP
	pd.resolve = func(attr verbs.AHAttr, done func(error)) { n.waiting = append(n.waiting, lookupCall{attr.DGID, done}) }
	pd.createAH = func(attr verbs.AHAttr) (verbs.AH, error) {
		n.call("ibv_create_ah", attr.DGID)
		return createAH(attr)
	}
	pd.createQP = func(init verbs.QPInit) (verbs.QP, error) {
		real, err := createQP(init)
		qp := newFaultyQP(real)
		qp.modify = func(attr *verbs.QPAttr, mask verbs.AttrMask) error {
			if mask&verbs.AttrAV != 0 {
				n.call("ibv_modify_qp", attr.AH.DGID)
			}
			return real.Modify(attr, mask)
		}
		return qp, err
	}
	return n
}

func (n *neighbors) call(name string, to verbs.GID) {
	if !n.known[to] {
		n.blocked = append(n.blocked, name)
	}
}

// end ends all calls of Resolve. Without an error, the system then knows their addresses.
func (n *neighbors) end(err error) {
	list := n.waiting
	n.waiting = nil
	for _, c := range list {
		n.known[c.gid] = err == nil
		c.done(err)
	}
}

// TestConnectDoesNotBlockForAddresses: a module makes no call of the device that would block for
// the link-layer address of the peer: neither for the first connection, nor for later ones after
// the system has forgotten the address.
func TestConnectDoesNotBlockForAddresses(t *testing.T) {
	w, a, b := newWorld(t, verbs.LinkEthernet, Config{})
	both := []*neighbors{a.watchNeighbors(), b.watchNeighbors()}
	resolve := func() {
		for range 10 {
			w.turns(2 * attendEvery)
			for _, n := range both {
				require.LessOrEqual(t, len(n.waiting), 1, "one at a time")
				n.end(nil)
			}
		}
	}
	for range 3 {
		a.connect()
		b.connect()
		w.turns(10 * attendEvery)
		require.False(t, a.isReady() || b.isReady())
		resolve()
		w.until("a connection", func() bool { return a.isReady() && b.isReady() })
		w.works()
		a.ep.Fail(nil)
		w.until("both ends to be drained", func() bool { resolve(); return a.isDrained() && b.isDrained() })
		for _, n := range both {
			require.Empty(t, n.blocked)
			n.known = map[verbs.GID]bool{}
		}
	}
}

// TestOneEndAsksWhileAddressIsUnknown: the peer of an asking end has no endpoint until it has
// resolved the path for its answer.
func TestOneEndAsksWhileAddressIsUnknown(t *testing.T) {
	w, a, b := newWorld(t, verbs.LinkEthernet, Config{})
	n := b.watchNeighbors()
	a.connect()
	w.until("a request", func() bool { return len(n.waiting) > 0 })
	w.turns(10 * attendEvery)
	require.Empty(t, b.m.eps)
	n.end(nil)
	w.until("a connection", a.isReady)
	require.Empty(t, n.blocked)
}

// TestConnectWithoutAddressFails: a connection fails soon if the network has no link-layer address
// for the peer.
func TestConnectWithoutAddressFails(t *testing.T) {
	w, a, _ := newWorld(t, verbs.LinkEthernet, Config{})
	n := a.watchNeighbors()
	a.connect()
	at := w.clock.Now()
	w.until("the failure", func() bool {
		n.end(errUnreachableNet)
		return len(a.failed) > 0
	})
	a.fails(1, btl.ClassPath, btl.SideRemote, "")
	require.ErrorIs(t, a.failed[0], errUnreachableNet)
	require.InDelta(t, noRouteNanos, w.clock.Now()-at, 0.5e9)
}

// TestCloseWithLookups: a result that comes after Close has no effect.
func TestCloseWithLookups(t *testing.T) {
	_, a, b := newWorld(t, verbs.LinkEthernet, Config{})
	n := a.watchNeighbors()
	a.connect()
	require.NoError(t, a.m.Close())
	n.end(nil)
	a.progress()
	b.progress()
	require.Empty(t, n.blocked)
}

// TestDeviceStaysOpenDuringLookups: a device that was given up is closed only once no path is being
// resolved, because closing it would wait for the lookup. The result is dropped.
func TestDeviceStaysOpenDuringLookups(t *testing.T) {
	w, a, b := newWorld(t, verbs.LinkEthernet, Config{})
	n := a.watchNeighbors()
	a.connect()
	h := a.m.h
	a.m.loseDevice("", errUnreachableNet)
	w.until("Drained", a.isDrained)
	w.clock.skip(time.Second)
	w.turns(10 * attendEvery)
	require.Same(t, h, a.m.h)
	n.end(nil)
	w.until("another device", func() bool { return a.m.h != nil && a.m.h != h })
	require.Empty(t, n.blocked)
	a.failed, a.drained = nil, nil
	b.connect()
	w.begin()
}
