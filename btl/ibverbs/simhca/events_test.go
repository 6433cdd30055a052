package simhca

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// open opens another context of the end's device.
func (e *end) open() verbs.Device {
	dev, err := e.hcaNode().Open(e.dev.Name())
	require.NoError(e.t, err)
	return dev
}

func (e *end) hcaNode() *Node {
	for _, n := range e.f.nodes {
		for _, h := range n.hcas {
			if h == e.hca {
				return n
			}
		}
	}
	return nil
}

// TestEventsMatchTable checks for each event which contexts get it, with which object, and the
// state of the queue pair after it.
func TestEventsMatchTable(t *testing.T) {
	for _, info := range verbs.EventTypes() {
		t.Run(info.Type.String(), func(t *testing.T) {
			a, b := pair(t, setup{srq: true})
			other := a.open()
			require.NoError(t, a.srq.SetLimit(1))
			switch info.Affiliation {
			case verbs.AffiliationPort, verbs.AffiliationDevice:
				if info.Type == verbs.EventPortActive {
					a.hca.SetLink(1, false)
					a.events()
					_, ok, err := other.NextEvent()
					require.NoError(t, err)
					require.True(t, ok)
				}
				a.hca.Raise(info.Type, 1)
			case verbs.AffiliationCQ:
				require.True(t, a.hca.BreakCQ(a.qp.Num()))
			case verbs.AffiliationSRQ:
				if info.Type == verbs.EventSRQErr {
					require.True(t, a.hca.BreakSRQ(a.qp.Num()))
				} else {
					require.True(t, a.hca.RaiseQP(a.qp.Num(), info.Type))
				}
			default:
				require.True(t, a.hca.RaiseQP(a.qp.Num(), info.Type))
			}
			ev, ok, err := a.dev.NextEvent()
			require.NoError(t, err)
			require.True(t, ok)
			a.dev.AckEvent(ev)
			want := verbs.AsyncEvent{Type: info.Type}
			switch info.Affiliation {
			case verbs.AffiliationQP:
				want.QP = a.qp
			case verbs.AffiliationCQ:
				want.CQ = a.cq
			case verbs.AffiliationSRQ:
				want.SRQ = a.srq
			case verbs.AffiliationPort:
				want.Port = 1
			}
			require.Equal(t, want, ev)
			ev, ok, err = other.NextEvent()
			require.NoError(t, err)
			unaffiliated := info.Affiliation == verbs.AffiliationPort || info.Affiliation == verbs.AffiliationDevice
			require.Equal(t, unaffiliated, ok, "whether other contexts get the event")
			if ok {
				require.Equal(t, info.Type, ev.Type)
			}
			switch info.Type {
			case verbs.EventDeviceFatal:
				_, err := a.qp.Query()
				require.ErrorIs(t, err, verbs.ErrGone)
			case verbs.EventQPFatal, verbs.EventCQErr, verbs.EventSRQErr:
				require.Equal(t, verbs.StateErr, a.state())
			case verbs.EventQPReqErr, verbs.EventQPAccessErr:
				require.Equal(t, verbs.StateErr, a.state())
				require.Equal(t, []verbs.EventType{verbs.EventQPLastWQEReached}, a.events())
			default:
				require.Equal(t, verbs.StateRTS, a.state())
			}
			if info.Type == verbs.EventCQErr || info.Type == verbs.EventSRQErr {
				require.Equal(t, []verbs.EventType{verbs.EventQPFatal}, a.events())
			}
			require.Empty(t, b.events())
		})
	}
}

