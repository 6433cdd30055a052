package ibverbs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
)

// deliver lets so much happen on the network that what was posted is over, while no rank looks.
func (w *world) deliver() {
	for range 50 {
		w.f.Advance()
	}
}

// TestEarlySendsWithoutBuffers: sends from before the connection go out when there are buffers
// again, though nothing else happens on it.
func TestEarlySendsWithoutBuffers(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.ranks[0], w.ranks[1]
	a.connect()
	require.NoError(t, a.send(strings.Repeat("x", 1000)))
	free := a.end().withoutBuffers()
	w.until("a connection", func() bool { return a.end().phase == phaseReady })
	w.turns(50)
	require.Empty(t, b.arrived)
	free()
	w.until("the fragment", func() bool { return len(b.arrived) == 1 })
	w.until("its completion", func() bool { return a.under == 0 })
	require.NoError(t, a.send("and what comes later"))
	w.until("the next", func() bool { return len(b.arrived) == 2 })
}

// TestEarlySendsAndThePort: likewise when the port is back.
func TestEarlySendsAndThePort(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.ranks[0], w.ranks[1]
	a.connect()
	require.NoError(t, a.send("early"))
	w.deliver()
	for range 2 * lookEvery {
		b.m.Progress()
	}
	w.deliver() // the answer is in a's queue
	a.hca.SetLink(1, false)
	for range 2 * lookEvery {
		a.m.Progress()
	}
	require.Equal(t, phaseReady, a.end().phase)
	a.hca.SetLink(1, true)
	w.until("the fragment", func() bool { return len(b.arrived) == 1 })
	require.Empty(t, a.failed)
}

// TestDeadlineAfterAbsence: a program that did not call for long has not waited for anything.
func TestDeadlineAfterAbsence(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a := w.ranks[0]
	*w.clock.extra += int64(11 * time.Second)
	require.NoError(t, a.send("after a long time"))
	for range 2 * lookEvery {
		a.m.Progress()
	}
	require.Empty(t, a.failed, "posted just now")
	*w.clock.extra += int64(11 * time.Second)
	for range 2 * lookEvery {
		a.m.Progress()
	}
	require.Empty(t, a.failed, "nobody looked meanwhile")
	w.until("the completion", func() bool { return a.under == 0 })
	w.works()
}

// TestAnswerAfterAbsence: nor is a peer late whose answer has come, behind others, while nobody
// looked.
func TestAnswerAfterAbsence(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.ranks[0], w.ranks[1]
	a.connect()
	w.deliver()
	p := b.m.peer(0)
	p.met, p.nonce, p.address = true, a.m.me, a.m.h.address()
	for range pollBatch + 4 {
		b.m.tell(p, &message{kind: msgDOWNACK, epoch: 1})
	}
	for range 2 * lookEvery {
		b.m.Progress()
	}
	w.deliver()
	*w.clock.extra += int64(11 * time.Second)
	for range 2 * lookEvery {
		a.m.Progress()
	}
	require.Empty(t, a.failed)
	require.Equal(t, phaseReady, a.end().phase)
	b.connect()
	w.works()
}

// TestDownOfALaterIncarnation: a peer whose later incarnation has failed has none of this one any
// more.
func TestDownOfALaterIncarnation(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.turns(2 * lookEvery)
	a, b := w.ranks[0], w.ranks[1]
	free := a.m.h.free
	require.Len(t, free, udSendDepth)
	a.m.h.free = nil // nothing of what follows can be said
	a.ep.Fail(nil)
	w.until("Drained", func() bool { return a.ep.State() == btl.Drained })
	a.connect()
	a.m.h.free = free
	a.ep.Fail(nil)
	require.Len(t, a.m.unackedFailures, 2)
	// The second gets there first, and what acknowledges it ends both.
	a.m.unackedFailures = a.m.unackedFailures[1:]
	w.until("the peer to know", func() bool { return b.ep.State() == btl.Drained })
	w.mend()
}

