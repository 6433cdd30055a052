package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// newWriting makes a long message to rank 1. Its write by rail 0 ended with an unknown result: the
// rail has failed and is not drained.
func newWriting(t *testing.T) (w *wire, r *testRank, m *longMessage) {
	w = newWire(t, 2, withRails(2), mended, withGrace(10*sec))
	resolve(w)
	r = w.ranks[0]
	m = r.newLong(1, pattern(1000, 1))
	m.by = Write
	m.reachAll()
	for len(m.t.pieces) == 0 || m.t.pieces[0].rail != 0 {
		require.True(t, m.next())
	}
	return w, r, m
}

// reachAll lets all rails write.
func (m *longMessage) reachAll() {
	for i := range m.t.peer.rails {
		m.t.mine.regions[i] = &wireRegion{m: m.t.peer.rails[i].module.(*wireModule)}
		m.t.mine.set |= 1 << i
		m.t.theirs.set |= 1 << i
	}
}

// A rail that ended a piece with an unknown result has to be drained before the buffer is released.
// A later incarnation shows that it is.
func TestSettledWhenOwnHalfIsDrained(t *testing.T) {
	w, r, m := newWriting(t)
	require.True(t, r.IsSettled(m.t), "nothing has failed")
	w.rails[0][0].fail(1, pathError(0))
	for _, f := range w.rails[0][0].take(1) {
		w.end(f, pathError(0))
	}
	require.Equal(t, []fence{{0, 1}}, m.t.fences)
	require.False(t, r.IsSettled(m.t))
	require.Equal(t, []*Transfer{m.t}, r.Peer(1).waitFence)
	w.settle()
	require.True(t, m.t.IsDone())
	require.False(t, m.isDone)

	resumed := len(r.resumed)
	w.rails[0][0].drain(1)
	require.Equal(t, m.t, r.resumed[resumed])
	require.True(t, m.isDone)
	require.Empty(t, r.Peer(1).waitFence)
	require.True(t, r.IsSettled(m.t))
	returns(0)(w)
	require.Equal(t, railUp, r.Peer(1).rails[0].state)
	require.True(t, r.IsSettled(m.t), "the next incarnation stands for the one before")
}

// An error that is no evidence against the rail needs no fence.
func TestUsageErrorNeedsNoFence(t *testing.T) {
	w, r, m := newWriting(t)
	for _, f := range w.rails[0][0].take(1) {
		w.end(f, &btl.Error{Class: btl.ClassUsage})
	}
	require.Empty(t, m.t.fences)
	require.True(t, r.IsSettled(m.t))
	require.False(t, m.t.CanMove(Write), "the access was refused")
	m.t.CarryOn()
	require.True(t, m.t.CanMove(Write))
}

// FIN names the incarnations. The peer brings its halves down, and settles when they are drained.
func TestFencesOfPeerAreBroughtDown(t *testing.T) {
	w, _, m := newWriting(t)
	w.rails[0][0].lose(1, pathError(0))
	list := m.t.AppendFences([]byte("before"))[len("before"):]
	require.Equal(t, []byte{0, 0, 0, 0, 1, 0, 0, 0}, list)
	require.NoError(t, CheckFences(list))

	b := w.ranks[1]
	pr := b.Peer(0)
	require.NoError(t, b.Resolve(pr))
	theirs := b.Transfer(nil, pr, nil)
	b.Fence(theirs, list)
	require.Equal(t, railFailing, pr.rails[0].state)
	require.Equal(t, railUp, pr.rails[1].state)
	require.Contains(t, b.kindsOfWork(), workFailRail, "inside a call of the endpoint")
	require.False(t, b.IsSettled(theirs))
	b.Progress()
	require.ErrorIs(t, w.rails[0][1].endpoints[0].cause, errOtherEnd)
	require.NotEmpty(t, w.on(TagRailDown))
	w.rails[0][1].drain(0)
	require.Equal(t, []*Transfer{theirs}, b.resumed)
	require.True(t, b.IsSettled(theirs))
}

// What a fence means depends on the incarnation that this rank has.
func TestFenceOfOtherIncarnations(t *testing.T) {
	for name, c := range map[string]struct {
		epoch     uint32 // of the fence; this rank has incarnation 2
		local     uint8
		isSettled bool
		state     railState
	}{
		"older":       {1, 0, true, railUp},
		"the same":    {2, 0, false, railFailing},
		"newer":       {3, 0, false, railFailing},
		"not a rail":  {2, 9, true, railUp},
		"longest ago": {0, 0, true, railUp},
	} {
		t.Run(name, func(t *testing.T) {
			w, r, pr := newGraceWire(t, 2, 10*sec)
			w.rails[0][0].lose(1, pathError(0))
			returns(0)(w)
			require.EqualValues(t, 2, pr.rails[0].endpoint.Epoch())
			tr := r.Transfer(nil, pr, nil)
			r.Fence(tr, []byte{0, c.local, 0, 0, byte(c.epoch), 0, 0, 0})
			require.Equal(t, c.state, pr.rails[0].state)
			require.Equal(t, c.isSettled, r.IsSettled(tr))
			if !c.isSettled {
				w.rails[0][0].drain(1)
				require.True(t, r.IsSettled(tr))
			}
		})
	}
}

