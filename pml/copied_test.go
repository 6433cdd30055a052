package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// withoutInline gives each pair of ranks so many rails that deliver later, and take nothing inline.
func withoutInline(rails int) func(w *wire) {
	return func(w *wire) {
		w.attrs.Caps &^= btl.CapInline
		w.async = true
		for range rails - 1 {
			a := w.attrs
			a.LatencyNanos++
			w.others = append(w.others, a)
		}
	}
}

// sendBcopy sends what need not be waited for, and then uses its buffer for something else.
func sendBcopy(t *testing.T, w *wire, c *Context, data []byte, tag int) {
	t.Helper()
	buf := append([]byte(nil), data...)
	require.Nil(t, w.pmls[0].Send(c, buf, 1, tag, Standard, "send"))
	for i := range buf {
		buf[i] = 0xEE
	}
}

// newCopying is a wire of two ranks on which the way from the first to the second is known.
func newCopying(t *testing.T, rails int) (*wire, []*Context) {
	w, c := newWire(t, 2, withoutInline(rails))
	require.NoError(t, w.pmls[0].resolve(w.pmls[0].peer(1)))
	return w, c
}

// TestSmallSendsDoNotWait: a send whose message is small is over before that is delivered, and its buffer is the caller's.
func TestSmallSendsDoNotWait(t *testing.T) {
	w, c := newCopying(t, 1)
	for seed, n := range []int{0, 1, 8, 90} {
		sendBcopy(t, w, c[0], pattern(n, seed), seed)
	}
	require.Len(t, w.flying, 4)
	require.Equal(t, 4, w.pmls[0].busy, "they are not forgotten")
	for seed, n := range []int{0, 1, 8, 90} {
		out := make([]byte, n)
		r := w.pmls[1].Irecv(c[1], out, 1, 0, seed, "recv")
		w.settle()
		require.Equal(t, request.Complete, r.State())
		require.Equal(t, pattern(n, seed), out)
	}
	p := w.pmls[0]
	require.Zero(t, p.busy)
	require.Zero(t, p.bcopies)
	require.Len(t, p.freeBcopies, 4)
}

// TestCopiesAreBounded: once so many are under way sends wait for theirs, in order.
func TestCopiesAreBounded(t *testing.T) {
	w, c := newCopying(t, 1)
	p := w.pmls[0]
	for i := range maxBcopies {
		sendBcopy(t, w, c[0], pattern(8, i), 7)
	}
	s := p.Send(c[0], pattern(8, maxBcopies), 1, 7, Standard, "send")
	require.NotNil(t, s)
	for i := range maxBcopies + 1 {
		out := make([]byte, 8)
		w.pmls[1].Irecv(c[1], out, 1, 0, 7, "recv")
		w.settle()
		require.Equal(t, pattern(8, i), out)
	}
	require.Equal(t, request.Complete, s.State())
	require.Len(t, p.freeBcopies, maxBcopies)
	sendBcopy(t, w, c[0], pattern(8, 1), 7)
	require.Len(t, p.freeBcopies, maxBcopies-1, "they are used again")
}

// TestWhatIsNotCopied: a send that has to wait in any case, that would overtake others, or that asks whether it was matched.
func TestWhatIsNotCopied(t *testing.T) {
	w, c := newCopying(t, 1)
	p := w.pmls[0]
	require.NotNil(t, p.Send(c[0], pattern(127, 1), 1, 7, Standard, "send"), "longer than goes eagerly")
	require.NotNil(t, p.Send(c[0], pattern(8, 1), 1, 7, Synchronous, "ssend"))
	require.Zero(t, p.bcopies)
	w.refuse = 1
	s := p.Send(c[0], pattern(8, 2), 1, 7, Standard, "send")
	require.NotNil(t, s, "the rail is found to have no room")
	require.Equal(t, 1, p.bcopies)
	require.NotNil(t, p.Send(c[0], pattern(8, 3), 1, 7, Standard, "send"), "the rail has no room")
	require.Equal(t, 1, p.bcopies, "nothing is gained by another copy")
	w.settle()
	_, err := s.Take()
	require.NoError(t, err)
	require.Zero(t, p.bcopies)
	require.NotNil(t, p.Send(c[0], pattern(8, 4), 1, 7, Buffered, "bsend"), "it has a copy of its own, and waits for nothing")
	require.Zero(t, p.bcopies)
	waiting := new(SendRequest)
	p.peer(1).pending.push(waiting)
	require.NotNil(t, p.Send(c[0], pattern(8, 4), 1, 7, Standard, "send"), "others wait for the window")
	require.Zero(t, p.bcopies)

	w, c = newWire(t, 2, func(w *wire) { w.async = true })
	require.NoError(t, w.pmls[0].resolve(w.pmls[0].peer(1)))
	require.NotNil(t, w.pmls[0].Send(c[0], pattern(90, 1), 1, 7, Standard, "send"), "what is too long to go inline")
}

