package bml

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// piecesOn counts the pieces of long messages under way on a rail.
func (w *wire) piecesOn(rail int) (n int) {
	for _, f := range w.flying {
		if f.rail == rail && (f.tag == tagPlain || f.tag == TagPut || f.tag == TagGet) {
			n++
		}
	}
	return n
}

// The pieces of a rail that fails go by another one at once, while the rail is not drained. Nothing
// else is sent again. The buffer is given back when the rail is drained.
func TestPiecesOfFailedRailMoveAtOnce(t *testing.T) {
	for _, by := range []Access{Fragments, Write, Read} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			w, r, _ := newDeferredWire(t)
			w.mended = false
			in := pattern(800, 1) // as many fragments as one rail takes at once
			w.ranks[1].message = make([]byte, len(in))
			m := r.newLong(1, in)
			if m.by = by; by != Fragments {
				m.reachAll()
			}
			m.advance()
			rail := int(m.t.pieces[0].rail)
			failed, others := w.piecesOn(rail), w.piecesOn(1-rail)
			require.Positive(t, failed)
			failedBytes := int64(0)
			for _, op := range m.t.pieces {
				if int(op.rail) == rail {
					failedBytes += op.span.bytes()
				}
			}
			w.rails[rail][0].fail(1, pathError(rail))
			for _, f := range w.rails[rail][0].take(1) {
				w.end(f, pathError(rail))
			}
			require.Equal(t, failed+others, w.piecesOn(1-rail), "they have not moved")
			require.EqualValues(t, failed, r.Stats().Resent)
			require.EqualValues(t, failedBytes, r.Stats().ResentBytes)
			for _, err := range m.ends {
				require.Equal(t, ErrMovesAgain, err)
			}
			require.Len(t, m.ends, failed)
			w.settle()
			require.True(t, m.t.IsDone())
			require.False(t, m.isDone, "the rail may still use the buffer")
			w.rails[rail][0].drain(1)
			require.True(t, m.isDone)
			require.NoError(t, m.err)
			if by == Fragments {
				require.Equal(t, in, w.ranks[1].message)
				require.EqualValues(t, len(in), m.t.FragmentBytes())
			} else {
				require.Zero(t, m.t.FragmentBytes())
			}
		})
	}
}

// The grace time of a transfer ends when the pieces given back have arrived, not when others have.
func TestTroubleEndsWhenWhatWasGivenBackIsThere(t *testing.T) {
	w, r, _ := newGraceWire(t, 1, 10*sec)
	w.ranks[1].message = make([]byte, 2000)
	m := r.newLong(1, pattern(2000, 1))
	m.next()
	m.next()
	m.isAdvancing = true
	f := w.flying[0]
	w.flying = w.flying[1:]
	w.end(f, pathError(0))
	require.EqualValues(t, 1, m.t.by)
	w.step(0)
	require.EqualValues(t, 1, m.t.by, "a piece that had not failed arrived")
	m.next()
	require.Len(t, w.flying, 1)
	require.Equal(t, span{0, int64(w.flying[0].op.Len() - testHeaderBytes)}, opOf(w.flying[0].op).span)
	w.step(0)
	require.Zero(t, m.t.trouble)
	require.Zero(t, m.t.redone)
}

// A transfer that fails for the grace time on every rail fails its peer, however often other pieces
// arrive.
func TestTransferThatFailsForGraceTimeFailsPeer(t *testing.T) {
	w, r, pr := newGraceWire(t, 1, 10*sec)
	m := r.newLong(1, pattern(100_000, 1))
	w.ranks[1].message = make([]byte, 100_000)
	m.next()
	bad := opOf(w.flying[0].op).span
	m.advance()
	begin := w.now
	for pr.IsAlive() {
		require.Less(t, w.now-begin, 20*sec)
		flying := w.flying
		w.flying = nil
		for i, f := range flying {
			if opOf(f.op).span == bad {
				w.end(f, pathError(0))
			} else if i%2 == 0 {
				w.end(f, nil)
			} else {
				w.flying = append(w.flying, f)
			}
		}
		w.pass(100 * msec)
	}
	require.InDelta(t, 10*sec, w.now-begin, float64(2*sec))
	require.ErrorContains(t, pr.cause, "every rail fails with the same message")
}

