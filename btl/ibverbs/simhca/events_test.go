package simhca

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

func TestCallsOnFailedCQFail(t *testing.T) {
	a, b := pair(t, setup{})
	second, err := a.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: a.cq, RecvCQ: a.cq, Cap: a.qp.Cap()})
	require.NoError(t, err)
	require.True(t, a.hca.BreakCQ(a.qp.Num()))
	var got [3]verbs.AsyncEvent
	for i := range got {
		var ok bool
		got[i], ok, err = a.dev.NextEvent()
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.Equal(t, [3]verbs.AsyncEvent{
		{Type: verbs.EventCQErr, CQ: a.cq}, {Type: verbs.EventQPFatal, QP: a.qp}, {Type: verbs.EventQPFatal, QP: second},
	}, got)
	_, err = a.cq.Poll(make([]verbs.WC, 1))
	require.ErrorIs(t, err, verbs.ErrGone)
	require.ErrorIs(t, a.cq.ReqNotify(false), verbs.ErrGone)
	require.ErrorIs(t, second.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState), verbs.ErrGone)
	require.ErrorIs(t, a.qp.Destroy(), verbs.ErrBusy, "an event is unacknowledged")
	a.dev.AckEvent(got[1])
	a.dev.AckEvent(got[2])
	require.NoError(t, a.qp.Destroy())
	require.NoError(t, second.Destroy())
	require.ErrorIs(t, a.cq.Destroy(), verbs.ErrBusy, "an event is unacknowledged")
	a.dev.AckEvent(got[0])
	require.NoError(t, a.cq.Destroy())
	// The peer gets no acknowledgment.
	b.exec(b.wr(1, verbs.WRRDMAWrite, a, 0, 8))
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
	names, err := a.node.Devices()
	require.NoError(t, err)
	require.Empty(t, names)
	_, err = a.node.Open("sim0")
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	a.close()
	a.hca.Revive()
	dev, err := a.node.Open("sim0")
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
	a.exec(a.wr(2, verbs.WRRDMAWrite, b, 0, 8))
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
		a.exec(a.wr(2, verbs.WRSend, b, 0, 8))
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

func TestPostToFullSRQFails(t *testing.T) {
	a, b := pair(t, setup{srq: true})
	post := func() error {
		_, err := b.srq.PostRecv([]verbs.RecvWR{{NumSGE: 1, SGE: [4]verbs.SGE{b.sge(0, 100)}}})
		return err
	}
	for range 64 {
		require.NoError(t, post())
	}
	require.ErrorIs(t, post(), verbs.ErrQueueFull)
	a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
	require.ErrorIs(t, post(), verbs.ErrQueueFull, "the completion was not polled")
	b.poll()
	require.NoError(t, post())
	a.exec(a.wr(2, verbs.WRSend, b, 0, 8))
	require.ErrorIs(t, post(), verbs.ErrQueueFull, "the completion was not polled")
	b.modify(verbs.StateReset) // drops the completion
	require.NoError(t, post())
}

// Without PORT_ACTIVE_EVENT, a port changes its state silently. Its other events come.
func TestPortWithoutEventsChangesSilently(t *testing.T) {
	a, _ := pair(t, setup{device: DeviceConfig{NoPortEvents: true}})
	attr, err := a.dev.Query()
	require.NoError(t, err)
	require.False(t, attr.PortEvents)
	for _, up := range []bool{false, true} {
		a.hca.SetLink(1, up)
		require.Empty(t, a.events())
		require.Equal(t, up, a.port().State.Up())
	}
	a.hca.Raise(verbs.EventSMChange, 1)
	require.Equal(t, []verbs.EventType{verbs.EventSMChange}, a.events())
}
