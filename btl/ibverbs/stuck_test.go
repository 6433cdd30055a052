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

// stuckGet has a read under way on a connection of a that fails, and whose queue pair cannot be destroyed so many times. ended is called when the
// read is called back.
func (w *world) stuckGet(times int, ended func()) (qp *stuckQP, into *region) {
	w.t.Helper()
	w.connect()
	w.works()
	a, b := w.ranks[0], w.ranks[1]
	local, err := a.m.Register(make([]byte, 100), btl.AccessLocal)
	require.NoError(w.t, err)
	remote, err := b.m.Register(make([]byte, 100), btl.AccessRemoteRead)
	require.NoError(w.t, err)
	e := a.end()
	qp = &stuckQP{e.qp, times}
	e.qp = qp
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
	e.broken = true // its device never says what became of it
	return qp, local.(*region)
}

// TestStuckQueuePair: an endpoint whose queue pair cannot be destroyed is not Drained, and what it may still write to is not given back.
func TestStuckQueuePair(t *testing.T) {
	w := newWorld(t, Config{})
	a := w.ranks[0]
	var qp *stuckQP
	qp, _ = w.stuckGet(destroyTries-1, func() { require.Zero(t, qp.left) })
	a.ep.Fail(nil)
	a.fails(1, btl.ClassClosed, btl.SideLocal, "")
	w.mend()
}

// TestQueuePairStuckForGood: the device is given up, and the memory that such a queue pair could reach is registered no more. Only then it is given back.
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
