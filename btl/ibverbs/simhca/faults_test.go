package simhca

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

func TestLateCompletionDelaysLaterOnes(t *testing.T) {
	a, b := pair(t, setup{})
	a.hca.Inject(Fault{Kind: FaultLateCompletion, After: 1, Delay: time.Millisecond})
	for i := range 3 {
		a.post(a.wr(uint64(i), verbs.WRRDMAWrite, b, 0, 8))
	}
	a.runFor(time.Microsecond * 900)
	require.Equal(t, []string{"0 SUCCESS"}, a.results())
	a.run()
	require.Equal(t, []string{"1 SUCCESS", "2 SUCCESS"}, a.results(), "in order")
	// Flushed completions wait behind a late one. RESET drops a late completion.
	a.hca.Inject(Fault{Kind: FaultLateCompletion, Delay: time.Millisecond})
	a.post(a.wr(4, verbs.WRRDMAWrite, b, 0, 8))
	a.runFor(time.Microsecond * 100)
	a.post(a.wr(5, verbs.WRRDMAWrite, b, 0, 8))
	a.modify(verbs.StateErr)
	require.Empty(t, a.poll())
	a.runFor(2 * time.Millisecond)
	require.Equal(t, []string{"4 SUCCESS", "5 WR_FLUSH_ERR"}, a.results())
	a.modify(verbs.StateReset)
	b.modify(verbs.StateReset)
	connect(t, a, b)
	a.hca.Inject(Fault{Kind: FaultLateCompletion, Delay: time.Millisecond})
	a.post(a.wr(6, verbs.WRRDMAWrite, b, 0, 8))
	a.runFor(time.Microsecond * 100)
	a.modify(verbs.StateReset)
	a.run()
	require.Empty(t, a.poll())
	b.modify(verbs.StateReset)
	connect(t, a, b)
	a.post(a.wr(7, verbs.WRRDMAWrite, b, 0, 8))
	a.run()
	require.Equal(t, []string{"7 SUCCESS"}, a.results(), "the dropped completion delays no other")
}

func TestSilentQueuePairCompletesOnlyInError(t *testing.T) {
	a, b := pair(t, setup{})
	a.hca.Inject(Fault{Kind: FaultSilence, After: 1})
	for i := range 3 {
		b.recv(uint64(i), 0, 8)
		a.post(a.wr(uint64(i), verbs.WRSend, b, 0, 8))
	}
	a.run()
	require.Equal(t, []string{"0 SUCCESS"}, a.results())
	require.Len(t, b.results(), 1)
	require.Equal(t, verbs.StateRTS, a.state())
	require.Empty(t, a.events())
	a.exec(a.wr(3, verbs.WRSend, b, 0, 8))
	a.modify(verbs.StateErr)
	require.Equal(t, []string{"1 WR_FLUSH_ERR", "2 WR_FLUSH_ERR", "3 WR_FLUSH_ERR"}, a.results())
	require.Equal(t, 1, a.hca.Fired())
}

// A fault without a queue pair number strikes RC queue pairs only.
func TestFaultWithoutNumberSparesUD(t *testing.T) {
	a, b := pair(t, setup{service: verbs.ServiceUD})
	a.hca.Inject(Fault{Kind: FaultSendStatus, Status: verbs.StatusGeneralErr})
	a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	require.Zero(t, a.hca.Fired())
}

// A stale packet reaches a queue pair that reuses the number of its destination. The queue pair
// drops it if its sequence number differs. Otherwise the queue pair accepts it: nothing in the
// packet distinguishes the two queue pairs.
func TestStalePacketReachesReusedNumber(t *testing.T) {
	for _, c := range []struct {
		name string
		psn  uint32
		got  int
	}{{"other sequence", 0x123456, 0}, {"same sequence", 0xfffff0, 1}} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, setup{})
			b.recv(1, 0, 100)
			a.hca.Inject(Fault{Kind: FaultStale})
			a.fill(0, 8, 5)
			a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
			require.Equal(t, []string{"1 SUCCESS"}, b.results())
			require.Equal(t, 1, a.hca.Fired())
			num := b.qp.Num()
			for _, e := range []*end{a, b} {
				e.poll()
				require.NoError(t, e.qp.Destroy())
				e.newQP(verbs.ServiceRC, verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8})
			}
			a.run()
			require.Equal(t, num, b.qp.Num())
			a.psn = c.psn
			a.toInit()
			b.toInit()
			b.recv(2, 0, 100)
			b.toRTR(a)
			a.run()
			require.Len(t, b.results(), c.got)
			a.toRTR(b)
			a.toRTS()
			b.toRTS()
			b.recv(3, 0, 100)
			a.exec(a.wr(9, verbs.WRSend, b, 0, 8))
			if c.got == 0 {
				require.Equal(t, []string{"9 SUCCESS"}, a.results())
				require.Equal(t, []string{"2 SUCCESS"}, b.results())
			} else {
				// The real first message looks like a repeated one: it is acknowledged and lost.
				require.Equal(t, []string{"9 SUCCESS"}, a.results())
				require.Empty(t, b.results())
			}
		})
	}
}

// A stale write does not reach memory by the key of a deregistered region.
func TestStaleWriteWithOldKeyIsRefused(t *testing.T) {
	a, b := pair(t, setup{})
	a.hca.Inject(Fault{Kind: FaultStale})
	a.fill(0, 3000, 5)
	a.exec(a.wr(1, verbs.WRRDMAWrite, b, 0, 3000))
	require.NoError(t, b.mr.Dereg())
	clear(b.mem)
	var err error
	b.mr, err = b.pd.RegMR(b.mem, allAccess)
	require.NoError(t, err)
	b.modify(verbs.StateReset)
	b.toInit()
	b.toRTR(a)
	a.run()
	require.Zero(t, b.mem[0])
	require.Equal(t, []verbs.EventType{verbs.EventCommEst, verbs.EventQPAccessErr}, b.events())
}