func TestCQOverrunFailsQueuePairs(t *testing.T) {
	a, b := pair(t, setup{cqe: 4, cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16}})
	second, err := a.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: a.cq, RecvCQ: a.cq, Cap: a.qp.Cap()})
	require.NoError(t, err)
	for i := range 4 {
		a.post(a.wr(uint64(i), verbs.WRRDMAWrite, b, 0, 8))
	}
	a.run()
	require.Empty(t, a.events())
	a.post(a.wr(4, verbs.WRRDMAWrite, b, 0, 8))
	a.run()
	var got []verbs.AsyncEvent
	for {
		ev, ok, err := a.dev.NextEvent()
		require.NoError(t, err)
		if !ok {
			break
		}
		got = append(got, ev)
	}
	require.Equal(t, []verbs.AsyncEvent{
		{Type: verbs.EventCQErr, CQ: a.cq}, {Type: verbs.EventQPFatal, QP: a.qp}, {Type: verbs.EventQPFatal, QP: second},
	}, got)
	_, err = a.cq.Poll(make([]verbs.WC, 1))
	require.ErrorIs(t, err, verbs.ErrGone)
	require.ErrorIs(t, a.cq.ReqNotify(false), verbs.ErrGone)
	require.ErrorIs(t, second.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState), verbs.ErrGone)
	// An object with unacknowledged events cannot be destroyed.
	require.ErrorIs(t, a.qp.Destroy(), verbs.ErrBusy)
	for _, ev := range got {
		a.dev.AckEvent(ev)
	}
	require.ErrorIs(t, a.cq.Destroy(), verbs.ErrBusy)
	require.NoError(t, a.qp.Destroy())
	require.NoError(t, second.Destroy())
	require.NoError(t, a.cq.Destroy())
	// The peer gets no acknowledgment.
	b.post(b.wr(1, verbs.WRRDMAWrite, a, 0, 8))
	b.run()
	require.Equal(t, []string{"1 RETRY_EXC_ERR"}, b.results())
}

