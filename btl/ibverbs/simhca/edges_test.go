package simhca

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// The packets of a long message are sent in bursts.
func TestLongMessagesAreSentInBursts(t *testing.T) {
	const n = 500_000
	small := func(e *end) { e.mtu = verbs.MTU256 }
	for _, real := range []bool{false, true} {
		for _, service := range []verbs.Services{verbs.ServiceRC, verbs.ServiceUC} {
			a, b := pair(t, setup{service: service, memory: n, change: small, real: real})
			want := a.fill(0, n, 1)
			b.recv(9, 0, n)
			a.post(a.wr(1, verbs.WRSend, b, 0, n), a.wr(2, verbs.WRRDMAWrite, b, 0, n))
			a.run()
			require.Equal(t, []string{"1 SUCCESS", "2 SUCCESS"}, a.results())
			require.Equal(t, []string{"9 SUCCESS"}, b.results())
			require.Equal(t, want, b.mem)
		}
		a, b := pair(t, setup{memory: n, change: small, real: real})
		want := b.fill(0, n, 1)
		for i := range 5 {
			a.post(a.wr(uint64(i), verbs.WRRDMARead, b, i*n/5, n/5))
		}
		b.recv(9, 0, 0)
		a.post(a.wr(5, verbs.WRSend, b, 0, 0))
		a.run()
		require.Len(t, a.results(), 6)
		require.Equal(t, want, a.mem)
		packets := 0
		for p := a.f.pool; p != nil; p = p.next {
			packets++
		}
		require.Less(t, packets, 1000, "packets in memory")
	}
}

// Memory is deregistered during a message: at the sender, the receiver, the responder of a read,
// the reader and the responder of a write.
func TestDeregDuringMessageFailsIt(t *testing.T) {
	const n = 200_000
	start := func(op verbs.Opcode) (a, b *end) {
		a, b = pair(t, setup{memory: n})
		b.recv(9, 0, n)
		a.post(a.wr(1, op, b, 0, n), a.wr(2, verbs.WRRDMAWrite, b, 0, 8))
		for range 30 {
			a.f.Advance()
		}
		return a, b
	}
	a, b := start(verbs.WRSend)
	require.NoError(t, a.mr.Dereg())
	a.run()
	require.Equal(t, []string{"1 LOC_PROT_ERR", "2 WR_FLUSH_ERR"}, a.results())
	require.Equal(t, verbs.StateRTS, b.state())

	a, b = start(verbs.WRSend)
	require.NoError(t, b.mr.Dereg())
	a.run()
	require.Equal(t, []string{"1 REM_OP_ERR", "2 WR_FLUSH_ERR"}, a.results())
	require.Equal(t, []string{"9 LOC_PROT_ERR"}, b.results())

	a, b = start(verbs.WRRDMARead)
	require.NoError(t, b.mr.Dereg())
	a.run()
	require.Equal(t, []string{"1 REM_ACCESS_ERR", "2 WR_FLUSH_ERR"}, a.results())
	require.Equal(t, []verbs.EventType{verbs.EventQPAccessErr}, b.events())

	a, _ = start(verbs.WRRDMARead)
	require.NoError(t, a.mr.Dereg())
	a.run()
	require.Equal(t, []string{"1 LOC_PROT_ERR", "2 WR_FLUSH_ERR"}, a.results())

	a, b = start(verbs.WRRDMAWriteWithImm)
	require.NoError(t, b.mr.Dereg())
	a.run()
	require.Equal(t, []string{"1 REM_ACCESS_ERR", "2 WR_FLUSH_ERR"}, a.results())
	require.Equal(t, []verbs.EventType{verbs.EventQPAccessErr}, b.events())
}

// The complete response to a long read comes before the NAK of a later request.
func TestNAKComesAfterReadResponse(t *testing.T) {
	const n = 300_000
	a, b := pair(t, setup{memory: n})
	want := b.fill(0, n, 1)
	bad := a.wr(2, verbs.WRRDMAWrite, b, 0, 8)
	bad.RKey += 2
	a.post(a.wr(1, verbs.WRRDMARead, b, 0, n), bad)
	a.run()
	require.Equal(t, []string{"1 SUCCESS", "2 REM_ACCESS_ERR"}, a.results())
	require.Equal(t, want, a.mem)
}

// The next response, not the timeout, reveals a lost response to a read.
func TestLostReadResponseIsRepairedBeforeTimeout(t *testing.T) {
	a, b := pair(t, setup{})
	want := b.fill(0, 8, 1)
	a.post(a.wr(1, verbs.WRRDMARead, b, 0, 8))
	a.f.Advance() // the request arrives and the response is on the network
	a.f.Partition(b.gid, a.gid, false)
	a.f.Advance()
	a.f.Heal(b.gid, a.gid)
	a.post(a.wr(2, verbs.WRRDMAWrite, b, 100, 8))
	a.run()
	require.Equal(t, []string{"1 SUCCESS", "2 SUCCESS"}, a.results())
	require.Equal(t, want, a.mem[:8])
	require.Less(t, a.f.Now(), verbs.AckTimeout(8))
}

