package bml

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/request"
)

// A grace time that begins within a part of the clock is as long as any other.
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
	require.Nil(t, pr.grace.timer, "the clock runs although no grace time is left")
}

// newGraceWire makes a wire of this many rails to rank 1, all in use.
func newGraceWire(t *testing.T, rails int, grace int64) (w *wire, r *testRank, pr *Peer) {
	w = newWire(t, 2, withRails(rails), withGrace(grace))
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

// A peer without a path fails when the grace time is over, and not before.
func TestPeerWithoutPathFailsAfterGraceTime(t *testing.T) {
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

// The error of a peer without a path names its rails.
func TestErrorOfPeerWithoutPathNamesItsRails(t *testing.T) {
	for rails, want := range map[int]string{
		2: "rail wire1 to rank 1: injected fault; rail wire0 to rank 1: injected fault",
		6: "rail wire2 to rank 1: injected fault; and 2 more",
	} {
		w, _, pr := newGraceWire(t, rails, 10*sec)
		for i, rail := range w.rails {
			rail[0].lose(1, pathError(i))
		}
		w.pass(13 * sec)
		require.False(t, pr.IsAlive())
		require.ErrorIs(t, pr.cause, request.ErrUnreachable)
		require.ErrorContains(t, pr.cause, want)
	}
}

// A rank that makes no calls for long loses one part of the grace time at most.
func TestBusyRankLosesOnePartOfGraceTime(t *testing.T) {
	w, _, pr := newGraceWire(t, 1, 10*sec)
	w.rails[0][0].lose(1, pathError(0))
	w.now += 100 * sec
	w.pass(8900 * msec)
	require.True(t, pr.IsAlive())
	w.pass(200 * msec)
	require.False(t, pr.IsAlive())
}

// The grace time stops between the delivery of a PROBE and its answer. It goes on when that
// incarnation fails, and it runs while no PROBE is delivered.
func TestGraceTimeStopsWhilePeerIsBusy(t *testing.T) {
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

// A part of the shortest grace time is longer than 0.
func TestShortestGraceTimeEnds(t *testing.T) {
	w, _, pr := newGraceWire(t, 1, 1)
	w.rails[0][0].lose(1, pathError(0))
	w.pass(2 * msec)
	require.False(t, pr.IsAlive())
}

// When a path comes back, the clock stops, and pending operations are posted in order.
func TestReturnedPathPostsPendingInOrder(t *testing.T) {
	w, r, pr := newGraceWire(t, 1, 10*sec)
	r.send(1, "a")
	w.rails[0][0].fail(1, pathError(0))
	r.send(1, "c") // before the pending operations come back
	w.rails[0][0].drain(1)
	r.send(1, "d")
	require.Error(t, pr.cause)
	w.flying = nil
	returns(0)(w)
	require.NoError(t, pr.cause)
	require.False(t, pr.AwaitsPath())
	require.True(t, pr.waiting.Empty())
	require.NotNil(t, pr.grace.timer, "the clock counts for a")
	var got []string
	for _, f := range w.on(tagNumbered) {
		got = append(got, string(f.frag[12:13])+string(f.frag[testHeaderBytes:]))
	}
	require.Equal(t, []string{"\x01c", "\x00a", "\x02d"}, got)
	w.pass(12 * sec)
	require.Nil(t, pr.grace.timer)

	w, _, pr = newGraceWire(t, 1, 10*sec)
	w.rails[0][0].lose(1, pathError(0))
	require.NotNil(t, pr.grace.timer)
	returns(0)(w)
	require.Nil(t, pr.grace.timer, "the clock runs although nothing is pending")
}

// While the last rail is down, nothing goes inline.
func TestNoInlineWithoutPath(t *testing.T) {
	w := newWire(t, 2, func(w *wire) {
		w.grace = 10 * sec
		w.attrs[0].Caps, w.attrs[0].InlineBytes = btl.CapInline, 40
	})
	resolve(w)
	pr := w.ranks[0].Peer(1)
	require.Equal(t, 40, pr.InlineBytes())
	w.rails[0][0].lose(1, pathError(0))
	require.False(t, pr.HasInline())
	require.Zero(t, pr.InlineBytes())
	returns(0)(w)
	require.True(t, pr.HasInline())
	w.ranks[0].Fail(pr, btl.ErrInjected)
	require.False(t, pr.HasInline())
}

// The state of a peer after its last rail has failed.
func TestPeerStateAfterLastRailFails(t *testing.T) {
	reopen := func() (btl.Endpoint, error) { return nil, btl.ErrFailed }
	of := func(class btl.Class, side btl.Side) *btl.Error {
		return &btl.Error{Rail: "wire0", Peer: 1, Class: class, Side: side}
	}
	path := of(btl.ClassPath, btl.SideRemote)
	for _, c := range []struct {
		name   string
		grace  int64
		reopen [2]bool // whether the rails can be opened again; the first one is up
		tier   int     // of the second rail
		err    *btl.Error
		want   PeerState
	}{
		{"path", sec, [2]bool{true, false}, 0, path, PeerNoPath},
		{"path, the other rail may return", sec, [2]bool{false, true}, 0, path, PeerNoPath},
		{"path, no rail may return", sec, [2]bool{false, false}, 0, path, PeerFailing},
		{"path, without grace time", 0, [2]bool{true, true}, 0, path, PeerFailing},
		{"path, without grace time, with a spare rail", 0, [2]bool{true, true}, 1, path, PeerNoPath},
		{"path, without grace time, with a spare rail that cannot be opened", 0, [2]bool{true, false}, 1, path, PeerFailing},
		{"path, long grace time, with a spare rail", 5 * sec, [2]bool{true, true}, 1, path, PeerNoPath},
		{"closed there", sec, [2]bool{true, true}, 0, of(btl.ClassClosed, btl.SideRemote), PeerFailing},
		{"closed here", sec, [2]bool{true, true}, 0, of(btl.ClassClosed, btl.SideLocal), PeerNoPath},
	} {
		w := newWire(t, 2, withRails(2), withGrace(c.grace), withRoutes(func(all []Route) {
			all[1].Endpoint, all[1].Tier, all[1].Down = nil, c.tier, btl.ErrFailed
			for i := range all {
				if all[i].Reopen = nil; c.reopen[i] {
					all[i].Reopen = reopen
				}
			}
		}))
		resolve(w)
		pr := w.ranks[0].Peer(1)
		require.Equal(t, PeerUp, pr.State(), c.name)
		w.rails[0][0].fail(1, c.err)
		require.Equal(t, c.want, pr.State(), c.name)
		require.ErrorIs(t, pr.cause, c.err, c.name)
		if c.want != PeerNoPath {
			continue
		}
		w.rails[0][0].drain(1)
		grace := max(c.grace, 1)
		if c.tier > 0 {
			grace = max(grace, 2*sec) // as long as it takes to open the spare rail
		}
		w.pass(grace - 20*msec)
		require.True(t, pr.IsAlive(), c.name)
		w.pass(40 * msec)
		require.True(t, pr.IsLost(), c.name)
	}
}

// A spare rail that was never needed before is probed to the end, even if it had to wait for its
// turn and the grace time is over.
func TestGraceTimeWaitsForFirstProbesOfSpareRail(t *testing.T) {
	for _, answers := range []bool{false, true} {
		w := newWire(t, 2, withRails(2), withGrace(100*msec), mended, withRoutes(func(all []Route) {
			all[1].Endpoint, all[1].Tier = nil, 1
			all[0].Reopen = func() (btl.Endpoint, error) { return nil, btl.ErrFailed }
		}))
		resolve(w)
		pr := w.ranks[0].Peer(1)
		spare := &pr.rails[1]
		spare.own.probes = maxUnprovenProbes // other rails of the module are probed
		w.rails[0][0].lose(1, pathError(0))
		w.pass(1500 * msec)
		require.Equal(t, railProbing, spare.state)
		require.Empty(t, w.on(TagProbe))
		spare.own.probes = 0
		w.pass(1500 * msec)
		require.Len(t, w.on(TagProbe), 1)
		require.True(t, pr.AwaitsPath(), "the grace time, of two seconds, is over while the rail is probed")
		if answers {
			w.arrive(1, 1, 0, TagProbeAck, railMessage(railHeader{sender: 1, receiver: 1, epoch: spare.endpoint.Epoch()}))
			require.True(t, pr.HasPath())
			continue
		}
		w.pass(maxProbes * probePeriod.Nanoseconds())
		require.False(t, pr.IsAlive(), "its time has an end")
	}
}

// A spare rail that was up and failed gets no more time than the grace time.
func TestSpareRailThatFailedHasNoExtraTime(t *testing.T) {
	isSpare := func(all []Route) { all[1].Tier = 1 }
	w := newWire(t, 2, withRails(2), withGrace(sec), withRoutes(isSpare))
	resolve(w)
	pr := w.ranks[0].Peer(1)
	w.rails[1][0].lose(1, pathError(1))
	w.rails[0][0].lose(1, pathError(0))
	require.True(t, pr.AwaitsPath())
	w.pass(1100 * msec)
	require.True(t, pr.IsLost())
}

// A path may carry probes and lose all other fragments. The peer fails when an operation has failed
// for the grace time, even if rails come back in between.
func TestOperationThatFailsForGraceTimeFailsPeer(t *testing.T) {
	for _, c := range []struct{ grace, want int64 }{{10 * sec, 10 * sec}, {0, 2 * sec}} {
		w, r, pr := newGraceWire(t, 1, c.grace)
		r.send(1, "a")
		begin := w.now
		for tries := 1; pr.IsAlive(); tries++ {
			require.Less(t, tries, maxRetries)
			w.failAll()
			w.pass(c.want/50 + msec)
		}
		w.rails[0][0].drain(1)
		require.InDelta(t, c.want, w.now-begin, float64(c.want/10))
		require.Len(t, r.sent, 1)
		require.ErrorContains(t, r.sent[0], "every rail fails with the same message for longer than the grace time")
		require.ErrorIs(t, r.sent[0], btl.ErrInjected)
		require.ErrorIs(t, r.sent[0], request.ErrUnreachable)
	}
}

// The grace time of an operation begins with its own first failure, not with that of another
// operation. The clock runs until the last of these times is over.
func TestEachOperationHasItsOwnGraceTime(t *testing.T) {
	w, r, pr := newGraceWire(t, 1, 10*sec)
	r.send(1, "a")
	w.failAll()
	w.pass(9500 * msec)
	require.Len(t, w.flying, 1)
	r.send(1, "b")
	b := w.flying[1]
	w.flying = w.flying[:1]
	w.end(b, pathError(0))
	w.pass(1000 * msec)
	require.Len(t, w.flying, 2)
	b = w.flying[1]
	w.flying = w.flying[:1]
	w.end(b, pathError(0))
	require.True(t, pr.IsAlive(), "b has time left")
	w.pass(10 * sec)
	require.EqualValues(t, 20, pr.grace.parts, "the clock does not run for b")
	require.Nil(t, pr.grace.timer)
	w.step(0)
	w.failAll()
	require.True(t, pr.IsFailing())
}

// A grace time that ends earlier does not shorten another one.
func TestShorterGraceTimeDoesNotEndLongerOne(t *testing.T) {
	w, r, pr := newGraceWire(t, 1, 10*sec)
	_ = r.startGrace(pr, 0)
	pr.grace.until = 15
	r.send(1, "a")
	w.failAll()
	require.EqualValues(t, 15, pr.grace.until)
}

// An operation is given up only when every rail that is up has failed with it.
func TestOperationThatFailsOnEveryRailFailsPeer(t *testing.T) {
	w, r, pr := newGraceWire(t, 2, 10*sec)
	r.send(1, "a")
	w.failAll() // by rail 0
	w.pass(11 * sec)
	w.failAll() // once more
	require.True(t, pr.IsAlive(), "rail 1 has not failed with it")
	require.Nil(t, pr.grace.timer)
	w.rails[0][0].lose(1, pathError(0))
	require.Len(t, w.on(tagNumbered), 1)
	require.Equal(t, 1, w.on(tagNumbered)[0].rail)
	op := w.on(tagNumbered)[0]
	w.flying = nil
	returns(0)(w)
	w.flying = append(w.flying, op)
	require.EqualValues(t, 3, pr.up)
	require.True(t, pr.IsAlive())
	w.failAll() // by rail 1
	require.True(t, pr.IsFailing())
	require.ErrorContains(t, pr.cause, "every rail fails with the same message")
	require.ErrorContains(t, pr.cause, "rail wire1")
}

// An error that names no rail to the peer counts for all of them.
func TestErrorOfUnknownRailCountsForAllRails(t *testing.T) {
	for _, err := range []error{pathError(7), errors.New("unknown")} {
		w, r, pr := newGraceWire(t, 2, 10*sec)
		r.send(1, "a")
		for range 2 {
			f := w.flying[0]
			w.flying = nil
			w.end(f, err)
			w.pass(13 * sec)
		}
		require.False(t, pr.IsAlive())
		require.ErrorIs(t, pr.cause, err)
	}
}

// The error of a transfer says why its rail failed, not that a piece was flushed.
func TestTransferErrorNamesCauseOfRail(t *testing.T) {
	w, r, _ := newGraceWire(t, 2, 10*sec)
	m := r.sendLong(1, pattern(100, 1))
	cause := &btl.Error{Rail: "wire0", Peer: 1, Class: btl.ClassPath, Native: "retries exceeded"}
	w.rails[0][0].fail(1, cause)
	w.rails[0][0].drain(1)
	require.Equal(t, cause, m.t.trouble.last)

	w, r, pr := newGraceWire(t, 1, 10*sec)
	m = r.sendLong(1, pattern(100, 1))
	w.failAll()
	require.Equal(t, pathError(0), m.t.trouble.last, "the rail has no error of its own")
	w.pass(11 * sec)
	w.failAll()
	require.True(t, pr.IsFailing())
	require.ErrorContains(t, m.err, "every rail fails with the same message")
}

// The same holds for the error of a peer that fails because of an operation.
func TestOperationErrorNamesCauseOfRail(t *testing.T) {
	w, r, pr := newGraceWire(t, 1, 10*sec)
	r.send(1, "a")
	w.failAll()
	w.pass(11 * sec)
	require.Len(t, w.flying, 1)
	w.rails[0][0].fail(1, &btl.Error{Rail: "wire0", Peer: 1, Class: btl.ClassPath, Native: "retries exceeded"})
	w.rails[0][0].drain(1) // the operation is flushed
	require.False(t, pr.IsAlive())
	require.ErrorContains(t, pr.cause, "retries exceeded")
	require.ErrorContains(t, r.sent[0], "retries exceeded")
}

// Failed attempts do not prolong the time for the first contact with a peer.
func TestFailedAttemptsDoNotProlongFirstContact(t *testing.T) {
	w := newWire(t, 2, func(w *wire) { w.grace, w.startDown, w.mended = 10*sec, true, true })
	w.ranks[0].send(1, "a")
	pr := w.ranks[0].Peer(1)
	require.Equal(t, PeerConnecting, pr.State())
	begin := w.now
	for pr.IsAlive() {
		require.Less(t, w.now, begin+20*sec)
		w.pass(900 * msec)
		if pr.rails[0].state == railProbing {
			w.rails[0][0].lose(1, pathError(0))
		}
	}
	require.Greater(t, w.rails[0][0].opened, 5)
	require.InDelta(t, 10*sec, w.now-begin, float64(sec))
}

// A transfer whose only rail failed goes on when the rail is up again, with the missing bytes.
func TestTransferGoesOnWhenPathFound(t *testing.T) {
	w, r, _ := newGraceWire(t, 1, 10*sec)
	m := r.sendLong(1, pattern(200, 1))
	w.ranks[1].message = make([]byte, 200)
	require.Len(t, w.flying, 2)
	w.step(0)
	w.rails[0][0].lose(1, pathError(0))
	w.flying = nil
	w.pass(sec)
	require.Empty(t, w.flying, "a piece is posted while no rail is up")
	require.False(t, m.isDone)
	returns(0)(w)
	r.Progress()
	w.flying = w.on(tagPlain)
	require.Len(t, w.flying, 1, "what is there is not sent again")
	w.settle()
	require.True(t, m.isDone)
	require.NoError(t, m.err)
	require.Equal(t, []error{nil, ErrMovesAgain, nil}, m.ends)
	require.Equal(t, m.data, w.ranks[1].message)
}

// The grace time of a rail that was never needed ends in time, also if pml.grace is far shorter and
// the rank makes few progress calls.
func TestGraceTimeOfUntriedRailEnds(t *testing.T) {
	w := newWire(t, 2, withGrace(msec), withAlternate)
	resolve(w)
	pr := w.ranks[0].Peer(1)
	for i := range 2 {
		w.rails[i][0].lose(1, pathError(i))
	}
	begin := w.now
	for pr.IsAlive() {
		w.now += 20 * msec
		for range 8 { // one of which looks at the clock
			w.ranks[0].eng.Turn()
		}
		require.Less(t, w.now-begin, 6*sec)
	}
	require.Greater(t, w.now-begin, int64(minGrace))
}

// A rail comes back, and is found down when it carries another rail's RAILDOWN. The grace time
// begins anew, and ends.
func TestRailThatFailsAsItReturnsIsNoPath(t *testing.T) {
	w, r, pr := newGraceWire(t, 2, 10*sec)
	for i, rail := range w.rails {
		rail[0].fail(1, pathError(i))
	}
	require.True(t, pr.rails[1].recovery.isUntold)
	for _, rail := range w.rails {
		rail[0].drain(1)
	}
	w.mended = true
	w.pass(20 * msec)
	require.Equal(t, railProbing, pr.rails[0].state)
	w.rails[0][0].down[1] = btl.ErrFailed
	w.arrive(0, 1, 0, TagProbeAck, railMessage(railHeader{epoch: 2}))
	require.Equal(t, PeerNoPath, pr.state)
	require.Error(t, pr.cause)
	require.NotNil(t, pr.grace.timer)
	w.mended = false
	for i, rail := range w.rails {
		rail[0].lose(1, pathError(i))
	}
	r.send(1, "a")
	w.pass(11 * sec)
	require.True(t, pr.IsLost())
	require.ErrorIs(t, r.sent[0], btl.ErrFailed)
}

// A grace time is as long as any other after many parts of the clock.
func TestGraceTimeAfterManyParts(t *testing.T) {
	w, _, pr := newGraceWire(t, 1, 10*sec)
	pr.grace.parts, pr.grace.until = 1000, 1000
	w.rails[0][0].lose(1, pathError(0))
	w.pass(9990 * msec)
	require.True(t, pr.IsAlive())
	w.pass(20 * msec)
	require.False(t, pr.IsAlive())
}

// A peer that fails because no path may return has the cause that the program sees, and no clock.
func TestPeerWithoutGraceTimeFailsAtOnce(t *testing.T) {
	w, r, pr := newGraceWire(t, 1, 0)
	r.send(1, "a")
	w.rails[0][0].fail(1, pathError(0))
	require.True(t, pr.IsFailing())
	require.ErrorIs(t, pr.cause, request.ErrUnreachable)
	require.Nil(t, pr.grace.timer)
}
