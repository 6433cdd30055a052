package pml

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// exchange sends n bytes from rank 0 to rank 1, and checks both ends.
func exchange(t *testing.T, w *wire, c []*Context, n, room int, mode Mode, expected bool) {
	t.Helper()
	in, out := pattern(n, n), make([]byte, room)
	var s *SendRequest
	var r *RecvRequest
	if expected {
		r = w.pmls[1].Irecv(c[1], out, 1, 0, 7, "recv")
	}
	s = w.pmls[0].Isend(c[0], in, 1, 7, mode, "send")
	w.settle()
	if !expected {
		if mode == Synchronous {
			require.Equal(t, request.Active, s.State(), "the synchronous send ended before its match")
		}
		r = w.pmls[1].Irecv(c[1], out, 1, request.AnySource, request.AnyTag, "recv")
		w.settle()
	}
	require.Equal(t, request.Complete, r.State())
	requireSuccess(t, s)
	st, err := r.Take()
	if n > room {
		require.ErrorIs(t, err, request.ErrTruncate)
	} else {
		require.NoError(t, err)
	}
	fits := min(n, room)
	require.Equal(t, request.Status{Source: 0, Tag: 7, Count: fits, Bytes: int64(fits)}, st)
	require.Equal(t, in[:fits], out[:fits])
	for _, p := range w.pmls {
		require.Zero(t, p.Busy())
		require.Empty(t, p.Pending())
		require.Zero(t, p.Stats().UnexpectedBytes)
		require.Zero(t, p.Stats().Malformed)
	}
}

// TestMessagesAtLimitsArrive sends messages of each limit, and one byte less and more, over rails
// with sensible and other attributes. The wire checks that no fragment is too long.
func TestMessagesAtLimitsArrive(t *testing.T) {
	for _, attrs := range []btl.Attrs{
		{EagerBytes: 128, MaxSendBytes: 128, InlineBytes: 40},
		{EagerBytes: 128, MaxSendBytes: 256, InlineBytes: 128},
		{EagerBytes: 64, MaxSendBytes: 64, InlineBytes: 0},
		{EagerBytes: 0, MaxSendBytes: 64, InlineBytes: 64},
		{EagerBytes: -9, MaxSendBytes: 100, InlineBytes: -9},
		{EagerBytes: 20, MaxSendBytes: 100, InlineBytes: 16},
		{EagerBytes: 1 << 30, MaxSendBytes: 100, InlineBytes: 1 << 30},
		{EagerBytes: 64, EagerCopyBytes: 128, MaxSendBytes: 256, PieceBytes: 80, InlineBytes: 64},
		{EagerBytes: 64, EagerCopyBytes: 1 << 30, MaxSendBytes: 100, PieceBytes: 1, InlineBytes: 64},
	} {
		for _, eagerBytes := range []int{0, -1, 1, 50, 1 << 40} {
			name := fmt.Sprintf("eager %d of %d max %d inline %d, without reads %d", eagerBytes, attrs.EagerBytes,
				attrs.MaxSendBytes, attrs.InlineBytes, attrs.EagerCopyBytes)
			t.Run(name, func(t *testing.T) {
				w, c := newWire(t, 2, func(w *wire) {
					w.attrs = attrs
					w.attrs.Name, w.attrs.Caps = "wire", btl.CapInline
					// Any attributes are allowed, but the wire checks this.
					w.attrs.InlineBytes = min(attrs.InlineBytes, attrs.MaxSendBytes)
				})
				reconfigure(w.pmls[0], func(cfg *Config) { cfg.EagerBytes = eagerBytes })
				sizes := map[int]bool{0: true, 1: true, 1000: true}
				piece := attrs.MaxSendBytes - fragBytes
				for _, edge := range []int{
					attrs.EagerBytes - rndvBytes, attrs.EagerBytes - matchBytes, attrs.InlineBytes - matchBytes,
					attrs.EagerCopyBytes - rndvBytes, attrs.MaxSendBytes - rndvBytes, attrs.MaxSendBytes - matchBytes, eagerBytes,
					piece, pipelineDepth * piece, (pipelineDepth + 1) * piece,
				} {
					if edge < 1<<20 {
						for n := max(edge-1, 0); n <= edge+1; n++ {
							sizes[n] = true
						}
					}
				}
				for n := range sizes {
					for _, mode := range []Mode{Standard, Synchronous, Buffered} {
						for _, expected := range []bool{true, false} {
							exchange(t, w, c, n, n, mode, expected)
						}
					}
				}
			})
		}
	}
}