// A gap causes one NAK and one retry, no matter how many packets follow it.
func TestGapCausesOneNAK(t *testing.T) {
	var trace bytes.Buffer
	a, b := pair(t, setup{cfg: Config{Trace: &trace}, change: func(e *end) { e.retries = 1 }})
	a.hca.Inject(Fault{Kind: FaultPacketLost, QPN: a.qp.Num()})
	for i := range 20 {
		a.post(a.wr(uint64(i), verbs.WRRDMAWrite, b, 0, 8))
	}
	a.run()
	require.Len(t, a.results(), 20)
	require.Equal(t, 1, strings.Count(trace.String(), "gets nak"))
	require.Equal(t, 1, strings.Count(trace.String(), "retries from"))
}

// Responses leave in the order of the requests, so no later response makes the requester believe
// that the response to a long read is lost. The requester requests lost data once, no matter how
// much arrives after the gap.
func TestResponsesStayInOrder(t *testing.T) {
	const n = 300_000
	for _, loss := range []bool{false, true} {
		var trace bytes.Buffer
		a, b := pair(t, setup{memory: n, cfg: Config{Trace: &trace}, change: func(e *end) { e.retries = 1 }})
		want := b.fill(0, n, 1)
		a.post(a.wr(1, verbs.WRRDMARead, b, 0, n), a.wr(2, verbs.WRRDMAWrite, b, 0, 0), a.wr(3, verbs.WRRDMARead, b, 0, 8))
		for range 20 {
			a.f.Advance()
		}
		if loss {
			a.f.Partition(b.gid, a.gid, false)
			a.f.Advance()
			a.f.Heal(b.gid, a.gid)
		}
		a.run()
		require.Equal(t, []string{"1 SUCCESS", "2 SUCCESS", "3 SUCCESS"}, a.results())
		require.Equal(t, want, a.mem)
		require.Equal(t, map[bool]int{true: 1}[loss], strings.Count(trace.String(), "retries from"))
		require.Less(t, a.f.Now(), verbs.AckTimeout(8))
	}
}

func TestTraceShowsLostPackets(t *testing.T) {
	var trace bytes.Buffer
	a, b := pair(t, setup{cfg: Config{Trace: &trace}, change: func(e *end) { e.retries = 0 }})
	b.hca.SetLink(1, false)
	a.post(a.wr(1, verbs.WRRDMAWrite, b, 0, 8))
	a.run()
	for _, want := range []string{"port 1: PORT_ERR", "lost write", "port down", "completes 1: RETRY_EXC_ERR", "enters ERR"} {
		require.Contains(t, trace.String(), want)
	}
}

// Modify refuses attributes beyond the device's limits and changes nothing.
func TestModifyAttributesOutOfRangeFails(t *testing.T) {
	a, b := bring(t, verbs.ServiceRC, verbs.StateInit)
	row, _ := verbs.FindTransition(verbs.ServiceRC, verbs.StateInit, verbs.StateRTR)
	for name, change := range map[string]func(x *verbs.QPAttr){
		"MTU":       func(x *verbs.QPAttr) { x.PathMTU = 9 },
		"no MTU":    func(x *verbs.QPAttr) { x.PathMTU = 0 },
		"reads":     func(x *verbs.QPAttr) { x.MaxDestRdAtomic = 17 },
		"timer":     func(x *verbs.QPAttr) { x.MinRNRTimer = 32 },
		"psn":       func(x *verbs.QPAttr) { x.RQPSN = 1 << 24 },
		"qpn":       func(x *verbs.QPAttr) { x.DestQPN = 1 << 24 },
		"port":      func(x *verbs.QPAttr) { x.AH.Port = 2 },
		"local":     func(x *verbs.QPAttr) { x.AH.IsGlobal = false },
		"empty GID": func(x *verbs.QPAttr) { x.AH.SGIDIndex = 5 },
		"GID":       func(x *verbs.QPAttr) { x.AH.SGIDIndex = -1 },
	} {
		attr := valid(a, b, verbs.StateRTR)
		change(attr)
		require.ErrorIs(t, a.qp.Modify(attr, verbs.AttrState|row.Required), verbs.ErrInvalid, name)
		require.Equal(t, verbs.StateInit, a.state())
	}
	for name, change := range map[string]func(x *verbs.QPAttr){
		"port":   func(x *verbs.QPAttr) { x.Port = 7 },
		"access": func(x *verbs.QPAttr) { x.Access = 1 << 20 },
		"key":    func(x *verbs.QPAttr) { x.PKeyIndex = 100 },
	} {
		attr := valid(a, b, verbs.StateInit)
		change(attr)
		mask := verbs.AttrState | verbs.AttrPort | verbs.AttrAccessFlags | verbs.AttrPKeyIndex
		require.ErrorIs(t, a.qp.Modify(attr, mask), verbs.ErrInvalid, name)
	}
	a.toRTR(b)
	row, _ = verbs.FindTransition(verbs.ServiceRC, verbs.StateRTR, verbs.StateRTS)
	for name, change := range map[string]func(x *verbs.QPAttr){
		"timeout": func(x *verbs.QPAttr) { x.Timeout = 32 },
		"retries": func(x *verbs.QPAttr) { x.RetryCnt = 8 },
		"rnr":     func(x *verbs.QPAttr) { x.RNRRetry = 8 },
		"reads":   func(x *verbs.QPAttr) { x.MaxRdAtomic = 17 },
		"psn":     func(x *verbs.QPAttr) { x.SQPSN = 1 << 24 },
	} {
		attr := valid(a, b, verbs.StateRTS)
		change(attr)
		require.ErrorIs(t, a.qp.Modify(attr, verbs.AttrState|row.Required), verbs.ErrInvalid, name)
	}
}

