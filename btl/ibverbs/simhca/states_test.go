package simhca

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// The conformance suite covers the tables of package verbs. The tests of this package cover what it
// leaves to the device, and faults that only a simulation can have.

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
