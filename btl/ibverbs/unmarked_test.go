package ibverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// lazyQP flushes nothing that was under way when it goes to Error, and never the marker.
type lazyQP struct {
	countedQP
	wanted  verbs.QPState // as the module has it
	refuses bool          // RESET
}

func (q *lazyQP) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	if attr.State == verbs.StateReset && q.refuses {
		return errStuck
	}
	q.wanted = attr.State
	if attr.State == verbs.StateErr {
		return nil
	}
	return q.QP.Modify(attr, mask)
}

func (q *lazyQP) PostSend(wrs []verbs.SendWR) (int, error) {
	if q.wanted == verbs.StateErr {
		return len(wrs), nil
	}
	return q.QP.PostSend(wrs)
}

// lazyGet has a read under way on a connection of a whose queue pair will flush nothing, and whose
// path is cut.
func (w *world) lazyGet(ended func(qp *lazyQP)) *lazyQP {
	w.t.Helper()
	w.connect()
	w.works()
	a, b := w.ranks[0], w.ranks[1]
	local, err := a.m.Register(make([]byte, 100), btl.AccessLocal)
	require.NoError(w.t, err)
	remote, err := b.m.Register(make([]byte, 100), btl.AccessRemoteRead)
	require.NoError(w.t, err)
	e := a.end()
	qp := &lazyQP{countedQP: countedQP{QP: e.qp}}
	e.qp = qp
	w.silence()
	op := a.newOp()
	count := op.Done
	op.Done = func(op *btl.Op, err error) {
		ended(qp)
		require.Error(w.t, err)
		count(op, err)
	}
	op.Payload, op.Local, op.Remote = local.(*region).mem, local, remote.Key()
	a.under++
	require.NoError(w.t, e.Get(op))
	return qp
}

// TestUnmarked: an endpoint whose path has failed, and whose sends do not come back, is Drained
// once its queue pair is in RESET, where it reaches no memory. Nobody waits for the end of the
// queue pair, which may take long.
func TestUnmarked(t *testing.T) {
	w := newWorld(t, Config{})
	a := w.ranks[0]
	qp := w.lazyGet(func(qp *lazyQP) { require.Equal(t, verbs.StateReset, qp.wanted, "it may still read into memory") })
	since := w.clock.Now()
	a.ep.Fail(&btl.Error{Class: btl.ClassPath})
	w.until("Drained", func() bool { return a.ep.State() == btl.Drained })
	require.Less(t, w.clock.Now()-since, int64(2*drainNanos))
	require.Zero(t, a.under)
	require.Zero(t, qp.destroyed)
	require.Len(t, a.m.toDestroy, 1)
	w.speak()
	w.mend()
	w.until("the end of the queue pair", func() bool { return qp.destroyed > 0 })
	require.Empty(t, a.m.toDestroy)
}

// TestUnmarkedWithoutReset: if that is refused, it is destroyed before anything is given back.
func TestUnmarkedWithoutReset(t *testing.T) {
	w := newWorld(t, Config{})
	a := w.ranks[0]
	qp := w.lazyGet(func(qp *lazyQP) { require.Equal(t, 1, qp.destroyed) })
	qp.refuses = true
	a.ep.Fail(&btl.Error{Class: btl.ClassPath})
	w.until("Drained", func() bool { return a.ep.State() == btl.Drained })
	require.Zero(t, a.under)
	w.speak()
	w.mend()
}

// TestDrainAfterAbsence: that nobody looked for as long as a drain may take does not mean that
// nothing came back.
func TestDrainAfterAbsence(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a := w.ranks[0]
	e := a.end()
	qp := &countedQP{QP: e.qp}
	e.qp = qp
	a.ep.Fail(&btl.Error{Class: btl.ClassPath})
	w.deliver()
	*w.clock.extra += 2 * drainNanos
	a.m.Progress()
	require.Equal(t, btl.Drained, a.ep.State())
	require.Zero(t, qp.destroyed)
	state, err := qp.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.StateErr, state.State, "all had come back, so there was no need")
	w.mend()
}
