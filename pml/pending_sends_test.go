package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// TestWindowIsEnforced: a peer that sends more than its window has room for is lost, whatever it sends and
// wherever that has to be kept; one that uses it up is not.
func TestWindowIsEnforced(t *testing.T) {
	const window, controlBytes = 10_000, 8
	parked := ContextID(1<<(counterBits(2)+1) | 2)
	head := func(h matchHdr) []byte { return matchOf(h) }
	rndv := func(length int64, data ...byte) func(matchHdr) []byte {
		return func(h matchHdr) []byte { return rndvOf(rndvHdr{matchHdr: h, length: length, send: 1}, data...) }
	}
	for name, f := range map[string]struct {
		kind btl.Tag
		frag func(h matchHdr) []byte
		most int // that there is room for
	}{
		"match":        {tagMatch, func(h matchHdr) []byte { return matchOf(h, make([]byte, 36)...) }, window / 100},
		"empty":        {tagMatch, head, window / 64},
		"announcement": {tagRndv, rndv(1000), window / 64},
		"synchronous":  {tagRndv, rndv(36, make([]byte, 36)...), window / 100},
		"for nothing":  {tagRndv, rndv(0), window / 64},
		"exposed":      {tagRget, rndv(1000, exposuresOf(remoteKey{})...), window / 112},
		"control": {tagRevoke, func(h matchHdr) []byte {
			return append(matchOf(h), make([]byte, controlBytes)...)
		}, maxNotices},
	} {
		for _, where := range []string{"unexpected", "early", "parked"} {
			if f.kind == tagRevoke && where == "unexpected" {
				continue // nothing is kept
			}
			w, c := newWire(t, 2, func(w *wire) { w.config.WindowBytes = window })
			p := w.pmls[0]
			h := matchHdr{tag: 1}
			switch where {
			case "early":
				h.seq = 1
			case "parked":
				h.context = parked
			}
			for range f.most {
				p.Arrived(w.modules[0], 1, f.kind, f.frag(h))
				h.seq++
			}
			require.NoError(t, p.Lost(c[0], 1), "%s %s: the window is used up", where, name)
			p.Arrived(w.modules[0], 1, f.kind, f.frag(h))
			require.ErrorIs(t, p.Lost(c[0], 1), errWindow, "%s %s", where, name)
			require.LessOrEqual(t, p.Stats().UnexpectedPeakBytes, int64(window)+maxNotices*controlBytes)
			require.Zero(t, p.blockedPeers)
		}
	}
}

// flooded is two ranks, the first of which has sent so many messages of one byte under tag 1, of which the other
// has received none.
func flooded(t *testing.T, messages int, async bool) *flood {
	w, c := newWire(t, 2, func(w *wire) {
		w.config.WindowBytes = 6500
		w.async = async
	})
	f := &flood{t: t, w: w, c: c}
	for range messages {
		f.send(1)
		w.settle()
	}
	return f
}

const (
	heldBytes     = 6500 / (fragmentCostBytes + 1) // messages that go with their MATCH
	heldAnnounced = 6500 / fragmentCostBytes       // and are announced
)

// TestAnnouncementsAreBounded: a rank remembers no more of what it does not receive than its window says,
// however much is sent to it; the rest is remembered where it is sent, and comes in order.
func TestAnnouncementsAreBounded(t *testing.T) {
	messages := 100_000
	if raced {
		messages = 3000
	}
	for _, async := range []bool{false, true} {
		f := flooded(t, messages, async)
		require.Equal(t, heldBytes+heldAnnounced, f.c[1].unexpected.count)
		require.EqualValues(t, messages-heldBytes-heldAnnounced, f.w.pmls[0].Stats().Deferred)
		f.receive(0)
		require.Zero(t, f.w.pmls[1].blockedPeers)
		require.Nil(t, f.w.pmls[0].Send(f.c[0], nil, 1, 1, Standard, "send"), "the way is free again")
	}
}

// waits are the ways to wait for a message under tag 2; the result tells whether it is there.
var waits = map[string]func(p *PML, c *Context) func() bool{
	"receive": func(p *PML, c *Context) func() bool {
		return isComplete(p.Irecv(c, make([]byte, 1), 1, 0, 2, "recv"))
	},
	"any source": func(p *PML, c *Context) func() bool {
		return isComplete(p.Irecv(c, make([]byte, 1), 1, request.AnySource, 2, "recv"))
	},
	"persistent": func(p *PML, c *Context) func() bool {
		r := p.RecvInit(c, make([]byte, 1), 1, 0, 2, "recv init")
		start(r)
		return isComplete(r)
	},
	"probe": func(p *PML, c *Context) func() bool {
		return isComplete(p.Probe(c, 0, 2, false, "probe"))
	},
	"probe of any": func(p *PML, c *Context) func() bool {
		return isComplete(p.Probe(c, request.AnySource, 2, true, "mprobe"))
	},
	"looks": func(p *PML, c *Context) func() bool {
		return func() bool { _, found := p.Iprobe(c, 0, 2); return found }
	},
	"looks for any": func(p *PML, c *Context) func() bool {
		return func() bool { _, _, found := p.Improbe(c, request.AnySource, 2); return found }
	},
}

func isComplete(r ended) func() bool {
	return func() bool { return r.State() == request.Complete }
}

