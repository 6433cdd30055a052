package bml

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// Each kind of deferred work runs in the next progress call, not inside the call that caused it.
// The wire reports an endpoint that is opened or failed inside a call of a BTL.

func newDeferredWire(t *testing.T) (w *wire, r *testRank, pr *Peer) {
	w = newWire(t, 2, withRails(2), mended, withGrace(10*sec))
	resolve(w)
	r = w.ranks[0]
	require.Zero(t, r.Deferred())
	require.Zero(t, r.Progress())
	return w, r, r.Peer(1)
}

// kindsOfWork lists the deferred work.
func (b *BML) kindsOfWork() (kinds []workKind) {
	for _, w := range b.deferred {
		kinds = append(kinds, w.kind)
	}
	return kinds
}

// An operation that an endpoint has no room for is posted at the next turn, before later ones.
func TestRetryIsDeferred(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	w.refuse = 3
	r.send(1, "a")
	r.send(1, "b") // queues behind it, and is not tried
	require.Equal(t, 2, w.refuse)
	require.EqualValues(t, 2, r.Stats().Retries)
	require.Equal(t, []workKind{workRetry}, r.kindsOfWork())
	require.False(t, pr.IsIdle())
	for range 2 {
		require.Zero(t, r.Progress(), "there is no room")
		require.Equal(t, []workKind{workRetry}, r.kindsOfWork(), "it is tried again")
	}
	require.Zero(t, w.refuse)
	require.Empty(t, w.flying)
	require.Equal(t, 2, r.Progress())
	require.Zero(t, r.Deferred())
	require.True(t, pr.IsIdle())
	w.refuse = 1
	r.send(1, "c")
	require.Equal(t, []workKind{workRetry}, r.kindsOfWork(), "the rail retries only once")
	w.settle()
	require.Equal(t, []string{"a", "b", "c"}, w.ranks[1].got)
}

// An operation that a rail refuses in the post goes by another rail, and does not count as resent.
// One that a rail took, and then calls invalid, counts.
func TestRefusedFragmentIsNotResent(t *testing.T) {
	w, r, _ := newDeferredWire(t)
	r.send(1, string(pattern(w.attrs[0].MaxSendBytes, 1)))
	w.settle()
	require.Len(t, r.sent, 1)
	require.True(t, IsRefused(r.sent[0]))
	require.Zero(t, r.Stats().Resent)
	require.Zero(t, r.Stats().ResentBytes)

	r.send(1, "a")
	f := w.flying[0]
	w.flying = nil
	w.end(f, &btl.Error{Rail: "wire0", Peer: 1, Class: btl.ClassUsage})
	w.settle()
	require.NoError(t, r.sent[1])
	require.EqualValues(t, 1, r.Stats().Resent)
	require.EqualValues(t, testHeaderBytes+1, r.Stats().ResentBytes)
}

// An operation that a rail called back with an error, while no rail drains, is posted again at the
// next turn. One turn posts all such operations, in order.
func TestReplayIsDeferred(t *testing.T) {
	w, r, _ := newDeferredWire(t)
	r.send(1, "a")
	r.send(1, "b")
	flying := w.flying
	w.flying = nil
	for _, f := range flying {
		w.end(f, pathError(0))
	}
	require.Empty(t, w.flying, "it is posted inside Done")
	require.Equal(t, []workKind{workSettle}, r.kindsOfWork())
	r.Progress()
	require.Len(t, w.flying, 2)
	require.EqualValues(t, 2, r.Stats().Resent)
	require.Positive(t, r.Stats().ResentBytes)
	w.settle()
	require.Equal(t, []string{"a", "b"}, w.ranks[1].got)
	require.Equal(t, []error{nil, nil}, r.sent)

	r.send(1, "c")
	f := w.flying[0]
	w.flying = nil
	w.end(f, pathError(0))
	require.Equal(t, []workKind{workSettle}, r.kindsOfWork(), "it is deferred only once")
}

