package pml

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// testHandler is a handler that a test configures. It records its calls.
type testHandler struct {
	ctx      *Context
	failed   map[int]error // by tag: the error of receives; messages with the tag are not kept
	arriving error         // what Arriving returns
	control  error         // what Control returns
	// onControl, if set, is called for each control fragment and gives its result.
	onControl func(f Control) error

	got                         []Control // with copies of the data
	idle, removed, finalizing   int
	revoked                     []error
	unexpectedAtRevoked, posted int
}

func (h *testHandler) ReceiveError(tag int) error { return h.failed[tag] }

func (h *testHandler) Arriving(from, tag int) (keep bool, err error) {
	return h.failed[tag] == nil, h.arriving
}

func (h *testHandler) Control(f Control) error {
	f.Data = append([]byte(nil), f.Data...)
	h.got = append(h.got, f)
	if h.onControl != nil {
		return h.onControl(f)
	}
	return h.control
}

func (h *testHandler) Idle()       { h.idle++ }
func (h *testHandler) Removed()    { h.removed++ }
func (h *testHandler) Finalizing() { h.finalizing++ }

func (h *testHandler) Revoked(err error) {
	h.revoked = append(h.revoked, err)
	h.unexpectedAtRevoked, h.posted = h.ctx.unexpected.count, h.ctx.posted.count
}

func (h *testHandler) Uses([]byte) bool { return false }

const controlledContext ContextID = 1

// addControlled makes a controlled context at one rank.
func addControlled(p *PML, id ContextID, g *Group, rank int) (*Context, *testHandler) {
	h := &testHandler{failed: map[int]error{}}
	c := p.AddControlledContext(id, g, rank, testCaller{}, func(c *Context) Handler {
		h.ctx = c
		return h
	})
	return c, h
}

// newControlled is newWire, with a controlled context at every rank.
func newControlled(t wireT, n int, changes ...func(w *wire)) (*wire, []*Context, []*testHandler) {
	w, world := newWire(t, n, changes...)
	var ctxs []*Context
	var handlers []*testHandler
	for rank, p := range w.pmls {
		c, h := addControlled(p, controlledContext, world[0].group, rank)
		ctxs, handlers = append(ctxs, c), append(handlers, h)
	}
	return w, ctxs, handlers
}

// requireClean checks that no request, message or answer is left.
func requireClean(t *testing.T, w *wire) {
	t.Helper()
	for _, p := range w.pmls {
		require.Empty(t, p.Pending())
		require.Empty(t, p.Unreceived())
		require.Zero(t, p.Stats().UnexpectedBytes)
		require.Zero(t, p.Stats().Malformed)
		require.Zero(t, p.Busy())
	}
}

var errFailedTag = errors.New("the tag has failed")

func TestSendControlArrivesAfterEarlierMessages(t *testing.T) {
	w, c, h := newControlled(t, 2)
	w.refuse = 2 // the message waits for room
	w.pmls[0].Isend(c[0], pattern(50, 1), 1, 4, Standard, "send").Abandon()
	w.pmls[0].SendControl(1, controlledContext, ControlRevoke, 5, []byte{1, 2, 3})
	r := w.pmls[1].Irecv(c[1], make([]byte, 50), 1, 0, 4, "recv")
	for len(w.flying) > 0 || anyBlocked(w) {
		w.pmls[0].Progress()
		if last := len(w.flying) - 1; last >= 0 {
			w.step(last) // in reverse order
			require.True(t, len(h[1].got) == 0 || r.State() == request.Complete)
		}
	}
	require.Equal(t, []Control{{Kind: ControlRevoke, Context: controlledContext, Tag: 5, From: 0, Data: []byte{1, 2, 3}}}, h[1].got)
	requireSuccess(t, r)
	requireClean(t, w)
}

func TestSendControlWaitsForAddContext(t *testing.T) {
	w, c, _ := newControlled(t, 2)
	addControlled(w.pmls[0], 3, c[0].group, 0)
	w.pmls[0].SendControl(1, 3, ControlMismatchProbe, 5, make([]byte, maxControlBytes))
	w.settle()
	require.NotEmpty(t, w.pmls[1].Leftovers())
	_, h := addControlled(w.pmls[1], 3, c[1].group, 1)
	require.Len(t, h.got, 1)
	require.Len(t, h.got[0].Data, maxControlBytes)
	require.Empty(t, w.pmls[1].Leftovers())
}

