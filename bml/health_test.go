package bml

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
)

// The rules of health.go and probe.go, one test for each, on real rails in virtual time.

// watched is a pair whose rails a test breaks. It records what happens to rail 0 at rank 0.
type watched struct {
	*pair
	pr     *Peer          // rank 1 as rank 0 knows it
	opens  []int64        // when rank 0 tried to make the next incarnation
	shut   bool           // no incarnation can be made
	probes []int64        // when rank 0 posted a PROBE
	told   map[bool]int64 // the last RailEvents, by Up
}

// newWatched makes two ranks that have used all their rails.
func newWatched(t *testing.T, grace int64, rails ...loop.RailConfig) *watched {
	w := &watched{pair: newPair(t, grace, rails...), told: map[bool]int64{}}
	b := w.ranks[0].BML
	resolve := b.cfg.Resolve
	b.cfg.Resolve = func(peer int) ([]Route, error) {
		routes, err := resolve(peer)
		open := routes[0].Reopen
		routes[0].Reopen = func() (btl.Endpoint, error) {
			w.opens = append(w.opens, w.fabric.Now())
			if w.shut {
				return nil, btl.ErrUnreachable
			}
			ep, err := open()
			return &probeRecorder{Endpoint: ep, w: w}, err
		}
		return routes, err
	}
	b.cfg.OnRail = func(e RailEvent) {
		if e.Rail == w.modules[0][0].Attrs().Name {
			w.told[e.Up] = w.fabric.Now()
		}
	}
	require.NoError(t, w.ranks[1].Resolve(w.ranks[1].Peer(0)))
	w.ranks[0].send(1, "hello")
	w.run(100*msec, 0, 1)
	require.Equal(t, []string{"hello"}, w.ranks[1].got)
	w.pr = b.Peer(1)
	return w
}

// probeRecorder is an endpoint that records its PROBEs.
type probeRecorder struct {
	btl.Endpoint
	w *watched
}

func (e *probeRecorder) Send(op *btl.Op) error {
	err := e.Endpoint.Send(op)
	if err == nil && op.Tag == TagProbe {
		e.w.probes = append(e.w.probes, e.w.fabric.Now())
	}
	return err
}

// until lets time pass until a condition holds, and returns how long that took.
func (w *watched) until(t *testing.T, what string, holds func() bool, ranks ...int) int64 {
	t.Helper()
	begin := w.fabric.Now()
	for !holds() {
		require.Less(t, w.fabric.Now(), begin+100*sec, "waited too long for %s", what)
		w.run(msec, ranks...)
	}
	return w.fabric.Now() - begin
}

// breaks fails rank 0's half of a rail, and returns how long it takes until rank 0 tries to make
// the next incarnation.
func (w *watched) breaks(t *testing.T, rail int) int64 {
	t.Helper()
	n := len(w.opens)
	w.pr.rails[rail].endpoint.Fail(sideError(btl.SideRemote))
	return w.until(t, "the next incarnation", func() bool { return len(w.opens) > n }, 0, 1)
}

// isUp reports whether both ranks use rail 0.
func (w *watched) isUp() bool {
	return w.pr.rails[0].state == railUp && w.ranks[1].Peer(0).rails[0].state == railUp
}

// sideError is an error that takes modulePenalty of the module at a side.
func sideError(side btl.Side) *btl.Error { return &btl.Error{Class: btl.ClassProtocol, Side: side} }

// millis converts nanoseconds to milliseconds.
func millis(nanos []int64) (all []int64) {
	for _, n := range nanos {
		all = append(all, n/msec)
	}
	return all
}

