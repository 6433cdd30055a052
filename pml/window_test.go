package pml

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/request"
)

// flood is the messages that rank 0 sends to rank 1, which receives them late.
type flood struct {
	t     *testing.T
	w     *wire
	c     []*Context
	sends []*SendRequest // under way
	bufs  [][]byte
}

// send starts to send a message of n bytes, and checks the window.
func (f *flood) send(n int) {
	b := pattern(n, len(f.bufs))
	f.bufs = append(f.bufs, b)
	if s := f.w.pmls[0].Send(f.c[0], b, 1, 1, Standard, "send"); s != nil {
		f.sends = append(f.sends, s)
	}
	f.checkCounts()
}

// checkCounts checks the counts of both ends.
func (f *flood) checkCounts() {
	from, to := &f.w.pmls[0].peer(1).credit, &f.w.pmls[1].peer(0).credit
	if from.sent-from.taken > from.window || from.taken > to.reported || to.reported > to.received || to.received > from.sent {
		require.FailNow(f.t, "counts", "%+v and %+v", *from, *to)
	}
	if to.received-to.reported > to.window/2 {
		require.FailNow(f.t, "no CREDIT was sent", "%+v", *to)
	}
	if st := f.w.pmls[1].Stats(); st.UnexpectedPeakBytes > from.window {
		require.FailNow(f.t, "memory", "%+v", st)
	}
}

// receive receives all messages from the nth on, and checks their order.
func (f *flood) receive(nth int) {
	for i := nth; i < len(f.bufs); i++ {
		out := make([]byte, len(f.bufs[i])+1)
		r := f.w.pmls[1].Irecv(f.c[1], out, 1, request.AnySource, 1, "recv")
		f.w.settle()
		if r.State() != request.Complete {
			require.FailNow(f.t, "not received", "message %d", i)
		}
		st := requireSuccess(f.t, r)
		if !bytes.Equal(f.bufs[i], out[:st.Bytes]) {
			require.Equal(f.t, f.bufs[i], out[:st.Bytes], "message %d", i)
		}
		f.checkCounts()
	}
	for _, s := range f.sends {
		requireSuccess(f.t, s)
	}
	f.sends = nil
	for _, p := range f.w.pmls {
		require.Zero(f.t, p.Busy())
		require.Zero(f.t, p.Stats().UnexpectedBytes)
	}
}

// TestUnexpectedBytesStayBelowWindow: the sender does not stop, and the receiver receives nothing.
// The receiver keeps less than the window, and the sender keeps the rest.
func TestUnexpectedBytesStayBelowWindow(t *testing.T) {
	for protocol, messages := range map[Protocol]int{Copy: 5000, Get: 100_000, Put: 5000} {
		if race.Enabled { // with one goroutine there is no race to find
			messages = 5000
		}
		w, c := newWire(t, 2, func(w *wire) {
			withRemote(getPut)(w)
			w.config = Config{Protocol: protocol, WindowBytes: 100_000, RDMABytes: 1000}
		})
		f := &flood{t: t, w: w, c: c}
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range messages {
			n := rng.IntN(120)
			if i%100 == 0 {
				n = 3000
			}
			f.send(n)
			w.settle()
		}
		st := w.pmls[1].Stats()
		require.Greater(t, st.UnexpectedBytes, int64(20_000), "the window is hardly used")
		require.NotZero(t, w.pmls[0].Stats().Throttled)
		require.Greater(t, len(f.sends), messages-1500)
		last := f.sends[len(f.sends)-1]
		require.Equal(t, request.Active, last.State(), "the send ended although the window is closed")
		f.receive(0)
		if protocol == Get {
			require.NotZero(t, w.pmls[1].Stats().ReceivedGet)
		}

		// Afterwards the window is open again.
		before := w.pmls[0].Stats().Throttled
		for range 100 {
			f.send(100)
		}
		require.Equal(t, before, w.pmls[0].Stats().Throttled)
		w.settle()
		f.receive(len(f.bufs) - 100)
	}
}

// TestUnreceivedRGETsCountInWindow: the remote keys in a RGET count in the window.
func TestUnreceivedRGETsCountInWindow(t *testing.T) {
	w, c := newWire(t, 2, func(w *wire) {
		withRails(1, 1)(w)
		w.attrs.MaxSendBytes, w.others[0].MaxSendBytes = 256, 256
		w.config = Config{Protocol: Get, WindowBytes: 10_000}
	})
	f := &flood{t: t, w: w, c: c}
	for range 1000 {
		f.send(1000)
		w.settle()
	}
	st := w.pmls[0].Stats()
	require.EqualValues(t, 10_000/(fragmentCostBytes+2*remoteKeyBytes), st.SentGet)
	require.EqualValues(t, 10_000/fragmentCostBytes, st.SentRendezvous)
	require.EqualValues(t, 1000, st.SentGet+st.SentRendezvous+st.Deferred)
	require.Zero(t, st.Throttled, "a long message counts as a small one")
	f.receive(0)
	require.Empty(t, w.regions)
}

// TestReceiverThatKeepsUpKeepsWindowOpen: the receiver sends CREDIT before the sender must wait,
// and no more often than necessary.
func TestReceiverThatKeepsUpKeepsWindowOpen(t *testing.T) {
	for _, async := range []bool{false, true} {
		w, c := newWire(t, 2, withAsync(async), withWindow(20_000))
		credits := 0
		w.log = func(what string, f *flight) {
			if f.tag == tagCredit && what == "arrives" {
				credits++
			}
		}
		f := &flood{t: t, w: w, c: c}
		for i := range 1000 {
			f.send(i % 90)
			f.receive(i)
		}
		require.Zero(t, w.pmls[0].Stats().Throttled)
		sent := w.pmls[0].peer(1).credit.sent
		require.Positive(t, credits)
		require.LessOrEqual(t, int64(credits), sent/10_000)
	}
}