// Replay waits until a failing endpoint is drained. The operation or the endpoint may fail first.
func TestReplayWaitsForDrained(t *testing.T) {
	for _, isOperationFirst := range []bool{false, true} {
		w, r, _ := newDeferredWire(t)
		r.send(1, "a")
		f := w.rails[0][0].take(1)[0]
		if isOperationFirst {
			w.end(f, pathError(0))
		}
		w.rails[0][0].fail(1, pathError(0))
		if !isOperationFirst {
			w.end(f, pathError(0))
			require.Zero(t, r.Deferred())
		}
		r.Progress()
		require.Empty(t, w.on(tagNumbered))
		w.rails[0][0].drain(1)
		require.Len(t, w.on(tagNumbered), 1)
		require.Equal(t, 1, w.on(tagNumbered)[0].rail)
	}
}

// The endpoints to a failing peer are failed at the next turn.
func TestFailPeerIsDeferred(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	w.rails[0][0].fail(1, peerGone(0))
	require.Equal(t, []workKind{workFailPeer}, r.kindsOfWork())
	w.rails[0][0].drain(1)
	require.True(t, pr.IsFailing(), "the peer is lost before its endpoints are failed")
	require.NoError(t, w.rails[1][0].endpoints[1].cause)
	r.Progress()
	require.ErrorIs(t, w.rails[1][0].endpoints[1].cause, pr.cause)
	require.True(t, pr.IsFailing(), "its other endpoint drains")
	w.rails[1][0].drain(1)
	require.True(t, pr.IsLost())
	require.Equal(t, []*Peer{pr}, r.lost)
}

// The endpoint that the peer says has failed is failed at the next turn, if it has not failed by
// itself until then.
func TestFailRailIsDeferred(t *testing.T) {
	for _, isDrained := range []bool{false, true} {
		w, r, pr := newDeferredWire(t)
		w.arrive(0, 1, 0, TagRailDown, railMessage(railHeader{sender: 1, receiver: 1, epoch: 1}))
		require.Equal(t, railFailing, pr.rails[1].state)
		require.Equal(t, []workKind{workFailRail}, r.kindsOfWork())
		ep := w.rails[1][0].endpoints[1]
		require.Equal(t, btl.Up, ep.state)
		if isDrained {
			w.rails[1][0].drain(1)
		}
		r.Progress()
		if isDrained {
			require.NoError(t, ep.cause)
			continue
		}
		require.Equal(t, btl.Failed, ep.state)
		require.ErrorIs(t, ep.cause, errOtherEnd)
		require.ErrorContains(t, ep.cause, "rail wire1 to rank 1: RAILDOWN")
	}
}

// When a fragment of a lost peer arrives, this rank opens the rail at the next turn, and sends
// RAILDOWN. It fails the rail at the turn after the delivery.
func TestRejectIsDeferred(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	r.ProtocolError(pr, errors.New("test"))
	r.Progress()
	for _, rail := range w.rails {
		rail[0].drain(1)
	}
	require.True(t, pr.IsLost())
	for range 2 {
		w.arrive(1, 1, 0, tagNumbered, numbered(0, "a"))
		require.Equal(t, []workKind{workReject}, r.kindsOfWork(), "work is deferred only once")
	}
	require.Empty(t, r.got)
	r.Progress()
	require.Equal(t, 1, w.rails[1][0].opened)
	require.Len(t, w.flying, 1)
	f := w.flying[0]
	w.flying = nil
	require.Equal(t, TagRailDown, f.tag)
	require.Equal(t, railMessage(railHeader{sender: 1, receiver: 1, gaveUp: true, epoch: 2}), f.frag)
	ep := w.rails[1][0].endpoints[1]

	w.end(f, nil)
	require.Equal(t, []workKind{workRejected}, r.kindsOfWork())
	require.Equal(t, btl.Up, ep.state, "it is failed inside Done")
	w.arrive(1, 1, 0, tagNumbered, numbered(0, "a"))
	require.Equal(t, []workKind{workRejected}, r.kindsOfWork(), "the RAILDOWN is under way")
	r.Progress()
	require.ErrorIs(t, ep.cause, pr.cause)
	ep.m.drain(1)
	w.arrive(1, 1, 0, tagNumbered, numbered(0, "a"))
	require.Equal(t, []workKind{workReject}, r.kindsOfWork(), "another RAILDOWN can be sent")
}

