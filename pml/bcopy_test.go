package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// withoutInline gives each pair of ranks a number of rails that send nothing inline. Operations
// complete only when they are delivered.
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

// sendBcopy sends a message from a copy (bcopy), and then overwrites the buffer.
func sendBcopy(t *testing.T, w *wire, c *Context, data []byte, tag int) {
	t.Helper()
	buf := append([]byte(nil), data...)
	require.Nil(t, w.pmls[0].Send(c, buf, 1, tag, Standard, "send"))
	for i := range buf {
		buf[i] = 0xEE
	}
}

// newBcopy makes a wire of two ranks. The first has resolved the second.
func newBcopy(t *testing.T, rails int) (*wire, []*Context) {
	w, c := newWire(t, 2, withoutInline(rails))
	require.NoError(t, w.pmls[0].resolve(w.pmls[0].peer(1)))
	return w, c
}

// TestSmallSendReturnsBeforeDelivery: Send copies a small message, so the caller may reuse its
// buffer at once.
func TestSmallSendReturnsBeforeDelivery(t *testing.T) {
	w, c := newBcopy(t, 1)
	for seed, n := range []int{0, 1, 8, 90} {
		sendBcopy(t, w, c[0], pattern(n, seed), seed)
	}
	require.Len(t, w.flying, 4)
	require.Equal(t, 4, w.pmls[0].busy, "the copies do not count as busy")
	for _, p := range w.pmls[0].Pending() {
		require.True(t, p.Abandoned, "the call has returned: %v", p)
	}
	for seed, n := range []int{0, 1, 8, 90} {
		requireArrival(t, w, c[1], seed, pattern(n, seed))
	}
	p := w.pmls[0]
	require.Zero(t, p.busy)
	require.Zero(t, p.bcopies)
	require.Len(t, p.freeBcopies, 4)
}

// TestSendBeyondCopyLimitWaits: a send that finds no copy free waits, and keeps its place in the
// order.
func TestSendBeyondCopyLimitWaits(t *testing.T) {
	w, c := newBcopy(t, 1)
	p := w.pmls[0]
	for i := range maxBcopies {
		sendBcopy(t, w, c[0], pattern(8, i), 7)
	}
	s := p.Send(c[0], pattern(8, maxBcopies), 1, 7, Standard, "send")
	require.NotNil(t, s)
	for i := range maxBcopies + 1 {
		requireArrival(t, w, c[1], 7, pattern(8, i))
	}
	require.Equal(t, request.Complete, s.State())
	require.Len(t, p.freeBcopies, maxBcopies)
	sendBcopy(t, w, c[0], pattern(8, 1), 7)
	require.Len(t, p.freeBcopies, maxBcopies-1, "the copy was not reused")
}

// TestSendIsNotCopied covers sends that must wait in any case, that would overtake others, or that
// are synchronous.
func TestSendIsNotCopied(t *testing.T) {
	w, c := newBcopy(t, 1)
	p := w.pmls[0]
	require.NotNil(t, p.Send(c[0], pattern(127, 1), 1, 7, Standard, "send"), "longer than the eager limit")
	require.NotNil(t, p.Send(c[0], pattern(8, 1), 1, 7, Synchronous, "ssend"))
	require.Zero(t, p.bcopies)
	w.refuse = 1
	s := p.Send(c[0], pattern(8, 2), 1, 7, Standard, "send")
	require.NotNil(t, s, "the rail refuses the copy")
	require.Equal(t, 1, p.bcopies)
	require.NotNil(t, p.Send(c[0], pattern(8, 3), 1, 7, Standard, "send"), "the rail is known to have no room")
	require.Equal(t, 1, p.bcopies, "a second copy was made")
	w.settle()
	requireSuccess(t, s)
	require.Zero(t, p.bcopies)
	require.NotNil(t, p.Send(c[0], pattern(8, 4), 1, 7, Buffered, "bsend"), "a buffered send")
	require.Zero(t, p.bcopies)
	waiting := new(SendRequest)
	p.peer(1).pending.push(waiting)
	require.NotNil(t, p.Send(c[0], pattern(8, 4), 1, 7, Standard, "send"), "other sends wait for the window")
	require.Zero(t, p.bcopies)

	w, c = newWire(t, 2, withAsync(true))
	require.NoError(t, w.pmls[0].resolve(w.pmls[0].peer(1)))
	require.NotNil(t, w.pmls[0].Send(c[0], pattern(90, 1), 1, 7, Standard, "send"), "too long to go inline")
}

func TestBufferedSendToFullRailReturnsAtOnce(t *testing.T) {
	w, c := newBcopy(t, 1)
	w.refuse = 1
	s := w.pmls[0].Send(c[0], pattern(8, 2), 1, 7, Buffered, "bsend")
	require.Equal(t, request.Complete, s.State())
}

// TestSendCopyToFailedRailReturnsRequest: the send waits, with a grace time for the rail, and
// otherwise for its error.
func TestSendCopyToFailedRailReturnsRequest(t *testing.T) {
	for _, grace := range []int64{0, 1e9} {
		w, c := newWire(t, 2, withoutInline(1), withGrace(grace))
		p := w.pmls[0]
		require.NoError(t, p.resolve(p.peer(1)))
		w.rails[0][0].down[1] = btl.ErrFailed
		require.NotNil(t, p.Send(c[0], pattern(8, 2), 1, 7, Standard, "send"))
	}
}

// TestUndeliveredReportsLostCopies: Undelivered reports a message that was sent from a copy to a
// lost peer. It does not report a send that has a request.
func TestUndeliveredReportsLostCopies(t *testing.T) {
	w, c := newBcopy(t, 1)
	p := w.pmls[0]
	waited := p.Isend(c[0], pattern(8, 1), 1, 7, Standard, "isend")
	sendBcopy(t, w, c[0], pattern(8, 2), 7)
	sendBcopy(t, w, c[0], pattern(8, 3), 8)
	flying := w.flying
	w.flying = nil
	require.NoError(t, p.Undelivered())
	require.True(t, p.HasBcopies())
	p.Failed(w.rails[0][0], w.rails[0][0].path(1), pathErr)
	for _, f := range flying {
		f.op.Done(f.op, pathErr)
	}
	w.rails[0][0].drain(1)
	w.settle()
	require.False(t, p.HasBcopies())
	require.Equal(t, request.Complete, waited.State())
	require.ErrorIs(t, p.Undelivered(), request.ErrUnreachable)
}

// TestDetachOfCopyChangesNothing: the send does not use the caller's buffer, and its copy keeps its
// capacity.
func TestDetachOfCopyChangesNothing(t *testing.T) {
	w, c := newBcopy(t, 1)
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

// TestSendFromCopyMakesProgress: a rank that only sends makes a turn for each message, and fewer if
// it sends faster than the rail delivers.
func TestSendFromCopyMakesProgress(t *testing.T) {
	w, c := newBcopy(t, 1)
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

// TestSendFromCopyAllocatesNoMoreThanIsend: the wire allocates the fragment in both cases.
func TestSendFromCopyAllocatesNoMoreThanIsend(t *testing.T) {
	w, c := newBcopy(t, 1)
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
			t.Error("the send was not copied")
		}
		deliver()
	}
	waited()
	copied()
	require.LessOrEqual(t, testing.AllocsPerRun(1000, copied), testing.AllocsPerRun(1000, waited))
}