// newMixed makes a long message that rail 0 writes, and of which rail 1 carries fragments.
func newMixed(t *testing.T) (w *wire, r *testRank, m *longMessage) {
	w = newWire(t, 2, withGrace(10*sec), func(w *wire) {
		withRails(2)(w)
		for i := range w.attrs {
			w.attrs[i].MaxSendBytes, w.attrs[i].RDMABytes = 9000, 1
		}
		w.attrs[1].Caps = 0
	})
	resolve(w)
	r = w.ranks[0]
	in := pattern(200_000, 1)
	w.ranks[1].message = make([]byte, len(in))
	m = r.newLong(1, in)
	m.by = Write
	m.t.mine.set, m.t.theirs.set = 1, 1
	m.t.mine.regions[0] = &wireRegion{m: w.rails[0][0]}
	require.EqualValues(t, 1, r.Peer(1).putters)
	return w, r, m
}

// A rail without remote writes carries fragments of a message that others write. The message counts
// the bytes that have arrived in fragments.
func TestRailWithoutWritesCarriesFragments(t *testing.T) {
	w, _, m := newMixed(t)
	m.advance()
	var fragments int64
	for !m.isDone {
		require.NotEmpty(t, w.flying)
		f := w.flying[0]
		require.Equal(t, f.rail == 1, f.tag == tagPlain, "rail %d", f.rail)
		if f.rail == 1 {
			fragments += opOf(f.op).span.bytes()
		}
		w.now += msec / 100
		w.step(0)
		require.Equal(t, fragments, m.t.FragmentBytes())
	}
	require.Positive(t, fragments)
	require.Less(t, fragments, int64(len(m.data)))
}

// A fragment that was not delivered goes as a fragment again, by any rail: it may have come, and
// the receiver counts the bytes of fragments. A write stays a write.
func TestFragmentStaysFragment(t *testing.T) {
	w, r, m := newMixed(t)
	m.advance()
	m.isAdvancing = true
	var lost span
	for i, f := range w.flying {
		if f.rail == 1 {
			lost = opOf(f.op).span
			w.flying = append(w.flying[:i:i], w.flying[i+1:]...)
			w.end(f, pathError(1))
			break
		}
	}
	require.Positive(t, lost.bytes())
	w.rails[1][0].lose(1, pathError(1))
	require.True(t, m.t.isNextFragment())
	require.EqualValues(t, 1, m.t.rails(Write))
	for m.t.isNextFragment() {
		op, from, to := r.NextPiece(m.t, Write, testHeaderBytes)
		require.NotNil(t, op)
		require.True(t, op.isFragment())
		require.Zero(t, op.rail)
		require.LessOrEqual(t, to-from, int64(9000-testHeaderBytes))
		m.t.forget(op)
	}
	op, _, _ := r.NextPiece(m.t, Write, testHeaderBytes)
	require.Equal(t, TagPut, op.Tag)
	require.Equal(t, m.t.mine.regions[0], op.Local)
}

// A remote access that fails with two incarnations of its rail, without a delivery in between, is
// given up: the rest goes in fragments. Fragments are not given up.
func TestRemoteAccessThatFailsAgainIsGivenUp(t *testing.T) {
	for _, by := range []Access{Write, Read, Fragments} {
		for _, isDelivered := range []bool{false, true} {
			w, r, pr := newGraceWire(t, 1, 100*sec)
			m := r.newLong(1, pattern(100, 1))
			w.ranks[1].message = make([]byte, 100)
			m.by = by
			m.reachAll()
			m.advance()
			w.rails[0][0].lose(1, pathError(0))
			require.True(t, m.t.CanMove(by))
			w.flying = nil
			returns(0)(w)
			r.Progress()
			require.Equal(t, 1, w.piecesOn(0))
			if isDelivered {
				m.t.trouble = trouble{}
			}
			w.rails[0][0].lose(1, pathError(0))
			require.Equal(t, by == Fragments || isDelivered, m.t.CanMove(by), "%d", by)
			require.True(t, pr.IsAlive())
			require.EqualValues(t, 100, m.t.left)
		}
	}
}

// A rail that calls a fragment invalid is avoided. When all rails have done so often enough, the
// transfer is refused.
func TestFragmentThatRailsCallWrongIsRefused(t *testing.T) {
	w, _, m := newMixed(t)
	m.by = Fragments
	m.isAdvancing = true
	seen := RailSet(0)
	for n := 0; !m.t.IsRefused(); n++ {
		require.Less(t, n, 2*maxMistakes)
		require.True(t, m.next())
		f := w.flying[0]
		if n < 2 {
			require.False(t, seen.Has(f.rail), "it goes by the rail that has refused it")
		}
		seen |= 1 << f.rail
		w.flying = nil
		w.end(f, &btl.Error{Class: btl.ClassUsage, Native: "wrong"})
		require.Equal(t, ErrMovesAgain, m.ends[n])
	}
	require.Len(t, m.ends, maxMistakes+1)
	require.ErrorContains(t, m.t.LastMistake(), "wrong")
	require.Empty(t, m.t.fences)
}
