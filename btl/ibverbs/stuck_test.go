package ibverbs

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var errStuck = errors.New("it does not end")

// stuckQP is a queue pair that cannot be destroyed, so many times.
type stuckQP struct {
	verbs.QP
	left int
}

func (q *stuckQP) Destroy() error {
	if q.left > 0 {
		q.left--
		return errStuck
	}
	return q.QP.Destroy()
}

// stuckMR is a registration that cannot be ended, so many times.
type stuckMR struct {
	verbs.MR
	left int
}

func (r *stuckMR) Dereg() error {
	if r.left > 0 {
		r.left--
		return errStuck
	}
	return r.MR.Dereg()
}

// stuckGet has a read under way on a connection of a that fails, and whose queue pair cannot be
// destroyed so many times. ended is called when the read is called back.
func (w *world) stuckGet(times int, ended func()) (qp *stuckQP, into *region) {
	w.t.Helper()
	w.connect()
	w.works()
	e := w.ranks[0].end()
	qp = &stuckQP{e.qp, times}
	e.qp = qp
	into = w.silentGet(ended)
	e.giveUp() // its device never says what became of it
	return qp, into
}

// silentGet posts a read of rank 0 that does not complete, and returns the region that it reads to.
// ended is called when it is called back.
func (w *world) silentGet(ended func()) (into *region) {
	w.t.Helper()
	a, b := w.ranks[0], w.ranks[1]
	local, err := a.m.Register(make([]byte, 100), btl.AccessLocal)
	require.NoError(w.t, err)
	remote, err := b.m.Register(make([]byte, 100), btl.AccessRemoteRead)
	require.NoError(w.t, err)
	e := a.end()
	a.hca.Inject(simhca.Fault{Kind: simhca.FaultSilence, QPN: e.qpn})
	op := a.newOp()
	count := op.Done
	op.Done = func(op *btl.Op, err error) {
		ended()
		count(op, err)
	}
	op.Payload, op.Local, op.Remote = local.(*region).mem, local, remote.Key()
	a.under++
	require.NoError(w.t, e.Get(op))
	return local.(*region)
}

// TestStuckQueuePair: an endpoint whose queue pair cannot be destroyed is not Drained, and what it
// may still write to is not given back.
func TestStuckQueuePair(t *testing.T) {
	w := newWorld(t, Config{})
	a := w.ranks[0]
	var qp *stuckQP
	qp, _ = w.stuckGet(destroyTries-1, func() { require.Zero(t, qp.left) })
	a.ep.Fail(nil)
	a.fails(1, btl.ClassClosed, btl.SideLocal, "")
	w.mend()
}

// TestQueuePairStuckForGood: the device is given up, and the memory that such a queue pair could
// reach is registered no more. Only then it is given back.
func TestQueuePairStuckForGood(t *testing.T) {
	w := newWorld(t, Config{})
	a := w.ranks[0]
	var into *region
	_, into = w.stuckGet(1<<30, func() { require.Nil(t, into.mr) })
	into.mr = &stuckMR{into.mr, 3}
	a.ep.Fail(nil)
	w.until("the rail's failure", func() bool { return len(a.failed) == 2 })
	require.Equal(t, []any{btl.AllPeers, btl.ClassDevice}, []any{a.failed[1].Peer, a.failed[1].Class})
	require.ErrorIs(t, a.failed[1], errStuck)
	require.ErrorContains(t, a.failed[1], "the connection to rank 1 cannot be destroyed")
	w.until("Drained", func() bool { return len(a.drained) == 2 })
	require.Equal(t, []int{1, btl.AllPeers}, a.drained)
	require.Zero(t, a.under)
	w.mend()
}

// TestCloseWithAStuckQueuePair: Close cannot wait, but ends registrations before it calls back.
func TestCloseWithAStuckQueuePair(t *testing.T) {
	w := newWorld(t, Config{})
	a := w.ranks[0]
	var into *region
	_, into = w.stuckGet(1<<30, func() { require.Nil(t, into.mr) })
	require.ErrorIs(t, a.m.Close(), errStuck)
	require.Zero(t, a.under)
}

// untakenQP is a queue pair that its device does not take to Error.
type untakenQP struct{ *stuckQP }

func (q untakenQP) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	if mask&verbs.AttrState != 0 && attr.State == verbs.StateErr {
		return errStuck
	}
	return q.stuckQP.Modify(attr, mask)
}

// TestEventAfterBreakdown: a queue pair that could not be taken to Error can still write where a
// Get reads to. An event of it that comes later does not make it one that rests: the Get's buffer
// is given back only once the queue pair is destroyed.
func TestEventAfterBreakdown(t *testing.T) {
	for _, event := range []verbs.EventType{verbs.EventQPAccessErr, verbs.EventQPReqErr, verbs.EventQPFatal} {
		t.Run(event.String(), func(t *testing.T) {
			w := newWorld(t, Config{})
			w.connect()
			w.works()
			a := w.ranks[0]
			e := a.end()
			qp := untakenQP{&stuckQP{e.qp, destroyTries - 1}}
			e.qp = qp
			w.silentGet(func() { require.Zero(t, qp.left, "the queue pair is there, and the buffer is given back") })
			before := len(a.drained)
			a.ep.Fail(&btl.Error{Class: btl.ClassPath, Side: btl.SideBoth})
			attr, err := qp.Query()
			require.NoError(t, err)
			require.Equal(t, verbs.StateRTS, attr.State)
			a.m.react(&verbs.AsyncEvent{Type: event, QP: qp})
			w.until("Drained", func() bool { return len(a.drained) > before })
			require.Zero(t, qp.left)
			w.mend()
		})
	}
}
