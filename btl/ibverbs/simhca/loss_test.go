package simhca

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

func TestLostPacketsAreRetried(t *testing.T) {
	for lost := 1; lost <= 5; lost++ {
		a, b := pair(t, setup{})
		a.hca.Inject(Fault{Kind: FaultPacketLost, QPN: a.qp.Num(), Count: lost})
		b.recv(9, 0, 100)
		a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
		if lost <= 3 {
			require.Equal(t, []string{"1 SUCCESS"}, a.results())
			require.Equal(t, []string{"9 SUCCESS"}, b.results())
			require.Equal(t, time.Duration(lost)*verbs.AckTimeout(8)+2*time.Microsecond, a.f.Now())
			continue
		}
		require.Equal(t, []string{"1 RETRY_EXC_ERR"}, a.results())
		require.Empty(t, b.results())
		require.Equal(t, 4*verbs.AckTimeout(8), a.f.Now(), "the first try and three retries")
	}
}

// Progress restores the retry count.
func TestProgressRestoresRetries(t *testing.T) {
	a, b := pair(t, setup{})
	for i := range 5 {
		b.recv(uint64(i), 0, 100)
	}
	a.hca.Inject(Fault{Kind: FaultPacketLost, Count: 3})
	a.hca.Inject(Fault{Kind: FaultPacketLost, Count: 3})
	a.hca.Inject(Fault{Kind: FaultPacketLost, Count: 3})
	for i := range 3 {
		a.post(a.wr(uint64(i), verbs.WRSend, b, 0, 8))
	}
	a.run()
	require.Equal(t, []string{"0 SUCCESS", "1 SUCCESS", "2 SUCCESS"}, a.results())
	require.Len(t, b.results(), 3)
	require.Equal(t, 3, a.hca.Fired())
}

// The responder reports a gap at once, so the requester retries before its timeout.
func TestGapIsRepairedBeforeTimeout(t *testing.T) {
	a, b := pair(t, setup{})
	b.recv(8, 0, 9000)
	b.recv(9, 0, 9000)
	want := a.fill(0, 9000, 1)
	a.hca.Inject(Fault{Kind: FaultPacketLost})
	a.exec(a.wr(1, verbs.WRSend, b, 0, 9000), a.wr(2, verbs.WRSend, b, 0, 8))
	require.Equal(t, []string{"1 SUCCESS", "2 SUCCESS"}, a.results())
	require.Equal(t, []string{"8 SUCCESS", "9 SUCCESS"}, b.results())
	require.Equal(t, want, b.mem[:9000])
	require.Less(t, a.f.Now(), verbs.AckTimeout(8))
}

// If all responses are lost, the request fails but is executed once.
func TestLostAcksFailExecutedRequest(t *testing.T) {
	for _, op := range []verbs.Opcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd} {
		a, b := pair(t, setup{})
		b.recv(9, 1000, 100)
		b.recv(10, 1000, 100)
		a.hca.Inject(Fault{Kind: FaultAckLost})
		wr := a.wr(1, op, b, 0, 8)
		wr.CompareAdd = 5
		a.exec(wr, a.wr(2, verbs.WRRDMAWrite, b, 0, 8))
		require.Equal(t, []string{"1 RETRY_EXC_ERR", "2 WR_FLUSH_ERR"}, a.results())
		if op == verbs.WRSend {
			require.Equal(t, []string{"9 SUCCESS"}, b.results())
		}
		require.Equal(t, verbs.StateRTS, b.state())
		require.Equal(t, 4*verbs.AckTimeout(8), a.f.Now())
	}
}

// If some responses are lost, the request is repeated but executed once.
func TestLostResponseExecutesRequestOnce(t *testing.T) {
	a, b := pair(t, setup{})
	b.recv(9, 1000, 100)
	b.recv(10, 1000, 100)
	a.hca.Inject(Fault{Kind: FaultResponseLost, Count: 3})
	a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	require.Equal(t, []string{"9 SUCCESS"}, b.results())
	require.Equal(t, 3, a.hca.Fired())
	require.Equal(t, 3*verbs.AckTimeout(8)+2*time.Microsecond, a.f.Now())
}