func TestHealthAfterFailure(t *testing.T) {
	of := func(class btl.Class, side btl.Side) error { return &btl.Error{Class: class, Side: side} }
	for _, c := range []struct {
		name                     string
		err                      error
		rail, module, far, flaps int
	}{
		{"remote", of(btl.ClassPath, btl.SideRemote), 0, 1000, 600, 1},
		{"local", of(btl.ClassPath, btl.SideLocal), 0, 0, 1000, 1},
		{"both", of(btl.ClassPath, btl.SideBoth), 0, 600, 600, 1},
		{"timeout", of(btl.ClassTimeout, btl.SideBoth), 0, 600, 600, 1},
		{"local timeout", of(btl.ClassTimeout, btl.SideLocal), 0, 600, 1000, 1},
		{"none", of(btl.ClassPath, btl.SideNone), 0, 1000, 1000, 1},
		{"device", of(btl.ClassDevice, btl.SideLocal), 0, 0, 1000, 1},
		{"not of a transport", errors.New("unknown"), 0, 1000, 1000, 1},
		// These errors are no evidence against the rail.
		{"usage", of(btl.ClassUsage, btl.SideLocal), 1000, 1000, 1000, 1},
		{"flushed", of(btl.ClassFlushed, btl.SideLocal), 1000, 1000, 1000, 1},
		{"closed here", of(btl.ClassClosed, btl.SideLocal), 1000, 1000, 1000, 0},
		{"closed there", of(btl.ClassClosed, btl.SideRemote), 1000, 1000, 1000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
			w.ranks[0].railFailed(&w.pr.rails[0], c.err)
			rl := &w.pr.rails[0]
			require.Equal(t, []int{c.rail, c.module, c.far, c.flaps}, []int{int(rl.health), int(rl.own.health), int(rl.far.health), rl.recovery.flaps})
			require.Equal(t, fullHealth, w.pr.rails[1].trust(), "the other rail")
		})
	}
}

// What an error takes from the modules, for all classes and sides.
func TestPenaltyOfClassAndSide(t *testing.T) {
	type penalty struct{ own, far health }
	suspected := [4]penalty{{}, {own: 400}, {far: 400}, {400, 400}}
	known := [4]penalty{{}, {own: 1000}, {far: 400}, {400, 400}}
	for class, want := range [...][4]penalty{ // by side: none, local, remote, both
		btl.ClassPath: known, btl.ClassDevice: known,
		btl.ClassTimeout: suspected, btl.ClassProtocol: suspected, btl.ClassPeerGone: suspected,
		btl.ClassUsage: {}, btl.ClassClosed: {}, btl.ClassFlushed: {},
	} {
		for side, want := range want {
			own, far := penaltyOf(btl.Class(class), btl.Side(side))
			require.Equal(t, want, penalty{own, far}, "%v, %v", btl.Class(class), btl.Side(side))
		}
	}
}

// Several failures do not make the health of a module negative.
func TestDeviceHealthNotNegative(t *testing.T) {
	w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
	rl := &w.pr.rails[0]
	for _, left := range []health{600, 200, 0, 0} {
		w.ranks[0].penalize(rl, sideError(btl.SideLocal), true)
		require.Equal(t, left, rl.own.health)
	}
}

// A penalized module gets an eighth of its health back every tenth of a second, by the TRIALs that
// are delivered then.
func TestDeviceHealthReturns(t *testing.T) {
	w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
	rl := &w.pr.rails[1]
	w.ranks[0].penalize(&w.pr.rails[0], sideError(btl.SideLocal), true)
	for range 2 {
		w.ranks[0].penalize(rl, sideError(btl.SideLocal), true)
	}
	rl.health = fullHealth
	begin := w.fabric.Now()
	var at []int64
	for want := health(325); ; want = min(want+125, fullHealth) {
		w.until(t, "health", func() bool { return rl.own.health == want }, 0)
		at = append(at, w.fabric.Now()-begin)
		require.Equal(t, want, rl.trust(), "the rail is trusted more than its module")
		if want == fullHealth {
			break
		}
	}
	require.Equal(t, []int64{102, 202, 302, 402, 502, 602, 702}, millis(at))
}

// A local failure of a rail to one peer lowers the trust in the module's rails to all other peers.
func TestDeviceHealthBoundsAllItsRails(t *testing.T) {
	w := newWire(t, 3, withRails(2), withGrace(10*sec))
	b := w.ranks[0].BML
	for _, rank := range []int{1, 2} {
		require.NoError(t, b.Resolve(b.Peer(rank)))
	}
	for i, want := range []health{600, 200} {
		b.penalize(&b.Peer(1).rails[0], sideError(btl.SideLocal), true)
		other := b.Peer(2)
		require.Equal(t, fullHealth, other.rails[0].health)
		require.Equal(t, []health{want, 1000}, []health{other.rails[0].trust(), other.rails[1].trust()})
		require.Equal(t, i == 0, other.first == &other.rails[0], "below %d another rail is the first", trusted)
	}
}