// TestEagerBytesSetsLimit: with 0 or less the rail's limit holds.
func TestEagerBytesSetsLimit(t *testing.T) {
	for set, want := range map[int]int{0: 128 - rndvBytes, -1: 128 - rndvBytes, 1: 1, 50: 50, 200: 200, 1 << 40: 300 - rndvBytes} {
		w, c := newWire(t, 2, func(w *wire) { w.attrs.MaxSendBytes = 300 })
		reconfigure(w.pmls[0], func(cfg *Config) { cfg.EagerBytes = set })
		for n, eager := range map[int]bool{want: true, want + 1: false} {
			s := w.pmls[0].Isend(c[0], pattern(n, 1), 1, 1, Standard, "send")
			require.Equal(t, !eager, s.state == sendRTS, "%d bytes, limit %d", n, set)
		}
	}
}

// TestEagerCopyBytesSetsLimitWhereNothingIsRead: the eager limit is EagerBytes for messages that
// the receiver can read in place, else EagerCopyBytes.
func TestEagerCopyBytesSetsLimitWhereNothingIsRead(t *testing.T) {
	for caps, want := range map[btl.Caps]int{btl.CapGet: 128 - rndvBytes, 0: 200 - rndvBytes} {
		w, c := newWire(t, 2, withRemote(caps), func(w *wire) {
			w.attrs.MaxSendBytes, w.attrs.EagerCopyBytes = 300, 200
		})
		for n, eager := range map[int]bool{want: true, want + 1: false} {
			s := w.pmls[0].Isend(c[0], pattern(n, 1), 1, 1, Standard, "send")
			require.Equal(t, !eager, s.state == sendRTS, "%d bytes, limit %d", n, want)
		}
		s := w.pmls[0].Isend(c[0], pattern(150, 1), 1, 1, Synchronous, "send")
		require.Equal(t, sendRTS, s.state)
	}
}

// TestMessageUpToEagerCopyBytesCountsAsThrottled if the window has no room for it, as one up to
// EagerBytes does, unless the receiver reads it.
func TestMessageUpToEagerCopyBytesCountsAsThrottled(t *testing.T) {
	const limit = 200 - rndvBytes
	for caps, throttled := range map[btl.Caps]uint64{btl.CapGet: 0, 0: 1} {
		w, c := newWire(t, 2, withRemote(caps), withWindow(fragmentCostBytes+limit-1), func(w *wire) {
			w.attrs.MaxSendBytes, w.attrs.EagerCopyBytes = 300, 200
		})
		for _, n := range []int{limit, limit + 1} {
			s := w.pmls[0].Isend(c[0], pattern(n, 1), 1, 1, Standard, "send")
			require.Equal(t, sendRTS, s.state)
		}
		require.Equal(t, throttled, w.pmls[0].Stats().Throttled)
	}
}

// TestPieceBytesBoundsFragments: a message that does not go in one fragment goes in fragments of
// this length.
func TestPieceBytesBoundsFragments(t *testing.T) {
	w, c := newWire(t, 2, func(w *wire) { w.attrs.MaxSendBytes, w.attrs.PieceBytes = 1000, 100 })
	r := w.pmls[1].Irecv(c[1], make([]byte, 2000), 1, 0, 1, "recv")
	s := w.pmls[0].Isend(c[0], pattern(10*(100-fragBytes), 1), 1, 1, Standard, "send")
	lengths := []int{}
	for len(w.flying) > 0 {
		if f := &w.flying[0]; f.tag == tagFrag {
			lengths = append(lengths, len(f.frag))
		}
		w.step(0)
	}
	requireSuccess(t, s, r)
	require.Equal(t, []int{100, 100, 100, 100, 100, 100, 100, 100, 100, 100}, lengths)
}

