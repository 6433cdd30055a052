package ibverbs

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// shortOfMemory is a world in which one rank can register no memory for a connection until release
// is called.
func shortOfMemory(t *testing.T, link verbs.LinkLayer, rank int) (w *world, a, b *testRank, release func()) {
	devices := make([]simhca.DeviceConfig, 2)
	devices[rank].MaxLocked = 4 << 20
	w, a, b = newWorld(t, link, Config{}, devices...)
	var regions []btl.Region
	for {
		r, err := w.ranks[rank].m.Register(make([]byte, 64<<10), btl.AccessLocal)
		if err != nil {
			break
		}
		regions = append(regions, r)
	}
	require.NotEmpty(t, regions)
	return w, a, b, func() {
		for _, r := range regions {
			require.NoError(t, r.Release())
		}
	}
}

// rejected makes rank 0 connect, with a send that waits for the connection. It expects a failure
// because rank 1 cannot make its end.
func (w *world) rejected(native, why string) {
	w.t.Helper()
	a := w.ranks[0]
	a.connect()
	require.NoError(w.t, a.send("waits for the connection"))
	a.fails(1, btl.ClassDevice, btl.SideRemote, native)
	require.ErrorIs(w.t, a.failed[0], errRejected)
	require.ErrorContains(w.t, a.failed[0], "to rank 1: ")
	require.ErrorContains(w.t, a.failed[0], why)
	require.Len(w.t, a.ended, 1, "the send")
}

// accepted expects the next connection after a rejected one to work.
func (w *world) accepted() {
	w.t.Helper()
	a := w.ranks[0]
	w.until("the peer to know that it is over", func() bool { return len(a.m.unackedFailures) == 0 })
	a.ended = nil
	w.begin()
}

// TestConnectToPeerShortOfMemoryFails: the asker fails after a second of asking, although one of
// the answers is lost. That is long before the connect timeout.
func TestConnectToPeerShortOfMemoryFails(t *testing.T) {
	onEachFabric(t, testConnectToPeerShortOfMemoryFails)
}

func testConnectToPeerShortOfMemoryFails(t *testing.T, link verbs.LinkLayer) {
	w, _, b, release := shortOfMemory(t, link, 1)
	b.hca.Inject(simhca.Fault{Kind: simhca.FaultPacketLost, QPN: b.m.h.ud.Num()})
	at := w.clock.Now()
	w.rejected("ENOMEM", verbs.ErrNoMemory.Error())
	require.InDelta(t, rejectNanos, w.clock.Now()-at, 0.5e9)
	require.Empty(t, b.failed)
	release()
	w.accepted()
}

// TestConnectToPeerShortOfMemoryForAWhile: once the peer has memory, the same incarnation is
// connected. Time in which the asker makes no progress does not count.
func TestConnectToPeerShortOfMemoryForAWhile(t *testing.T) {
	onEachFabric(t, testConnectToPeerShortOfMemoryForAWhile)
}

func testConnectToPeerShortOfMemoryForAWhile(t *testing.T, link verbs.LinkLayer) {
	for _, absence := range []time.Duration{0, 20 * time.Second} {
		w, a, _, release := shortOfMemory(t, link, 1)
		a.connect()
		w.until("a rejection", func() bool { return a.end().rejection != nil })
		release()
		w.clock.skip(absence)
		a.progress()
		require.Empty(t, a.failed)
		w.until("a connection", a.isReady)
		require.Empty(t, a.failed)
		require.Equal(t, uint32(1), a.ep.Epoch())
		w.begin()
	}
}

// TestRejectionEndsWhenPeerAsks: a peer that has rejected a connection asks for one itself once it
// has memory. The deadline of the rejection does not apply to that connection.
func TestRejectionEndsWhenPeerAsks(t *testing.T) { onEachFabric(t, testRejectionEndsWhenPeerAsks) }

func testRejectionEndsWhenPeerAsks(t *testing.T, link verbs.LinkLayer) {
	w, b, a, release := shortOfMemory(t, link, 0)
	a.connect()
	w.until("a rejection", func() bool { return a.end().rejection != nil })
	release()
	b.connect()
	for end := w.clock.Now() + 2*rejectNanos; w.clock.Now() < end; w.clock.pass() {
		a.m.Progress() // and b does not
	}
	require.Equal(t, phaseAccepted, a.end().phase)
	require.Empty(t, a.failed)
	w.begin()
}

// TestConnectToPeerWithShorterQueuesFails: a cause that cannot pass fails the asker at once.
func TestConnectToPeerWithShorterQueuesFails(t *testing.T) {
	onEachFabric(t, testConnectToPeerWithShorterQueuesFails)
}

func testConnectToPeerWithShorterQueuesFails(t *testing.T, link verbs.LinkLayer) {
	w, _, b := newWorld(t, link, Config{})
	pd, _ := b.faultPD()
	pd.createQP = func(verbs.QPInit) (verbs.QP, error) {
		return nil, verbs.NewCallError("ibv_create_qp", syscall.EINVAL, "too many work requests")
	}
	at := w.clock.Now()
	w.rejected("EINVAL", "ibv_create_qp: invalid argument: too many work requests")
	require.Less(t, w.clock.Now()-at, int64(rejectNanos/4))
}

// TestConnectToPeerThatCannotReceiveFails: the peer's queue pair cannot be moved to RTR. Both ends
// fail at once, even if the cause may pass.
func TestConnectToPeerThatCannotReceiveFails(t *testing.T) {
	onEachFabric(t, testConnectToPeerThatCannotReceiveFails)
}

func testConnectToPeerThatCannotReceiveFails(t *testing.T, link verbs.LinkLayer) {
	w, _, b := newWorld(t, link, Config{})
	noMemory := verbs.NewCallError("ibv_modify_qp", syscall.ENOMEM, "")
	pd, restore := b.faultPD()
	pd.createQP = func(init verbs.QPInit) (verbs.QP, error) {
		real, err := pd.PD.CreateQP(init)
		qp := newFaultyQP(real)
		qp.ignore(verbs.StateRTR, noMemory)
		return qp, err
	}
	w.rejected("ENOMEM", "connection: "+noMemory.Error())
	w.until("the peer's end to be gone", func() bool { return b.m.peers.Of(0)[0].ep.State() == btl.Drained })
	restore()
	w.accepted()
}

// TestConnectToPeerWithOtherFragmentsFails: the length of the peer's fragments differs from the one
// in its published address.
func TestConnectToPeerWithOtherFragmentsFails(t *testing.T) {
	onEachFabric(t, testConnectToPeerWithOtherFragmentsFails)
}

func testConnectToPeerWithOtherFragmentsFails(t *testing.T, link verbs.LinkLayer) {
	w, _, b := newWorld(t, link, Config{})
	b.m.cfg.FragBytes = 300
	w.rejected("", "ibverbs.frag.bytes is 236 at rank 1 and 8K at rank 0: set it to the same value for all ranks")
}