// A failure at the peer's end of a rail lowers the trust in all rails to that module of the peer,
// and in no other. It gets its health back as modules of this rank do.
func TestRemoteHealthBoundsAllItsRails(t *testing.T) {
	w := newWire(t, 3, withRails(3), withGrace(10*sec), withRoutes(func(all []Route) { all[1].Remote = 0 }))
	b := w.ranks[0].BML
	for _, rank := range []int{1, 2} {
		require.NoError(t, b.Resolve(b.Peer(rank)))
	}
	pr := b.Peer(1)
	for i, want := range []health{600, 200} {
		b.penalize(&pr.rails[0], sideError(btl.SideRemote), true)
		b.prefer(pr)
		require.Equal(t, []health{0, want, 1000}, []health{pr.rails[0].trust(), pr.rails[1].trust(), pr.rails[2].trust()})
		require.Equal(t, fullHealth, pr.rails[1].health)
		require.Equal(t, i == 0, pr.first == &pr.rails[1], "below %d another rail is the first", trusted)
	}
	for _, rl := range b.Peer(2).rails {
		require.Equal(t, fullHealth, rl.trust(), "a rail to another peer")
	}
	w.passDelivering(601 * msec)
	require.EqualValues(t, 950, pr.rails[1].trust())
	w.passDelivering(101 * msec)
	require.EqualValues(t, 1000, pr.rails[1].trust())
	require.Nil(t, pr.rails[1].far.timer)
}

// A rail that came back is not trusted, and has full health after eight steps of a tenth of a
// second.
func TestTrustRampsUp(t *testing.T) {
	w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
	rl := &w.pr.rails[0]
	w.breaks(t, 0)
	w.until(t, "the rail", w.isUp, 0, 1)
	begin := w.told[true]
	require.Zero(t, rl.trust())
	var at []int64
	var trusts []health
	for last := rl.trust(); rl.trust() < fullHealth; last = rl.trust() {
		w.until(t, "more", func() bool { return rl.trust() != last }, 0, 1)
		at, trusts = append(at, w.fabric.Now()-begin), append(trusts, rl.trust())
		require.Equal(t, rl.trust() >= trusted, w.pr.first == rl, "it is the first when it is trusted again")
	}
	require.Equal(t, []health{125, 250, 375, 500, 625, 750, 875, 1000}, trusts)
	require.Equal(t, []int64{102, 202, 302, 402, 502, 602, 702, 802}, millis(at))
}

// A rail that is not up gains no health.
func TestNoHealthWhileDown(t *testing.T) {
	w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
	w.breaks(t, 0)
	w.until(t, "the rail", w.isUp, 0, 1)
	w.run(250*msec, 0, 1)
	require.Equal(t, health(250), w.pr.rails[0].health)
	w.shut = true
	w.breaks(t, 0)
	w.run(sec, 0, 1)
	require.Zero(t, w.pr.rails[0].health)
	w.shut = false
	w.until(t, "the rail", w.isUp, 0, 1)
	w.run(250*msec, 0, 1)
	// The same holds while the rail drains.
	w.ranks[0].railFailed(&w.pr.rails[0], sideError(btl.SideRemote))
	w.run(sec, 0)
	require.Equal(t, railFailing, w.pr.rails[0].state)
	require.Zero(t, w.pr.rails[0].health)
}

// The health of a rail that comes back in full health does not grow.
func TestHealthNotBeyondFull(t *testing.T) {
	w := newWatched(t, 10*sec, loop.RailConfig{BandwidthMBps: 8000})
	w.pr.rails[0].endpoint.Fail(&btl.Error{Class: btl.ClassUsage})
	w.until(t, "the failure", func() bool { return !w.isUp() }, 0, 1)
	w.until(t, "the rail", w.isUp, 0, 1)
	w.run(sec, 0, 1)
	require.Equal(t, fullHealth, w.pr.rails[0].health)
}

