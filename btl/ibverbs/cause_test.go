package ibverbs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// flushReceive has a receive of b flushed, with nothing that says why, and drives b alone until it
// knows.
func (w *world) flushReceive() (b *rankOf, at int64) {
	a, b := w.ranks[0], w.ranks[1]
	b.hca.Inject(simhca.Fault{Kind: simhca.FaultRecvStatus, QPN: b.end().qpn, Status: verbs.StatusWRFlushErr})
	require.NoError(w.t, a.send("x"))
	w.deliver()
	at = w.clock.Now()
	for range 2 * lookEvery {
		b.m.Progress()
	}
	require.Empty(w.t, b.failed, "a receive was flushed, and what led to it may be on its way")
	require.ErrorIs(w.t, b.send("y"), btl.ErrResource)
	return b, at
}

// TestFlushBeforeItsEvent: an event that comes after the receives that it has flushed is the cause.
func TestFlushBeforeItsEvent(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	b, _ := w.flushReceive()
	require.True(t, b.hca.RaiseQP(b.end().qpn, verbs.EventQPAccessErr))
	b.fails(0, btl.ClassUsage, btl.SideNone, verbs.EventQPAccessErr.Native())
	w.mend()
}

// TestFlushOfNothing: if nothing comes, the flush is all that is known, after a while.
func TestFlushOfNothing(t *testing.T) {
	w := newWorld(t, Config{})
	w.connect()
	w.works()
	b, at := w.flushReceive()
	for len(b.failed) == 0 {
		b.m.Progress()
		*w.clock.extra += int64(100 * time.Microsecond)
	}
	require.InDelta(t, symptomNanos, w.clock.Now()-at, 8e6)
	require.Equal(t, []any{btl.ClassFlushed, verbs.StatusWRFlushErr.Native()}, []any{b.failed[0].Class, b.failed[0].Native})
	w.mend()
}

// TestFlushWhileThePortGoes: a port that goes down meanwhile is the cause.
func TestFlushWhileThePortGoes(t *testing.T) {
	w := newWorld(t, Config{PortGrace: time.Hour})
	w.connect()
	w.works()
	b, _ := w.flushReceive()
	b.hca.SetLink(1, false)
	b.fails(0, btl.ClassPath, btl.SideLocal, verbs.StatusWRFlushErr.Native())
	require.ErrorContains(t, b.failed[0], "port 1 of sim0 is down")
	b.hca.SetLink(1, true)
	w.turns(100)
	w.mend()
}

// TestFirstThatIsNoFlush: of failed completions that come together only one that is no flush is
// evidence, wherever it stands.
func TestFirstThatIsNoFlush(t *testing.T) {
	for _, flushed := range []wrType{wrSend, wrRecv} {
		w := newWorld(t, Config{})
		w.connect()
		w.works()
		a := w.ranks[0]
		e := a.end()
		require.NoError(t, a.send("x"))
		wcs := []verbs.WC{
			{ID: uint64(makeID(flushed, e.made, e.number, e.sqTail&e.sqMask)), QPNum: e.qpn, Status: verbs.StatusWRFlushErr},
			// Another's.
			{ID: uint64(makeID(wrRecv, e.made, e.number, 1)), QPNum: e.qpn + 1, Status: verbs.StatusLocAccessErr},
			{ID: uint64(makeID(wrRecv, e.made, e.number, 1)), QPNum: e.qpn, Status: verbs.StatusRemAbortErr},
			{ID: uint64(makeID(wrRecv, e.made, e.number, 2)), QPNum: e.qpn, Status: verbs.StatusLocLenErr},
			{ID: uint64(makeID(wrRecv, e.made, e.number, 3)), QPNum: e.qpn, Status: verbs.StatusBadRespErr},
		}
		for i := range wcs {
			a.m.complete(&wcs[i], wcs[i+1:])
		}
		a.fails(1, btl.ClassUsage, btl.SideNone, verbs.StatusLocLenErr.Native())
	}
}

// TestRefusalAfterItsNews: the peer's end fails for a request of ours, and word of that overtakes
// the refusal. The request ends as what it is: wrong in itself, and not for the path.
func TestRefusalAfterItsNews(t *testing.T) {
	for _, refused := range []bool{true, false} {
		w := newWorld(t, Config{})
		w.connect()
		w.works()
		a, b := w.ranks[0], w.ranks[1]
		a.ended = nil
		from, err := a.m.Register(make([]byte, 8), btl.AccessLocal)
		require.NoError(t, err)
		to, err := b.m.Register(make([]byte, 8), btl.AccessRemoteWrite)
		require.NoError(t, err)
		k, ok := parseKey(new(to.Key()))
		require.True(t, ok)
		k.rkey ^= 1 << 31
		op := a.newOp()
		op.Payload, op.Local, op.Remote = from.(*region).mem, from, k.encode()
		if !refused {
			a.hca.Inject(simhca.Fault{Kind: simhca.FaultSilence, QPN: a.end().qpn})
		}
		a.under++
		require.NoError(t, a.end().Put(op))
		since := w.clock.Now()
		a.m.handle(&message{kind: msgDOWN, from: 1, fromNonce: b.m.me, toNonce: a.m.me, epoch: a.end().Epoch(), address: b.m.h.address()})
		want := []any{btl.ClassPath, btl.SideRemote, ""}
		if refused {
			want = []any{btl.ClassUsage, btl.SideNone, verbs.StatusRemAccessErr.Native()}
		}
		a.fails(1, want[0].(btl.Class), want[1].(btl.Side), want[2].(string))
		require.Less(t, w.clock.Now()-since, int64(2*symptomNanos))
		require.Len(t, a.ended, 1)
		if refused {
			var be *btl.Error
			require.ErrorAs(t, a.ended[0], &be)
			require.Equal(t, btl.ClassUsage, be.Class)
		}
		b.ep.Fail(nil)
		w.mend()
	}
}
