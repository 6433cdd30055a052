package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

// TestSendBeyondWindowLosesPeer: a peer that sends more than its window allows is lost, with
// fragments of any kind, in any queue. A peer that uses its whole window is not lost.
func TestSendBeyondWindowLosesPeer(t *testing.T) {
	const window, controlBytes = 10_000, 8
	unknown := ContextID(1<<(counterBits(2)+2) | 2)
	head := func(h matchHdr) []byte { return matchOf(h) }
	rndv := func(length int64, data ...byte) func(matchHdr) []byte {
		return func(h matchHdr) []byte { return rndvOf(rndvHdr{matchHdr: h, length: length, send: 1}, data...) }
	}
	for name, f := range map[string]struct {
		kind btl.Tag
		frag func(h matchHdr) []byte
		most int // fragments that the window allows
	}{
		"match":        {tagMatch, func(h matchHdr) []byte { return matchOf(h, make([]byte, 36)...) }, window / 100},
		"empty":        {tagMatch, head, window / 64},
		"announcement": {tagRndv, rndv(1000), window / 64},
		"synchronous":  {tagRndv, rndv(36, make([]byte, 36)...), window / 100},
		"for nothing":  {tagRndv, rndv(0), window / 64},
		"exposed":      {tagRget, rndv(1000, remoteKeysOf(remoteKey{})...), window / 112},
		"control": {tagRevoke, func(h matchHdr) []byte {
			return append(matchOf(h), make([]byte, controlBytes)...)
		}, maxNotices},
	} {
		for _, where := range []string{"unexpected", "early", "unknown context"} {
			if f.kind == tagRevoke && where == "unexpected" {
				continue // a control fragment is not kept then
			}
			w, c := newWire(t, 2, withWindow(window))
			p := w.pmls[0]
			h := matchHdr{tag: 1}
			switch where {
			case "early":
				h.seq = 1
			case "unknown context":
				h.context = unknown
			}
			for range f.most {
				p.Arrived(w.modules[0], 1, f.kind, f.frag(h))
				h.seq++
			}
			require.NoError(t, p.Lost(c[0], 1), "%s %s: lost within the window", where, name)
			p.Arrived(w.modules[0], 1, f.kind, f.frag(h))
			p.Progress()
			require.ErrorIs(t, p.Lost(c[0], 1), errWindow, "%s %s", where, name)
			require.LessOrEqual(t, p.Stats().UnexpectedPeakBytes, int64(window)+maxNotices*controlBytes)
			require.Zero(t, p.blockedPeers)
		}
	}
}

// flooded makes two ranks. The first has sent a number of messages of one byte with tag 1. The
// second has received none of them.
func flooded(t *testing.T, messages int, async bool) *flood {
	w, c := newWire(t, 2, withWindow(6500), withAsync(async))
	f := &flood{t: t, w: w, c: c}
	for range messages {
		f.send(1)
		w.settle()
	}
	return f
}

const (
	// flooded sends its first floodEager messages as a MATCH, and floodAnnounced more as a RNDV.
	// The rest are pending at the sender.
	floodEager     = 6500 / (fragmentCostBytes + 1)
	floodAnnounced = 6500 / fragmentCostBytes
)

// TestFloodedReceiverKeepsOnlyItsWindow: a receiver keeps no more messages than its window allows.
// The others wait at the sender, and arrive in order.
func TestFloodedReceiverKeepsOnlyItsWindow(t *testing.T) {
	messages := 100_000
	if !race.All() {
		messages = 25_000
	}
	if race.Enabled {
		messages = 3000
	}
	for _, async := range []bool{false, true} {
		f := flooded(t, messages, async)
		require.Equal(t, floodEager+floodAnnounced, f.c[1].unexpected.count)
		require.EqualValues(t, messages-floodEager-floodAnnounced, f.w.pmls[0].Stats().Deferred)
		f.receive(0)
		require.Zero(t, f.w.pmls[1].blockedPeers)
		require.Nil(t, f.w.pmls[0].Send(f.c[0], nil, 1, 1, Standard, "send"), "a send waits although the window is open")
	}
}

// waits are the ways to wait for a message of rank 0 with tag 2. Each returns a request, or a
// function that reports whether the message is there.
var waits = map[string]func(p *PML, c *Context) any{
	"receive": func(p *PML, c *Context) any { return p.Irecv(c, make([]byte, 1), 1, 0, 2, "recv") },
	"any source": func(p *PML, c *Context) any {
		return p.Irecv(c, make([]byte, 1), 1, request.AnySource, 2, "recv")
	},
	"persistent": func(p *PML, c *Context) any {
		r := p.RecvInit(c, make([]byte, 1), 1, 0, 2, "recv init")
		start(r)
		return r
	},
	"probe": func(p *PML, c *Context) any { return p.Probe(c, 0, 2, false, "probe") },
	"probe of any": func(p *PML, c *Context) any {
		return p.Probe(c, request.AnySource, 2, true, "mprobe")
	},
	"iprobe": func(p *PML, c *Context) any {
		return func() bool { _, found := p.Iprobe(c, 0, 2); return found }
	},
	"improbe of any": func(p *PML, c *Context) any {
		return func() bool { _, _, found := p.Improbe(c, request.AnySource, 2); return found }
	},
}

