package bml

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
)

// numberedOn counts the numbered fragments under way on a rail.
func (w *wire) numberedOn(rail int) (n int) {
	for _, f := range w.on(tagNumbered) {
		if f.rail == rail {
			n++
		}
	}
	return n
}

// Operations that have waited for room for four ticks go by a rail that has room. That the rail had
// none is evidence against this side while its own operations fill it, and against the peer if none
// is under way, or none ends.
func TestQueuedOperationsHaveAgeLimit(t *testing.T) {
	for name, c := range map[string]struct {
		underWay int
		isMoving bool
		want     railErrors
		penalty  health
	}{
		"filled by this side":   {2, true, railErrors{local: ErrorCounts{Timeout: 1}}, queuePenalty},
		"peer takes nothing":    {2, false, railErrors{remote: ErrorCounts{Timeout: 1}}, 0},
		"nothing was under way": {0, false, railErrors{remote: ErrorCounts{Timeout: 1}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, pr := slowWire(t)
			r := w.ranks[0]
			for range c.underWay {
				r.send(1, "under way")
			}
			w.rails[0][0].full = true
			for range 3 {
				r.send(1, "queued")
			}
			w.pass(120 * msec)
			if c.isMoving {
				w.step(0)
			}
			w.pass(70 * msec)
			require.Equal(t, 3, pr.rails[0].queue.Len())
			require.Zero(t, pr.rails[0].errors)
			w.pass(20 * msec)
			require.Zero(t, pr.rails[0].queue.Len())
			require.Equal(t, 3, w.numberedOn(1))
			require.Equal(t, c.want, pr.rails[0].errors)
			require.Equal(t, fullHealth-c.penalty, pr.rails[0].own.health)
			require.Equal(t, []uint64{c.want.local.Timeout, c.want.remote.Timeout}, []uint64{r.stats.LocalErrors, r.stats.RemoteErrors})
			require.Equal(t, fullHealth, pr.rails[1].trust())
			w.rails[0][0].full = false
			w.settle()
			require.Len(t, w.ranks[1].got, len(r.sent))
			require.True(t, pr.IsIdle())
		})
	}
}

// That no rail has room is no evidence against one of them, although the other one's queue was
// empty.
func TestQueueThatNoRailHasRoomForIsNoEvidence(t *testing.T) {
	w, pr := slowWire(t)
	w.rails[0][0].full, w.rails[1][0].full = true, true
	w.ranks[0].send(1, "queued")
	w.pass(210 * msec)
	require.Equal(t, 1, pr.rails[1].queue.Len(), "it has tried")
	require.Zero(t, pr.rails[0].errors)
	require.Equal(t, fullHealth, pr.rails[0].own.health)
}

// An operation that moves may be called back while it is posted. Those that stay are in their queue
// then, so that they can be ended.
func TestOperationsThatStayCanEndWhileOthersMove(t *testing.T) {
	w, pr := slowWire(t)
	r := w.ranks[0]
	w.rails[0][0].full, w.async = true, false
	ended, moved := 0, 0
	stays, moves := r.op("stays"), r.op("moves")
	stays.bound, stays.Then = true, func(*Op, error) { ended++ }
	moves.Then = func(*Op, error) {
		moved++
		require.True(t, stays.IsQueued())
		r.EndQueued(stays, errors.New("not needed any more"))
	}
	r.post(&pr.rails[0], stays)
	r.Send(pr, moves)
	w.pass(400 * msec)
	require.Equal(t, 1, moved)
	require.Equal(t, 1, ended)
	require.True(t, pr.rails[0].queue.Empty())
}

// The age of an operation counts from when it was queued, and bound ones and young ones keep their
// place.
func TestYoungOperationsStayQueued(t *testing.T) {
	w, pr := slowWire(t)
	r := w.ranks[0]
	w.rails[0][0].full = true
	bound := r.op("bound")
	bound.bound = true
	r.post(&pr.rails[0], bound)
	r.send(1, "old")
	w.pass(120 * msec)
	young := r.op("young")
	r.Send(pr, young)
	w.pass(90 * msec)
	require.Equal(t, 1, w.numberedOn(1))
	require.True(t, bound.IsQueued() && young.IsQueued())
	require.Same(t, bound, pop(&pr.rails[0].queue))
	require.Same(t, young, pop(&pr.rails[0].queue))
}

