package base_test

import (
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// module embeds a Rail and endpoint an Endpoint. They do nothing else.
type module struct {
	base.Module[*endpoint]
	endpoints []*endpoint
}

type endpoint struct {
	base.Endpoint
	m       *module
	stopped int
}

func (m *module) Connect(btl.Path, []byte) (btl.Endpoint, error) { return nil, errTest }
func (m *module) Progress() int                                  { return 0 }
func (m *module) Close() error                                   { return nil }
func (m *module) Endpoints() iter.Seq[*endpoint]                 { return slices.Values(m.endpoints) }

func (e *endpoint) Send(*btl.Op) error          { return nil }
func (e *endpoint) Rebind(*btl.Op, []byte) bool { return true }
func (e *endpoint) Fail(cause error)            { e.m.FailBecause(e, cause) }
func (e *endpoint) Stop()                       { e.stopped++ }
func (e *endpoint) push(n int) (ended *[]error) {
	ended = new([]error)
	for range n {
		e.Pending.Push(&btl.Op{Done: func(_ *btl.Op, err error) { *ended = append(*ended, err) }})
	}
	return ended
}

var errTest = errors.New("failed by the test")

// events records the reported events.
type events struct{ lines []any }

func (l *events) Arrived(btl.Module, int, btl.Tag, []byte) {}
func (l *events) Failed(_ btl.Module, to btl.Path, err *btl.Error) {
	l.lines = append(l.lines, "failed", to.Peer, err.Class)
}
func (l *events) Drained(_ btl.Module, to btl.Path) { l.lines = append(l.lines, "drained", to.Peer) }

// newModule makes a module with an endpoint to each of n peers, as if Connect had returned them.
func newModule(n int) (*module, *events) {
	m, l := &module{}, &events{}
	m.Init(m, l, btl.Attrs{Name: "x"}, []byte("address"))
	for peer := range n {
		e := &endpoint{Endpoint: base.MakeEndpoint(peer, 1), m: m}
		e.Return(btl.Path{Peer: peer, Module: 3})
		m.endpoints = append(m.endpoints, e)
	}
	return m, l
}

// drain does the work of a progress call.
func (m *module) drain() int {
	n := m.EndRefused() + m.FailDeferred()
	n += m.DrainEndpoints(func(e *endpoint) int { return m.Flush(e, &e.Pending) }, nil)
	if m.DrainModule() {
		n++
	}
	m.Unsettled = m.Waiting()
	return n
}

func TestFailEndpoint(t *testing.T) {
	m, l := newModule(2)
	e := m.endpoints[1]
	ended := e.push(2)
	e.Fail(errTest)
	e.Fail(errTest)
	require.Equal(t, btl.Failed, e.State())
	require.Equal(t, 1, e.stopped)
	require.True(t, m.Unsettled)
	require.Empty(t, *ended)
	require.Equal(t, 3, m.drain())
	require.False(t, m.Unsettled)
	require.Equal(t, btl.Drained, e.State())
	require.Equal(t, []any{"failed", 1, btl.ClassClosed, "drained", 1}, l.lines)
	for _, err := range *ended {
		var be *btl.Error
		require.ErrorAs(t, err, &be)
		require.Equal(t, btl.ClassFlushed, be.Class)
		require.ErrorIs(t, err, errTest)
	}
	require.Equal(t, btl.Up, m.endpoints[0].State())
}

// TestDeferFailure: the endpoint takes nothing more, and fails at the next progress call; the
// operation that met the error ends with it, and others are flushed.
func TestDeferFailure(t *testing.T) {
	m, l := newModule(1)
	e := m.endpoints[0]
	ended := e.push(2)
	ops := slices.Collect(e.Pending.All())
	err := m.NewError(0, btl.ClassPath, btl.SideBoth, "EPIPE", errTest)
	require.True(t, m.DeferFailure(e, err, ops[1]))
	require.False(t, m.DeferFailure(e, m.NewError(0, btl.ClassDevice, btl.SideLocal, "", nil), ops[0]), "the first error counts")
	require.Equal(t, btl.Up, e.State())
	require.False(t, e.Accepts())
	require.Empty(t, l.lines)
	require.Equal(t, 4, m.drain())
	require.Equal(t, []any{"failed", 0, btl.ClassPath, "drained", 0}, l.lines)
	require.Equal(t, btl.ClassFlushed, (*ended)[0].(*btl.Error).Class)
	require.Same(t, err, (*ended)[1].(*btl.Error))
	require.False(t, m.DeferFailure(e, err, nil), "the endpoint is Drained")
}

// TestFailRail: one pair of events covers all endpoints that were Up, and an endpoint that had
// failed before has its own events.
func TestFailRail(t *testing.T) {
	m, l := newModule(3)
	m.endpoints[1].Fail(errTest)
	require.NoError(t, m.ConnectError(5))
	m.Fail(errTest)
	m.Fail(errTest)
	require.ErrorIs(t, m.ConnectError(5), btl.ErrFailed)
	require.Equal(t, 4, m.drain())
	require.Equal(t, []any{
		"failed", 1, btl.ClassClosed, "failed", btl.AllPeers, btl.ClassDevice,
		"drained", 1, "drained", btl.AllPeers,
	}, l.lines)
	for _, e := range m.endpoints {
		require.Equal(t, btl.Drained, e.State())
		require.Equal(t, 1, e.stopped)
	}
	require.NoError(t, m.ConnectError(5))
}

// TestRailWaitsForItsEndpoints: the rail is not Drained before its last endpoint.
func TestRailWaitsForItsEndpoints(t *testing.T) {
	m, l := newModule(1)
	m.Fail(errTest)
	for _, e := range m.TakeDraining() {
		m.KeepDraining(e)
	}
	require.False(t, m.DrainModule())
	require.Len(t, l.lines, 3)
	m.drain()
	require.Equal(t, []any{"drained", btl.AllPeers}, l.lines[3:])
}

// TestUnknownEndpointIsNotReported: an endpoint that Connect never returned fails without a report.
// One that Connect returned after its failure is reported before it is drained.
func TestUnknownEndpointIsNotReported(t *testing.T) {
	for _, returned := range []bool{false, true} {
		m, l := newModule(0)
		e := &endpoint{Endpoint: base.MakeEndpoint(7, 1), m: m}
		e.Fail(errTest)
		require.Empty(t, l.lines)
		if returned {
			e.Return(btl.Path{Peer: 7, Module: 2})
		}
		m.drain()
		require.Equal(t, btl.Drained, e.State())
		if returned {
			require.Equal(t, []any{"failed", 7, btl.ClassClosed, "drained", 7}, l.lines)
		} else {
			require.Empty(t, l.lines)
		}
	}
}

// TestRefuse: an invalid operation ends alone, at the next progress call.
func TestRefuse(t *testing.T) {
	m, l := newModule(1)
	e := m.endpoints[0]
	var end error
	op := &btl.Op{Done: func(_ *btl.Op, err error) { end = err }}
	m.Refuse(e, op, m.NewError(0, btl.ClassUsage, btl.SideLocal, "", base.ErrBounds))
	require.NoError(t, end)
	require.Equal(t, 1, m.drain())
	require.ErrorIs(t, end, base.ErrBounds)
	require.Empty(t, l.lines)
	require.Equal(t, btl.Up, e.State())

	m.Refuse(e, op, m.NewError(0, btl.ClassUsage, btl.SideLocal, "", base.ErrBounds))
	e.Fail(errTest)
	m.drain()
	require.Equal(t, btl.ClassFlushed, end.(*btl.Error).Class, "it ends with its endpoint")
	require.Zero(t, m.drain(), "and only once")
}

// TestCloseEndpoint: nothing is reported, and the first cause of a failure stays.
func TestCloseEndpoint(t *testing.T) {
	m, l := newModule(2)
	m.endpoints[1].Fail(errTest)
	l.lines = nil
	for e := range m.Endpoints() {
		require.True(t, m.CloseEndpoint(e))
		m.Drained(e)
		require.False(t, m.CloseEndpoint(e))
	}
	m.Closed = true
	m.Forget()
	m.Fail(errTest)
	require.Zero(t, m.drain())
	require.Empty(t, l.lines)
	require.ErrorIs(t, m.endpoints[0].Cause(), btl.ErrClosed)
	require.ErrorIs(t, m.endpoints[1].Cause(), errTest)
}

// TestErrorBecause: the error of Fail has the cause that was passed to Fail.
func TestErrorBecause(t *testing.T) {
	m, _ := newModule(0)
	plain := m.ErrorBecause(3, btl.ClassClosed, errTest)
	require.Equal(t, &btl.Error{Rail: "x", Peer: 3, Class: btl.ClassClosed, Side: btl.SideLocal, Err: errTest}, plain)
	cause := &btl.Error{Rail: "y", Peer: 9, Class: btl.ClassTimeout, Side: btl.SideRemote, Native: "word", Err: errTest}
	typed := m.ErrorBecause(3, btl.ClassClosed, errors.Join(cause))
	require.Equal(t, []any{"x", 3, btl.ClassTimeout, btl.SideRemote, "word"}, []any{typed.Rail, typed.Peer, typed.Class, typed.Side, typed.Native})
	require.ErrorIs(t, typed, errTest)
}

// TestIllegalTransitionPanics: an endpoint that is Up cannot be Drained.
func TestIllegalTransitionPanics(t *testing.T) {
	m, _ := newModule(1)
	require.PanicsWithValue(t, "illegal transition of an endpoint from up to drained", func() { m.Drained(m.endpoints[0]) })
}

func TestContains(t *testing.T) {
	all := make([]byte, 10)
	for _, c := range []struct {
		outer, inner []byte
		want         bool
	}{
		{all, all, true}, {all, all[3:7], true}, {all[:5], all[:6], false}, {all[1:], all, false},
		{all[:5], all[5:], false}, {all[:5], nil, true}, {nil, nil, true}, {nil, all, false}, {all, make([]byte, 1), false},
	} {
		require.Equal(t, c.want, base.Contains(c.outer, c.inner))
	}
}
