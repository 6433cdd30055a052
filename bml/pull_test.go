package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml/rating"
)

// measure has a rail of a judge deliver long operations, one after the other, with a round trip and
// a rate in bytes a nanosecond. Time passes.
func (w *wire) measure(pr *Peer, rail int, trip int64, rate float64) {
	for range 100 {
		const bytes = 4 * rating.LeastPiece
		mark := pr.judge.Posted(rail, bytes, w.now)
		w.now += trip + int64(bytes/rate)
		pr.judge.Delivered(rail, bytes, mark, w.now)
	}
}

// newTail makes a long message of one fragment, which is under way on a rail and late. The other
// rail is fast.
func newTail(t *testing.T) (w *wire, r *testRank, m *longMessage, late flight) {
	w = newWire(t, 2, withRails(2), withGrace(10*sec))
	resolve(w)
	r = w.ranks[0]
	w.ranks[1].message = make([]byte, 100)
	m = r.newLong(1, pattern(100, 1))
	require.True(t, m.next())
	require.Len(t, w.flying, 1)
	late = w.flying[0]
	w.measure(r.Peer(1), 1-late.rail, msec/100, 1)
	w.now += 100 * msec
	return w, r, m, late
}

// The last fragment, which is late, goes by another rail too. The first copy to arrive ends it. If
// the other copy's endpoint does not need the payload any more, the transfer does not wait for that
// copy.
func TestLateFragmentGoesTwice(t *testing.T) {
	for _, first := range []int{0, 1} {
		w, r, m, _ := newTail(t)
		r.helpTail(m.t, w.now)
		require.Len(t, w.flying, 2)
		require.NotEqual(t, w.flying[0].rail, w.flying[1].rail)
		require.Equal(t, w.flying[0].frag, w.flying[1].frag)
		require.EqualValues(t, w.flying[1].op.Len(), r.Stats().TwiceBytes)
		r.helpTail(m.t, w.now+sec)
		require.Len(t, w.flying, 2, "it goes a third time")

		w.step(first)
		require.True(t, m.isDone)
		require.Equal(t, []error{nil}, m.ends)
		require.Equal(t, m.data, w.ranks[1].message)
		require.EqualValues(t, len(m.data), m.t.FragmentBytes())
		require.Empty(t, m.t.pieces)
		free := len(r.freeOps)
		w.flying[0].frag = nil // the receiver drops it
		f := w.flying[0]
		w.flying = nil
		w.end(f, nil)
		require.Len(t, r.freeOps, free+1, "the operation is not given back")
		require.Equal(t, []error{nil}, m.ends)
		require.EqualValues(t, len(m.data), m.t.FragmentBytes())
	}
}

// A copy whose payload a device still reads is awaited, however it ends.
func TestCoveredFragmentIsAwaited(t *testing.T) {
	for _, err := range []error{nil, pathError(0)} {
		w, r, m, late := newTail(t)
		w.isRead = true
		r.helpTail(m.t, w.now)
		w.step(1)
		require.False(t, m.isDone)
		require.False(t, m.t.IsDone())
		require.Len(t, m.t.pieces, 1)
		w.flying = nil
		r.helpTail(m.t, w.now+sec)
		require.Empty(t, w.flying, "what is there is sent again")
		w.end(late, err)
		require.Equal(t, []error{nil, nil}, m.ends)
		require.EqualValues(t, len(m.data), m.t.FragmentBytes())
		require.True(t, m.t.IsDone())
		require.Zero(t, r.Stats().Resent)
		require.Equal(t, err == nil, m.isDone, "the rail that failed may still read the buffer")
		if err != nil {
			w.rails[late.rail][0].lose(1, pathError(late.rail))
			require.True(t, m.isDone)
		}
	}
}

// A copy that fails is not sent again while its twin may still arrive.
func TestTwinThatFails(t *testing.T) {
	for _, failed := range []int{0, 1} {
		w, r, m, _ := newTail(t)
		r.helpTail(m.t, w.now)
		f := w.flying[failed]
		w.flying = append(w.flying[:failed:failed], w.flying[failed+1:]...)
		w.end(f, pathError(f.rail))
		require.Equal(t, []error{ErrMovesAgain}, m.ends)
		require.Zero(t, m.t.left)
		require.Len(t, w.flying, 1)
		m.isAdvancing = true
		other := w.flying[0]
		w.flying = nil
		w.end(other, pathError(other.rail))
		require.EqualValues(t, len(m.data), m.t.left, "both have failed")
		m.isAdvancing = false
		m.advance()
		require.Len(t, w.flying, 1)
		w.step(0)
		require.True(t, m.t.IsDone())
		require.EqualValues(t, len(m.data), m.t.FragmentBytes())
		require.Zero(t, m.t.left)
		require.Zero(t, m.t.redone)
	}
}

// The twin of a fragment that had failed before ends the transfer's trouble.
func TestTwinOfFragmentThatHadFailed(t *testing.T) {
	w, r, m, late := newTail(t)
	m.isAdvancing = true
	w.flying = nil
	w.end(late, pathError(late.rail))
	m.isAdvancing = false
	m.advance()
	require.Len(t, w.flying, 1)
	require.NotZero(t, m.t.redone)
	other := 1 - w.flying[0].rail
	w.measure(r.Peer(1), other, msec/100, 1)
	w.now += 100 * msec
	r.helpTail(m.t, w.now)
	require.Len(t, w.flying, 2)
	w.step(1)
	require.Zero(t, m.t.redone)
	require.Zero(t, m.t.trouble)
}

