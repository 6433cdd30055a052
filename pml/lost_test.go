package pml

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

var gone = &btl.Error{Rail: "wire", Peer: 1, Class: btl.ClassPeerGone, Err: errors.New("killed")}

// TestLostPeerEndsOperationsThatNeedIt: rank 0 loses rank 1 with an operation of every kind under
// way. Those that need rank 1 end with ErrProcFailed. The others go on.
func TestLostPeerEndsOperationsThatNeedIt(t *testing.T) {
	w, c := newWire(t, 3)
	p := w.pmls[0]
	buf := func() []byte { return make([]byte, 1000) }
	w.pmls[1].Isend(c[1], pattern(1000, 1), 0, 50, Standard, "send") // its RNDV will be unexpected
	w.pmls[1].Isend(c[1], pattern(1000, 1), 0, 51, Standard, "send")
	w.pmls[1].Isend(c[1], pattern(8, 1), 0, 52, Standard, "send")
	w.settle()
	streaming := p.Irecv(c[0], buf(), 1, 1, 51, "recv") // its ACK stays in flight
	needs := map[string]ended{
		"send":         p.Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send"),
		"receive":      p.Irecv(c[0], buf(), 1, 1, 1, "recv"),
		"any source":   p.Irecv(c[0], buf(), 1, request.AnySource, 2, "recv"),
		"probe":        p.Probe(c[0], 1, 3, false, "probe"),
		"probe of any": p.Probe(c[0], request.AnySource, 3, true, "mprobe"),
		"streaming":    streaming,
	}
	w.refuse = 1
	needs["queued send"] = p.Isend(c[0], pattern(100, 0), 1, 1, Standard, "send")
	other := p.Irecv(c[0], buf(), 1, 2, 1, "recv")

	w.modules[0].lose(1, gone)
	for name, r := range needs {
		require.Equal(t, request.Complete, r.State(), name)
		_, err := r.Take()
		require.ErrorIs(t, err, request.ErrProcFailed, name)
		var cause *btl.Error
		require.ErrorAs(t, err, &cause, name)
	}
	// Operations that start after the loss.
	for name, r := range map[string]ended{
		"send":       p.Isend(c[0], nil, 1, 1, Standard, "send"),
		"receive":    p.Irecv(c[0], buf(), 1, 1, 1, "recv"),
		"any source": p.Irecv(c[0], buf(), 1, request.AnySource, 2, "recv"),
		"announced":  p.Irecv(c[0], buf(), 1, 1, 50, "recv"),
		"probe":      p.Probe(c[0], 1, 3, false, "probe"),
	} {
		require.Equal(t, request.Complete, r.State(), name)
		_, err := r.Take()
		require.ErrorIs(t, err, request.ErrProcFailed, name)
	}
	// A message that arrived as a whole is received.
	r := p.Irecv(c[0], buf(), 1, 1, 52, "recv")
	requireSuccess(t, r)
	// Other peers go on.
	require.Equal(t, request.Active, other.State())
	w.flying = nil
	w.pmls[2].Isend(c[2], pattern(5000, 3), 0, 1, Standard, "send")
	w.settle()
	requireFailure(t, request.ErrTruncate, other)
	require.Zero(t, p.Busy())
	require.Empty(t, p.Pending())
	require.EqualValues(t, 2, p.Stats().Received, "a receive that ended in an error counts as received")
}

func TestSendToUnreachablePeerFails(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	p.cfg.Resolve = func(int) ([]bml.Route, error) { return nil, btl.ErrUnreachable }
	s := p.Isend(c[0], nil, 1, 0, Standard, "send")
	err := requireFailure(t, request.ErrUnreachable, s)
	require.ErrorIs(t, err, btl.ErrUnreachable)
}

func TestCloseEndsAllOperations(t *testing.T) {
	w, c := newWire(t, 3)
	p := w.pmls[0]
	s := p.Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send")
	r := p.Irecv(c[0], make([]byte, 8), 1, 1, 1, "recv")
	b := p.Probe(c[0], 1, 1, false, "probe")
	require.Len(t, p.Pending(), 3)
	require.NoError(t, p.Close(nil))
	requireFailure(t, btl.ErrClosed, s, r, b, p.Isend(c[0], nil, 1, 1, Standard, "send"))
	require.NoError(t, p.Close(nil))
	w.modules[0].lose(2, gone)
	_, err := p.Isend(c[0], nil, 2, 1, Standard, "send").Take()
	require.ErrorIs(t, err, btl.ErrClosed, "the error changed after Close")
	require.Zero(t, p.Busy())
}