// When a rail of this rank is drained, the layer above looks at unknown peers at the next turn.
func TestRecheckIsDeferred(t *testing.T) {
	w, r, _ := newDeferredWire(t)
	require.False(t, r.HasFallen())
	w.rails[0][0].fail(btl.AllPeers, pathError(0))
	require.True(t, r.HasFallen())
	w.rails[0][0].drain(1) // of one peer
	require.Zero(t, r.Deferred())
	w.rails[0][0].drain(btl.AllPeers)
	require.Zero(t, r.rechecks)
	require.Equal(t, []workKind{workRecheck}, r.kindsOfWork())
	require.NotContains(t, fmt.Sprint(r.Leftovers()), "deferred", "a leftover")
	r.Progress()
	require.Equal(t, 1, r.rechecks)
	require.Zero(t, r.Deferred())
}

// Deferred work runs in order. Work that is deferred meanwhile runs in the same turn, behind it.
func TestDeferredWorkRunsInOrder(t *testing.T) {
	_, r, _ := newDeferredWire(t)
	var done []int
	var add func(n, again int)
	add = func(n, again int) {
		r.postpone(work{kind: workRejected, end: func() {
			if done = append(done, n); again > 0 {
				add(n, again-1)
			}
		}})
	}
	add(1, 2)
	add(2, 0)
	add(3, 1)
	require.Equal(t, 3, r.Deferred())
	r.Progress()
	require.Equal(t, []int{1, 2, 3, 1, 3, 1}, done)
	require.Zero(t, r.Deferred())
	r.Progress()
	require.Len(t, done, 6)
	for i, w := range r.deferred[:cap(r.deferred)] {
		require.Zero(t, w.kind, "work %d is kept", i)
		require.Nil(t, w.end, "work %d is kept", i)
	}
}

// A transfer that has ended is not resumed, even if another transfer uses its memory.
func TestEndedTransferIsNotResumed(t *testing.T) {
	for _, waits := range []waitsFor{waitsForRoom, waitsForFence} {
		_, r, pr := newDeferredWire(t)
		tr := r.Transfer(nil, pr, nil)
		tr.Begin(0, 10)
		tr.awaits(waits)
		r.pullLater(pr)
		r.EndTransfer(tr, false, false)
		require.Same(t, tr, r.Transfer(nil, pr, nil))
		r.Progress()
		r.settled(pr)
		require.Empty(t, r.resumed)
		require.Empty(t, pr.waitRoom)
		require.Empty(t, pr.waitFence)
		require.Zero(t, tr.waits)
	}
}

// A piece that ends inside its post does not resume other transfers at once, because its own
// request may be posting. The next progress call resumes them.
func TestPullIsDeferredInsidePost(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	other := r.newLong(1, pattern(100, 1))
	other.t.awaits(waitsForRoom)
	m := r.newLong(1, pattern(100, 2))
	m.isAdvancing = true
	for i := range w.rails {
		w.rails[i][0].down[1] = &btl.Error{Class: btl.ClassUsage}
	}
	require.True(t, m.next())
	require.Equal(t, []error{ErrMovesAgain}, m.ends)
	require.Zero(t, r.Stats().Resent, "no rail has had it")
	require.Empty(t, r.resumed)
	require.Equal(t, []workKind{workPull}, r.kindsOfWork())
	r.pullLater(pr)
	require.Equal(t, []workKind{workPull}, r.kindsOfWork(), "it is deferred only once")
	clear(w.rails[0][0].down)
	clear(w.rails[1][0].down)
	r.Progress()
	require.Equal(t, []*Transfer{other.t}, r.resumed)
	require.Len(t, other.t.pieces, 1)
	require.Zero(t, r.Deferred())
}

// When the set of rails that are up changes, the next progress call resumes all transfers that wait
// for room.
func TestResumeIsDeferred(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	var waiting []*Transfer
	for range 3 {
		tr := r.Transfer(nil, pr, nil)
		tr.Begin(0, 10)
		tr.awaits(waitsForRoom)
		waiting = append(waiting, tr)
	}
	w.rails[0][0].fail(1, pathError(0))
	require.Equal(t, []workKind{workResume}, r.kindsOfWork())
	r.prefer(pr)
	require.Equal(t, []workKind{workResume}, r.kindsOfWork(), "it is deferred only once")
	require.Empty(t, r.resumed)
	r.Progress()
	require.Equal(t, waiting, r.resumed)
	require.Empty(t, pr.waitRoom)
}