func TestCreateObjectsOutOfRangeFails(t *testing.T) {
	a, b := pair(t, setup{device: DeviceConfig{MaxQP: 1, MaxCQ: 1, MaxPD: 1, MaxSRQ: 1, MaxQPWR: 100, MaxCQE: 10, MaxSRQWR: 10}, cqe: 10})
	_, err := a.dev.AllocPD()
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	_, err = a.dev.CreateCQ(10, nil)
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	for _, n := range []int{-1, 0, 11} {
		_, err = a.dev.CreateCQ(n, nil)
		require.ErrorIs(t, err, verbs.ErrInvalid)
	}
	_, err = a.dev.CreateCQ(1, b.ch)
	require.ErrorIs(t, err, verbs.ErrInvalid, "the channel belongs to another device")
	require.GreaterOrEqual(t, a.cq.Entries(), 10)
	init := verbs.QPInit{Service: verbs.ServiceRC, SendCQ: a.cq, RecvCQ: a.cq}
	_, err = a.pd.CreateQP(init)
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	for _, c := range []verbs.QPCap{{MaxSendWR: 101}, {MaxRecvWR: -1}, {MaxSendSGE: 5}, {MaxRecvSGE: 5}, {MaxInlineData: 257}} {
		init.Cap = c
		_, err = a.pd.CreateQP(init)
		require.ErrorIs(t, err, verbs.ErrInvalid)
	}
	init.Cap = verbs.QPCap{MaxSendWR: 100, MaxRecvWR: 65}
	require.NoError(t, a.qp.Destroy())
	a.qp, err = a.pd.CreateQP(init)
	require.NoError(t, err)
	require.Equal(t, 100, a.qp.Cap().MaxSendWR, "rounded up, but not beyond the device's limit")
	require.GreaterOrEqual(t, a.qp.Cap().MaxRecvWR, 65)
	a.toInit()
	n, err := a.qp.PostRecv(make([]verbs.RecvWR, 300))
	require.Equal(t, a.qp.Cap().MaxRecvWR, n)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	var call *verbs.CallError
	require.True(t, errors.As(err, &call))
	require.Equal(t, syscall.ENOMEM, call.Errno)
	for _, init := range []verbs.QPInit{
		{Service: verbs.ServiceRC, SendCQ: a.cq}, {Service: verbs.ServiceRC, SendCQ: a.cq, RecvCQ: b.cq}, {Service: 8, SendCQ: a.cq, RecvCQ: a.cq},
	} {
		_, err = a.pd.CreateQP(init)
		require.ErrorIs(t, err, verbs.ErrInvalid)
	}
	for _, init := range []verbs.SRQInit{{}, {MaxWR: 11}, {MaxWR: 1, MaxSGE: 5}, {MaxWR: 1, Limit: 2}} {
		_, err = a.pd.CreateSRQ(init)
		require.ErrorIs(t, err, verbs.ErrInvalid)
	}
	s, err := a.pd.CreateSRQ(verbs.SRQInit{MaxWR: 4, MaxSGE: 1})
	require.NoError(t, err)
	_, err = s.PostRecv([]verbs.RecvWR{{NumSGE: 2}})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorIs(t, s.SetLimit(9), verbs.ErrInvalid)
}