// A rail that is down, that drains already or that never had an endpoint is not failed again.
func TestFenceOfRailThatIsDown(t *testing.T) {
	w, r, pr := newGraceWire(t, 2, 10*sec)
	list := []byte{0, 0, 0, 0, 1, 0, 0, 0}
	w.rails[0][0].fail(1, pathError(0))
	tr := r.Transfer(nil, pr, nil)
	failed := r.Stats().RailsFailed
	r.Fence(tr, list)
	require.False(t, r.IsSettled(tr))
	w.rails[0][0].drain(1)
	require.True(t, r.IsSettled(tr))
	r.Fence(tr, list)
	require.True(t, r.IsSettled(tr))
	require.Equal(t, failed, r.Stats().RailsFailed)

	w = newWire(t, 2, withRails(2), withGrace(10*sec), withRoutes(func(all []Route) { all[0].Endpoint = nil }))
	resolve(w)
	r = w.ranks[0]
	tr = r.Transfer(nil, r.Peer(1), nil)
	r.Fence(tr, list)
	require.True(t, r.IsSettled(tr))
	require.Empty(t, tr.fences)
}

// A transfer that waits for a rail to be drained is left to Lost when its peer is lost.
func TestFenceOfLostPeer(t *testing.T) {
	w, r, m := newWriting(t)
	w.rails[0][0].fail(1, pathError(0))
	for _, f := range w.rails[0][0].take(1) {
		w.end(f, pathError(0))
	}
	require.False(t, r.IsSettled(m.t))
	r.Fail(m.t.peer, btl.ErrInjected)
	r.Progress()
	resumed := len(r.resumed)
	for _, rail := range w.rails {
		rail[0].drain(1)
	}
	require.True(t, m.t.peer.IsLost())
	require.Equal(t, []*Peer{m.t.peer}, r.lost)
	require.Len(t, r.resumed, resumed)
	require.Empty(t, m.t.pieces)
	pr := m.t.peer
	r.EndTransfer(m.t, false, true)
	require.Empty(t, pr.waitFence)
}

// A FIN that is handed up while the peer fails may name a rail that is drained already. It is not
// drained again, so the rank does not wait for that.
func TestFenceOfFailingPeer(t *testing.T) {
	w := newWire(t, 2, withRails(2), mended, withGrace(10*sec))
	resolve(w)
	r := w.ranks[0]
	pr := r.Peer(1)
	tr := r.Transfer(nil, pr, nil)
	r.Fail(pr, btl.ErrInjected)
	r.Progress()
	w.rails[1][0].drain(1)
	r.Fence(tr, []byte{1, 1, 0, 0, 1, 0, 0, 0})
	r.Progress()
	w.rails[0][0].drain(1)
	require.True(t, pr.IsLost())
}

// FuzzFences: any list that passes the check names rails by number only, and leaves a rank that
// works.
func FuzzFences(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 2, 0, 0, 0, 255, 0, 9, 9, 255, 255, 255, 255})
	f.Add(make([]byte, fenceBytes-1))
	f.Add(make([]byte, MaxFencesBytes+fenceBytes))
	f.Fuzz(func(t *testing.T, list []byte) {
		if CheckFences(list) != nil {
			require.True(t, len(list)%fenceBytes != 0 || len(list) > MaxFencesBytes)
			return
		}
		w, r, pr := newGraceWire(t, 2, 10*sec)
		tr := r.Transfer(nil, pr, nil)
		r.Fence(tr, list)
		require.LessOrEqual(t, len(tr.fences), len(pr.rails))
		r.Progress()
		for i, rail := range w.rails {
			if pr.rails[i].state == railFailing {
				rail[0].drain(1)
			}
		}
		require.True(t, r.IsSettled(tr))
		require.True(t, pr.IsAlive())
	})
}

// An operation that comes back before its BTL reports the failure has a fence, too.
func TestFenceOfRailThatIsStillUp(t *testing.T) {
	w, r, m := newWriting(t)
	for _, f := range w.rails[0][0].take(1) {
		w.end(f, pathError(0))
	}
	require.Equal(t, railUp, m.t.peer.rails[0].state)
	require.False(t, r.IsSettled(m.t))
	w.rails[0][0].lose(1, pathError(0))
	require.True(t, r.IsSettled(m.t))
}