// A repeated atomic request gets the saved result; the atomic is not executed again.
func TestRepeatedAtomicIsExecutedOnce(t *testing.T) {
	a, b := pair(t, setup{})
	a.f.Partition(b.gid, a.gid, false)
	wr := a.wr(1, verbs.WRAtomicFetchAndAdd, b, 0, 8)
	wr.CompareAdd = 5
	a.post(wr)
	a.runFor(2 * verbs.AckTimeout(8))
	require.Equal(t, byte(5), b.mem[0])
	a.f.Heal(a.gid, b.gid)
	a.mem[0] = 77
	a.run()
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	require.Equal(t, byte(5), b.mem[0])
	require.Zero(t, a.mem[0])
}

// A read whose response is interrupted resumes with the missing data.
func TestInterruptedReadResumes(t *testing.T) {
	a, b := pair(t, setup{})
	want := b.fill(0, 60_000, 8)
	a.post(a.wr(1, verbs.WRRDMARead, b, 0, 60_000), a.wr(2, verbs.WRRDMARead, b, 0, 10))
	a.advance(20)
	a.f.Partition(b.gid, a.gid, false)
	a.runFor(verbs.AckTimeout(8) / 2)
	a.f.Heal(b.gid, a.gid)
	a.run()
	require.Equal(t, []string{"1 SUCCESS", "2 SUCCESS"}, a.results())
	require.Equal(t, want, a.mem[:60_000])
}

func TestRNRRetries(t *testing.T) {
	// rnr_retry retries, each after the delay that the receiver requests (code 1: 10 µs).
	a, b := pair(t, setup{})
	a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
	require.Equal(t, []string{"1 RNR_RETRY_EXC_ERR"}, a.results())
	require.Equal(t, verbs.StateErr, a.state())
	require.Equal(t, verbs.StateRTS, b.state())
	require.Equal(t, 3*10*time.Microsecond+4*2*time.Microsecond, a.f.Now())

	// 7 means no limit.
	a, b = pair(t, setup{change: func(e *end) { e.rnr = 7 }})
	a.post(a.wr(1, verbs.WRSend, b, 0, 5000), a.wr(2, verbs.WRRDMAWriteWithImm, b, 8, 5000))
	a.runFor(20 * time.Millisecond)
	require.Empty(t, a.poll())
	b.recv(8, 0, 5000)
	a.runFor(20 * time.Millisecond)
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	b.recv(9, 0, 0)
	a.run()
	require.Equal(t, []string{"2 SUCCESS"}, a.results())
	require.Equal(t, []string{"8 SUCCESS", "9 SUCCESS"}, b.results())

	// 0 means no retry.
	a, b = pair(t, setup{change: func(e *end) { e.rnr = 0 }})
	a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
	require.Equal(t, []string{"1 RNR_RETRY_EXC_ERR"}, a.results())
	require.Equal(t, 2*time.Microsecond, a.f.Now())
}

// A repeated request completes while the requester still waits because of an earlier RNR NAK. When
// the delay is over, nothing is left to send.
func TestRNRDelayEndsAfterRequestCompleted(t *testing.T) {
	a, b := pair(t, setup{cfg: Config{Latency: 5 * time.Microsecond}, change: func(e *end) { e.timeout, e.retries = 1, 7 }})
	a.post(a.wr(1, verbs.WRSend, b, 0, 8))
	a.runFor(7 * time.Microsecond) // the NAK is on the network
	b.recv(9, 0, 100)
	b.recv(10, 0, 100)
	a.runFor(14 * time.Microsecond)
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	a.run()
	a.exec(a.wr(2, verbs.WRSend, b, 0, 8))
	require.Equal(t, []string{"2 SUCCESS"}, a.results())
	require.Equal(t, []string{"9 SUCCESS", "10 SUCCESS"}, b.results())
}

// A timeout of 0 waits forever.
func TestTimeoutZeroNeverRetries(t *testing.T) {
	a, b := pair(t, setup{change: func(e *end) { e.timeout = 0 }})
	a.hca.Inject(Fault{Kind: FaultPacketLost})
	a.exec(a.wr(1, verbs.WRRDMAWrite, b, 0, 8))
	require.Empty(t, a.poll())
	require.Equal(t, verbs.StateRTS, a.state())
}

// A lost packet of UC loses its message; the next message uses the receive.
func TestUCLostPacketDropsMessage(t *testing.T) {
	for _, srq := range []bool{false, true} {
		a, b := pair(t, setup{service: verbs.ServiceUC, srq: srq})
		b.recv(8, 0, 5000)
		a.post(a.wr(1, verbs.WRSend, b, 0, 5000))
		a.advance(2)
		a.f.Partition(a.gid, b.gid, false)
		a.advance(1)
		a.f.Heal(a.gid, b.gid)
		a.run()
		want := a.fill(0, 4000, 99)
		a.exec(a.wr(2, verbs.WRSend, b, 0, 4000))
		require.Equal(t, []string{"8 SUCCESS"}, b.results())
		require.Equal(t, want, b.mem[:4000])
		require.Equal(t, verbs.StateRTS, b.state())
		require.Equal(t, []string{"1 SUCCESS", "2 SUCCESS"}, a.results())
	}
}

