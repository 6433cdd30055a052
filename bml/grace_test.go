package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/request"
)

// A grace time that begins while the clock runs, within a part, is not shorter for that.
func TestGraceIsNotCutShort(t *testing.T) {
	const grace = 10 * sec
	w := newPair(t, grace, loop.RailConfig{})
	b := w.ranks[0].BML
	pr := b.Peer(1)
	require.NoError(t, b.Resolve(pr))
	pr.grace.until = b.startGrace(pr, grace)
	w.run(sec/2, 0)
	begin := w.fabric.Now()
	end := b.startGrace(pr, grace)
	pr.grace.until = end
	for pr.grace.parts < end {
		w.run(sec/100, 0)
	}
	require.GreaterOrEqual(t, w.fabric.Now()-begin, grace)
	require.Less(t, w.fabric.Now()-begin, grace+grace/graceParts)
	require.Nil(t, pr.grace.timer, "nothing is wrong any more")
}

// newGraceWire makes a wire of this many rails to rank 1, all in use.
func newGraceWire(t *testing.T, rails int, grace int64) (w *wire, r *testRank, pr *Peer) {
	w = newWire(t, 2, func(w *wire) {
		withRails(rails)(w)
		w.grace = grace
	})
	resolve(w)
	return w, w.ranks[0], w.ranks[0].Peer(1)
}

// failAll has everything under way end with an error of its rail, which stays up.
func (w *wire) failAll() {
	flying := w.flying
	w.flying = nil
	for _, f := range flying {
		w.end(f, pathError(f.rail))
	}
}

// A failed path fails its peer when the grace time is over, and not before.
func TestGraceTimeOfAPeerWithoutPath(t *testing.T) {
	w, r, pr := newGraceWire(t, 1, 10*sec)
	w.rails[0][0].lose(1, pathError(0))
	r.send(1, "a")
	require.True(t, pr.AwaitsPath())
	w.pass(9990 * msec)
	require.True(t, pr.IsAlive())
	w.pass(20 * msec)
	require.True(t, pr.IsLost())
	require.Len(t, r.sent, 1)
	require.ErrorIs(t, r.sent[0], request.ErrUnreachable)
	require.ErrorIs(t, r.sent[0], pr.Err())
	require.ErrorContains(t, r.sent[0], "injected")
}

// A rank that makes no calls for long loses one part of the grace time at most.
func TestGraceTimeOfABusyRank(t *testing.T) {
	w, _, pr := newGraceWire(t, 1, 10*sec)
	w.rails[0][0].lose(1, pathError(0))
	w.now += 100 * sec
	w.pass(8900 * msec)
	require.True(t, pr.IsAlive())
	w.pass(200 * msec)
	require.False(t, pr.IsAlive())
}

// The time in which a PROBE was delivered, and not answered, does not count. It counts while no
// PROBE is delivered, and after that incarnation has failed.
func TestGraceTimeWhileThePeerIsBusy(t *testing.T) {
	for _, rails := range []int{1, 2} {
		w, _, pr := newGraceWire(t, rails, 10*sec)
		w.ranks = w.ranks[:1]
		w.mended = true
		for i, rail := range w.rails {
			rail[0].lose(1, pathError(i))
		}
		w.pass(10 * msec)
		w.end(w.on(TagProbe)[0], nil) // by rail 0
		w.rails[0][0].take(1)
		w.pass(30 * sec)
		require.Zero(t, pr.grace.parts)
		require.True(t, pr.IsAlive())
		w.mended = false
		w.rails[0][0].lose(1, pathError(0)) // with the reminder under way
		w.pass(9 * sec)
		require.True(t, pr.IsAlive())
		w.pass(2 * sec)
		require.False(t, pr.IsAlive())
	}
	w, _, pr := newGraceWire(t, 1, 10*sec)
	w.mended = true
	w.rails[0][0].lose(1, pathError(0))
	w.pass(1900 * msec) // no PROBE is delivered
	require.EqualValues(t, 1, pr.grace.parts)
}

// A path that comes back stops the clock, and posts what has waited, in order.
func TestPathFound(t *testing.T) {
	w, r, pr := newGraceWire(t, 1, 10*sec)
	r.send(1, "a")
	w.rails[0][0].fail(1, pathError(0))
	r.send(1, "c") // before what was under way comes back
	w.rails[0][0].drain(1)
	r.send(1, "d")
	require.NotNil(t, pr.grace.timer)
	require.Error(t, pr.cause)
	w.flying = nil
	returns(0)(w)
	require.False(t, pr.AwaitsPath())
	require.NoError(t, pr.cause)
	var got []string
	for _, f := range w.on(tagNumbered) {
		got = append(got, string(f.frag[12:13])+string(f.frag[testHeaderBytes:]))
	}
	require.Equal(t, []string{"\x01c", "\x00a", "\x02d"}, got)
	w.rails[0][0].take(1)
}