// An idle rail gains health only by the delivery of a TRIAL, and has one of them under way.
func TestIdleRailGainsHealthByTrials(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec))
	resolve(w)
	r := w.ranks[0]
	rl := &r.Peer(1).rails[0]
	rl.health = 0
	r.recover(&rl.trustee)
	w.pass(2 * sec)
	require.Zero(t, rl.health)
	require.Len(t, w.on(TagTrial), 1)
	w.acknowledge()
	require.Equal(t, recoverStep, rl.health)
	w.pass(2 * recoverPeriod.Nanoseconds())
	require.Equal(t, recoverStep, rl.health, "a delivery counts once")
	require.Len(t, w.on(TagTrial), 1)
	w.end(w.on(TagTrial)[0], btl.ErrInjected)
	require.Equal(t, recoverStep, rl.health)
}

// A period gives one step of health: deliveries beside a TRIAL give no second one, and neither does
// a late TRIAL.
func TestPeriodGivesOneStepOfHealth(t *testing.T) {
	w := newWire(t, 3, withGrace(10*sec))
	r := w.ranks[0]
	require.NoError(t, r.Resolve(r.Peer(1)))
	require.NoError(t, r.Resolve(r.Peer(2)))
	own := r.Peer(1).rails[0].own
	own.health = 0
	r.recover(&own.trustee)
	period := recoverPeriod.Nanoseconds()
	w.pass(period + msec)
	require.Len(t, w.on(TagTrial), 1)
	w.pass(period)
	require.Len(t, w.on(TagTrial), 2, "by rails to both peers")
	w.acknowledge()
	require.Equal(t, recoverStep, own.health)
	r.send(1, "a")
	w.step(0)
	w.pass(period)
	require.Equal(t, recoverStep, own.health)
	w.passDelivering(period / 2)
	require.Equal(t, 2*recoverStep, own.health)
}

// What was delivered before a failure in the same period gives no health back.
func TestPeriodOfFailureGivesNoHealth(t *testing.T) {
	w := newWire(t, 3, withGrace(10*sec))
	r := w.ranks[0]
	require.NoError(t, r.Resolve(r.Peer(1)))
	require.NoError(t, r.Resolve(r.Peer(2)))
	own := r.Peer(1).rails[0].own
	own.health = 900
	r.recover(&own.trustee)
	w.pass(recoverPeriod.Nanoseconds() / 2)
	r.send(1, "a")
	w.step(0)
	w.rails[0][0].lose(2, sideError(btl.SideLocal))
	w.pass(recoverPeriod.Nanoseconds()/2 + 2*msec)
	require.Equal(t, 900-modulePenalty, own.health)
}

// A rail that delivers gains health without TRIALs, and so do the modules at its ends. A busy rail
// that delivers nothing gains none, and gets no TRIAL.
func TestBusyRailGainsHealthByWhatItDelivers(t *testing.T) {
	w := newWire(t, 2, withRails(1), withGrace(10*sec))
	resolve(w)
	r := w.ranks[0]
	rl := &r.Peer(1).rails[0]
	healths := func() []health { return []health{rl.health, rl.own.health, rl.far.health} }
	for _, trustee := range []*trustee{&rl.trustee, &rl.own.trustee, rl.far} {
		trustee.health = 250
		r.recover(trustee)
	}
	r.send(1, "a")
	w.pass(2 * sec)
	require.Equal(t, []health{250, 250, 250}, healths())
	for want := health(375); want <= fullHealth; want += recoverStep {
		r.send(1, "b")
		w.step(0)
		w.pass(recoverPeriod.Nanoseconds())
		require.Equal(t, []health{want, want, want}, healths())
	}
	require.Empty(t, w.on(TagTrial))
	require.Nil(t, rl.timer)
}

// A module without a rail that is up gains nothing until one has returned.
func TestModuleGainsNothingWithoutRail(t *testing.T) {
	w := newWatched(t, 10*sec, loop.RailConfig{})
	own := w.pr.rails[0].own
	w.shut = true
	w.pr.rails[0].endpoint.Fail(sideError(btl.SideLocal))
	w.run(2*sec, 0, 1)
	require.Equal(t, fullHealth-modulePenalty, own.health)
	require.Nil(t, own.timer)
	w.shut = false
	w.until(t, "the rail", w.isUp, 0, 1)
	require.Equal(t, fullHealth-modulePenalty, own.health)
	w.run(sec, 0, 1)
	require.Equal(t, fullHealth, own.health)
}