// TestPortGraceAfterAbsence: the grace of a port begins when it is found to be down.
func TestPortGraceAfterAbsence(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a := w.ranks[0]
	a.hca.Inject(simhca.Fault{Kind: simhca.FaultSendStatus, QPN: a.end().qpn, Status: verbs.StatusWRFlushErr})
	require.NoError(t, a.send("x"))
	w.deliver()
	*w.clock.extra += int64(time.Second)
	a.hca.SetLink(1, false)
	a.m.Progress()
	a.hca.SetLink(1, true)
	w.turns(200)
	for _, err := range a.failed {
		require.Equal(t, 1, err.Peer, "%v", err)
	}
	w.mend()
}

// TestPortGraceEndsWithTheDevice: a device that is opened anew knows nothing of how the port was
// before.
func TestPortGraceEndsWithTheDevice(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a := w.ranks[0]
	a.hca.SetLink(1, false)
	for range 2 * lookEvery {
		a.m.Progress()
	}
	require.NotZero(t, a.m.downAt)
	a.hca.Raise(verbs.EventDeviceFatal, 0)
	a.fails(btl.AllPeers, btl.ClassDevice, btl.SideLocal, verbs.EventDeviceFatal.Native())
	a.hca.SetLink(1, true)
	a.hca.Revive()
	w.mend()
	*w.clock.extra += int64(time.Second)
	w.turns(200)
	require.Len(t, a.failed, 1)
}

// TestCloseHandsNothingUp: what has come, and what fails, while a module closes is nobody's news.
func TestCloseHandsNothingUp(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a, b := w.ranks[0], w.ranks[1]
	require.NoError(t, b.send("x"))
	w.deliver()
	a.ep.Fail(nil)
	arrived, failed := len(a.arrived), len(a.failed)
	require.NoError(t, a.m.Close())
	require.Len(t, a.arrived, arrived)
	require.Len(t, a.failed, failed)
}

// TestDeferredFailureComesFirst: no operation ends in an error before the endpoint is reported as
// failed, also if a failure of the endpoint was deferred already.
func TestDeferredFailureComesFirst(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a := w.ranks[0]
	a.hca.Inject(simhca.Fault{Kind: simhca.FaultSendStatus, QPN: a.end().qpn, Status: verbs.StatusRetryExcErr})
	op := a.newOp()
	a.under++
	count, told := op.Done, -1
	op.Done = func(op *btl.Op, err error) {
		told = len(a.failed)
		count(op, err)
	}
	require.NoError(t, a.ep.Send(op))
	a.end().failDeferred(a.m.NewError(1, btl.ClassPath, btl.SideNone, "", btl.ErrInjected))
	w.deliver()
	w.until("the end", func() bool { return a.under == 0 })
	require.Equal(t, 1, told)
	require.ErrorIs(t, a.failed[0], btl.ErrInjected)
}

// TestCreditsWithoutBuffers: credits that could not be given back are given back later, though the
// peer can send nothing that reminds of it.
func TestCreditsWithoutBuffers(t *testing.T) {
	w := newWorld(t, Config{RecvDepth: 8})
	w.connect()
	a, b := w.ranks[0], w.ranks[1]
	b.end().maxInline = 0 // a device that takes nothing inline
	free := b.end().withoutBuffers()
	for range 8 {
		require.NoError(t, a.send("x"))
	}
	w.until("fragments", func() bool { return len(b.arrived) == 8 && a.under == 0 })
	w.turns(50)
	require.ErrorIs(t, a.send("x"), btl.ErrResource)
	free()
	w.until("credits", func() bool { return a.end().credits >= 4 })
	w.works()
}

// TestGoodbyeByDatagram: a rank whose request for a connection is outstanding learns at once that
// the peer has closed.
func TestGoodbyeByDatagram(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.ranks[0], w.ranks[1]
	a.connect()
	w.deliver()
	for range 2 * lookEvery {
		b.m.Progress()
	}
	require.NotNil(t, b.m.peers[0].ep)
	require.NoError(t, b.m.Close())
	w.f.Advance() // the datagram, if it is on its way, comes before anything runs out of time
	for range 2 * lookEvery {
		a.m.Progress()
	}
	a.fails(1, btl.ClassClosed, btl.SideRemote, "")
}