// A copy that waits for room ends when the other one has arrived.
func TestQueuedTwinEnds(t *testing.T) {
	w, r, m, late := newTail(t)
	w.rails[1-late.rail][0].full = true
	r.helpTail(m.t, w.now)
	require.Len(t, m.t.pieces, 2)
	require.Len(t, w.flying, 1)
	w.step(0)
	require.Equal(t, []error{nil, nil}, m.ends)
	require.True(t, m.isDone)
	require.True(t, r.Peer(1).rails[1-late.rail].queue.Empty())
}

// Only the last fragments of a message go twice: not while something is to be handed out, not a
// remote access, and not if that would not be sooner.
func TestWhatDoesNotGoTwice(t *testing.T) {
	for name, change := range map[string]func(w *wire, m *longMessage, late flight){
		"something is left": func(_ *wire, m *longMessage, _ flight) { m.t.left = 1 },
		"remote access":     func(_ *wire, m *longMessage, _ flight) { m.t.pieces[0].Tag = TagPut },
		"not late":          func(w *wire, _ *longMessage, _ flight) { w.now = 0 },
		"no other rail": func(w *wire, m *longMessage, late flight) {
			w.rails[1-late.rail][0].fail(1, pathError(0))
		},
		"no room": func(w *wire, m *longMessage, late flight) {
			w.rails[1-late.rail][0].full = true
			m.r.post(&m.t.peer.rails[1-late.rail], m.r.op("waits"))
		},
	} {
		w, r, m, late := newTail(t)
		change(w, m, late)
		n := w.piecesOn(0) + w.piecesOn(1)
		r.helpTail(m.t, w.now)
		require.Equal(t, n, w.piecesOn(0)+w.piecesOn(1), name)
	}
}

// An unused rail whose samples are old gets a TRIAL while a long message moves. A TRIAL is no
// longer than the rail's longest fragment.
func TestStaleRailIsTried(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	m := r.newLong(1, pattern(1_000_000, 1))
	w.ranks[1].message = make([]byte, 1_000_000)
	w.pass(500 * msec)
	trials := w.on(TagTrial)
	require.Len(t, trials, 2, "a TRIAL by each rail")
	require.NotEqual(t, trials[0].rail, trials[1].rail)
	for _, f := range trials {
		require.Len(t, f.frag, 128)
		require.Equal(t, r.Peer(1).rails[f.rail].sendBytes, len(f.frag))
	}
	w.settle()
	require.Zero(t, r.Peer(1).judge.Under(0)+r.Peer(1).judge.Under(1))
	w.rails[1][0].full = true
	r.post(&pr.rails[1], r.op("waits"))
	w.pass(500 * msec)
	require.Equal(t, 1, pr.rails[1].queue.Len(), "a rail without room is tried")
	r.EndTransfer(m.t, false, false)
	w.rails[1][0].full = false
	w.settle()
	for range 10 {
		w.pass(100 * msec)
	}
	require.Nil(t, pr.timer, "ticks without traffic")
}

// A TRIAL makes at most one piece.
func TestTrialIsAtMostAPiece(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), func(w *wire) {
		withRails(2)(w)
		for i := range w.attrs {
			w.attrs[i].MaxSendBytes = 1 << 20
		}
	})
	resolve(w)
	r := w.ranks[0]
	r.newLong(1, pattern(100, 1))
	w.pass(500 * msec)
	require.NotEmpty(t, w.on(TagTrial))
	for _, f := range w.on(TagTrial) {
		require.Len(t, f.frag, rating.LeastPiece)
	}
}

// Short messages go by the rail that delivers them soonest, and change their rail only while none
// is under way or waits, and only to a rail that is trusted.
func TestShortMessagesChangeTheirRail(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *wire, pr *Peer)
		want   int
	}{
		"faster": {func(*wire, *Peer) {}, 1},
		"not trusted": {func(_ *wire, pr *Peer) {
			pr.rails[1].health = trusted - 1
		}, 0},
		"of a later tier": {func(_ *wire, pr *Peer) { pr.rails[1].tier = 1 }, 0},
		"something is under way": {func(w *wire, pr *Peer) {
			w.ranks[0].post(&pr.rails[0], w.ranks[0].op("under way"))
		}, 0},
		"something waits": {func(w *wire, pr *Peer) {
			w.rails[0][0].full = true
			w.ranks[0].post(&pr.rails[0], w.ranks[0].op("waits"))
		}, 0},
		"it has no room": {func(w *wire, pr *Peer) {
			w.rails[1][0].full = true
			w.ranks[0].post(&pr.rails[1], w.ranks[0].op("waits"))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, r, pr := newDeferredWire(t)
			w.measure(pr, 0, 10*msec, 1)
			w.measure(pr, 1, msec/100, 1)
			require.Same(t, &pr.rails[0], pr.first)
			c.change(w, pr)
			r.send(1, "short")
			require.EqualValues(t, c.want, pr.first.index)
			r.prefer(pr)
			require.EqualValues(t, c.want, pr.first.index, "it is chosen anew by its latency")
		})
	}
}