func TestCallsAfterDeviceFatalFail(t *testing.T) {
	a, b := pair(t, setup{srq: true})
	a.recv(1, 0, 8)
	a.post(a.wr(2, verbs.WRRDMAWrite, b, 0, 8))
	a.hca.Raise(verbs.EventDeviceFatal, 0)
	a.run()
	require.Equal(t, []verbs.EventType{verbs.EventDeviceFatal}, a.events())
	gone := func(_ any, err error) { t.Helper(); require.ErrorIs(t, err, verbs.ErrGone) }
	gone(a.cq.Poll(make([]verbs.WC, 1)))
	gone(a.qp.PostSend([]verbs.SendWR{a.wr(3, verbs.WRRDMAWrite, b, 0, 8)}))
	gone(a.srq.PostRecv([]verbs.RecvWR{{}}))
	gone(nil, a.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	gone(a.dev.QueryPort(1))
	gone(a.dev.Query())
	gone(a.dev.AllocPD())
	gone(a.dev.CreateCQ(1, nil))
	gone(a.pd.RegMR(make([]byte, 1), 0))
	names, err := a.hcaNode().Devices()
	require.NoError(t, err)
	require.Empty(t, names)
	_, err = a.hcaNode().Open("sim0")
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	a.close()
	a.hca.Revive()
	dev, err := a.hcaNode().Open("sim0")
	require.NoError(t, err)
	_, err = dev.QueryPort(1)
	require.NoError(t, err)
	require.NoError(t, dev.Close())
	require.Equal(t, verbs.StateRTS, b.state())
}

// close destroys all objects of the end.
func (e *end) close() {
	e.t.Helper()
	if e.qp != nil {
		require.NoError(e.t, e.qp.Destroy())
	}
	if e.ah != nil {
		require.NoError(e.t, e.ah.Destroy())
	}
	if e.srq != nil {
		require.NoError(e.t, e.srq.Destroy())
	}
	require.NoError(e.t, e.mr.Dereg())
	require.NoError(e.t, e.cq.Destroy())
	require.NoError(e.t, e.ch.Destroy())
	require.NoError(e.t, e.pd.Dealloc())
	require.NoError(e.t, e.dev.Close())
}

func TestDestroyObjectInUseFails(t *testing.T) {
	a, _ := pair(t, setup{srq: true})
	for _, destroy := range []func() error{a.dev.Close, a.pd.Dealloc, a.cq.Destroy, a.srq.Destroy, a.ch.Destroy} {
		require.ErrorIs(t, destroy(), verbs.ErrBusy)
	}
	require.NoError(t, a.cq.ReqNotify(false))
	a.modify(verbs.StateErr) // raises LAST_WQE_REACHED, which stays in the queue
	a.close()
	require.ErrorIs(t, a.qp.Destroy(), verbs.ErrGone)
	require.ErrorIs(t, a.mr.Dereg(), verbs.ErrGone)
	require.ErrorIs(t, a.dev.Close(), verbs.ErrGone)
}

func TestPortDownLosesPackets(t *testing.T) {
	a, b := pair(t, setup{})
	a.hca.SetLink(1, false)
	p, err := a.dev.QueryPort(1)
	require.NoError(t, err)
	require.Equal(t, verbs.PortDown, p.State)
	a.post(a.wr(1, verbs.WRRDMAWrite, b, 0, 8))
	a.runFor(2 * verbs.AckTimeout(8))
	require.Empty(t, a.poll())
	require.Equal(t, verbs.StateRTS, a.state())
	a.hca.SetLink(1, true)
	a.hca.SetLink(1, true) // no change, no event
	a.run()
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	require.Equal(t, []verbs.EventType{verbs.EventPortErr, verbs.EventPortActive}, a.events())
	// The port of the peer.
	b.hca.SetLink(1, false)
	a.post(a.wr(2, verbs.WRRDMAWrite, b, 0, 8))
	a.run()
	require.Equal(t, []string{"2 RETRY_EXC_ERR"}, a.results())
	require.Empty(t, a.events())
}

// A changed GID raises GID_CHANGE; packets in both directions are lost.
func TestGIDChangeLosesPackets(t *testing.T) {
	a, b := pair(t, setup{})
	gid := a.gid
	gid[15] = 99
	a.hca.ChangeGID(1, 1, gid)
	require.Equal(t, []verbs.EventType{verbs.EventGIDChange}, a.events())
	gids, err := a.dev.GIDs(1)
	require.NoError(t, err)
	require.Equal(t, gid, gids[1].GID)
	a.post(a.wr(1, verbs.WRRDMAWrite, b, 0, 8))
	b.post(b.wr(2, verbs.WRRDMAWrite, a, 0, 8))
	a.run()
	require.Equal(t, []string{"1 RETRY_EXC_ERR"}, a.results())
	require.Equal(t, []string{"2 RETRY_EXC_ERR"}, b.results())
	require.Empty(t, a.poll())
}

func TestPartitionLosesPackets(t *testing.T) {
	for _, both := range []bool{false, true} {
		a, b := pair(t, setup{})
		require.True(t, a.f.Partition(a.gid, b.gid, both))
		require.False(t, a.f.Partition(a.gid, verbs.GID{1}, both))
		a.post(a.wr(1, verbs.WRRDMAWrite, b, 0, 8))
		a.runFor(verbs.AckTimeout(8))
		require.Empty(t, a.poll())
		a.f.Heal(b.gid, a.gid)
		a.run()
		require.Equal(t, []string{"1 SUCCESS"}, a.results())
		a.f.Partition(b.gid, a.gid, both)
		b.recv(9, 0, 8)
		a.post(a.wr(2, verbs.WRSend, b, 0, 8))
		a.run()
		require.Equal(t, []string{"2 RETRY_EXC_ERR"}, a.results())
		if both {
			require.Empty(t, b.results())
		} else {
			require.Equal(t, []string{"9 SUCCESS"}, b.results(), "the sender gets an error, the receiver gets the message")
		}
		require.Equal(t, verbs.StateRTS, b.state())
		require.Empty(t, a.events())
	}
}

func TestReqNotifyRaisesOneEvent(t *testing.T) {
	a, b := pair(t, setup{})
	notified := 0
	b.ch.Notify(func() { notified++ })
	next := func() bool {
		cq, ok, err := b.ch.NextEvent()
		require.NoError(t, err)
		if ok {
			require.Equal(t, b.cq, cq)
			cq.AckEvents(1)
		}
		return ok
	}
	send := func(flags verbs.SendFlags) {
		b.recv(1, 0, 100)
		wr := a.wr(1, verbs.WRSend, b, 0, 8)
		wr.Flags |= flags
		a.post(wr)
		a.run()
	}
	send(0)
	require.False(t, next(), "not armed")
	require.NoError(t, b.cq.ReqNotify(false))
	require.False(t, next(), "completions before arming raise no event")
	send(0)
	require.True(t, next())
	send(0)
	require.False(t, next(), "one event only")
	require.NoError(t, b.cq.ReqNotify(true))
	send(0)
	require.False(t, next(), "not solicited")
	send(verbs.SendSolicited)
	require.True(t, next())
	require.NoError(t, b.cq.ReqNotify(true))
	b.recv(2, 0, 8)
	b.modify(verbs.StateErr)
	require.True(t, next(), "failed completions count as solicited")
	require.Equal(t, 3, notified)
	require.NoError(t, b.cq.ReqNotify(false))
	b.recv(3, 0, 8)
	_, ok, err := b.ch.NextEvent()
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, b.qp.Destroy())
	require.ErrorIs(t, b.cq.Destroy(), verbs.ErrBusy, "an event is unacknowledged")
	b.cq.AckEvents(1)
	require.NoError(t, b.cq.Destroy())
}

