package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// The rules of probe.go and grace.go about special rails: spare ones, alternates, and those that
// were never up.

// An alternate that was never up is tried after longer and longer times, because it may lead
// nowhere. Any other rail is tried twice a second.
func TestUntriedAlternateIsTriedLessOften(t *testing.T) {
	for _, c := range []struct {
		rail     int
		wasUp    bool
		attempts int
		want     int64 // milliseconds
	}{
		{2, false, 0, 5}, {2, false, 8, 1280}, {2, false, 12, 20480}, {2, false, 13, 30000}, {2, false, 40, 30000},
		{2, true, 8, 500}, {1, true, 8, 500}, {1, false, 8, 500},
	} {
		w := newWire(t, 2, withGrace(100*sec), mended, withAlternate)
		resolve(w)
		pr := w.ranks[0].Peer(1)
		w.rails[0][0].lose(1, pathError(0)) // the alternate is needed
		w.rails[0][0].openError = btl.ErrFailed
		rl := &pr.rails[c.rail]
		if c.rail == 1 {
			answers(w, 2) // or no rail is up
			w.rails[1][0].lose(1, pathError(1))
		}
		m := w.rails[c.rail][0]
		m.openError = btl.ErrFailed
		rl.recovery.wasUp, rl.recovery.attempts, rl.recovery.flaps = c.wasUp, c.attempts, 0
		w.ranks[0].planReopen(rl)
		opened := m.opened
		w.pass((c.want - 1) * msec)
		require.Equal(t, opened, m.opened, "%+v: too early", c)
		w.pass(3 * msec)
		require.Equal(t, opened+1, m.opened, "%+v: too late", c)
	}
}

// An alternate that leads nowhere is not tried again. Any other rail is.
func TestAlternateThatLeadsNowhereIsNotTriedAgain(t *testing.T) {
	for alternate, isTriedAgain := range map[bool]bool{true: false, false: true} {
		w := newWire(t, 2, withGrace(100*sec), mended, withAlternate)
		resolve(w)
		rl := &w.ranks[0].Peer(1).rails[2]
		rl.alternate = alternate
		w.rails[2][0].openError = btl.ErrUnreachable
		w.rails[0][0].openError = btl.ErrFailed
		w.rails[0][0].lose(1, pathError(0))
		w.ranks[0].planReopen(rl)
		w.pass(20 * sec)
		require.Equal(t, isTriedAgain, w.rails[2][0].opened > 1)
		require.NotZero(t, w.rails[2][0].opened)
	}
}

// A failure opens the alternates that are needed. It does not change openings that are already
// scheduled, or other rails.
func TestFailureOpensAlternatesOnce(t *testing.T) {
	w := newWire(t, 2, withGrace(100*sec), mended, withAlternate)
	resolve(w)
	r, pr := w.ranks[0], w.ranks[0].Peer(1)
	for i := range 3 {
		w.rails[i][0].openError = btl.ErrFailed
	}
	w.rails[0][0].lose(1, pathError(0))
	alternate, first := pr.rails[2].recovery.timer, pr.rails[0].recovery.timer
	require.NotNil(t, alternate)
	require.NotNil(t, first)
	r.useAlternates(pr)
	require.Same(t, alternate, pr.rails[2].recovery.timer, "its pause begins anew")
	require.Same(t, first, pr.rails[0].recovery.timer)
	r.eng.StopTimer(first)
	r.eng.StopTimer(alternate)
	pr.rails[0].recovery.timer, pr.rails[2].recovery.timer = nil, nil
	r.useAlternates(pr)
	require.Nil(t, pr.rails[0].recovery.timer, "it is no alternate")
	require.NotNil(t, pr.rails[2].recovery.timer)

	w = newWire(t, 2, withGrace(100*sec), mended, withAlternate)
	resolve(w)
	r, pr = w.ranks[0], w.ranks[0].Peer(1)
	w.rails[0][0].lose(1, pathError(0))
	answers(w, 2)
	r.useAlternates(pr)
	require.Nil(t, pr.rails[2].recovery.timer, "it is open")
}

// A spare rail whose turn to be opened comes when it is not needed any more stays closed.
func TestSpareRailStaysClosedOnceOthersAreBack(t *testing.T) {
	w := newWire(t, 2, withRails(2), mended, withGrace(10*sec), withRoutes(func(all []Route) {
		all[1].Tier, all[1].Endpoint = 1, nil
	}))
	resolve(w)
	pr := w.ranks[0].Peer(1)
	w.rails[0][0].lose(1, pathError(0))
	require.NotNil(t, pr.rails[1].recovery.timer)
	w.ranks[0].reopen(&pr.rails[0])
	w.arrive(0, 1, 0, TagProbeAck, railMessage(railHeader{epoch: 2}))
	require.EqualValues(t, 0b01, pr.up)
	w.pass(sec)
	require.Zero(t, w.rails[1][0].opened)
}

// A spare rail that is not needed and fails leaves the peer as well reached as before.
func TestSpareRailThatFailsUnneeded(t *testing.T) {
	w := newWire(t, 2, withRails(2), mended, withGrace(10*sec), withRoutes(func(all []Route) { all[1].Tier = 1 }))
	resolve(w)
	pr := w.ranks[0].Peer(1)
	w.rails[1][0].lose(1, pathError(1))
	require.Equal(t, PeerUp, pr.State())
	require.Nil(t, pr.rails[1].recovery.timer, "it is opened when it is needed")
	w.rails[0][0].lose(1, pathError(0))
	require.Equal(t, PeerNoPath, pr.State())
	answers(w, 1)
	require.Equal(t, PeerDegraded, pr.State())
}