func TestQueryReturnsConfiguration(t *testing.T) {
	a, b := pair(t, setup{device: DeviceConfig{Name: "card", Ports: 2}})
	attr, err := a.dev.Query()
	require.NoError(t, err)
	require.Equal(t, 2, attr.Ports)
	require.True(t, attr.Atomics)
	require.Equal(t, "card", a.dev.Name())
	key, err := a.dev.PKey(1, 0)
	require.NoError(t, err)
	require.Equal(t, uint16(0xffff), key)
	_, err = a.dev.PKey(1, 99)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = a.dev.QueryPort(3)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	q, err := a.qp.Query()
	require.NoError(t, err)
	require.Equal(t, b.qp.Num(), q.DestQPN)
	require.Equal(t, a.qp.Cap(), q.Cap)
	seen := map[verbs.GID]bool{}
	for _, e := range []*end{a, b} {
		for port := 1; port <= 2; port++ {
			gids, err := e.dev.GIDs(port)
			require.NoError(t, err)
			require.Len(t, gids, 2)
			for _, g := range gids {
				require.False(t, seen[g.GID])
				seen[g.GID] = true
			}
		}
	}
	require.Nil(t, a.hcaNode().HCA("none"))
}

// Raise applies an event to all objects of its kind and calls the function given to Notify.
func TestRaiseAffectsAllObjects(t *testing.T) {
	a, _ := pair(t, setup{})
	notified := 0
	a.dev.Notify(func() { notified++ })
	second, err := a.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceUD, SendCQ: a.cq, RecvCQ: a.cq})
	require.NoError(t, err)
	a.hca.Raise(verbs.EventPathMig, 0)
	require.Equal(t, []verbs.EventType{verbs.EventPathMig, verbs.EventPathMig}, a.events())
	require.Equal(t, 2, notified)
	require.True(t, a.hca.BreakRecvCQ(a.qp.Num()))
	require.Equal(t, []verbs.EventType{verbs.EventCQErr, verbs.EventQPFatal, verbs.EventQPFatal}, a.events())
	late, err := a.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceUD, SendCQ: a.cq, RecvCQ: a.cq})
	require.NoError(t, err)
	require.Equal(t, []verbs.EventType{verbs.EventQPFatal}, a.events())
	require.NoError(t, late.Destroy())
	require.NoError(t, second.Destroy())
	require.False(t, a.hca.BreakSRQ(a.qp.Num()))
	require.False(t, a.hca.RaiseQP(12345, verbs.EventQPFatal))
	a.hca.SetLink(1, false)
	notified = 0
	a.dev.Notify(nil)
	a.hca.SetLink(1, true)
	require.Zero(t, notified)
	a.dev.Notify(func() { notified++ })
	require.Equal(t, 1, notified, "events are queued")
}

// Requests on a closed fabric complete with an error, and no packets arrive.
func TestRequestsOnClosedFabricFail(t *testing.T) {
	a, b := pair(t, setup{real: true, cfg: Config{Latency: time.Hour}, change: func(e *end) { e.timeout, e.retries = 1, 0 }})
	b.recv(9, 0, 8)
	a.post(a.wr(1, verbs.WRSend, b, 0, 8))
	a.f.Close()
	a.post(a.wr(2, verbs.WRSend, b, 0, 8))
	require.Eventually(t, func() bool { return len(a.poll()) > 0 }, 10*time.Second, time.Millisecond)
	a.close()
	b.close()
}

// A port that requires a global route refuses address handles without one.
func TestLocalRouteOnGRHRequiredPortFails(t *testing.T) {
	a, _ := pair(t, setup{device: DeviceConfig{Link: verbs.LinkInfiniBand, GRHRequired: true}, idle: true})
	port, err := a.dev.QueryPort(1)
	require.NoError(t, err)
	require.True(t, port.GRHRequired)
	path := verbs.AHAttr{Port: 1, DLID: port.LID}
	_, err = a.pd.CreateAH(path)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	path.IsGlobal, path.DGID = true, a.gid
	ah, err := a.pd.CreateAH(path)
	require.NoError(t, err)
	require.NoError(t, ah.Destroy())
}

// Packets that exceed the reduced MTU of a port at either end are lost.
func TestPacketsAbovePortMTUAreLost(t *testing.T) {
	for _, own := range []bool{true, false} {
		a, b := pair(t, setup{memory: 4000, change: func(e *end) { e.mtu = verbs.MTU4096 }})
		short := b
		if own {
			short = a
		}
		short.hca.SetMTU(1, verbs.MTU1024)
		port, err := short.dev.QueryPort(1)
		require.NoError(t, err)
		require.Equal(t, []verbs.MTU{verbs.MTU1024, verbs.MTU4096}, []verbs.MTU{port.ActiveMTU, port.MaxMTU})
		a.post(a.wr(1, verbs.WRRDMAWrite, b, 0, 1000))
		a.run()
		require.Equal(t, []string{"1 SUCCESS"}, a.results())
		a.post(a.wr(2, verbs.WRRDMAWrite, b, 0, 4000))
		a.run()
		require.Equal(t, []string{"2 RETRY_EXC_ERR"}, a.results())
	}
}