// A module whose rails are all down goes on to gain health by a rail to another peer.
func TestModuleGainsByRailToNewPeer(t *testing.T) {
	w := newWire(t, 3, withGrace(10*sec))
	r := w.ranks[0]
	require.NoError(t, r.Resolve(r.Peer(1)))
	own := r.Peer(1).rails[0].own
	err := pathError(0)
	err.Side = btl.SideLocal
	w.rails[0][0].lose(1, err)
	w.pass(2 * recoverPeriod.Nanoseconds())
	require.Zero(t, own.health)
	require.Nil(t, own.timer)
	require.NoError(t, r.Resolve(r.Peer(2)))
	w.passDelivering(sec)
	require.Equal(t, fullHealth, own.health)
}

// The first rail is in the lowest tier that has a rail which is up. There it is the trusted rail of
// the lowest latency; without a trusted rail, the healthiest.
func TestPreferredRail(t *testing.T) {
	type rails struct {
		health []health // −1: the rail is down
		tier   []int
	}
	for _, c := range []struct {
		rails
		first int
		up    RailSet
	}{
		{rails{[]health{1000, 1000, 1000}, nil}, 0, 0b111},
		{rails{[]health{500, 1000, 1000}, nil}, 0, 0b111},
		{rails{[]health{499, 500, 1000}, nil}, 1, 0b111},
		{rails{[]health{375, 250, 1000}, nil}, 2, 0b111},
		{rails{[]health{125, 375, 250}, nil}, 1, 0b111},
		{rails{[]health{0, 0, 0}, nil}, 0, 0b111},
		{rails{[]health{-1, 500, 1000}, nil}, 1, 0b110},
		{rails{[]health{-1, -1, 0}, nil}, 2, 0b100},
		{rails{[]health{0, 1000, 1000}, []int{0, 1, 1}}, 0, 0b001},
		{rails{[]health{-1, 0, 1000}, []int{0, 1, 2}}, 1, 0b010},
		{rails{[]health{-1, 0, 1000}, []int{0, 1, 1}}, 2, 0b110},
	} {
		t.Run(fmt.Sprint(c.rails), func(t *testing.T) {
			w := newWatched(t, 10*sec, make([]loop.RailConfig, 3)...)
			for i := range w.pr.rails {
				rl := &w.pr.rails[i]
				rl.health = c.health[i]
				if rl.health < 0 {
					rl.state = railDown
				}
				if c.tier != nil {
					rl.tier = c.tier[i]
				}
			}
			w.ranks[0].prefer(w.pr)
			require.Equal(t, []int{c.first, int(c.up)}, []int{int(w.pr.first.index), int(w.pr.up)})
		})
	}
}

// All rails fail with pieces of a message, and one comes back. The message goes on by that rail,
// though the other one stays down.
func TestMessageGoesOnWhileARailStaysDown(t *testing.T) {
	w := newPair(t, 10*sec, make([]loop.RailConfig, 2)...)
	in, out := pattern(2<<20, 1), make([]byte, 2<<20)
	w.ranks[1].message = out
	require.NoError(t, w.ranks[1].Resolve(w.ranks[1].Peer(0)))
	require.NoError(t, w.ranks[0].Resolve(w.ranks[0].Peer(1)))
	m := w.ranks[0].sendLong(1, in)
	carries := func(rail uint8) bool {
		return slices.ContainsFunc(m.t.pieces, func(op *Op) bool { return op.rail == rail })
	}
	pr := w.ranks[0].Peer(1)
	for !carries(0) || !carries(1) || pr.rails[0].deliveredBytes == 0 {
		w.ranks[0].eng.Turn()
		w.ranks[1].eng.Turn()
		w.fabric.Advance()
	}
	require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
	require.NoError(t, w.fabric.FailModule(1, loop.Lose)) // it cannot be opened again
	w.run(100*msec, 0, 1)
	require.Empty(t, m.t.pieces)
	require.False(t, m.isDone)
	require.Less(t, m.t.left, int64(len(in)))
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.run(2*sec, 0, 1)
	require.NoError(t, m.err)
	require.True(t, m.isDone)
	require.True(t, bytes.Equal(in, out))
	require.Equal(t, railUp, pr.rails[0].state)
	require.NotEqual(t, railUp, pr.rails[1].state)
	require.Less(t, pr.rails[0].deliveredBytes+pr.rails[1].deliveredBytes, int64(len(in))*11/10, "it began anew")
}