// TestTinyWindowDeliversMessages: if a message does not fit into the window, it waits for its
// receive.
func TestTinyWindowDeliversMessages(t *testing.T) {
	for _, window := range []int64{1, fragmentCostBytes, fragmentCostBytes + 50, 200} {
		w, c := newWire(t, 2, withWindow(window))
		for _, n := range []int{0, 1, 50, 51, 96, 97, 1000} {
			for _, mode := range []Mode{Standard, Synchronous, Buffered} {
				for _, expected := range []bool{true, false} {
					exchange(t, w, c, n, n, mode, expected)
				}
			}
		}
		st := w.pmls[0].Stats()
		require.Equal(t, window < fragmentCostBytes+96, st.Throttled > 0)
		require.Equal(t, window >= fragmentCostBytes, st.SentInline > 0)
		from := &w.pmls[0].peer(1).credit
		require.LessOrEqual(t, from.sent-from.taken, window)
	}
}

// TestDroppedMessagesCountAsTaken: otherwise messages to removed contexts would close the window
// for good.
func TestDroppedMessagesCountAsTaken(t *testing.T) {
	w, c := newWire(t, 2, withWindow(2000))
	a, b := w.pmls[0], w.pmls[1]
	flow := func() (sent, taken int64) { return a.peer(1).credit.sent, b.peer(0).credit.received }
	send := func(c *Context, n int, mode Mode) {
		if s := a.Send(c, pattern(n, 1), 1, 1, mode, "send"); s != nil {
			s.Abandon()
		}
		w.settle()
	}
	_, from, to := newPairContext(w, c)
	for _, n := range []int{0, 20, 90} {
		send(from, n, Standard)
		send(from, n, Synchronous)
	}
	m, _, found := b.Improbe(to, 0, 1) // received later
	require.True(t, found)
	b.RemoveContext(to)
	for _, n := range []int{0, 20, 90} { // to a removed context
		send(from, n, Standard)
		send(from, n, Synchronous)
	}
	sent, taken := flow()
	require.EqualValues(t, fragmentCostBytes, sent-taken, "the message that Improbe took")
	requireSuccess(t, b.Imrecv(m, nil, 1, "mrecv"))

	later := a.NewContextID() // a message before AddContext counts when it is received
	from = a.AddContext(later, c[0].group, 0, testCaller{})
	send(from, 20, Standard)
	sent, taken = flow()
	require.EqualValues(t, fragmentCostBytes+20, sent-taken)
	to = b.AddContext(later, c[1].group, 1, testCaller{})
	requireSuccess(t, b.Irecv(to, make([]byte, 20), 1, 0, 1, "recv"))
	sent, taken = flow()
	require.Equal(t, sent, taken)
	require.Zero(t, a.Busy()+b.Busy())
}

// TestForgedCreditLosesPeer: a CREDIT for more than was sent is a protocol error. An older CREDIT
// than the last is ignored.
func TestForgedCreditLosesPeer(t *testing.T) {
	creditOf := func(taken int64) []byte {
		b := make([]byte, creditBytes)
		creditHdr{taken: taken}.encode(b)
		return b
	}
	w, c := newWire(t, 2)
	p := w.pmls[0]
	for range 3 {
		p.Isend(c[0], pattern(20, 1), 1, 1, Standard, "send").Abandon()
	}
	p.Arrived(w.modules[0], 1, tagCredit, creditOf(200))
	require.EqualValues(t, 200, p.peer(1).credit.taken)
	p.Arrived(w.modules[0], 1, tagCredit, creditOf(100))
	require.EqualValues(t, 200, p.peer(1).credit.taken)
	p.Arrived(w.modules[0], 1, tagCredit, creditOf(3*(20+fragmentCostBytes)))
	require.NoError(t, p.Lost(c[0], 1))
	p.Arrived(w.modules[0], 1, tagCredit, creditOf(3*(20+fragmentCostBytes)+1))
	p.Progress()
	require.ErrorIs(t, p.Lost(c[0], 1), errCredit)
	require.ErrorIs(t, p.Lost(c[0], 1), request.ErrUnreachable)
	require.EqualValues(t, 1, p.Stats().Malformed)
}

// TestSendCountsBeforePost: a transport that delivers inside the post may bring a CREDIT for the
// message before the post returns.
func TestSendCountsBeforePost(t *testing.T) {
	w, c := newQuiet(t, Auto)
	in, out := pattern(8, 1), make([]byte, 8)
	window := w.pmls[0].peer(1).credit.window
	// 8 bytes and their cost, for two windows.
	for sent := int64(0); sent < 2*window; sent += 1 << 10 {
		for range 1 << 10 / (8 + fragmentCostBytes) {
			r := w.pmls[1].Irecv(c[1], out, 1, 0, 3, "recv")
			require.True(t, w.pmls[0].SendNow(c[0], in, 1, 3) || sent == 0)
			if r.State() != request.Complete { // the first message resolves the peer
				requireSuccess(t, w.pmls[0].Isend(c[0], in, 1, 3, Standard, "send"))
			}
			requireSuccess(t, r)
		}
	}
	require.NoError(t, w.pmls[0].peer(1).Err())
	require.Positive(t, w.pmls[0].peer(1).credit.taken)
}
