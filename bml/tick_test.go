package bml

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What happens without a delivery, when a tick comes.

func TestTickHelpsTail(t *testing.T) {
	w, r, m, late := newTail(t)
	w.pass(2 * msec)
	require.Equal(t, 1, w.piecesOn(1-late.rail), "the late piece did not go by the other rail")
	w.step(1)
	require.True(t, m.isDone)
	require.NotZero(t, r.Stats().TwiceBytes)
}

// The last piece of a message waits for room on one rail, and the other one has some.
func TestTickMovesQueuedPiece(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec))
	resolve(w)
	r := w.ranks[0]
	w.ranks[1].message = make([]byte, 100)
	for i := range w.rails {
		w.rails[i][0].full = true
	}
	m := r.newLong(1, pattern(100, 1))
	require.True(t, m.next())
	waits := m.t.pieces[0]
	require.True(t, waits.IsQueued())
	other := 1 - int(waits.rail)
	w.rails[other][0].full = false
	w.measure(r.Peer(1), int(waits.rail), 10*msec, 1)
	w.measure(r.Peer(1), other, msec/100, 1)
	w.pass(2 * msec)
	require.Equal(t, 1, w.piecesOn(other))
	w.settle()
	require.True(t, m.isDone)
}

// Later numbered fragments wait at the peer for one that its rail holds up.
func TestTickCopiesShortMessage(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	w.measure(pr, 1, msec/100, 1)
	r.post(&pr.rails[0], r.op("held up"))
	w.pass(100 * msec)
	require.Len(t, w.on(tagNumbered), 2)
	copied := w.on(tagNumbered)[1]
	require.Equal(t, 1, copied.rail)
	require.NotZero(t, r.Stats().TwiceBytes)
	w.pass(100 * msec)
	require.Len(t, w.on(tagNumbered), 2, "a message is copied twice")
	w.settle()
	require.Equal(t, []string{"held up"}, w.ranks[1].got)
	require.Equal(t, []error{nil}, r.sent)
}

// A device still reads a message whose copy is delivered. Then its rail fails.
func TestMessageWithDeliveredCopyIsNotReplayed(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	w.isRead = true
	w.measure(pr, 1, msec/100, 1)
	r.post(&pr.rails[0], r.op("held up"))
	w.pass(100 * msec)
	for _, f := range w.rails[1][0].take(1) {
		w.end(f, nil)
	}
	require.Empty(t, r.sent)
	for _, f := range w.rails[0][0].take(1) {
		w.end(f, pathError(0))
	}
	require.Equal(t, []error{nil}, r.sent)
	require.True(t, pr.replay.Empty())
}

// Short messages leave a rail that always has some under way.
func TestTickChoosesFirstRail(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	w.isRead = true // they stay under way when a copy is delivered
	w.measure(pr, 0, 10*msec, 1)
	w.measure(pr, 1, msec/100, 1)
	r.post(&pr.rails[0], r.op("under way"))
	pr.idleAt = w.now
	for pr.first.index == 0 {
		require.Less(t, w.now-pr.idleAt, sec)
		r.send(1, "more")
		w.pass(msec)
		for _, f := range w.rails[1][0].take(1) {
			w.end(f, nil)
		}
	}
	require.NotEmpty(t, w.rails[0][0].take(1), "all were delivered, so messages could not overtake each other")
}

// Deliveries after a pause of this rank are no samples, whether the tick comes before or after
// them.
func TestTimeAwayIsNoSample(t *testing.T) {
	for name, comesFirst := range map[string]func(w *wire){
		"delivery": func(w *wire) { w.acknowledge() },
		"tick":     func(w *wire) { w.pass(msec); w.acknowledge() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, 2, withGrace(10*sec), func(w *wire) {
				withRails(2)(w)
				for i := range w.attrs {
					w.attrs[i].MaxSendBytes = 1 << 20 // short pieces show no rate
				}
			})
			resolve(w)
			r, pr := w.ranks[0], w.ranks[0].Peer(1)
			w.ranks[1].message = make([]byte, 4<<20)
			m := r.newLong(1, pattern(4<<20, 1))
			for i := range pr.rails {
				w.measure(pr, i, msec/100, 1)
			}
			m.advance()
			require.Positive(t, w.piecesOn(0))
			rate := pr.judge.Measured(0, w.now)
			w.now += 10 * sec
			comesFirst(w)
			require.Greater(t, pr.judge.Measured(0, w.now), rate/2)
		})
	}
}

// The next incarnation of a rail may take another path.
func TestNextIncarnationIsMeasuredAnew(t *testing.T) {
	w, _, pr := newGraceWire(t, 2, 10*sec)
	w.measure(pr, 0, msec, 1)
	require.NotZero(t, pr.judge.Measured(0, w.now))
	w.rails[0][0].lose(1, pathError(0))
	returns(0)(w)
	require.Equal(t, railUp, pr.rails[0].state)
	require.Zero(t, pr.judge.Measured(0, w.now))
}
