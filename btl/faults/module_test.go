package faults_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
	"github.com/mpigo/mpigo/progress"
)

// stub is a module with one endpoint at a time, whose operations complete when the test says so.
type stub struct {
	btl.Module
	events btl.Events
	ep     *stubEndpoint
	full   bool // posts are refused
	armed  int
	path   btl.Path
}

type stubEndpoint struct {
	btl.Endpoint
	m      *stub
	epoch  uint32
	state  btl.State
	posted []*btl.Op
	stale  []uint32 // epochs of the fragments that SendStale sent
}

var attrs = btl.Attrs{Name: "stub", MaxSendBytes: 100}

func (m *stub) Arm() bool         { m.armed++; return true }
func (m *stub) Disarm()           { m.armed = 0 }
func (m *stub) Attrs() *btl.Attrs { return &attrs }
func (m *stub) Close() error {
	m.ep.state = btl.Drained
	return nil
}
func (m *stub) Connect(to btl.Path, _ []byte) (btl.Endpoint, error) {
	m.path = to
	if m.ep == nil || m.ep.state == btl.Drained {
		epoch := uint32(1)
		if m.ep != nil {
			epoch = m.ep.epoch + 1
		}
		m.ep = &stubEndpoint{m: m, epoch: epoch}
	}
	return m.ep, nil
}

// Progress drains a Failed endpoint, and completes nothing else.
func (m *stub) Progress() int {
	if e := m.ep; e != nil && e.state == btl.Failed {
		for _, op := range e.posted {
			op.Done(op, &btl.Error{Rail: "stub", Peer: 1, Class: btl.ClassFlushed})
		}
		e.posted, e.state = nil, btl.Drained
		m.events.Drained(m, m.path)
		return 1
	}
	return 0
}

// complete completes the oldest operation that was posted.
func (e *stubEndpoint) complete() {
	op := e.posted[0]
	e.posted = e.posted[1:]
	op.Done(op, nil)
}

func (e *stubEndpoint) Path() btl.Path   { return e.m.path }
func (e *stubEndpoint) Epoch() uint32    { return e.epoch }
func (e *stubEndpoint) State() btl.State { return e.state }
func (e *stubEndpoint) Send(op *btl.Op) error {
	switch {
	case op.Len() > attrs.MaxSendBytes:
		return btl.ErrTooLong
	case e.m.full:
		return btl.ErrResource
	}
	e.posted = append(e.posted, op)
	return nil
}
func (e *stubEndpoint) SendInline(btl.Tag, []byte, []byte) bool { return true }
func (e *stubEndpoint) Fail(cause error) {
	e.state = btl.Failed
	err, _ := cause.(*btl.Error)
	e.m.events.Failed(e.m, e.m.path, err)
}
func (e *stubEndpoint) SendStale(epoch uint32, _ btl.Tag, _ []byte) bool {
	if !e.m.full {
		e.stale = append(e.stale, epoch)
	}
	return !e.m.full
}

// layer is the layer above: it records the events.
type layer struct {
	m      btl.Module
	failed []*btl.Error
	lines  []string
}

func (l *layer) Arrived(btl.Module, int, btl.Tag, []byte) {}
func (l *layer) Failed(m btl.Module, _ btl.Path, err *btl.Error) {
	l.m, l.failed, l.lines = m, append(l.failed, err), append(l.lines, "failed")
}
func (l *layer) Drained(m btl.Module, _ btl.Path) { l.m, l.lines = m, append(l.lines, "drained") }

// op makes an operation that records its end.
func (l *layer) op(err *error) *btl.Op {
	*err = errOpen
	return &btl.Op{Done: func(_ *btl.Op, e error) { *err, l.lines = e, append(l.lines, "done") }}
}

var errOpen = errors.New("not called back")

// rig is a decorated stub with its endpoint, the layer above, and a clock.
type rig struct {
	above layer
	below *stub
	now   int64
	m     btl.Module
	in    btl.Injector
	ep    btl.Endpoint
}

func (r *rig) Now() int64 { return r.now }

// newRig decorates a stub, and arms a fault.
func newRig(t *testing.T, fault btl.Fault, deadlineNanos int64) *rig {
	r := &rig{below: &stub{}}
	cfg := faults.Config{Events: &r.above, Clock: r, DeadlineNanos: deadlineNanos}
	var err error
	r.m, err = faults.Wrap(cfg, func(ev btl.Events) (btl.Module, error) {
		r.below.events = ev
		return r.below, nil
	})
	require.NoError(t, err)
	r.in = r.m.(btl.Injector)
	r.ep, err = r.m.Connect(btl.Path{Peer: 1}, nil)
	require.NoError(t, err)
	fault.Peer = 1
	r.in.Inject(fault)
	return r
}

// send posts an operation, and returns the record of its end.
func (r *rig) send(t *testing.T) *error {
	end := new(error)
	require.NoError(t, r.ep.Send(r.above.op(end)))
	return end
}

func (r *rig) progress(times int) {
	for range times {
		r.m.Progress()
	}
}