// A fence names a rail by the modules at its ends: that of the sender first.
func TestFenceNamesModulesAtBothEnds(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec), withRoutes(func(all []Route) { all[0].Local, all[0].Remote = 3, 4 }))
	resolve(w)
	r, pr := w.ranks[0], w.ranks[0].Peer(1)
	tr := r.Transfer(nil, pr, nil)
	r.Fence(tr, []byte{3, 4, 0, 0, 1, 0, 0, 0})
	require.Empty(t, tr.fences)
	r.Fence(tr, []byte{4, 3, 0, 0, 1, 0, 0, 0})
	require.Equal(t, []fence{{0, 1}}, tr.fences)
	require.Equal(t, []byte{3, 4, 0, 0, 1, 0, 0, 0}, tr.AppendFences(nil))
}

// The latest incarnation that a fence names counts, whenever an earlier one is named.
func TestLatestFenceCounts(t *testing.T) {
	w, r, pr := newGraceWire(t, 2, 10*sec)
	w.rails[0][0].lose(1, pathError(0))
	returns(0)(w)
	tr := r.Transfer(nil, pr, nil)
	fence := func(epoch byte) bool {
		r.Fence(tr, []byte{0, 0, 0, 0, epoch, 0, 0, 0})
		return r.IsSettled(tr)
	}
	require.True(t, fence(1))
	require.False(t, fence(2))
	require.False(t, fence(1))
	w.rails[0][0].drain(1)
	require.True(t, r.IsSettled(tr))
}

// The peer may have used an incarnation that this rank still probes.
func TestFenceBringsDownProbingRail(t *testing.T) {
	w, r, pr := newGraceWire(t, 2, 10*sec)
	w.rails[0][0].lose(1, pathError(0))
	w.mended = true
	for pr.rails[0].state != railProbing {
		w.pass(msec)
	}
	tr := r.Transfer(nil, pr, nil)
	r.Fence(tr, []byte{0, 0, 0, 0, 2, 0, 0, 0})
	require.Equal(t, railFailing, pr.rails[0].state)
	require.False(t, r.IsSettled(tr))
}

// The memory of a failed rail is not released before the rail is drained, even if the peer breaks
// the protocol meanwhile.
func TestAfterDrainOfPeerThatBreaksTheProtocol(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec))
	resolve(w)
	r, pr := w.ranks[0], w.ranks[0].Peer(1)
	w.isRead = true
	w.rails[0][0].fail(1, pathError(0))
	given := false
	require.True(t, r.AfterDrain(pr, func() { given = true }))
	r.ProtocolError(pr, ErrMalformed)
	require.False(t, given)
	r.Progress()
	require.False(t, given)
	w.rails[0][0].drain(1)
	w.rails[1][0].drain(1)
	require.True(t, given)
}

// Fragments of a peer that has broken the protocol are dropped, unlike those of other failing
// peers.
func TestPeerThatBreaksTheProtocolIsIgnored(t *testing.T) {
	for _, isFailing := range []bool{false, true} {
		w := newWire(t, 2, withRails(2), withGrace(10*sec), mended)
		resolve(w)
		r, pr := w.ranks[0], w.ranks[0].Peer(1)
		if isFailing {
			w.rails[0][0].fail(1, peerGone(0))
		}
		w.arrive(1, 1, 0, tagNumbered, numbered(0, "before"))
		breaksProtocol(w)
		w.arrive(1, 1, 0, tagNumbered, numbered(1, "after"))
		require.Equal(t, []string{"before"}, r.got)
		require.Equal(t, PeerFailing, pr.state)
		require.EqualValues(t, 1, r.Stats().Malformed)
		r.Progress()
		w.rails[0][0].drain(1)
		require.False(t, pr.IsLost())
		w.rails[1][0].drain(1)
		require.True(t, pr.IsLost())
		require.Equal(t, []string{"before"}, r.got)
		if isFailing {
			require.NotErrorIs(t, pr.Err(), ErrMalformed, "it failed for another reason")
			continue
		}
		require.ErrorIs(t, pr.Err(), ErrMalformed)
	}
}

// A peer that has broken the protocol is told that it is given up: it may only wait.
func TestPeerThatBreaksTheProtocolIsTold(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec), mended)
	resolve(w)
	w.arrive(1, 1, 0, tagNumbered, make([]byte, testHeaderBytes-1))
	w.ranks[0].Progress()
	require.Empty(t, w.on(TagRailDown))
	w.rails[0][0].drain(1)
	w.rails[1][0].drain(1)
	w.ranks[0].Progress()
	told := w.on(TagRailDown)
	require.Len(t, told, 1)
	require.Equal(t, 1, told[0].rail, "the rail by which it was heard")
}