// A Q_Key with the high bit stands for the Q_Key of the sending queue pair.
func TestControlledQKeyUsesOwnQKey(t *testing.T) {
	a, b := pair(t, setup{service: verbs.ServiceUD})
	b.recv(9, 0, 100)
	wr := a.wr(1, verbs.WRSend, b, 0, 8)
	wr.RemoteQKey = 1 << 31
	a.exec(wr)
	require.Equal(t, []string{"9 SUCCESS"}, b.results())
}

// RC packets with another partition key are never acknowledged.
func TestRCInOtherPartitionTimesOut(t *testing.T) {
	a, b := pair(t, setup{})
	a.hca.ChangePKey(1, 0, 0x7fff) // a limited member and a full member communicate
	a.exec(a.wr(1, verbs.WRRDMAWrite, b, 0, 8))
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	b.hca.ChangePKey(1, 0, 0x7fff) // two limited members do not
	a.exec(a.wr(2, verbs.WRRDMAWrite, b, 0, 8))
	require.Equal(t, []string{"2 RETRY_EXC_ERR"}, a.results())
	require.Equal(t, []verbs.EventType{verbs.EventPKeyChange}, a.events())
}

// A send overtakes an earlier read unless it has a fence.
func TestFenceWaitsForRead(t *testing.T) {
	for _, fence := range []bool{false, true} {
		a, b := pair(t, setup{})
		b.recv(9, 60_000, 100)
		wr := a.wr(2, verbs.WRSend, b, 60_000, 8)
		if fence {
			wr.Flags |= verbs.SendFence
		}
		a.post(a.wr(1, verbs.WRRDMARead, b, 0, 50_000), wr)
		var arrived, read time.Duration
		for a.f.Advance() {
			if arrived == 0 && len(b.poll()) > 0 {
				arrived = a.f.Now()
			}
			if read == 0 && len(a.poll()) > 0 {
				read = a.f.Now()
			}
		}
		require.Equal(t, fence, arrived > read)
	}
}

// An unsignaled request occupies its entry until a later completion is polled.
func TestUnsignaledRequestsFillSendQueue(t *testing.T) {
	a, b := pair(t, setup{cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8}})
	quiet := a.wr(0, verbs.WRRDMAWrite, b, 0, 8)
	quiet.Flags = 0
	for range 7 {
		a.exec(quiet)
	}
	n, err := a.qp.PostSend([]verbs.SendWR{a.wr(1, verbs.WRRDMAWrite, b, 0, 8), quiet})
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	a.run()
	n, err = a.qp.PostSend([]verbs.SendWR{quiet})
	require.Zero(t, n)
	require.ErrorIs(t, err, verbs.ErrQueueFull, "the completion was not polled")
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	for range 7 {
		a.post(quiet)
	}
	for i := range 8 {
		a.recv(uint64(i), 0, 8)
	}
	_, err = a.qp.PostRecv([]verbs.RecvWR{{}})
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	// The requests before a malformed one are accepted.
	bad := quiet
	bad.NumSGE = 2
	a.modify(verbs.StateErr)
	a.poll()
	n, err = a.qp.PostSend([]verbs.SendWR{quiet, bad, quiet})
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.Len(t, a.results(), 1)
}

// An impaired path is slow, and loses packets, in both directions until it is repaired.
func TestImpairedPathIsSlowOrLosesPackets(t *testing.T) {
	a, b := pair(t, setup{})
	send := func() []string {
		b.recv(9, 0, 100)
		a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
		return a.results()
	}
	a.f.Impair(b.gid, a.gid, Impairment{Latency: 50 * time.Microsecond})
	require.Equal(t, []string{"1 SUCCESS"}, send())
	require.Equal(t, 102*time.Microsecond, a.f.Now())
	a.f.Impair(a.gid, b.gid, Impairment{})
	require.Equal(t, []string{"1 SUCCESS"}, send())
	require.Equal(t, 104*time.Microsecond, a.f.Now())
	a.f.Impair(a.gid, b.gid, Impairment{Loss: 1})
	require.Equal(t, []string{"1 RETRY_EXC_ERR"}, send())
}