// TestBufferedDoesNotWait: if the rail has no room either.
func TestBufferedDoesNotWait(t *testing.T) {
	w, c := newCopying(t, 1)
	w.refuse = 1
	s := w.pmls[0].Send(c[0], pattern(8, 2), 1, 7, Buffered, "bsend")
	require.Equal(t, request.Complete, s.State())
}

// TestNoRailTakesACopy: the rail is found down. With a grace time the send waits for it, else for its own end.
func TestNoRailTakesACopy(t *testing.T) {
	for _, grace := range []int64{0, 1e9} {
		w, c := newWire(t, 2, func(w *wire) { withoutInline(1)(w); w.config.GraceNanos = grace })
		p := w.pmls[0]
		require.NoError(t, p.resolve(p.peer(1)))
		w.rails[0][0].down[1] = btl.ErrFailed
		require.NotNil(t, p.Send(c[0], pattern(8, 2), 1, 7, Standard, "send"))
	}
}

// TestUndelivered: who sent from a copy is told by Undelivered if the peer is lost, once, and only of what nobody waits for.
func TestUndelivered(t *testing.T) {
	w, c := newCopying(t, 1)
	p := w.pmls[0]
	waited := p.Isend(c[0], pattern(8, 1), 1, 7, Standard, "isend")
	sendBcopy(t, w, c[0], pattern(8, 2), 7)
	sendBcopy(t, w, c[0], pattern(8, 3), 8)
	flying := w.flying
	w.flying = nil
	require.NoError(t, p.Undelivered())
	require.True(t, p.HasBcopies())
	p.Failed(w.rails[0][0], 1, pathErr)
	for _, f := range flying {
		f.op.Done(f.op, pathErr)
	}
	w.rails[0][0].drain(1)
	w.settle()
	require.False(t, p.HasBcopies())
	require.Equal(t, request.Complete, waited.State())
	require.ErrorIs(t, p.Undelivered(), request.ErrUnreachable)
}

// TestCopiesAreNotDetached: the caller's buffer is not in use, and room for copies stays as large as it is.
func TestCopiesAreNotDetached(t *testing.T) {
	w, c := newCopying(t, 1)
	p := w.pmls[0]
	w.refuse = 1
	s := p.Send(c[0], pattern(8, 2), 1, 7, Standard, "send")
	s.Detach()
	s.Abandon()
	w.settle()
	require.Len(t, p.freeBcopies, 1)
	require.Equal(t, maxBcopyBytes, cap(p.freeBcopies[0]))
}

// turns counts turns of progress.
type turns int

func (n *turns) Progress() int { *n++; return 0 }

// TestSendsMakeProgress: a rank that does nothing but send makes turns, fewer if messages follow each other faster than they are delivered.
func TestSendsMakeProgress(t *testing.T) {
	w, c := newCopying(t, 1)
	var n turns
	w.pmls[0].eng.AddPoller(&n)
	for i := range 3 * fewBcopies {
		sendBcopy(t, w, c[0], pattern(8, 2), 7)
		require.EqualValues(t, i+1, n)
		w.step(0)
	}
	n = 0
	for range fewBcopies + 2*sendsPerTurn {
		sendBcopy(t, w, c[0], pattern(8, 2), 7)
	}
	require.EqualValues(t, fewBcopies+2, n)
}

// TestCopiesAllocateNothing that a send which is waited for does not, whose fragment the wire allocates.
func TestCopiesAllocateNothing(t *testing.T) {
	w, c := newCopying(t, 1)
	p, buf := w.pmls[0], pattern(90, 1)
	p.peer(1).credit.window = 1 << 40
	deliver := func() {
		f := w.flying[0]
		w.flying = w.flying[:0]
		f.op.Done(f.op, nil)
	}
	waited := func() {
		s := p.Isend(c[0], buf, 1, 7, Standard, "isend")
		deliver()
		if _, err := s.Take(); err != nil {
			t.Error(err)
		}
	}
	copied := func() {
		if p.Send(c[0], buf, 1, 7, Standard, "send") != nil {
			t.Error("it waits")
		}
		deliver()
	}
	waited()
	copied()
	require.LessOrEqual(t, testing.AllocsPerRun(1000, copied), testing.AllocsPerRun(1000, waited))
}
