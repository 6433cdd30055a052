package simhca

import (
	"bytes"
	"strings"
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
			a.exec(a.wr(1, verbs.WRSend, b, 0, n), a.wr(2, verbs.WRRDMAWrite, b, 0, n))
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
		a.exec(a.wr(5, verbs.WRSend, b, 0, 0))
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
	flushed, event := []string{"9 WR_FLUSH_ERR"}, []verbs.EventType{verbs.EventQPAccessErr}
	for _, c := range []struct {
		op      verbs.Opcode
		atPeer  bool
		status  string
		results []string // of the peer
		events  []verbs.EventType
	}{
		{verbs.WRSend, false, "LOC_PROT_ERR", nil, nil},
		{verbs.WRSend, true, "REM_OP_ERR", []string{"9 LOC_PROT_ERR"}, nil},
		{verbs.WRRDMARead, true, "REM_ACCESS_ERR", flushed, event},
		{verbs.WRRDMARead, false, "LOC_PROT_ERR", nil, nil},
		{verbs.WRRDMAWriteWithImm, true, "REM_ACCESS_ERR", flushed, event},
	} {
		a, b := pair(t, setup{memory: n})
		b.recv(9, 0, n)
		a.post(a.wr(1, c.op, b, 0, n), a.wr(2, verbs.WRRDMAWrite, b, 0, 8))
		a.advance(30)
		if c.atPeer {
			require.NoError(t, b.mr.Dereg())
		} else {
			require.NoError(t, a.mr.Dereg())
		}
		a.run()
		require.Equal(t, []string{"1 " + c.status, "2 WR_FLUSH_ERR"}, a.results())
		require.Equal(t, c.results, b.results())
		require.Equal(t, c.events, b.events())
		require.Equal(t, c.atPeer, b.state() == verbs.StateErr)
	}
}

// The complete response to a long read comes before the NAK of a later request.
func TestNAKComesAfterReadResponse(t *testing.T) {
	const n = 300_000
	a, b := pair(t, setup{memory: n})
	want := b.fill(0, n, 1)
	bad := a.wr(2, verbs.WRRDMAWrite, b, 0, 8)
	bad.RKey += 2
	a.exec(a.wr(1, verbs.WRRDMARead, b, 0, n), bad)
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
	a.exec(a.wr(2, verbs.WRRDMAWrite, b, 100, 8))
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
		a.advance(20)
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
	a.exec(a.wr(1, verbs.WRRDMAWrite, b, 0, 8))
	for _, want := range []string{"port 1: PORT_ERR", "lost write", "port down", "completes 1: RETRY_EXC_ERR", "enters ERR"} {
		require.Contains(t, trace.String(), want)
	}
}

// Modify refuses attributes beyond the device's limits and changes nothing.
func TestModifyAttributesOutOfRangeFails(t *testing.T) {
	a, b := pair(t, setup{idle: true})
	for _, c := range []struct {
		to      verbs.QPState
		changes map[string]func(x *verbs.QPAttr)
	}{
		{verbs.StateInit, map[string]func(x *verbs.QPAttr){
			"port":   func(x *verbs.QPAttr) { x.Port = 7 },
			"access": func(x *verbs.QPAttr) { x.Access = 1 << 20 },
			"key":    func(x *verbs.QPAttr) { x.PKeyIndex = 100 },
		}},
		{verbs.StateRTR, map[string]func(x *verbs.QPAttr){
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
		}},
		{verbs.StateRTS, map[string]func(x *verbs.QPAttr){
			"timeout": func(x *verbs.QPAttr) { x.Timeout = 32 },
			"retries": func(x *verbs.QPAttr) { x.RetryCnt = 8 },
			"rnr":     func(x *verbs.QPAttr) { x.RNRRetry = 8 },
			"reads":   func(x *verbs.QPAttr) { x.MaxRdAtomic = 17 },
			"psn":     func(x *verbs.QPAttr) { x.SQPSN = 1 << 24 },
		}},
	} {
		row, _ := verbs.FindTransition(verbs.ServiceRC, c.to-1, c.to)
		valid := verbs.QPAttr{
			State: c.to, Port: 1, PathMTU: verbs.MTU1024, DestQPN: b.qp.Num(), AH: a.pathTo(b),
			MaxRdAtomic: 1, MaxDestRdAtomic: 1, Timeout: 8, RetryCnt: 1, RNRRetry: 1,
		}
		for name, change := range c.changes {
			attr := valid
			change(&attr)
			err := a.qp.Modify(&attr, verbs.AttrState|row.Required)
			require.ErrorIs(t, err, verbs.ErrInvalid, name)
			require.Equal(t, c.to-1, a.state())
		}
		require.NoError(t, a.qp.Modify(&valid, verbs.AttrState|row.Required))
	}
}