// Rails that were never up have at most 8 of the 32 PROBEs of a module under way. Others have more.
func TestProbesOfUnprovenRailsAreBounded(t *testing.T) {
	for _, c := range []struct {
		wasUp bool
		most  int
	}{{false, maxUnprovenProbes}, {true, maxModuleProbes}} {
		for _, underWay := range []int{c.most - 1, c.most} {
			w, r, pr := newGraceWire(t, 2, 100*sec)
			w.mended = true
			w.rails[0][0].lose(1, pathError(0))
			w.flying = nil
			rl := &pr.rails[0]
			r.reopen(rl)
			rl.recovery.wasUp, rl.own.probes = c.wasUp, underWay
			r.probe(rl)
			require.Equal(t, underWay < c.most, len(w.on(TagProbe)) == 1, "%+v with %d", c, underWay)
		}
	}
}

// The first time that an extra rail is up is not reported. It is if the rail was expected, or had
// been up.
func TestFirstTimeOfExtraRailIsNotTold(t *testing.T) {
	for _, c := range []struct{ isExtra, wasUp, isTold bool }{
		{true, false, false}, {true, true, true}, {false, false, true}, {false, true, true},
	} {
		w, r, pr := newGraceWire(t, 2, 100*sec)
		w.mended = true
		w.rails[0][0].lose(1, pathError(0))
		rl := &pr.rails[0]
		r.reopen(rl)
		rl.isExtra, rl.recovery.wasUp = c.isExtra, c.wasUp
		r.events = nil
		w.arrive(0, 1, 0, TagProbeAck, railMessage(railHeader{epoch: 2}))
		require.Equal(t, railUp, rl.state)
		require.Equal(t, c.isTold, len(r.events) == 1, "%+v", c)
		require.True(t, rl.recovery.wasUp)
	}
}

// The event of a rail that has the name of another one says so, whichever kind of rail it is.
func TestEventOfFurtherRailOfAModule(t *testing.T) {
	for _, spare := range []bool{false, true} {
		w := newWire(t, 2, withRails(2), mended, withGrace(10*sec), withRoutes(func(all []Route) {
			all[1].Module, all[1].Local, all[1].Endpoint = all[0].Module, all[0].Local, nil
			if spare {
				all[1].Tier = 1
			} else {
				all[1].Alternate = true
			}
		}))
		resolve(w)
		r, pr := w.ranks[0], w.ranks[0].Peer(1)
		r.takeOut(pr, pathError(0), &pr.rails[0])
		r.reopen(&pr.rails[1])
		r.railReturned(&pr.rails[1])
		require.Len(t, r.events, 2)
		require.False(t, r.events[0].Alternate)
		require.True(t, r.events[1].Up && r.events[1].Alternate)
	}
}

// A PROBE by a rail that was never opened here, and cannot be, is not answered.
func TestProbeOfRailThatCannotBeOpened(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec), withRoutes(func(all []Route) {
		all[1].Tier, all[1].Endpoint = 1, nil
	}))
	resolve(w)
	pr := w.ranks[0].Peer(1)
	require.Nil(t, pr.rails[1].endpoint)
	w.ranks[0].Arrived(w.rails[1][0], 1, TagProbe, railMessage(railHeader{sender: 1, receiver: 1, epoch: 1}))
	require.Equal(t, 1, w.rails[1][0].opened)
	require.Equal(t, railDown, pr.rails[1].state)
	require.Empty(t, w.flying)
}

// Messages about rails return their operations to the pool.
func TestProbesGiveOperationsBack(t *testing.T) {
	w, r, pr := newGraceWire(t, 2, 100*sec)
	w.mended = true
	w.rails[0][0].lose(1, pathError(0))
	rl := &pr.rails[0]
	r.reopen(rl)
	w.end(w.on(TagRailDown)[0], nil)
	w.flying = nil
	free := len(r.freeOps)
	require.Positive(t, free)
	r.probe(rl)
	require.Len(t, r.freeOps, free-1)
	w.step(0)
	require.Len(t, r.freeOps, free)
}

// When the last rail fails, a rail whose next incarnation is made already goes on being probed.
func TestLastFailureLeavesProbedRailAlone(t *testing.T) {
	w, r, pr := newGraceWire(t, 2, 10*sec)
	w.mended = true
	w.rails[0][0].lose(1, pathError(0))
	r.reopen(&pr.rails[0])
	timer := pr.rails[0].recovery.timer
	require.NotNil(t, timer)
	w.rails[1][0].fail(1, pathError(1))
	require.Equal(t, PeerNoPath, pr.state)
	require.Same(t, timer, pr.rails[0].recovery.timer)
}

// A clock that was stopped does not count the part that it was in.
func TestStoppedGraceClockCountsNothing(t *testing.T) {
	w, r, pr := newGraceWire(t, 1, 10*sec)
	pr.grace.until = r.startGrace(pr, 10*sec)
	w.pass(500 * msec)
	r.stopGrace(pr)
	w.pass(2 * sec)
	require.Zero(t, pr.grace.parts)
	require.Nil(t, pr.grace.timer)
	r.startGracePart(pr)
	w.pass(1100 * msec)
	require.EqualValues(t, 1, pr.grace.parts)
	require.NotErrorIs(t, pr.cause, request.ErrUnreachable)
}