// TestHeldMessageIsFound: who waits for a message that is held behind others gets it, without having
// received those (MPI 4.1, section 3.5: order holds only between messages that the same receive could take).
func TestHeldMessageIsFound(t *testing.T) {
	const messages = 10 * (heldBytes + heldAnnounced)
	for name, wait := range waits {
		for _, before := range []bool{false, true} {
			w, c := newWire(t, 2, func(w *wire) { w.config.WindowBytes = 6500 })
			var found func() bool
			if before {
				found = wait(w.pmls[1], c[1])
			}
			for i := range messages {
				w.pmls[0].Isend(c[0], pattern(1, i), 1, 1, Standard, "send").Abandon()
				w.settle()
			}
			w.pmls[0].Isend(c[0], pattern(1, 0), 1, 2, Standard, "send").Abandon()
			w.settle()
			if !before {
				require.Equal(t, heldBytes+heldAnnounced, c[1].unexpected.count)
				found = wait(w.pmls[1], c[1])
			}
			for rounds := 0; !found(); rounds++ {
				require.Less(t, rounds, 20, "%s, before: %v", name, before)
				w.settle()
			}
			require.LessOrEqual(t, w.pmls[1].Stats().UnexpectedPeakBytes, int64(6500), "more is remembered, not kept")
			require.NoError(t, w.pmls[1].Lost(c[1], 0))
		}
	}
}

// TestHeldMessageIsNotWanted: the window stays shut while nothing waits for the peer that has used it up.
func TestHeldMessageIsNotWanted(t *testing.T) {
	f := flooded(t, 1000, false)
	w, c, p := f.w, f.c, f.w.pmls[1]
	last := w.pmls[0].Isend(c[0], pattern(1, 99), 1, 2, Standard, "send")
	require.Equal(t, "send peer 1 tag 2 of 1 bytes: pending", last.pending().String())
	p.Irecv(c[1], nil, 1, 1, 2, "recv") // from itself
	p.Probe(c[1], 1, 2, false, "probe")
	p.Iprobe(c[1], 1, 2)
	alone := p.AddContext(p.NewContextID(), NewGroup([]int{1}), 0, testCaller{})
	p.Irecv(alone, nil, 1, request.AnySource, 2, "recv")
	p.Iprobe(alone, request.AnySource, 2)
	w.settle()
	require.Equal(t, sendPending, last.state)
	require.Equal(t, heldBytes+heldAnnounced, c[1].unexpected.count)
	require.Equal(t, 1, p.blockedPeers)
	// In a context of both it opens, also for one that has just been made.
	both := p.AddContext(p.NewContextID(), c[1].group, 1, testCaller{})
	p.Irecv(both, nil, 1, request.AnySource, 2, "recv")
	w.settle()
	require.NotEqual(t, sendPending, last.state)
	require.Zero(t, p.blockedPeers)
}

// TestHeldSendsEnd: with the peer, and with the point-to-point layer; a buffer that is taken back before is
// sent as it was.
func TestHeldSendsEnd(t *testing.T) {
	f := flooded(t, 500, false)
	f.sends = f.sends[1:] // the first one was complete at once
	f.w.modules[0].lose(1, gone)
	for _, s := range f.sends {
		_, err := s.Take()
		require.ErrorIs(t, err, request.ErrProcFailed)
	}
	require.Zero(t, f.w.pmls[0].Busy())
	f.w.modules[1].lose(0, &btl.Error{Rail: "wire", Class: btl.ClassPeerGone})
	require.Zero(t, f.w.pmls[1].blockedPeers)

	f = flooded(t, 500, false)
	require.NoError(t, f.w.pmls[0].Close(nil))
	for _, s := range f.sends[1:] {
		_, err := s.Take()
		require.ErrorIs(t, err, btl.ErrClosed)
	}

	f = flooded(t, 500, false)
	buf := pattern(1000, 5)
	s := f.w.pmls[0].Isend(f.c[0], buf, 1, 3, Standard, "send")
	require.Equal(t, sendPending, s.state)
	s.Detach()
	clear(buf)
	s.Abandon()
	out := make([]byte, 1000)
	r := f.w.pmls[1].Irecv(f.c[1], out, 1, 0, 3, "recv")
	f.w.settle()
	_, err := r.Take()
	require.NoError(t, err)
	require.Equal(t, pattern(1000, 5), out)
}

// TestHeldToItself: a rank is its own peer.
func TestHeldToItself(t *testing.T) {
	w, c := newWire(t, 1, func(w *wire) { w.config.WindowBytes = 6500 })
	p := w.pmls[0]
	var sends []*SendRequest
	for i := range 1000 {
		sends = append(sends, p.Isend(c[0], pattern(3, i), 0, i, Synchronous, "ssend"))
	}
	w.settle()
	require.Positive(t, p.Stats().Deferred)
	for i := range sends { // the other way round
		i = len(sends) - 1 - i
		out := make([]byte, 3)
		r := p.Irecv(c[0], out, 1, 0, i, "recv")
		w.settle()
		_, err := r.Take()
		require.NoError(t, err)
		require.Equal(t, pattern(3, i), out)
		_, err = sends[i].Take()
		require.NoError(t, err)
	}
	require.Zero(t, p.Busy()+p.blockedPeers)
}