// TestWaitForPendingMessageFindsIt: the message is pending behind others at the sender. The
// receiver gets it without receiving the others first (MPI 4.1, section 3.5: order holds only
// between messages that the same receive could take).
func TestWaitForPendingMessageFindsIt(t *testing.T) {
	const messages = 10 * (floodEager + floodAnnounced)
	for name, wait := range waits {
		for _, before := range []bool{false, true} {
			w, c := newWire(t, 2, withWindow(6500))
			var waiting any
			if before {
				waiting = wait(w.pmls[1], c[1])
			}
			for i := range messages {
				w.pmls[0].Isend(c[0], pattern(1, i), 1, 1, Standard, "send").Abandon()
				w.settle()
			}
			w.pmls[0].Isend(c[0], pattern(1, 0), 1, 2, Standard, "send").Abandon()
			w.settle()
			if !before {
				require.Equal(t, floodEager+floodAnnounced, c[1].unexpected.count)
				waiting = wait(w.pmls[1], c[1])
			}
			found, isCall := waiting.(func() bool)
			if !isCall {
				found = func() bool { return waiting.(ended).State() == request.Complete }
			}
			for rounds := 0; !found(); rounds++ {
				require.Less(t, rounds, 20, "%s, before: %v", name, before)
				w.settle()
			}
			require.LessOrEqual(t, w.pmls[1].Stats().UnexpectedPeakBytes, int64(6500), "the receiver keeps more bytes than its window")
			require.NoError(t, w.pmls[1].Lost(c[1], 0))
		}
	}
}

// TestWindowStaysClosedWithoutDemand: the window of a peer that has used it up opens only when
// something waits for a message of that peer.
func TestWindowStaysClosedWithoutDemand(t *testing.T) {
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
	require.Equal(t, floodEager+floodAnnounced, c[1].unexpected.count)
	require.Equal(t, 1, p.blockedPeers)
	// In a context with both ranks the window opens, also if the context is new.
	both := p.AddContext(p.NewContextID(), c[1].group, 1, testCaller{})
	p.Irecv(both, nil, 1, request.AnySource, 2, "recv")
	w.settle()
	require.NotEqual(t, sendPending, last.state)
	require.Zero(t, p.blockedPeers)
}

// TestPendingSendsEndWithPeerAndClose: pending sends end when the peer is lost and when the PML is
// closed. A pending send that is detached sends the bytes that its buffer had.
func TestPendingSendsEndWithPeerAndClose(t *testing.T) {
	f := flooded(t, 500, false)
	f.sends = f.sends[1:] // the first one was complete at once
	f.w.modules[0].lose(1, gone)
	for _, s := range f.sends {
		requireFailure(t, request.ErrProcFailed, s)
	}
	require.Zero(t, f.w.pmls[0].Busy())
	f.w.modules[1].lose(0, &btl.Error{Rail: "wire", Class: btl.ClassPeerGone})
	require.Zero(t, f.w.pmls[1].blockedPeers)

	f = flooded(t, 500, false)
	require.NoError(t, f.w.pmls[0].Close(nil))
	for _, s := range f.sends[1:] {
		requireFailure(t, btl.ErrClosed, s)
	}

	f = flooded(t, 500, false)
	buf := pattern(1000, 5)
	s := f.w.pmls[0].Isend(f.c[0], buf, 1, 3, Standard, "send")
	require.Equal(t, sendPending, s.state)
	s.Detach()
	clear(buf)
	s.Abandon()
	requireArrival(t, f.w, f.c[1], 3, pattern(1000, 5))
}

func TestPendingSendsToOwnRankArrive(t *testing.T) {
	w, c := newWire(t, 1, withWindow(6500))
	p := w.pmls[0]
	var sends []*SendRequest
	for i := range 1000 {
		sends = append(sends, p.Isend(c[0], pattern(3, i), 0, i, Synchronous, "ssend"))
	}
	w.settle()
	require.Positive(t, p.Stats().Deferred)
	for i := range sends { // in reverse order
		i = len(sends) - 1 - i
		out := make([]byte, 3)
		r := p.Irecv(c[0], out, 1, 0, i, "recv")
		w.settle()
		requireSuccess(t, r)
		require.Equal(t, pattern(3, i), out)
		requireSuccess(t, sends[i])
	}
	require.Zero(t, p.Busy()+p.blockedPeers)
}
