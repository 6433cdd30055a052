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

// sendCopied sends what need not be waited for, and then uses its buffer for something else.
func sendCopied(t *testing.T, w *wire, c *Context, data []byte, tag int) {
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
	require.NoError(t, w.pmls[0].route(w.pmls[0].peer(1)))
	return w, c
}

// TestSmallSendsDoNotWait: a send whose message is small is over before that is delivered, and its buffer is the caller's.
func TestSmallSendsDoNotWait(t *testing.T) {
	w, c := newCopying(t, 1)
	for seed, n := range []int{0, 1, 8, 90} {
		sendCopied(t, w, c[0], pattern(n, seed), seed)
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
	require.Zero(t, p.copied)
	require.Len(t, p.freeCopies, 4)
}

// TestCopiesAreBounded: once so many are under way sends wait for theirs, in order.
func TestCopiesAreBounded(t *testing.T) {
	w, c := newCopying(t, 1)
	p := w.pmls[0]
	for i := range mostCopied {
		sendCopied(t, w, c[0], pattern(8, i), 7)
	}
	s := p.Send(c[0], pattern(8, mostCopied), 1, 7, Standard, "send")
	require.NotNil(t, s)
	for i := range mostCopied + 1 {
		out := make([]byte, 8)
		w.pmls[1].Irecv(c[1], out, 1, 0, 7, "recv")
		w.settle()
		require.Equal(t, pattern(8, i), out)
	}
	require.Equal(t, request.Complete, s.State())
	require.Len(t, p.freeCopies, mostCopied)
	sendCopied(t, w, c[0], pattern(8, 1), 7)
	require.Len(t, p.freeCopies, mostCopied-1, "they are used again")
}

// TestWhatIsNotCopied: a send that has to wait in any case, that would overtake others, or that asks whether it was matched.
func TestWhatIsNotCopied(t *testing.T) {
	w, c := newCopying(t, 1)
	p := w.pmls[0]
	require.NotNil(t, p.Send(c[0], pattern(127, 1), 1, 7, Standard, "send"), "longer than goes eagerly")
	require.NotNil(t, p.Send(c[0], pattern(8, 1), 1, 7, Synchronous, "ssend"))
	require.Zero(t, p.copied)
	w.refuse = 1
	s := p.Send(c[0], pattern(8, 2), 1, 7, Standard, "send")
	require.NotNil(t, s, "the rail is found to have no room")
	require.Equal(t, 1, p.copied)
	require.NotNil(t, p.Send(c[0], pattern(8, 3), 1, 7, Standard, "send"), "the rail has no room")
	require.Equal(t, 1, p.copied, "nothing is gained by another copy")
	w.settle()
	_, err := s.Take()
	require.NoError(t, err)
	require.Zero(t, p.copied)
	p.peer(1).barred = true
	require.NotNil(t, p.Send(c[0], pattern(8, 4), 1, 7, Standard, "send"))
}

// TestACopyIsSentAgain: the rail fails on which a copy was under way, when its send has long been over.
func TestACopyIsSentAgain(t *testing.T) {
	w, c := newCopying(t, 2)
	p := w.pmls[0]
	sendCopied(t, w, c[0], pattern(90, 3), 7)
	require.Len(t, w.flying, 1)
	f := w.flying[0]
	w.flying = nil
	p.Failed(w.rails[0][0], 1, pathErr)
	f.op.Done(f.op, pathErr)
	w.rails[0][0].drain(1)
	out := make([]byte, 90)
	r := w.pmls[1].Irecv(c[1], out, 1, 0, 7, "recv")
	w.settle()
	require.Equal(t, request.Complete, r.State())
	require.Equal(t, pattern(90, 3), out)
	require.Zero(t, p.copied)
}