var broken = &btl.Error{Rail: "wire", Peer: btl.AllPeers, Class: btl.ClassDevice, Err: btl.ErrInjected}

// otherRail gives rank 0 a second module. If leads is set, rank 0 resolves its peers to it from now
// on.
func otherRail(w *wire, leads bool) *wireModule {
	m := w.newModule(0, 0)
	if leads {
		w.pmls[0].cfg.Resolve = func(peer int) ([]bml.Route, error) {
			return []bml.Route{m.route(peer, 0)}, nil
		}
	}
	return m
}

// TestDeviceFailureEndsWaitForUnknownPeer: the only rail fails. Receives and probes for a peer
// without any earlier message end.
func TestDeviceFailureEndsWaitForUnknownPeer(t *testing.T) {
	begin := map[string]func(p *PML, c *Context) ended{
		"receive":      func(p *PML, c *Context) ended { return p.Irecv(c, make([]byte, 8), 1, 1, 1, "recv") },
		"any source":   func(p *PML, c *Context) ended { return p.Irecv(c, make([]byte, 8), 1, request.AnySource, 1, "recv") },
		"probe":        func(p *PML, c *Context) ended { return p.Probe(c, 1, 1, false, "probe") },
		"probe of any": func(p *PML, c *Context) ended { return p.Probe(c, request.AnySource, 1, true, "mprobe") },
	}
	for name, start := range begin {
		for _, before := range []bool{true, false} {
			w, c := newWire(t, 2)
			p := w.pmls[0]
			var r ended
			if before {
				r = start(p, c[0])
			}
			w.modules[0].lose(btl.AllPeers, broken)
			if !before {
				r = start(p, c[0])
			}
			require.Equal(t, request.Complete, r.State(), "%s, posted before: %v", name, before)
			_, err := r.Take()
			require.ErrorIs(t, err, request.ErrUnreachable, name)
			require.ErrorIs(t, err, btl.ErrInjected, name)
			require.ErrorIs(t, p.Lost(c[0], 1), request.ErrUnreachable)
			require.Empty(t, p.Pending())
		}
	}
}

// TestDeviceFailureLosesOnlyPeersOfRail: with another rail left, only peers that used the failed
// rail are lost.
func TestDeviceFailureLosesOnlyPeersOfRail(t *testing.T) {
	w, c := newWire(t, 4)
	p := w.pmls[0]
	p.Isend(c[0], pattern(100, 1), 1, 1, Standard, "send").Abandon() // by the first rail
	second := otherRail(w, true)
	p.Isend(c[0], pattern(100, 1), 2, 1, Standard, "send").Abandon()
	w.settle()
	receives := []*RecvRequest{nil}
	for peer := 1; peer < 4; peer++ {
		receives = append(receives, p.Irecv(c[0], make([]byte, 8), 1, peer, 1, "recv"))
	}
	w.modules[0].lose(btl.AllPeers, broken)
	require.Equal(t, request.Complete, receives[1].State())
	requireFailure(t, request.ErrUnreachable, receives[1])
	require.Equal(t, request.Active, receives[2].State(), "the peer of the other rail is lost")
	require.Equal(t, request.Active, receives[3].State(), "an unknown peer that a rail leads to is lost")
	require.ErrorIs(t, p.Lost(c[0], 1), request.ErrUnreachable)
	require.ErrorIs(t, p.Lost(c[0], request.AnySource), request.ErrUnreachable)
	require.NoError(t, p.Lost(c[0], 2))
	require.NoError(t, p.Lost(c[0], 3))

	second.lose(btl.AllPeers, broken)
	for peer := 2; peer < 4; peer++ {
		requireFailure(t, request.ErrUnreachable, receives[peer])
	}
}

