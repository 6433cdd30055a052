package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// shortOfMemory is a world one of whose ranks has no memory left that it could register for a
// connection, until it releases the regions.
func shortOfMemory(t *testing.T, rank int) (w *world, regions []btl.Region) {
	var devices [2]simhca.DeviceConfig
	devices[rank].MaxLocked = 4 << 20
	w = newWorldOf(t, Config{}, devices)
	for {
		r, err := w.ranks[rank].m.Register(make([]byte, 64<<10), btl.AccessLocal)
		if err != nil {
			require.NotEmpty(t, regions)
			return w, regions
		}
		regions = append(regions, r)
	}
}

// rejected expects rank 0 to be told that rank 1 cannot make its end, and why.
func (w *world) rejected(native, why string) {
	w.t.Helper()
	a := w.ranks[0]
	a.fails(1, btl.ClassDevice, btl.SideRemote, native)
	err := a.failed[0]
	require.ErrorIs(w.t, err, errRejected)
	require.ErrorContains(w.t, err, "to rank 1: ")
	require.ErrorContains(w.t, err, why)
	require.Len(w.t, a.ended, 1, "what waited for the connection")
}

// TestConnectToPeerShortOfMemoryFails: the asker is told of it, though one of the answers is lost,
// once it has asked for a while; long before it would take the peer for one that does not answer.
func TestConnectToPeerShortOfMemoryFails(t *testing.T) {
	w, regions := shortOfMemory(t, 1)
	a, b := w.ranks[0], w.ranks[1]
	b.hca.Inject(simhca.Fault{Kind: simhca.FaultPacketLost, QPN: b.m.h.ud.Num()})
	at := w.clock.Now()
	a.connect()
	require.NoError(t, a.send("waits for the connection"))
	w.rejected("ENOMEM", verbs.ErrNoMemory.Error())
	require.InDelta(t, rejectNanos, w.clock.Now()-at, 0.5e9)
	require.Empty(t, b.failed)
	for _, r := range regions {
		require.NoError(t, r.Release())
	}
	w.until("the peer to know that it is over", func() bool { return len(a.m.unackedFailures) == 0 })
	a.ended = nil
	w.connect()
	w.works()
}

// TestConnectToPeerShortOfMemoryForAWhile: once the peer has memory the same incarnation comes
// about.
func TestConnectToPeerShortOfMemoryForAWhile(t *testing.T) {
	w, regions := shortOfMemory(t, 1)
	a := w.ranks[0]
	a.connect()
	w.until("a rejection", func() bool { return a.end().rejection != nil })
	for _, r := range regions {
		require.NoError(t, r.Release())
	}
	w.until("a connection", func() bool { return a.end().phase == phaseReady })
	require.Empty(t, a.failed)
	require.Equal(t, uint32(1), a.ep.Epoch())
	w.connect()
	w.works()
}

// TestRejectionEndsWithTheConnection: a peer that has rejected a connection asks for one itself
// when it has memory. How slowly it goes on after that is no matter of the rejection.
func TestRejectionEndsWithTheConnection(t *testing.T) {
	w, regions := shortOfMemory(t, 0)
	b, a := w.ranks[0], w.ranks[1]
	a.connect()
	w.until("a rejection", func() bool { return a.end().rejection != nil })
	for _, r := range regions {
		require.NoError(t, r.Release())
	}
	b.connect()
	for end := w.clock.Now() + 2*rejectNanos; w.clock.Now() < end; w.clock.pass() {
		a.m.Progress() // and b does not
	}
	require.Equal(t, phaseAccepted, a.end().phase)
	require.Empty(t, a.failed)
	w.connect()
	w.works()
}

// TestRejectionAfterAbsence: of the time for which the peer is asked again none counts in which
// nobody looked for its answer.
func TestRejectionAfterAbsence(t *testing.T) {
	w, regions := shortOfMemory(t, 1)
	a := w.ranks[0]
	a.connect()
	w.until("a rejection", func() bool { return a.end().rejection != nil })
	for _, r := range regions {
		require.NoError(t, r.Release())
	}
	*w.clock.extra += int64(20 * time.Second)
	for range 2 * lookEvery {
		a.m.Progress()
	}
	require.Empty(t, a.failed)
	w.until("a connection", func() bool { return a.end().phase == phaseReady })
	w.connect()
	w.works()
}

// TestConnectToPeerWithShorterQueuesFails: what cannot pass is told at once.
func TestConnectToPeerWithShorterQueuesFails(t *testing.T) {
	w := newWorldOf(t, Config{SendDepth: 1024}, [2]simhca.DeviceConfig{1: {MaxQPWR: 512}})
	a := w.ranks[0]
	at := w.clock.Now()
	a.connect()
	require.NoError(t, a.send("waits for the connection"))
	w.rejected("EINVAL", "ibv_create_qp: invalid argument: the device does not support that many work requests")
	require.Less(t, w.clock.Now()-at, int64(rejectNanos/4))
}

// unreadyPD makes queue pairs that do not get ready to receive.
type unreadyPD struct{ verbs.PD }

type unreadyQP struct{ verbs.QP }

func (d unreadyPD) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := d.PD.CreateQP(init)
	return unreadyQP{qp}, err
}

func (q unreadyQP) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	if attr.State == verbs.StateRTR {
		return errUnreachableNet
	}
	return q.QP.Modify(attr, mask)
}

// TestConnectToPeerThatCannotBeReadyFails: the peer has a queue pair, which does not get ready to
// receive.
func TestConnectToPeerThatCannotBeReadyFails(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.ranks[0], w.ranks[1]
	pd := b.m.h.pd
	b.m.h.pd = unreadyPD{pd}
	a.connect()
	require.NoError(t, a.send("waits for the connection"))
	w.rejected("", "connection: "+errUnreachableNet.Error())
	w.until("the peer's end to be gone", func() bool { return b.m.peers[0].ep.State() == btl.Drained })
	b.m.h.pd = pd
	w.until("the peer to know that it is over", func() bool { return len(a.m.unackedFailures) == 0 })
	a.ended = nil
	w.connect()
	w.works()
}

// TestConnectToPeerWithOtherFragmentsFails: what the peer's card said is not what it has.
func TestConnectToPeerWithOtherFragmentsFails(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.ranks[0], w.ranks[1]
	a.connect()
	require.NoError(t, a.send("waits for the connection"))
	b.m.cfg.FragBytes = 300
	w.rejected("", "fragments of 300 bytes here")
}
