package ibverbs

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// countedQP counts the attempts to destroy it.
type countedQP struct {
	verbs.QP
	destroyed int
}

func (q *countedQP) Destroy() error {
	q.destroyed++
	return q.QP.Destroy()
}

// TestRest: whose path has failed is Drained as soon as all has come back. Its queue pair, which
// may keep who destroys it, is destroyed when it has rested, or with the module.
func TestRest(t *testing.T) {
	w := newWorld(t, Config{AckTimeout: 10, RetryCount: 2})
	w.connect()
	w.works()
	a, b := w.ranks[0], w.ranks[1]
	e := a.end()
	qp := &countedQP{QP: e.qp}
	e.qp = qp
	room := a.m.h.groups[0].room
	require.True(t, w.f.Partition(a.m.h.gid.GID, b.m.h.gid.GID, true))
	require.NoError(t, a.send("lost"))
	a.fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
	require.Zero(t, qp.destroyed)
	since := w.clock.Now()
	w.f.Heal(a.m.h.gid.GID, b.m.h.gid.GID)
	w.mend()
	require.Zero(t, qp.destroyed)
	w.until("the end of the queue pair", func() bool { return qp.destroyed > 0 })
	require.GreaterOrEqual(t, w.clock.Now()-since, int64(3e9))
	require.Empty(t, a.m.toDestroy)
	require.Equal(t, room, a.m.h.groups[0].room)
	a.ep.Fail(&btl.Error{Class: btl.ClassPath})
	w.until("Drained", func() bool { return a.ep.State() == btl.Drained })
	require.Len(t, a.m.toDestroy, 1)
	require.NoError(t, a.m.Close())
	require.Empty(t, a.m.toDestroy)
}

// TestKeptReceive: a receive that a device keeps in Error does not keep the drain for long.
func TestKeptReceive(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a := w.ranks[0]
	a.end().posted++ // one more than ever comes back
	since := w.clock.Now()
	a.ep.Fail(&btl.Error{Class: btl.ClassPath})
	w.until("Drained", func() bool { return a.ep.State() == btl.Drained })
	require.Less(t, w.clock.Now()-since, int64(50e6))
}

// unmarkedQP takes no send in Error, as devices do that look at the state first, and is slow to
// flush.
type unmarkedQP struct {
	countedQP
	inError bool
}

func (q *unmarkedQP) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	if attr.State == verbs.StateErr {
		q.inError = true
		return nil
	}
	return q.QP.Modify(attr, mask)
}

func (q *unmarkedQP) PostSend(wrs []verbs.SendWR) (int, error) {
	if q.inError {
		return 0, errors.New("not in this state")
	}
	return q.QP.PostSend(wrs)
}

// TestNoMarker: an endpoint that could not mark the end of its sends does not rest, for nothing
// says that they have come back.
func TestNoMarker(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a, b := w.ranks[0], w.ranks[1]
	into, err := a.m.Register(make([]byte, 100), btl.AccessLocal)
	require.NoError(t, err)
	from, err := b.m.Register(make([]byte, 100), btl.AccessRemoteRead)
	require.NoError(t, err)
	e := a.end()
	qp := &unmarkedQP{countedQP: countedQP{QP: e.qp}}
	e.qp = qp
	op := a.newOp()
	count := op.Done
	op.Done = func(op *btl.Op, err error) {
		require.Positive(t, qp.destroyed, "it may still read into memory")
		count(op, err)
	}
	op.Payload, op.Local, op.Remote = into.(*region).mem, into, from.Key()
	a.under++
	a.hca.Inject(simhca.Fault{Kind: simhca.FaultSilence, QPN: e.qpn})
	require.NoError(t, e.Get(op))
	a.ep.Fail(&btl.Error{Class: btl.ClassPath})
	w.until("Drained", func() bool { return a.ep.State() == btl.Drained })
	require.Zero(t, a.under)
	w.mend()
}

// crampedPD has no room for a queue pair beside those that rest.
type crampedPD struct {
	verbs.PD
	m *module
}

func (d crampedPD) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	if len(d.m.toDestroy) > 0 {
		return nil, verbs.ErrNoMemory
	}
	return d.PD.CreateQP(init)
}

// TestRestMakesRoom: queue pairs that rest, and their buffers, do not keep a new one from being
// made.
func TestRestMakesRoom(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	a := w.ranks[0]
	a.m.h.pd = crampedPD{a.m.h.pd, a.m}
	a.ep.Fail(&btl.Error{Class: btl.ClassPath})
	w.until("Drained", func() bool { return a.ep.State() == btl.Drained })
	require.Len(t, a.m.toDestroy, 1)
	w.mend()
	require.Empty(t, a.m.toDestroy)
	a.m.h.pd = a.m.h.pd.(crampedPD).PD
}

// TestRestHoldsNoDeviceUp: a device that is lost while queue pairs of it rest is opened anew as
// soon as it is there.
func TestRestHoldsNoDeviceUp(t *testing.T) {
	w := newWorld(t, Config{AckTimeout: 10, RetryCount: 2})
	w.connect()
	w.works()
	a := w.ranks[0]
	w.silence()
	require.NoError(t, a.send("lost"))
	a.fails(1, btl.ClassPath, btl.SideBoth, verbs.StatusRetryExcErr.Native())
	require.NotEmpty(t, a.m.toDestroy)
	at := w.clock.Now()
	a.hca.Raise(verbs.EventDeviceFatal, 0)
	w.until("the device to be closed", func() bool { return a.m.h == nil })
	require.Less(t, w.clock.Now()-at, int64(restNanos)/2)
}