// TestFailureOfUnusedRailKeepsPeer: a rail that a peer does not use fails. The peer stays, unless
// the rail says that its process has ended.
func TestFailureOfUnusedRailKeepsPeer(t *testing.T) {
	path := &btl.Error{Rail: "other", Peer: 1, Class: btl.ClassPath}
	w, c := newWire(t, 2)
	p := w.pmls[0]
	s := p.Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send")
	other := otherRail(w, false)
	other.lose(1, path)
	other.lose(btl.AllPeers, broken)
	other.lose(-2, path)
	other.lose(2, path)
	r := w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 1, "recv")
	w.settle()
	requireSuccess(t, s, r)

	r = p.Irecv(c[0], nil, 1, 1, 1, "recv")
	other.lose(1, gone)
	requireFailure(t, request.ErrProcFailed, r)
}

// TestRailFailureToUnmetPeerEndsReceive: the rail to a peer fails before either has sent anything.
func TestRailFailureToUnmetPeerEndsReceive(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	r := p.Irecv(c[0], nil, 1, 1, 1, "recv")
	w.modules[0].lose(1, &btl.Error{Rail: "wire", Peer: 1, Class: btl.ClassDevice})
	requireFailure(t, request.ErrUnreachable, r)
}

// TestFailureOfIncomingRailWithOtherRoute: this rank sends to a peer by one rail, and the peer
// sends by another. When the other rail fails, messages may still come by the first.
func TestFailureOfIncomingRailWithOtherRoute(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	w.pmls[1].Isend(c[1], pattern(10, 1), 0, 1, Standard, "send").Abandon()
	w.settle()
	other := otherRail(w, true)
	p.Isend(c[0], pattern(10, 1), 1, 1, Standard, "send").Abandon()
	r := p.Irecv(c[0], nil, 1, 1, 2, "recv")
	w.modules[0].lose(1, &btl.Error{Rail: "wire", Peer: 1, Class: btl.ClassPath})
	require.Equal(t, request.Active, r.State())
	p.Arrived(other, 1, tagMatch, matchOf(matchHdr{tag: 2, seq: 1}))
	requireSuccess(t, r)
}

// TestPostToFailedEndpointEndsOperations: an endpoint refuses every post before the rail reports
// its failure. The answer that a receive depends on is never sent.
func TestPostToFailedEndpointEndsOperations(t *testing.T) {
	for _, cause := range []error{btl.ErrFailed, btl.ErrClosed} {
		for _, queued := range []bool{false, true} {
			w, c := newWire(t, 2)
			p := w.pmls[0]
			announced := w.pmls[1].Isend(c[1], pattern(1000, 1), 0, 1, Standard, "send")
			w.settle()
			require.Equal(t, request.Active, announced.State())
			if queued {
				w.refuse = 1
			} else {
				w.modules[0].down[1] = cause
			}
			r := p.Irecv(c[0], make([]byte, 1000), 1, 1, 1, "recv")
			s := p.Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send")
			other := p.Irecv(c[0], nil, 1, 1, 2, "recv")
			if queued {
				require.Equal(t, 3, len(p.Pending()))
				w.modules[0].down[1] = cause
				p.Progress()
			}
			p.Progress()
			if cause == btl.ErrFailed {
				for _, o := range []ended{r, s, other} {
					require.Equal(t, request.Active, o.State(), "an operation ended before the rail failed")
				}
				w.modules[0].lose(1, &btl.Error{Rail: "wire", Peer: 1, Class: btl.ClassPath, Err: cause})
			}
			for _, o := range []ended{r, s, other} {
				require.Equal(t, request.Complete, o.State())
				err := requireFailure(t, request.ErrUnreachable, o)
				require.ErrorIs(t, err, cause)
			}
			require.Zero(t, p.Busy())
			require.Empty(t, p.Pending())
		}
	}
}