// TestRecvIntoShortBufferTruncates: the buffer gets the bytes that fit, and the send succeeds.
func TestRecvIntoShortBufferTruncates(t *testing.T) {
	for _, async := range []bool{false, true} {
		w, c := newWire(t, 2, withAsync(async))
		for _, n := range []int{1, 24, 96, 97, 1000} {
			for _, room := range []int{0, n / 2, n - 1} {
				for _, mode := range []Mode{Standard, Synchronous, Buffered} {
					exchange(t, w, c, n, room, mode, true)
					exchange(t, w, c, n, room, mode, false)
				}
			}
		}
	}
}

// TestSendsToFullRailStayInOrder: operations that a rail has no room for are posted later in the
// order of the sends. Inline sends do not overtake them.
func TestSendsToFullRailStayInOrder(t *testing.T) {
	for refusals := range 12 {
		w, c := newWire(t, 2)
		w.refuse = refusals
		sizes := []int{100, 8, 1000, 0, 50, 8}
		var sends []ended
		for i, n := range sizes {
			b := pattern(n, i)
			if s := w.pmls[0].Send(c[0], b, 1, 3, Standard, "send"); s != nil {
				sends = append(sends, s)
			}
			if i == 3 {
				w.pmls[0].Progress()
			}
		}
		w.settle()
		for i, n := range sizes {
			requireArrival(t, w, c[1], 3, pattern(n, i))
		}
		requireSuccess(t, sends...)
		require.Zero(t, w.pmls[1].Stats().Early, "a fragment arrived early, so a refused one had used a number")
		require.Zero(t, w.pmls[0].Busy())
	}
}

// TestPersistentRequestsRestart starts the same requests again, after every possible end of a
// start.
func TestPersistentRequestsRestart(t *testing.T) {
	w, c := newWire(t, 2, withAsync(true))
	a, b := w.pmls[0], w.pmls[1]
	for _, n := range []int{0, 10, 90, 1000} {
		for _, mode := range []Mode{Standard, Synchronous, Ready, Buffered} {
			in, out := make([]byte, n), make([]byte, n)
			s := a.SendInit(c[0], in, 1, 1, mode, "send init")
			r := b.RecvInit(c[1], out, 1, request.AnySource, request.AnyTag, "recv init")
			for i := range 6 {
				copy(in, pattern(n, i))
				if i == 2 { // cancel one start of the receive
					start(r)
					r.Cancel()
					st := requireSuccess(t, r)
					require.True(t, st.Cancelled)
				}
				if i%2 == 0 {
					start(r)
					start(s)
				} else {
					start(s)
					w.settle()
					start(r)
				}
				if mode == Buffered {
					require.Equal(t, request.Complete, s.State())
					clear(in) // the buffer is the caller's again
				}
				r.Cancel() // has no effect if the message has matched
				if r.State() == request.Complete {
					st := requireSuccess(t, r)
					if st.Cancelled {
						start(r)
					} else {
						start(r)
						r.Cancel()
					}
				}
				w.settle()
				if mode == Buffered {
					copy(in, pattern(n, i))
				}
				requireSuccess(t, s)
				st := requireSuccess(t, r)
				if !st.Cancelled {
					require.Equal(t, request.Status{Source: 0, Tag: 1, Count: n, Bytes: int64(n)}, st)
				}
				require.Equal(t, in, out)
			}
			s.Abandon()
			r.Abandon()
			require.Zero(t, a.Busy()+b.Busy())
			require.Empty(t, b.Pending())
		}
	}
}