// TestControlFragmentForUnknownContextCallsOrphanHandler: the handler decides whether the PML keeps
// the fragment.
func TestControlFragmentForUnknownContextCallsOrphanHandler(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		for _, freed := range []bool{false, true} {
			w, c, _ := newControlled(t, 2)
			var got []Control
			w.pmls[1].OnOrphan(func(f Control, wasFreed bool) (bool, error) {
				require.Equal(t, freed, wasFreed)
				got = append(got, f)
				return keeps, nil
			})
			addControlled(w.pmls[0], 3, c[0].group, 0)
			if freed {
				mine, _ := addControlled(w.pmls[1], 3, c[1].group, 1)
				w.pmls[1].RemoveContext(mine)
			}
			w.pmls[0].SendControl(1, 3, ControlRevoke, 5, nil)
			w.settle()
			require.Len(t, got, 1)
			require.Equal(t, keeps && !freed, len(w.pmls[1].earlyContext) > 0)
			w.pmls[1].OnOrphan(func(Control, bool) (bool, error) { return false, errFailedTag })
			w.pmls[0].SendControl(1, 3, ControlRevoke, 5, nil)
			w.settle()
			require.ErrorIs(t, w.pmls[1].Lost(c[1], 0), errFailedTag)
		}
	}
}

// TestFailReceivesSparesMatchedReceive: receives with the tag fail, except one whose message is
// arriving.
func TestFailReceivesSparesMatchedReceive(t *testing.T) {
	for _, protocol := range []Protocol{Copy, Get, Put} {
		w, c, h := newControlled(t, 2, withRemote(getPut), withProtocol(protocol), withAsync(true))
		p := w.pmls[1]
		out := make([]byte, 1000)
		arriving := p.Irecv(c[1], out, 1, 0, 4, "recv")
		w.pmls[0].Isend(c[0], pattern(1000, 5), 1, 4, Standard, "send").Abandon()
		w.step(0)
		require.NotEqual(t, recvPosted, arriving.state)
		posted, other := p.Irecv(c[1], nil, 1, 0, 4, "recv"), p.Irecv(c[1], nil, 1, 0, 6, "recv")

		h[1].failed[4] = errFailedTag
		p.FailReceives(c[1], 4, errFailedTag)
		requireFailure(t, errFailedTag, posted)
		requireFailure(t, errFailedTag, p.Irecv(c[1], nil, 1, 0, 4, "recv"))
		require.Equal(t, request.Active, arriving.State())
		require.Equal(t, request.Active, other.State())
		w.settle()
		requireSuccess(t, arriving)
		require.Equal(t, pattern(1000, 5), out)
		w.pmls[0].Isend(c[0], nil, 1, 6, Standard, "send").Abandon()
		w.settle()
		requireSuccess(t, other)
		requireClean(t, w)
	}
}

// TestDiscardUnexpectedCompletesSenders: the senders of messages with a failed tag get an answer,
// whether the messages arrived before or arrive later.
func TestDiscardUnexpectedCompletesSenders(t *testing.T) {
	for _, protocol := range []Protocol{Copy, Get, Put} {
		w, c, h := newControlled(t, 2, withRemote(getPut), withProtocol(protocol))
		send := func() []ended {
			defer w.settle()
			return []ended{
				w.pmls[0].Isend(c[0], pattern(1000, 1), 1, 4, Standard, "long"),
				w.pmls[0].Isend(c[0], pattern(10, 1), 1, 4, Synchronous, "short"),
			}
		}
		before := send()
		require.Equal(t, request.Active, before[0].State())
		h[1].failed[4] = errFailedTag
		var told []int
		w.pmls[1].DiscardUnexpected(c[1], 4, func(from int) { told = append(told, from) })
		require.Equal(t, []int{0, 0}, told)
		w.settle()
		requireSuccess(t, append(before, send()...)...)
		requireClean(t, w)
	}
}