// TestLossDuringRetryPostsToOtherPeer: a retry finds rank 1 lost. That settles a removed context,
// whose messages from rank 2 must be answered, while the rail to rank 2 has no room.
func TestLossDuringRetryPostsToOtherPeer(t *testing.T) {
	w, c := newWire(t, 3)
	p := w.pmls[0]
	id := p.NewContextID()
	mine := p.AddContext(id, c[0].group, 0, testCaller{})
	theirs := w.pmls[2].AddContext(id, c[2].group, 2, testCaller{})
	announced := w.pmls[2].Isend(theirs, pattern(1000, 1), 0, 1, Standard, "send")
	w.settle()
	p.Irecv(mine, nil, 1, 1, 1, "recv").Abandon()
	p.RemoveContext(mine)
	w.refuse = 1
	p.Isend(c[0], pattern(100, 1), 1, 1, Standard, "send").Abandon()
	w.modules[0].down[1] = btl.ErrClosed
	w.refuse = 2
	// The rail refuses the answer to rank 2 twice. A failed endpoint does not count as a refusal.
	p.Progress()
	require.Zero(t, w.refuse)
	require.Equal(t, 1, p.Busy(), "the answer is not queued")
	w.settle()
	require.Equal(t, request.Complete, announced.State())
	require.Zero(t, p.Busy())
}

// TestErrorNamesOperationOfReusedRequest: a request from the pool must not describe its earlier
// use.
func TestErrorNamesOperationOfReusedRequest(t *testing.T) {
	w, c := newWire(t, 3)
	p := w.pmls[0]
	told := new(describer)
	ctx := p.AddContext(p.NewContextID(), c[0].group, 0, told)
	w.pmls[2].Isend(c[2], pattern(10, 1), 0, 7, Standard, "send").Abandon()
	w.settle()
	first := p.Irecv(c[0], make([]byte, 100), 1, 2, 7, "recv")
	requireSuccess(t, first)
	w.modules[0].lose(1, gone)
	again := p.Irecv(ctx, nil, 1, 1, 33, "recv")
	require.Same(t, first, again)
	requireFailure(t, request.ErrProcFailed, again)
	require.Equal(t, describer{"recv", 1, 33}, *told)
	// After a match the error names the message's source and tag.
	c[0].caller = told
	w.pmls[2].Isend(c[2], pattern(10, 1), 0, 8, Standard, "send").Abandon()
	w.pmls[2].Isend(c[2], pattern(10, 1), 0, 9, Standard, "send").Abandon()
	w.settle()
	short := p.Irecv(c[0], make([]byte, 1), 1, request.AnySource, request.AnyTag, "short")
	requireFailure(t, request.ErrTruncate, short)
	require.Equal(t, describer{"short", 2, 8}, *told)
	// A persistent receive is described anew at each start.
	r := p.RecvInit(c[0], make([]byte, 1), 1, request.AnySource, request.AnyTag, "again")
	start(r)
	requireFailure(t, request.ErrTruncate, r)
	require.Equal(t, describer{"again", 2, 9}, *told)
	start(r)
	requireFailure(t, request.ErrProcFailed, r)
	require.Equal(t, describer{"again", request.AnySource, request.AnyTag}, *told)
}

// describer records the arguments of Describe.
type describer struct {
	op        string
	peer, tag int
}

func (d *describer) Describe(op string, peer, tag int, err error) error {
	*d = describer{op, peer, tag}
	return err
}

// start starts a persistent request, which must be inactive.
func start(r interface{ Handle() request.Request }) {
	if err := r.Handle().Start(); err != nil {
		panic(err)
	}
}

func TestBufferedSendToLostPeerFails(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	w.modules[0].lose(1, gone)
	for _, n := range []int{8, 1000} {
		s := p.Isend(c[0], pattern(n, 1), 1, 1, Buffered, "bsend")
		requireFailure(t, request.ErrProcFailed, s)
	}
}

// TestOperationErrorOfLiveRailReplays: a rail ends one operation with an error and stays up. The
// operation is posted again with the same number, but not from inside the callback.
func TestOperationErrorOfLiveRailReplays(t *testing.T) {
	w, c := newWire(t, 2, withAsync(true))
	p := w.pmls[0]
	s := p.Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send")
	r := w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 1, "recv")
	op := w.flying[0].op
	w.flying[0].op = nil
	op.Done(op, &btl.Error{Rail: "wire", Peer: 1, Class: btl.ClassPath, Err: btl.ErrInjected})
	require.Len(t, w.flying, 1)
	p.Progress()
	require.Len(t, w.flying, 2)
	w.settle()
	require.EqualValues(t, 1, w.pmls[1].Stats().Duplicates)
	require.EqualValues(t, 1, p.Stats().Resent)
	requireSuccess(t, s, r)
	require.Zero(t, p.Busy())
}

