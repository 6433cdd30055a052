package ibverbs

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// failDatagram makes the rank's next datagram fail.
func (r *testRank) failDatagram() {
	r.hca.Inject(simhca.Fault{Kind: simhca.FaultSendStatus, Datagrams: true, Status: verbs.StatusLocProtErr})
}

// faultUD puts a faultyQP in the place of the rank's datagram queue pair.
func (r *testRank) faultUD() *faultyQP {
	qp := newFaultyQP(r.m.h.ud)
	r.m.h.ud = qp
	return qp
}

// TestConnectAfterFailedDatagram: a datagram that fails moves the queue pair to SQE. The rank
// connects nevertheless, whatever its device requires to leave that state, and keeps its address.
func TestConnectAfterFailedDatagram(t *testing.T) { onEachFabric(t, testConnectAfterFailedDatagram) }

func testConnectAfterFailedDatagram(t *testing.T, link verbs.LinkLayer) {
	for name, c := range map[string]struct {
		device simhca.DeviceConfig
		starts uint32 // of the queue pair, in 4 rounds
	}{
		"with CUR_STATE":    {simhca.DeviceConfig{KeepsSQE: true}, 1},
		"without CUR_STATE": {simhca.DeviceConfig{NoCurState: true}, 1},
		"by RESET":          {simhca.DeviceConfig{NoCurState: true, KeepsSQE: true}, 5},
		"by ERR and RESET":  {simhca.DeviceConfig{NoCurState: true, KeepsSQE: true, ResetFromErrOnly: true}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			w, a, b := newWorld(t, link, Config{}, c.device, simhca.DeviceConfig{})
			h, at := a.m.h, a.m.h.address()
			for range 4 {
				fired := a.hca.Fired()
				a.failDatagram()
				a.connect()
				w.until("a connection", a.isReady)
				require.Greater(t, a.hca.Fired(), fired)
				b.connect()
				w.until("the other end", b.isReady)
				w.works()
				a.ep.Fail(nil)
				w.until("both ends to be drained", func() bool { return a.isDrained() && b.isDrained() })
			}
			require.Same(t, h, a.m.h, "the device is the first one")
			require.Equal(t, at, h.address())
			require.Equal(t, c.starts, h.udStarts)
			require.Nil(t, h.udRestart)
			require.Len(t, h.free, udSendDepth)
			require.Equal(t, udRecvDepth, h.udPosted)
			for _, err := range a.failed {
				require.Equal(t, 1, err.Peer, "%v", err)
			}
		})
	}
}

// TestDatagramsCannotBeRestarted: if the queue pair cannot be started again after a failed
// datagram, the rail fails with an error that says so, and the module reopens the device.
func TestDatagramsCannotBeRestarted(t *testing.T) { onEachFabric(t, testDatagramsCannotBeRestarted) }

func testDatagramsCannotBeRestarted(t *testing.T, link verbs.LinkLayer) {
	for _, refused := range []verbs.QPState{verbs.StateErr, verbs.StateReset, verbs.StateInit, verbs.StateRTR} {
		t.Run(refused.String(), func(t *testing.T) {
			w, a, b := newWorld(t, link, Config{}, simhca.DeviceConfig{NoCurState: true, KeepsSQE: true}, simhca.DeviceConfig{})
			h, qp := a.m.h, a.faultUD()
			qp.ignore(refused, errStuck)
			a.failDatagram()
			a.connect()
			a.fails(btl.AllPeers, btl.ClassDevice, btl.SideLocal, verbs.StatusLocProtErr.Native())
			require.ErrorIs(t, a.failed[0], errStuck)
			require.ErrorContains(t, a.failed[0], "a datagram has failed")
			require.ErrorContains(t, a.failed[0], "its datagram queue pair cannot be started again, so the device is opened again")
			require.False(t, strings.Contains(a.failed[0].Error(), "\n"))
			w.until("another device", func() bool { return a.m.h != nil && a.m.h != h })
			b.connect()
			w.begin()
		})
	}
}

// TestDatagramsRestartAfterDrain: the queue pair goes to RESET only once its requests have
// completed, because RESET drops them. A receive that the device never flushes delays that, but not
// forever.
func TestDatagramsRestartAfterDrain(t *testing.T) { onEachFabric(t, testDatagramsRestartAfterDrain) }

func testDatagramsRestartAfterDrain(t *testing.T, link verbs.LinkLayer) {
	for _, lost := range []int{0, 1} {
		w, a, b := newWorld(t, link, Config{})
		h, qp := a.m.h, a.faultUD()
		reset := false
		modify := qp.modify
		qp.modify = func(attr *verbs.QPAttr, mask verbs.AttrMask) error {
			if attr.State == verbs.StateReset {
				state, err := qp.Query()
				require.NoError(t, err)
				require.Equal(t, verbs.StateErr, state.State)
				require.Len(t, h.free, udSendDepth)
				require.Equal(t, lost, h.udPosted)
				reset = true
			}
			return modify(attr, mask)
		}
		h.udPosted += lost // more than the device has
		a.hca.Inject(simhca.Fault{Kind: simhca.FaultLateCompletion, QPN: h.ud.Num(), Delay: 5 * time.Millisecond})
		a.connect() // with a datagram in flight
		since := w.clock.Now()
		a.m.restartUD("", errStuck)
		w.until("a connection", a.isReady)
		require.True(t, reset)
		require.Less(t, w.clock.Now()-since, int64(drainNanos+askMost))
		b.connect()
		w.begin()
	}
}

// TestOldDatagramCompletions: completions from before the restart of the queue pair have no effect.
func TestOldDatagramCompletions(t *testing.T) {
	_, a, _ := newWorld(t, verbs.LinkEthernet, Config{})
	h := a.m.h
	free, posted := len(h.free), h.udPosted
	for _, kind := range []wrType{wrUDSend, wrUDRecv} {
		require.Zero(t, h.endUD(&verbs.WC{ID: uint64(makeID(kind, h.udStarts-1, 0, 3))}))
		require.Zero(t, h.endUD(&verbs.WC{ID: uint64(makeID(kind, h.udStarts, 0, 1000))}))
	}
	require.Zero(t, h.endUD(&verbs.WC{ID: uint64(makeID(wrSend, h.udStarts, 0, 3))}))
	require.Len(t, h.free, free)
	require.Equal(t, posted, h.udPosted)
}