func TestAwaitedListsSourcesAndDestinations(t *testing.T) {
	w, c, _ := newControlled(t, 3)
	p := w.pmls[0]
	p.Irecv(c[0], nil, 1, 1, 4, "recv")
	p.Isend(c[0], nil, 2, 4, Synchronous, "ssend")
	p.Isend(c[0], nil, 2, 4, Standard, "complete when posted")
	p.Irecv(c[0], nil, 1, 2, 5, "other tag")
	w.settle()
	require.Equal(t, []int{1, 2}, p.Awaited(c[0], 4))
}

// TestForgedControlFragmentLosesPeer: a control fragment that violates the protocol ends the
// connection.
func TestForgedControlFragmentLosesPeer(t *testing.T) {
	in := matchHdr{context: controlledContext}
	revoke := append(matchOf(in), make([]byte, 8)...)
	for name, f := range map[string]struct {
		from int
		tag  btl.Tag
		frag []byte
		want error
	}{
		"not a member":    {2, tagRevoke, revoke, errNotMember},
		"no handler":      {1, tagRevoke, matchOf(matchHdr{}), errNoHandler},
		"no header":       {1, tagRevoke, revoke[:3], errMalformed},
		"negative tag":    {1, tagMismatchProbe, matchOf(matchHdr{context: controlledContext, tag: -1}), errMalformed},
		"handler refuses": {1, tagRevoke, revoke, errFailedTag},
		"bad message":     {1, tagMatch, matchOf(in), errFailedTag},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWire(t, 3)
			p := w.pmls[0]
			_, h := addControlled(p, controlledContext, NewGroup([]int{0, 1}), 0)
			h.control, h.arriving = errFailedTag, errFailedTag
			p.Arrived(w.modules[0], f.from, f.tag, f.frag)
			p.Progress()
			require.ErrorIs(t, p.Lost(c[0], f.from), f.want)
			require.Zero(t, p.Stats().UnexpectedBytes)
		})
	}
}

func TestLeaveAndRemoveContextTellHandler(t *testing.T) {
	w, c, h := newControlled(t, 2)
	p := w.pmls[0]
	p.Leave(request.ErrProcFailed)
	require.Equal(t, 1, h[0].finalizing)
	p.RemoveContext(c[0])
	require.Equal(t, 1, h[0].removed)
	require.Equal(t, len(p.controlled.list), p.controlled.gaps)
}

// TestArmAndManyTurnsTellHandlerIdle: a rank is idle when it is about to sleep, and after idleNanos
// without sleep, for any number of turns in that time.
func TestArmAndManyTurnsTellHandlerIdle(t *testing.T) {
	w, _, h := newControlled(t, 1)
	p := w.pmls[0]
	p.Arm()
	p.Progress()
	require.Equal(t, 1, h[0].idle)
	for idle := 1; idle < 4; idle++ {
		w.now += idleNanos - 1
		for range 3 * idleTurns {
			p.Progress()
		}
		require.Equal(t, idle, h[0].idle)
		w.now++
		for range idleTurns + 1 {
			p.Progress()
		}
		require.Equal(t, idle+1, h[0].idle)
	}
}

// TestSendControlRefusedByAllRailsArrivesInNack: the NACK carries the data of the fragment.
func TestSendControlRefusedByAllRailsArrivesInNack(t *testing.T) {
	w, _, h := newControlled(t, 2)
	w.wrong = func(f *flight) bool { return f.tag == tagRevoke }
	w.pmls[0].SendControl(1, controlledContext, ControlRevoke, 5, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	w.settle()
	require.Len(t, h[1].got, 1)
	require.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8}, h[1].got[0].Data)
}

// TestInviteRefusedByAllRailsLosesItsSender: its data does not fit into a NACK, and the receiver
// may wait for nothing else.
func TestInviteRefusedByAllRailsLosesItsSender(t *testing.T) {
	w, _, h := newControlled(t, 2)
	w.wrong = func(f *flight) bool { return f.tag == tagInvite }
	w.pmls[0].SendControl(1, controlledContext, ControlInvite, 5, make([]byte, 24))
	w.settle()
	require.Empty(t, h[1].got)
	require.True(t, w.pmls[1].peers[0].IsLost())
}