// TestRefusedOperationMeetsNoFault: no fault counts an operation that the transport does not take,
// and the operation leaves nothing behind.
func TestRefusedOperationMeetsNoFault(t *testing.T) {
	for _, kind := range []btl.FaultKind{btl.FaultErrorDelivered, btl.FaultLate, btl.FaultStale} {
		r := newRig(t, btl.Fault{Kind: kind}, 0)
		r.below.full = true
		var end error
		for range 3 {
			require.Equal(t, btl.ErrResource, r.ep.Send(r.above.op(&end)))
		}
		require.Equal(t, btl.ErrTooLong, r.ep.Send(&btl.Op{Payload: make([]byte, 101)}))
		require.Zero(t, r.in.Fired())
		r.below.full = false
		r.send(t)
		require.Len(t, r.below.ep.posted, 1)
		if kind != btl.FaultStale {
			require.Equal(t, 1, r.in.Fired())
		}
	}
}

// TestErrorDelivered: once the transport has delivered the operation, the endpoint fails; the
// operation ends with the injected error between Failed and Drained.
func TestErrorDelivered(t *testing.T) {
	r := newRig(t, btl.Fault{Kind: btl.FaultErrorDelivered}, 0)
	end := r.send(t)
	r.below.ep.complete()
	var other error
	require.Equal(t, btl.ErrResource, r.ep.Send(r.above.op(&other)), "a post after the deferred failure")
	require.False(t, r.ep.(btl.Inliner).SendInline(1, nil, nil), "a post after the deferred failure")
	require.Equal(t, btl.Up, r.ep.State())
	r.progress(3)
	require.Equal(t, []string{"failed", "done", "drained"}, r.above.lines)
	require.ErrorIs(t, *end, btl.ErrInjected)
	require.Equal(t, btl.Drained, r.ep.State())
	require.Equal(t, r.m, r.above.m, "the module that events name")
	again, err := r.m.Connect(btl.Path{Peer: 1}, nil)
	require.NoError(t, err)
	require.False(t, again == r.ep)
	require.EqualValues(t, 2, again.Epoch())
}

// TestSilenceUntilDeadline: a silent operation fails the endpoint when the deadline has passed,
// although later operations complete.
func TestSilenceUntilDeadline(t *testing.T) {
	r := newRig(t, btl.Fault{Kind: btl.FaultSilence}, 100)
	silent := r.send(t)
	require.Empty(t, r.below.ep.posted)
	later := r.send(t)
	r.below.ep.complete()
	require.NoError(t, *later)
	for ; r.now < 100; r.now++ {
		r.progress(1)
	}
	require.Equal(t, btl.Up, r.ep.State())
	r.progress(3)
	require.Len(t, r.above.failed, 1)
	require.Equal(t, btl.ClassTimeout, r.above.failed[0].Class)
	var be *btl.Error
	require.ErrorAs(t, *silent, &be)
	require.Equal(t, btl.ClassTimeout, be.Class)
}

// TestStale: the copy is sent in the next incarnation, once there is room, with the old epoch.
func TestStale(t *testing.T) {
	r := newRig(t, btl.Fault{Kind: btl.FaultStale}, 0)
	end := r.send(t)
	r.below.ep.complete()
	require.NoError(t, *end)
	r.ep.Fail(&btl.Error{})
	r.progress(3)
	_, err := r.m.Connect(btl.Path{Peer: 1}, nil)
	require.NoError(t, err)
	r.below.full = true
	r.progress(1)
	require.Zero(t, r.in.Fired())
	r.below.full = false
	r.progress(2)
	require.Equal(t, []uint32{1}, r.below.ep.stale)
	require.Equal(t, 1, r.in.Fired())
}

// TestCloseEndsWhatIsKept: operations that the decorator keeps end inside Close.
func TestCloseEndsWhatIsKept(t *testing.T) {
	r := newRig(t, btl.Fault{Kind: btl.FaultSilence}, 0)
	end := r.send(t)
	require.NoError(t, r.m.Close())
	require.ErrorIs(t, *end, btl.ErrClosed)
	require.Equal(t, btl.Drained, r.ep.State())
}

// TestLateKeepsAwake: a module does not sleep while the decorator counts progress calls.
func TestLateKeepsAwake(t *testing.T) {
	r := newRig(t, btl.Fault{Kind: btl.FaultLate, Count: 3}, 0)
	end := r.send(t)
	r.below.ep.complete()
	require.False(t, r.m.(progress.Idler).Arm())
	for range 4 {
		require.Equal(t, errOpen, *end)
		r.progress(1)
	}
	require.NoError(t, *end)
	require.True(t, r.m.(progress.Idler).Arm())
	require.Equal(t, 2, r.below.armed)
	r.m.(progress.Idler).Disarm()
	require.Zero(t, r.below.armed)
}

// TestOptionalInterfaces: a decorator allocates memory exactly if the inner module does. It does
// not count deliveries or wake its rank if the inner module and endpoint do not.
func TestOptionalInterfaces(t *testing.T) {
	r := newRig(t, btl.Fault{}, 0)
	require.NotImplements(t, (*btl.Allocator)(nil), r.m)
	delivered, taken := r.ep.(btl.DeliveryCounter).DeliveryCounters()
	require.Equal(t, [2]uint32{}, [2]uint32{delivered, taken})

	open := func(btl.Events) (btl.Module, error) {
		return struct {
			btl.Module
			btl.Allocator
		}{Module: &stub{}}, nil
	}
	m, err := faults.Wrap(faults.Config{}, open)
	require.NoError(t, err)
	require.Implements(t, (*btl.Allocator)(nil), m)
	require.False(t, m.(progress.Idler).Arm(), "the inner module is no Idler")
	m.(progress.Idler).Disarm()
}
