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
}

type stubEndpoint struct {
	btl.Endpoint
	m      *stub
	epoch  uint32
	state  btl.State
	posted []*btl.Op
	stale  []uint32 // epochs of what SendStale sent
}

var attrs = btl.Attrs{Name: "stub", MaxSendBytes: 100}

func (m *stub) Attrs() *btl.Attrs { return &attrs }
func (m *stub) Close() error {
	m.ep.state = btl.Drained
	return nil
}
func (m *stub) Connect(int, []byte) (btl.Endpoint, error) {
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
		m.events.Drained(m, 1)
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

func (e *stubEndpoint) Peer() int        { return 1 }
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
func (e *stubEndpoint) Fail(cause error) {
	e.state = btl.Failed
	err, _ := cause.(*btl.Error)
	e.m.events.Failed(e.m, 1, err)
}
func (e *stubEndpoint) SendStale(epoch uint32, _ btl.Tag, _ []byte) bool {
	if !e.m.full {
		e.stale = append(e.stale, epoch)
	}
	return !e.m.full
}

// layer is the layer above: it notes the events.
type layer struct {
	m      btl.Module
	failed []*btl.Error
	lines  []string
}

func (l *layer) Arrived(btl.Module, int, btl.Tag, []byte) {}
func (l *layer) Failed(m btl.Module, _ int, err *btl.Error) {
	l.m, l.failed, l.lines = m, append(l.failed, err), append(l.lines, "failed")
}
func (l *layer) Drained(m btl.Module, _ int) { l.m, l.lines = m, append(l.lines, "drained") }

// op makes an operation that notes its end.
func (l *layer) op(err *error) *btl.Op {
	*err = errOpen
	return &btl.Op{Done: func(_ *btl.Op, e error) { *err, l.lines = e, append(l.lines, "done") }}
}

var errOpen = errors.New("not called back")

type clock struct{ now int64 }

func (c *clock) Now() int64 { return c.now }

func newStub(t *testing.T, deadline int64) (*stub, *layer, *clock, btl.Module, btl.Endpoint) {
	s, l, c := &stub{}, &layer{}, &clock{}
	m, err := faults.Wrap(faults.Config{Events: l, Clock: c, DeadlineNanos: deadline}, func(ev btl.Events) (btl.Module, error) {
		s.events = ev
		return s, nil
	})
	require.NoError(t, err)
	ep, err := m.Connect(1, nil)
	require.NoError(t, err)
	return s, l, c, m, ep
}

// TestRefusedOperationMeetsNoFault: an operation that the transport does not take counts for no
// fault, and leaves nothing that could turn up later.
func TestRefusedOperationMeetsNoFault(t *testing.T) {
	for _, kind := range []btl.FaultKind{btl.FaultErrorDelivered, btl.FaultLate, btl.FaultStale} {
		s, l, _, m, ep := newStub(t, 0)
		in := m.(btl.Injector)
		in.Inject(btl.Fault{Kind: kind, Peer: 1})
		s.full = true
		var end error
		for range 3 {
			require.Equal(t, btl.ErrResource, ep.Send(l.op(&end)))
		}
		require.Equal(t, btl.ErrTooLong, ep.Send(&btl.Op{Payload: make([]byte, 101)}))
		require.Zero(t, in.Fired())
		s.full = false
		require.NoError(t, ep.Send(l.op(&end)), "%v", kind)
		require.Len(t, s.ep.posted, 1)
		if kind != btl.FaultStale {
			require.Equal(t, 1, in.Fired())
		}
	}
}

// TestErrorDelivered: once the transport has delivered the operation, the endpoint fails; the
// operation ends with the injected error between Failed and Drained.
func TestErrorDelivered(t *testing.T) {
	s, l, _, m, ep := newStub(t, 0)
	m.(btl.Injector).Inject(btl.Fault{Kind: btl.FaultErrorDelivered, Peer: 1})
	var end, other error
	require.NoError(t, ep.Send(l.op(&end)))
	s.ep.complete()
	require.Equal(t, btl.ErrResource, ep.Send(l.op(&other)), "a post after the deferred failure")
	require.Equal(t, btl.Up, ep.State())
	for range 3 {
		m.Progress()
	}
	require.Equal(t, []string{"failed", "done", "drained"}, l.lines)
	require.ErrorIs(t, end, btl.ErrInjected)
	require.Equal(t, btl.Drained, ep.State())
	require.Equal(t, m, l.m, "the module that events name")
	again, err := m.Connect(1, nil)
	require.NoError(t, err)
	require.False(t, again == ep)
	require.EqualValues(t, 2, again.Epoch())
}

// TestSilenceUntilDeadline: a silent operation fails the endpoint when the deadline is over, though
// later operations complete.
func TestSilenceUntilDeadline(t *testing.T) {
	s, l, c, m, ep := newStub(t, 100)
	m.(btl.Injector).Inject(btl.Fault{Kind: btl.FaultSilence, Peer: 1})
	var silent, later error
	require.NoError(t, ep.Send(l.op(&silent)))
	require.Empty(t, s.ep.posted)
	require.NoError(t, ep.Send(l.op(&later)))
	s.ep.complete()
	require.NoError(t, later)
	for c.now = 0; c.now < 100; c.now++ {
		m.Progress()
	}
	require.Equal(t, btl.Up, ep.State())
	for range 3 {
		m.Progress()
	}
	require.Len(t, l.failed, 1)
	require.Equal(t, btl.ClassTimeout, l.failed[0].Class)
	var be *btl.Error
	require.ErrorAs(t, silent, &be)
	require.Equal(t, btl.ClassTimeout, be.Class)
}

// TestStale: the copy goes out in the next incarnation, when there is room, with the old epoch.
func TestStale(t *testing.T) {
	s, l, _, m, ep := newStub(t, 0)
	in := m.(btl.Injector)
	in.Inject(btl.Fault{Kind: btl.FaultStale, Peer: 1})
	var end error
	require.NoError(t, ep.Send(l.op(&end)))
	s.ep.complete()
	require.NoError(t, end)
	ep.Fail(&btl.Error{})
	for range 3 {
		m.Progress()
	}
	_, err := m.Connect(1, nil)
	require.NoError(t, err)
	s.full = true
	m.Progress()
	require.Zero(t, in.Fired())
	s.full = false
	m.Progress()
	m.Progress()
	require.Equal(t, []uint32{1}, s.ep.stale)
	require.Equal(t, 1, in.Fired())
}

// TestCloseEndsWhatIsKept: operations that the decorator keeps end inside Close.
func TestCloseEndsWhatIsKept(t *testing.T) {
	_, l, _, m, ep := newStub(t, 0)
	m.(btl.Injector).Inject(btl.Fault{Kind: btl.FaultSilence, Peer: 1})
	var end error
	require.NoError(t, ep.Send(l.op(&end)))
	require.NoError(t, m.Close())
	require.ErrorIs(t, end, btl.ErrClosed)
	require.Equal(t, btl.Drained, ep.State())
}

// The optional interfaces of modules and endpoints, each by itself.
type (
	registrar struct{ btl.Registrar }
	allocator struct{ btl.Allocator }
	sleeper   struct{ progress.Idler }
	inline    struct{ btl.Inliner }
	put       struct{ btl.Putter }
	get       struct{ btl.Getter }
	counters  struct{ btl.DeliveryCounter }
)

func (sleeper) Arm() bool { return true }

// TestCapabilitiesSurvive: the decorated module and endpoint implement an optional interface
// exactly if what they decorate does.
func TestCapabilitiesSurvive(t *testing.T) {
	wrap := func(m btl.Module) btl.Module {
		d, err := faults.Wrap(faults.Config{Events: &layer{}}, func(btl.Events) (btl.Module, error) { return m, nil })
		require.NoError(t, err)
		return d
	}
	for _, m := range []btl.Module{
		&stub{},
		struct {
			*stub
			registrar
		}{stub: &stub{}},
		struct {
			*stub
			registrar
			allocator
		}{stub: &stub{}},
		struct {
			*stub
			sleeper
		}{stub: &stub{}},
		struct {
			*stub
			allocator
		}{stub: &stub{}},
		struct {
			*stub
			allocator
			sleeper
		}{stub: &stub{}},
		struct {
			*stub
			registrar
			sleeper
		}{stub: &stub{}},
		struct {
			*stub
			registrar
			allocator
			sleeper
		}{stub: &stub{}},
	} {
		d := wrap(m)
		_, want := m.(btl.Registrar)
		_, is := d.(btl.Registrar)
		require.Equal(t, want, is, "%T as a Registrar", m)
		_, want = m.(btl.Allocator)
		_, is = d.(btl.Allocator)
		require.Equal(t, want, is, "%T as an Allocator", m)
		_, want = m.(progress.Idler)
		idler, is := d.(progress.Idler)
		require.Equal(t, want, is, "%T as an Idler", m)
		if is {
			require.True(t, idler.Arm())
		}
	}
	e := &stubEndpoint{}
	endpoints := []btl.Endpoint{e,
		struct {
			*stubEndpoint
			inline
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			put
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			get
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			inline
			put
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			inline
			get
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			put
			get
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			inline
			put
			get
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			counters
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			inline
			counters
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			put
			counters
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			get
			counters
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			inline
			put
			counters
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			inline
			get
			counters
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			put
			get
			counters
		}{stubEndpoint: e},
		struct {
			*stubEndpoint
			inline
			put
			get
			counters
		}{stubEndpoint: e},
	}
	for _, e := range endpoints {
		d, err := wrap(connector{e: e}).Connect(1, nil)
		require.NoError(t, err)
		_, want := e.(btl.Inliner)
		_, is := d.(btl.Inliner)
		require.Equal(t, want, is, "%T as an Inliner", e)
		_, want = e.(btl.Putter)
		_, is = d.(btl.Putter)
		require.Equal(t, want, is, "%T as a Putter", e)
		_, want = e.(btl.Getter)
		_, is = d.(btl.Getter)
		require.Equal(t, want, is, "%T as a Getter", e)
		_, want = e.(btl.DeliveryCounter)
		_, is = d.(btl.DeliveryCounter)
		require.Equal(t, want, is, "%T as a DeliveryCounter", e)
	}
}

// connector is a module that gives out an endpoint.
type connector struct {
	stub
	e btl.Endpoint
}

func (c connector) Attrs() *btl.Attrs                         { return &attrs }
func (c connector) Close() error                              { return nil }
func (c connector) Progress() int                             { return 0 }
func (c connector) Connect(int, []byte) (btl.Endpoint, error) { return c.e, nil }

// TestLateKeepsAwake: a module does not sleep while the decorator counts progress calls.
func TestLateKeepsAwake(t *testing.T) {
	s := &stub{}
	l := &layer{}
	m, err := faults.Wrap(faults.Config{Events: l}, func(ev btl.Events) (btl.Module, error) {
		s.events = ev
		return struct {
			*stub
			sleeper
		}{stub: s}, nil
	})
	require.NoError(t, err)
	ep, err := m.Connect(1, nil)
	require.NoError(t, err)
	m.(btl.Injector).Inject(btl.Fault{Kind: btl.FaultLate, Peer: 1, Count: 3})
	var end error
	require.NoError(t, ep.Send(l.op(&end)))
	s.ep.complete()
	require.False(t, m.(progress.Idler).Arm())
	for range 4 {
		require.Equal(t, errOpen, end)
		m.Progress()
	}
	require.NoError(t, end)
	require.True(t, m.(progress.Idler).Arm())
}