// TestSendToLostPeerEndsAfterDrained: the buffer of a send to a lost peer belongs to the rail until
// Drained (btl, C4).
func TestSendToLostPeerEndsAfterDrained(t *testing.T) {
	w, c := newWire(t, 2, withAsync(true))
	p := w.pmls[0]
	for _, n := range []int{100, 1000} {
		s := p.Isend(c[0], pattern(n, 1), 1, 1, Standard, "send")
		if n == 1000 {
			r := w.pmls[1].Irecv(c[1], make([]byte, n), 1, 0, 1, "recv")
			for len(w.flying) < pipelineDepth {
				w.step(0)
			}
			require.Equal(t, request.Active, r.State())
		}
		p.Failed(w.modules[0], btl.Path{Peer: 1}, gone)
		for i, f := range w.flying {
			require.Equal(t, request.Active, s.State(), "%d bytes, %d called back", n, i)
			f.op.Done(f.op, &btl.Error{Rail: "wire", Peer: 1, Class: btl.ClassFlushed})
		}
		require.Equal(t, request.Active, s.State(), "%d bytes, all called back", n)
		w.modules[0].drain(1)
		_, err := s.Take()
		require.ErrorIs(t, err, request.ErrProcFailed, "the error does not name the cause")
		require.Zero(t, p.Busy())
		w, c = newWire(t, 2, withAsync(true))
		p = w.pmls[0]
	}
}

// TestRecvOfCompleteMessageFromLostPeerSucceeds: it does not matter that the sender waits for an
// answer.
func TestRecvOfCompleteMessageFromLostPeerSucceeds(t *testing.T) {
	w, c := newWire(t, 2)
	w.pmls[1].Isend(c[1], pattern(50, 1), 0, 1, Synchronous, "ssend").Abandon()
	w.settle()
	p := w.pmls[0]
	w.modules[0].lose(1, gone)
	out := make([]byte, 50)
	st := requireSuccess(t, p.Irecv(c[0], out, 1, 1, 1, "recv"))
	require.EqualValues(t, 50, st.Bytes)
	require.Equal(t, pattern(50, 1), out)
	require.Zero(t, p.Busy())
}

func TestSendByRailWithTooShortFragmentsFails(t *testing.T) {
	w, c := newWire(t, 2, func(w *wire) { w.attrs.MaxSendBytes = btl.MaxHeaderBytes - 1 })
	s := w.pmls[0].Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send")
	err := requireFailure(t, request.ErrUnreachable, s)
	require.ErrorContains(t, err, "rail wire takes no more than 63 bytes at a time")
}

// TestLostOfUnmetPeerResolvesOnce: a rank that only polls for messages of an unknown peer learns
// that no rail leads there.
func TestLostOfUnmetPeerResolvesOnce(t *testing.T) {
	gone := errors.New("gone")
	asked := 0
	p := New(Config{Rank: 0, Size: 2, Engine: progress.New(progress.Config{}), Resolve: func(int) ([]bml.Route, error) {
		asked++
		return nil, gone
	}})
	c := p.AddContext(WorldContext, NewGroup([]int{0, 1}), 0, new(describer))
	require.NoError(t, p.Lost(c, request.AnySource))
	require.Zero(t, asked)
	require.ErrorIs(t, p.Lost(c, 1), gone)
	require.ErrorIs(t, p.Lost(c, 1), gone)
	require.Equal(t, 1, asked)
}

// TestProtocolErrorFailsEndpointOnce: after a protocol error the next turn fails the endpoint to
// the peer, so that the peer does not wait for this rank.
func TestProtocolErrorFailsEndpointOnce(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[0]
	p.Isend(c[0], pattern(8, 1), 1, 1, Standard, "send").Abandon()
	p.Arrived(w.modules[0], 1, tagMatch, []byte("no header"))
	require.Empty(t, w.modules[0].failed, "the endpoint failed from inside a call of the rail")
	p.Progress()
	p.Progress()
	require.Error(t, p.Lost(c[0], 1))
	require.Equal(t, []int{1}, w.modules[0].failed)
}