func TestSRQLimitAndLastWQE(t *testing.T) {
	a, b := pair(t, setup{srq: true})
	require.NoError(t, b.srq.SetLimit(2))
	for i := range 3 {
		b.recv(uint64(i), 0, 100)
	}
	_, err := b.qp.PostRecv([]verbs.RecvWR{{}})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	send := func() { a.post(a.wr(1, verbs.WRSend, b, 0, 8)); a.run() }
	send()
	require.Empty(t, b.events())
	send()
	require.Equal(t, []verbs.EventType{verbs.EventSRQLimitReached}, b.events())
	b.recv(3, 0, 100)
	send()
	send()
	require.Empty(t, b.events(), "the event is raised once")
	require.Equal(t, []string{"0 SUCCESS", "1 SUCCESS", "2 SUCCESS", "3 SUCCESS"}, b.results())
	b.recv(4, 0, 100)
	b.modify(verbs.StateErr)
	require.Equal(t, []verbs.EventType{verbs.EventQPLastWQEReached}, b.events())
	require.Empty(t, b.results(), "receives of the shared queue stay there")
	b.modify(verbs.StateReset)
	a.modify(verbs.StateReset)
	connect(t, a, b)
	send()
	require.Equal(t, []string{"4 SUCCESS"}, b.results())
	// QP_FATAL raises no LAST_WQE_REACHED.
	b.hca.RaiseQP(b.qp.Num(), verbs.EventQPFatal)
	require.Equal(t, []verbs.EventType{verbs.EventQPFatal}, b.events())
}

func TestPostToFullSRQFails(t *testing.T) {
	a, b := pair(t, setup{srq: true})
	for i := range 64 {
		b.recv(uint64(i), 0, 100)
	}
	n, err := b.srq.PostRecv([]verbs.RecvWR{{}})
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Zero(t, n)
	a.post(a.wr(1, verbs.WRSend, b, 0, 8))
	a.run()
	_, err = b.srq.PostRecv([]verbs.RecvWR{{}})
	require.ErrorIs(t, err, verbs.ErrQueueFull, "the completion was not polled")
	b.poll()
	_, err = b.srq.PostRecv([]verbs.RecvWR{{}})
	require.NoError(t, err)
}