// OnRail is called for each rail that fails or comes back, with the number of rails left.
func TestOnRailReportsFailuresAndReturns(t *testing.T) {
	w := newWire(t, 2, withRails(3), withGrace(10*sec), withRoutes(func(all []Route) {
		all[2].Endpoint = nil // down at first
	}))
	resolve(w)
	r := w.ranks[0]
	require.Empty(t, r.events)
	err := pathError(0)
	w.rails[0][0].lose(1, err)
	require.Equal(t, []RailEvent{{Rail: "wire0", Peer: 1, Again: true, Cause: err, Left: 1}}, r.events)
	returns(2)(w)
	require.Equal(t, RailEvent{Rail: "wire2", Peer: 1, Remote: 2, Up: true, Left: 2}, r.events[1])
	returns(0)(w)
	require.Equal(t, RailEvent{Rail: "wire0", Peer: 1, Up: true, Again: true, Left: 3}, r.events[2])
	require.EqualValues(t, 1, r.Stats().RailsFailed)
	require.EqualValues(t, 1, r.Stats().RailsReturned, "a rail that was never up returns")
	w.rails[2][0].lose(1, err)
	require.Equal(t, RailEvent{Rail: "wire2", Peer: 1, Remote: 2, Again: true, Cause: err, Left: 2}, r.events[3])
	require.Equal(t, PeerDegraded, r.Peer(1).State())
	w.rails[1][0].lose(1, &btl.Error{Class: btl.ClassClosed, Side: btl.SideLocal})
	w.rails[0][0].fail(1, peerGone(0))
	require.Len(t, r.events, 4, "an event for a closed rail or an ended process")

	r.cfg.OnRail = nil
	r.tellRail(&r.Peer(1).rails[0], err)
}

// When everything is in full health, no timer is left.
func TestNoTimerIsLeftInFullHealth(t *testing.T) {
	w := newWatched(t, 10*sec, loop.RailConfig{})
	rl := &w.pr.rails[0]
	w.ranks[0].failRail(rl, sideError(btl.SideLocal))
	w.until(t, "the rail", w.isUp, 0, 1)
	require.NotNil(t, rl.timer)
	require.NotNil(t, rl.own.timer)
	w.run(sec, 0, 1)
	require.Nil(t, rl.timer)
	require.Nil(t, rl.recovery.timer)
	require.Nil(t, rl.own.timer)
	require.Empty(t, w.ranks[0].Leftovers())
}

// A failed rail is not opened again when its peer is failing.
func TestRailOfFailingPeerIsNotReopened(t *testing.T) {
	w, r, pr := newDeferredWire(t)
	w.rails[0][0].lose(1, pathError(0))
	r.Fail(pr, btl.ErrInjected)
	w.pass(20 * msec)
	require.True(t, pr.IsFailing())
	require.Zero(t, w.rails[0][0].opened)
}

// An alternate that was never up may lead nowhere: its failures are no evidence against its
// modules. They are once it has been up.
func TestAlternateThatWasNeverUpSaysNothing(t *testing.T) {
	for _, side := range []btl.Side{btl.SideLocal, btl.SideRemote, btl.SideBoth} {
		w := newWire(t, 2, withRails(2), withGrace(10*sec))
		resolve(w)
		rl := &w.ranks[0].Peer(1).rails[1]
		rl.alternate, rl.recovery.wasUp = true, false
		w.ranks[0].penalize(rl, sideError(side), false)
		require.Equal(t, []health{0, fullHealth, fullHealth}, []health{rl.health, rl.own.health, rl.far.health})
		rl.recovery.wasUp = true
		w.ranks[0].penalize(rl, sideError(side), false)
		require.NotEqual(t, []health{fullHealth, fullHealth}, []health{rl.own.health, rl.far.health})
	}
}