// TestConnectToOneThatFailed: an endpoint that the peer had made, and that has failed before
// anybody here asked for it, is told of as any.
func TestConnectToOneThatFailed(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.ranks[0], w.ranks[1]
	a.connect()
	w.until("a connection", func() bool { return a.end().phase == phaseReady })
	w.turns(50)
	b.m.peers[0].ep.Fail(nil)
	require.Empty(t, b.failed, "nobody knows of it")
	b.connect()
	require.Equal(t, btl.Failed, b.ep.State())
	w.until("Drained", func() bool { return len(b.drained) == 1 })
	require.Len(t, b.failed, 1)
	w.mend()
}

// TestPutTooLong: what no message of the port can hold ends alone.
func TestPutTooLong(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a, b := w.ranks[0], w.ranks[1]
	mem := make([][]byte, 2)
	regions := make([]btl.Region, 2)
	for i, r := range []*rankOf{a, b} {
		var err error
		mem[i] = make([]byte, 2000)
		regions[i], err = r.m.Register(mem[i], btl.AccessLocal|btl.AccessRemoteWrite)
		require.NoError(t, err)
	}
	a.m.h.port.MaxMsg = 1000
	a.ended = nil
	op := a.newOp()
	a.under++
	op.Payload, op.Local, op.Remote = mem[0], regions[0], regions[1].Key()
	require.NoError(t, a.ep.(btl.Putter).Put(op))
	w.until("its end", func() bool { return len(a.ended) == 1 })
	var be *btl.Error
	require.ErrorAs(t, a.ended[0], &be)
	require.Equal(t, btl.ClassUsage, be.Class)
	w.works()
	for _, r := range regions {
		require.NoError(t, r.Release())
	}
}

// noWayPD is what the system says of addresses on no network of ours.
type noWayPD struct{ verbs.PD }

var errUnreachableNet = errors.New("network is unreachable")

func (noWayPD) CreateAH(verbs.AHAttr) (verbs.AH, error) { return nil, errUnreachableNet }

// TestNoWay: a peer to which the system knows no way is given up soon; a way that is there in time
// is taken.
func TestNoWay(t *testing.T) {
	w := newWorld(t, Config{})
	a, b := w.ranks[0], w.ranks[1]
	pd := a.m.h.pd
	a.m.h.pd = noWayPD{pd}
	a.connect()
	at := w.clock.Now()
	a.fails(1, btl.ClassPath, btl.SideLocal, "")
	require.ErrorIs(t, a.failed[0], errUnreachableNet)
	require.ErrorContains(t, a.failed[0], "from 10.1.0.1 to 10.1.0.2")
	require.InDelta(t, noWayNanos, w.clock.Now()-at, 0.5e9)

	a.connect()
	w.turns(2 * lookEvery)
	require.Empty(t, a.failed[1:])
	a.m.h.pd = pd
	b.connect()
	w.connect()
	w.works()
}

// TestAbortOfASend: a status that only receives can have is a device's impossible; the operation
// does not wait for its deadline.
func TestAbortOfASend(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a := w.ranks[0]
	a.hca.Inject(simhca.Fault{Kind: simhca.FaultSendStatus, QPN: a.end().qpn, Status: verbs.StatusRemAbortErr})
	require.NoError(t, a.send("x"))
	a.fails(1, btl.ClassDevice, btl.SideLocal, verbs.StatusRemAbortErr.Native())
	w.mend()
}

// TestNoLongSleepOverAFailure: while a port's grace or a drain runs, nobody sleeps for longer than
// those last.
func TestNoLongSleepOverAFailure(t *testing.T) {
	w := newWorld(t, Config{Wakeup: progress.NewChanWakeup()})
	w.connect()
	w.works()
	a := w.ranks[0]
	require.True(t, a.m.Arm())
	a.hca.SetLink(1, false)
	for range 2 * lookEvery {
		a.m.Progress()
	}
	require.False(t, a.m.Arm(), "a port that is down")
	a.hca.SetLink(1, true)
	for range 2 * lookEvery {
		a.m.Progress()
	}
	require.True(t, a.m.Arm())
	a.ep.Fail(nil)
	require.False(t, a.m.Arm(), "a drain")
}