func TestImrecvOfReceivedMessageFails(t *testing.T) {
	w, c := newWire(t, 1)
	p := w.pmls[0]
	p.Isend(c[0], pattern(1000, 1), 0, 4, Standard, "send").Abandon()
	w.settle()
	m, env, found := p.Improbe(c[0], request.AnySource, 4)
	require.True(t, found)
	require.Equal(t, Envelope{0, 4, 1000}, env)
	require.Equal(t, env, m.Envelope())
	require.False(t, m.msg == nil)
	_, found = p.Iprobe(c[0], 0, 4)
	require.False(t, found, "a probe finds a message that Improbe took")
	out := make([]byte, 1000)
	r := p.Imrecv(m, out, 1, "imrecv")
	require.True(t, m.msg == nil)
	w.settle()
	requireSuccess(t, r)
	require.Equal(t, pattern(1000, 1), out)
	requireFailure(t, request.ErrRequest, p.Imrecv(m, out, 1, "imrecv"))
}

// TestProbesFindOldestMessage: a matched probe takes the message from the probes after it.
func TestProbesFindOldestMessage(t *testing.T) {
	w, c := newWire(t, 2)
	p := w.pmls[1]
	first := p.Probe(c[1], 0, 1, false, "probe")
	taker := p.Probe(c[1], request.AnySource, 1, true, "mprobe")
	late := p.Probe(c[1], 0, request.AnyTag, false, "probe")
	other := p.Probe(c[1], 0, 2, false, "probe")
	gone := p.Probe(c[1], 0, 1, false, "probe")
	gone.Cancel()
	st := requireSuccess(t, gone)
	require.True(t, st.Cancelled)
	require.Len(t, p.Pending(), 4)

	w.pmls[0].Isend(c[0], pattern(1000, 1), 1, 1, Standard, "send").Abandon()
	w.settle()
	require.Equal(t, request.Complete, first.State())
	require.Equal(t, request.Complete, taker.State())
	require.Equal(t, request.Active, late.State())
	w.pmls[0].Isend(c[0], pattern(5, 2), 1, 3, Standard, "send").Abandon()
	w.settle()
	require.Equal(t, request.Complete, late.State())
	require.Equal(t, request.Active, other.State())
	for _, probe := range []struct {
		r     *ProbeRequest
		tag   int
		bytes int64
	}{{first, 1, 1000}, {late, 3, 5}} {
		require.Nil(t, probe.r.Message())
		st := requireSuccess(t, probe.r)
		require.Equal(t, 0, st.Source)
		require.Equal(t, probe.tag, st.Tag)
		require.Equal(t, probe.bytes, st.Bytes)
	}
	m := taker.Message()
	requireSuccess(t, taker)
	out := make([]byte, 1000)
	r := p.Imrecv(m, out, 1, "imrecv")
	w.settle()
	requireSuccess(t, r)
	require.Equal(t, pattern(1000, 1), out)
	// A probe that finds its message at once.
	now := p.Probe(c[1], request.AnySource, request.AnyTag, true, "mprobe")
	require.Equal(t, request.Complete, now.State())
	require.NotNil(t, now.Message())
	other.Abandon()
}

func TestProcNullCompletesAtOnce(t *testing.T) {
	w, c := newWire(t, 1)
	p := w.pmls[0]
	require.Nil(t, p.Send(c[0], pattern(1000, 1), request.ProcNull, 1, Synchronous, "send"))
	s := p.Isend(c[0], pattern(1000, 1), request.ProcNull, 1, Synchronous, "isend")
	require.Equal(t, request.Empty(), requireSuccess(t, s))
	r := p.RecvInit(c[0], make([]byte, 8), 1, request.ProcNull, request.AnyTag, "recv")
	for range 2 {
		start(r)
		st := requireSuccess(t, r)
		require.Equal(t, request.Status{Source: request.ProcNull, Tag: request.AnyTag}, st)
	}
	require.Empty(t, w.flying)
}