func TestCreateObjectsOutOfRangeFails(t *testing.T) {
	a, b := pair(t, setup{device: DeviceConfig{MaxQPWR: 100}})
	invalid := func(_ any, err error) { t.Helper(); require.ErrorIs(t, err, verbs.ErrInvalid) }
	invalid(a.dev.CreateCQ(1, b.ch)) // the channel belongs to another device
	init := verbs.QPInit{Service: verbs.ServiceRC, SendCQ: a.cq, RecvCQ: a.cq}
	for _, init.Cap = range []verbs.QPCap{{MaxRecvWR: -1}, {MaxSendSGE: 5}, {MaxRecvSGE: 5}, {MaxInlineData: 257}} {
		invalid(a.pd.CreateQP(init))
	}
	init.Cap = verbs.QPCap{MaxSendWR: 100, MaxRecvWR: 65}
	q, err := a.pd.CreateQP(init)
	require.NoError(t, err)
	require.Equal(t, 100, q.Cap().MaxSendWR, "rounded up, but not beyond the device's limit")
	invalid(a.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: a.cq}))
	invalid(a.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: a.cq, RecvCQ: b.cq}))
	invalid(a.pd.CreateQP(verbs.QPInit{Service: 8, SendCQ: a.cq, RecvCQ: a.cq}))
	for _, init := range []verbs.SRQInit{{}, {MaxWR: maxSRQWR + 1}, {MaxWR: 1, MaxSGE: 5}, {MaxWR: 1, Limit: 2}} {
		invalid(a.pd.CreateSRQ(init))
	}
	s, err := a.pd.CreateSRQ(verbs.SRQInit{MaxWR: 4, MaxSGE: 1})
	require.NoError(t, err)
	invalid(s.PostRecv([]verbs.RecvWR{{NumSGE: 2}}))
	invalid(nil, s.SetLimit(9))
	invalid(b.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: s}))
	// Objects of another protection domain.
	pd, err := a.dev.AllocPD()
	require.NoError(t, err)
	init.SRQ = s
	invalid(pd.CreateQP(init))
}

func TestPortsHaveDifferentGIDs(t *testing.T) {
	a, b := pair(t, setup{device: DeviceConfig{Ports: 2}})
	seen := map[verbs.GID]bool{}
	for _, e := range []*end{a, b} {
		for port := 1; port <= 2; port++ {
			gids, err := e.dev.GIDs(port)
			require.NoError(t, err)
			for _, g := range gids {
				seen[g.GID] = true
			}
		}
	}
	require.Len(t, seen, 8)
	require.Nil(t, a.node.HCA("none"))
}

// Notify's function is called for each event, and for events that are queued when it is set.
func TestNotifyIsCalledForEachEvent(t *testing.T) {
	a, _ := pair(t, setup{})
	notified := 0
	a.dev.Notify(func() { notified++ })
	second, err := a.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceUD, SendCQ: a.cq, RecvCQ: a.cq})
	require.NoError(t, err)
	require.True(t, a.hca.BreakRecvCQ(a.qp.Num()))
	require.Equal(t, []verbs.EventType{verbs.EventCQErr, verbs.EventQPFatal, verbs.EventQPFatal}, a.events())
	require.Equal(t, 3, notified)
	late, err := a.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceUD, SendCQ: a.cq, RecvCQ: a.cq})
	require.NoError(t, err)
	require.Equal(t, []verbs.EventType{verbs.EventQPFatal}, a.events())
	require.NoError(t, late.Destroy())
	require.NoError(t, second.Destroy())
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
		a.exec(a.wr(1, verbs.WRRDMAWrite, b, 0, 1000))
		require.Equal(t, []string{"1 SUCCESS"}, a.results())
		a.exec(a.wr(2, verbs.WRRDMAWrite, b, 0, 4000))
		require.Equal(t, []string{"2 RETRY_EXC_ERR"}, a.results())
	}
}
