package simhca

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// The conformance suite covers the tables of package verbs. The tests of this package cover
// behavior that the tables leave to the device, and faults that only a simulation can have.

var services = []verbs.Services{verbs.ServiceRC, verbs.ServiceUC, verbs.ServiceUD}

// SQ_DRAINED is raised only if Modify requested it.
func TestSQDrainedIsRaisedOnRequest(t *testing.T) {
	for _, service := range services {
		a, b := pair(t, setup{service: service})
		b.recv(10, 0, 4000)
		a.post(a.wr(1, verbs.WRSend, b, 0, 3000))
		a.modify(verbs.StateSQD)
		a.run()
		require.Equal(t, []verbs.EventType{verbs.EventSQDrained}, a.events())
		require.Equal(t, []string{"1 SUCCESS"}, a.results())
		a.modify(verbs.StateRTS)
		require.NoError(t, a.qp.Modify(&verbs.QPAttr{State: verbs.StateSQD}, verbs.AttrState))
		require.Empty(t, a.events())
	}
}

// The receive of an arriving message is the first to be flushed.
func TestErrorDuringMessageFlushesItsReceive(t *testing.T) {
	for _, srq := range []bool{false, true} {
		a, b := pair(t, setup{srq: srq})
		b.recv(10, 0, 40_000)
		b.recv(11, 0, 100)
		a.post(a.wr(1, verbs.WRSend, b, 0, 40_000))
		a.advance(5)
		b.modify(verbs.StateErr)
		if srq {
			require.Equal(t, []string{"10 WR_FLUSH_ERR"}, b.results())
			require.Equal(t, []verbs.EventType{verbs.EventQPLastWQEReached}, b.events())
		} else {
			require.Equal(t, []string{"10 WR_FLUSH_ERR", "11 WR_FLUSH_ERR"}, b.results())
			require.Empty(t, b.events())
		}
		a.run()
		require.Equal(t, []string{"1 RETRY_EXC_ERR"}, a.results())
	}
}

// With LastWQEDelay, the receives end after the sends: first the message that has arrived and was
// not polled, then the flushes, then LAST_WQE_REACHED. RESET drops those that have not come yet.
func TestReceivesEndLate(t *testing.T) {
	for _, srq := range []bool{false, true} {
		for _, reset := range []bool{false, true} {
			a, b := pair(t, setup{srq: srq, device: DeviceConfig{LastWQEDelay: time.Millisecond}})
			for i := range uint64(3) {
				b.recv(10+i, 0, 40_000)
			}
			a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
			a.post(a.wr(2, verbs.WRSend, b, 0, 40_000))
			a.advance(5)
			b.modify(verbs.StateErr)
			b.post(b.wr(3, verbs.WRSend, a, 0, 8))
			if !srq {
				b.recv(13, 0, 8)
			}
			require.Equal(t, []string{"3 WR_FLUSH_ERR"}, b.results())
			require.Empty(t, b.events())
			var results []string
			var events []verbs.EventType
			if reset {
				b.modify(verbs.StateReset)
			} else {
				results = []string{"10 SUCCESS", "11 WR_FLUSH_ERR"}
				if srq {
					events = []verbs.EventType{verbs.EventQPLastWQEReached}
				} else {
					results = append(results, "12 WR_FLUSH_ERR", "13 WR_FLUSH_ERR")
				}
			}
			b.runFor(2 * time.Millisecond)
			require.Equal(t, results, b.results())
			require.Equal(t, events, b.events())
			if srq {
				require.Equal(t, 1, b.srq.(*sharedQueue).inUse)
			}
		}
	}
}

// With a negative LastWQEDelay, LAST_WQE_REACHED is not raised.
func TestNoLastWQEReached(t *testing.T) {
	_, b := pair(t, setup{srq: true, device: DeviceConfig{LastWQEDelay: -1}})
	b.modify(verbs.StateErr)
	b.run()
	require.Empty(t, b.events())
}

// Changes that a device is configured to refuse fail without an effect. Other ways to the same
// state work.
func TestModifyRefusesWhatDeviceLacks(t *testing.T) {
	refused := func(e *end, to verbs.QPState, mask verbs.AttrMask) {
		t.Helper()
		from := e.state()
		err := e.qp.Modify(&verbs.QPAttr{State: to, CurState: from}, verbs.AttrState|mask)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.Equal(t, from, e.state())
	}
	inSQE := func(d DeviceConfig) *end {
		a, b := pair(t, setup{service: verbs.ServiceUD, device: d})
		a.hca.Inject(Fault{Kind: FaultSendStatus, QPN: a.qp.Num(), Status: verbs.StatusLocProtErr})
		a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
		require.Equal(t, verbs.StateSQE, a.state())
		return a
	}
	leave := &verbs.QPAttr{State: verbs.StateRTS, CurState: verbs.StateSQE}

	a := inSQE(DeviceConfig{NoCurState: true})
	attr, err := a.dev.Query()
	require.NoError(t, err)
	require.False(t, attr.CurState)
	refused(a, verbs.StateRTS, verbs.AttrCurState)
	require.NoError(t, a.qp.Modify(leave, verbs.AttrState))

	a = inSQE(DeviceConfig{KeepsSQE: true})
	refused(a, verbs.StateRTS, 0)
	require.NoError(t, a.qp.Modify(leave, verbs.AttrState|verbs.AttrCurState))

	a = inSQE(DeviceConfig{ResetFromErrOnly: true})
	refused(a, verbs.StateReset, 0)
	a.modify(verbs.StateErr)
	a.modify(verbs.StateReset)
}

// A queue pair receives nothing before RTR; the requester retries until then.
func TestSendBeforePeerIsInRTRIsRetried(t *testing.T) {
	a, b := pair(t, setup{idle: true})
	a.toInit()
	b.toInit()
	b.recv(9, 0, 100)
	a.toRTR(b)
	a.toRTS()
	a.post(a.wr(1, verbs.WRSend, b, 0, 8))
	a.runFor(verbs.AckTimeout(8) * 2)
	require.Empty(t, a.poll())
	b.toRTR(a)
	a.run()
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	require.Equal(t, []string{"9 SUCCESS"}, b.results())
	require.Less(t, a.f.Now(), time.Second)
}