// Operations stay where they are if no other rail has room, is up, or is fast.
func TestQueuedOperationsWithoutOtherRoom(t *testing.T) {
	for name, change := range map[string]func(w *wire, pr *Peer){
		"full": func(w *wire, pr *Peer) {
			w.rails[1][0].full = true
			w.ranks[0].post(&pr.rails[1], w.ranks[0].op("queued too"))
		},
		"slow": func(_ *wire, pr *Peer) { pr.becomesSlow(&pr.rails[1]) },
		"down": func(w *wire, _ *Peer) {
			w.mended = false
			w.rails[1][0].lose(1, pathError(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, pr := slowWire(t)
			w.rails[0][0].full = true
			w.ranks[0].send(1, "queued")
			change(w, pr)
			pr.rails[0].errors = railErrors{}
			w.pass(400 * msec)
			require.NotZero(t, pr.rails[0].queue.Len())
			require.Zero(t, w.numberedOn(1))
			require.Zero(t, pr.rails[0].errors)
		})
	}
}

// The rail with most room for its bandwidth takes what waits on another one.
func TestLeastLoadedRailTakesQueue(t *testing.T) {
	for loaded, want := range map[int][]int{1: {0, 1, 1}, 2: {0, 1, 1}} {
		w, pr := threeRails(t)
		r := w.ranks[0]
		r.post(&pr.rails[loaded], r.op("more bytes than a TRIAL has"))
		w.rails[0][0].full = true
		r.send(1, "queued")
		w.pass(210 * msec)
		require.Equal(t, want, []int{w.numberedOn(0), w.numberedOn(1), w.numberedOn(2)})
	}
}

// A rail that turns out to have failed when it gets what waited on another one, or was the last of
// its peer, loses nothing.
func TestQueueLeavesForRailThatHasFailed(t *testing.T) {
	for _, isLast := range []bool{false, true} {
		w, pr := slowWire(t)
		r := w.ranks[0]
		w.mended = false
		w.rails[0][0].full = true
		for range 3 {
			r.send(1, "queued")
		}
		w.pass(150 * msec)
		w.rails[1][0].down[1] = btl.ErrFailed
		if isLast {
			w.rails[1][0].down[1] = btl.ErrInjected // not an error that the contract names
		}
		w.pass(60 * msec)
		if isLast {
			require.False(t, pr.IsAlive())
		} else {
			require.EqualValues(t, 0b01, pr.up)
		}
		w.rails[0][0].full = false
		w.rails[1][0].drain(1)
		if isLast {
			w.rails[0][0].drain(1)
		}
		w.settle()
		require.Len(t, r.sent, 3)
		require.Equal(t, !isLast, len(w.ranks[1].got) == 3)
		for _, err := range r.sent {
			require.Equal(t, isLast, err != nil)
		}
	}
}

// Pieces of a long message that wait for room go by another rail, too, and the message is whole.
func TestQueuedPiecesGoByAnotherRail(t *testing.T) {
	w, pr := slowWire(t)
	w.rails[0][0].full = true
	in := pattern(2000, 3)
	w.ranks[1].message = make([]byte, len(in))
	m := w.ranks[0].sendLong(1, in)
	queued := pr.rails[0].queue.Len()
	require.NotZero(t, queued)
	for range 5 { // what goes by the other rail is delivered
		w.pass(50 * msec)
		for len(w.flying) > 0 {
			w.step(0)
		}
	}
	require.Zero(t, pr.rails[0].queue.Len())
	w.settle()
	require.True(t, m.isDone)
	require.Equal(t, in, w.ranks[1].message)
	require.Zero(t, m.t.loads)
	require.Zero(t, w.ranks[0].stats.RailsFailed)
}

// A piece that is moved reaches the buffer by the keys of its new rail.
func TestMovedPieceHasOtherKeys(t *testing.T) {
	_, pr := slowWire(t)
	tr := &Transfer{peer: pr}
	tr.Begin(0, 1<<20)
	for i := range pr.rails {
		tr.theirs.key[i], tr.theirs.offset[i] = btl.Key{byte(i + 1)}, uint64(1000*i)
		tr.mine.regions[i] = &wireRegion{released: i == 1}
	}
	tr.theirs.set, tr.mine.set = 0b11, 0b11
	op := &Op{transfer: tr, bound: true, rail: 0}
	op.Tag, op.Payload, op.Remote, op.RemoteOffset = TagPut, make([]byte, 1000), tr.theirs.key[0], 77
	tr.under, tr.loads[0] = 1, load{1, 1000}
	require.Same(t, &pr.rails[1], pr.withRoom(&pr.rails[0], op))
	op.moveTo(&pr.rails[1])
	require.EqualValues(t, 1, op.rail)
	require.Equal(t, tr.theirs.key[1], op.Remote)
	require.EqualValues(t, 1077, op.RemoteOffset)
	require.Same(t, tr.mine.regions[1], op.Local)
	require.Equal(t, [2]load{{}, {1, 1000}}, [2]load(tr.loads[:2]))
	require.Equal(t, 1, tr.under)

	tr.theirs.set = 0b10
	require.Nil(t, pr.withRoom(&pr.rails[1], op), "a rail without a key")
	tr.theirs.set, tr.isInterrupted = 0b11, true
	require.Nil(t, pr.withRoom(&pr.rails[1], op), "a transfer that will begin anew")
	tr.isInterrupted = false
	op.Tag, op.Payload = tagPlain, make([]byte, 200) // longer than what the other rail takes
	require.Nil(t, pr.withRoom(&pr.rails[1], op))
}

// Messages that wait on a rail without room arrive by the other one, in order.
func TestQueueMovesInOrder(t *testing.T) {
	w := newWatched(t, 10*sec, loop.RailConfig{BandwidthMBps: 20}, loop.RailConfig{BandwidthMBps: 20})
	want := []string{"hello"}
	for i := range 2000 {
		payload := string(pattern(8000, i))
		want = append(want, payload)
		w.ranks[0].send(1, payload)
	}
	w.run(sec, 0, 1)
	require.Equal(t, want, w.ranks[1].got)
	require.NotZero(t, w.pr.rails[0].errors.local.Timeout)
	require.Zero(t, w.ranks[0].Stats().RailsFailed)
}

// Operations that wait for room keep the ticks going, and TRIALs that do so do not.
func TestTicksWhileOperationsWaitForRoom(t *testing.T) {
	w, pr := slowWire(t)
	r := w.ranks[0]
	w.rails[0][0].full, w.rails[1][0].full = true, true
	r.post(&pr.rails[1], r.op("queued"))
	r.tryRail(&pr.rails[0], trialBytes, 1)
	w.pass(sec)
	require.NotNil(t, pr.watch.timer)
	w.rails[1][0].full = false
	w.pass(msec)
	for len(w.flying) > 0 {
		w.step(0)
	}
	w.pass(sec)
	require.Nil(t, pr.watch.timer)
	require.Equal(t, trialFragments, pr.rails[0].queue.Len())
}

// While an operation waits for room on the first rail, nothing goes inline by it, whatever happens
// to other rails. What waits on another rail keeps nothing from going inline.
func TestInlineWhileOperationsWaitForRoom(t *testing.T) {
	for rail := range 2 {
		w := newWire(t, 2, withRails(3), withGrace(10*sec), func(w *wire) {
			for i := range w.attrs {
				w.attrs[i].Caps |= btl.CapInline
				w.attrs[i].InlineBytes = 40
			}
		})
		resolve(w)
		r, pr := w.ranks[0], w.ranks[0].Peer(1)
		w.rails[rail][0].full = true
		bound := r.op("bound")
		bound.bound = true
		r.post(&pr.rails[rail], bound)
		r.post(&pr.rails[rail], r.op("moves"))
		w.pass(190 * msec)
		if rail == 0 {
			w.rails[1][0].down[1] = btl.ErrFailed
		}
		w.pass(20 * msec)
		require.Equal(t, rail == 1, pr.HasInline())
		require.Equal(t, rail == 1, pr.rails[1].state == railUp)
		require.NotZero(t, pr.rails[rail].queue.Len())
	}
}

// Operations do not change places between rails that have no room.
func TestOperationsStayWhileOtherRailHasQueue(t *testing.T) {
	w, pr := slowWire(t)
	r := w.ranks[0]
	ops := []*Op{r.op("first"), r.op("second")}
	for i, op := range ops {
		w.rails[i][0].full = true
		r.post(&pr.rails[i], op)
	}
	posts := r.stats.Retries
	w.pass(sec)
	require.Equal(t, posts, r.stats.Retries)
	for i, op := range ops {
		require.Same(t, op, pop(&pr.rails[i].queue))
	}
}

// A rail that had room for one operation, and not for the next, is evidence against the full one. A
// rail that fails when it gets the operation is none.
func TestWhichMovesAreEvidence(t *testing.T) {
	for _, fails := range []bool{false, true} {
		w, pr := slowWire(t)
		r := w.ranks[0]
		w.mended = false
		w.rails[0][0].full = true
		short, long := r.op("short"), r.op("long")
		long.Payload = make([]byte, 100) // the endpoint of the other rail has no room for it
		r.post(&pr.rails[0], short)
		r.post(&pr.rails[0], long)
		w.rails[1][0].limit = 100
		if fails {
			w.rails[1][0].down[1] = btl.ErrFailed
		}
		w.pass(210 * msec)
		if fails {
			require.EqualValues(t, 0b01, pr.up)
			require.Zero(t, pr.rails[0].errors.remote)
			continue
		}
		require.Equal(t, 1, w.numberedOn(1))
		require.Equal(t, 1, pr.rails[1].queue.Len())
		require.Equal(t, railErrors{remote: ErrorCounts{Timeout: 1}}, pr.rails[0].errors)
	}
}
