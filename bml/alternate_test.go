package bml

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// withAlternate makes the third of three rails an alternate, between the module of the second rail
// here and that of the first rail there. It was never opened.
func withAlternate(w *wire) {
	withRails(3)(w)
	withRoutes(func(all []Route) {
		a := &all[2]
		a.Alternate, a.Endpoint, a.Local, a.Remote = true, nil, all[1].Local, all[0].Remote
	})(w)
}

// answers has the peer answer the probe of rail i, which has the number of a module at each end.
func answers(w *wire, i int) {
	rl := &w.ranks[0].Peer(1).rails[i]
	for range 1000 {
		if w.pass(msec); rl.state == railProbing {
			break
		}
	}
	h := railHeader{sender: rl.remote, receiver: rl.local, epoch: rl.endpoint.Epoch()}
	w.arrive(i, 1, 0, TagProbeAck, railMessage(h))
}

// trust gives rail i all its health, as what it delivers does in time.
func trust(w *wire, i int) {
	r, pr := w.ranks[0], w.ranks[0].Peer(1)
	pr.rails[i].health = fullHealth
	r.prefer(pr)
	r.useAlternates(pr)
}

// An alternate is opened when one of its modules has no other rail, takes traffic until that is
// back and trusted, and is closed some time later.
func TestAlternateIsUsedWhileNeeded(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), mended, withAlternate)
	resolve(w)
	pr := w.ranks[0].Peer(1)
	require.EqualValues(t, 0b011, pr.up)
	w.pass(sec)
	require.Equal(t, railDown, pr.rails[2].state, "it is opened although nothing needs it")
	require.Equal(t, PeerUp, pr.state)
	w.rails[0][0].lose(1, pathError(0))
	answers(w, 2)
	require.EqualValues(t, 0b110, pr.up)
	answers(w, 0)
	require.EqualValues(t, 0b111, pr.up)
	trust(w, 0)
	require.EqualValues(t, 0b011, pr.up)
	require.Equal(t, railUp, pr.rails[2].state)
	for range 7 {
		w.pass(sec)
	}
	require.True(t, pr.rails[2].recovery.isClosing)
	w.rails[2][0].lose(1, pathError(2)) // as the peer is asked to
	require.Equal(t, PeerUp, pr.state)
	require.EqualValues(t, 1, w.ranks[0].Stats().RailsFailed, "its end counts as a failure")
}

// The failure of an alternate that takes traffic counts, and is told, whichever side is at fault.
func TestFailureOfAlternateInUseIsTold(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), mended, withAlternate)
	resolve(w)
	r := w.ranks[0]
	w.rails[0][0].lose(1, pathError(0))
	answers(w, 2)
	err := pathError(2)
	err.Side = btl.SideLocal
	w.rails[2][0].lose(1, err)
	require.EqualValues(t, 2, r.Stats().RailsFailed)
	last := r.events[len(r.events)-1]
	require.True(t, last.Alternate && !last.Up && last.Left == 1, "%+v", last)
}

// An alternate that leads nowhere costs its module no trust: another rail of the module works.
func TestHopelessAlternateCostsNoTrust(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), mended, withAlternate)
	resolve(w)
	pr := w.ranks[0].Peer(1)
	pr.rails[2].own = pr.rails[1].own // they are of one module
	w.rails[0][0].lose(1, pathError(0))
	for range 5000 {
		w.pass(msec)
		require.Equal(t, fullHealth, pr.rails[1].trust())
		if pr.rails[2].state == railFailing {
			w.rails[2][0].drain(1)
		}
	}
	require.Positive(t, pr.rails[2].recovery.attempts)

	// An error of a rail that was never up is no evidence.
	r, alternate := w.ranks[0], &pr.rails[2]
	r.penalize(alternate, sideError(btl.SideLocal), false)
	require.Equal(t, fullHealth, alternate.own.health)
	r.penalize(&pr.rails[1], sideError(btl.SideLocal), false)
	require.Equal(t, fullHealth-modulePenalty, alternate.own.health)
	pr.rails[1].recovery.wasUp = false
	r.penalize(&pr.rails[1], sideError(btl.SideLocal), false)
	require.Equal(t, fullHealth-modulePenalty, alternate.own.health)
	alternate.recovery.wasUp = true
	r.penalize(alternate, sideError(btl.SideLocal), false)
	require.Equal(t, fullHealth-2*modulePenalty, alternate.own.health)
}

// An alternate that is not needed recovers its health before it is closed.
func TestAlternateRecoversWhileNotNeeded(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), mended, withAlternate)
	resolve(w)
	pr := w.ranks[0].Peer(1)
	alternate := &pr.rails[2]
	w.rails[0][0].lose(1, pathError(0))
	answers(w, 2)
	w.rails[2][0].lose(1, pathError(2))
	answers(w, 2)
	require.Equal(t, railUp, alternate.state)
	require.Zero(t, alternate.health)
	if pr.rails[0].state != railUp {
		answers(w, 0)
	}
	trust(w, 0)
	require.False(t, pr.needs(alternate))
	w.passDelivering(50 * msec)
	w.rails[0][0].lose(1, pathError(0))
	require.True(t, pr.needs(alternate))
	w.passDelivering(900 * msec)
	require.Equal(t, fullHealth, alternate.health)
	answers(w, 0)
	trust(w, 0)
	require.False(t, pr.needs(alternate))
	w.passDelivering(4900 * msec)
	require.Equal(t, railUp, alternate.state)
	require.False(t, alternate.recovery.isClosing)
	w.passDelivering(200 * msec)
	require.True(t, alternate.recovery.isClosing)

	// An alternate that recovers while it is not needed is closed.
	w = newWire(t, 2, withGrace(10*sec), mended, withAlternate)
	resolve(w)
	pr = w.ranks[0].Peer(1)
	alternate = &pr.rails[2]
	w.rails[0][0].lose(1, pathError(0))
	answers(w, 2)
	alternate.health = 0
	w.ranks[0].recover(&alternate.trustee)
	answers(w, 0)
	w.passDelivering(5700 * msec)
	require.False(t, alternate.recovery.isClosing)
	w.passDelivering(200 * msec)
	require.True(t, alternate.recovery.isClosing)
}

// Without a grace time a peer is not lost while an alternate may lead there.
func TestUntriedAlternateHasTime(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(0), mended, func(w *wire) {
		w.change = func(cfg *Config) {
			resolve := cfg.Resolve
			cfg.Resolve = func(peer int) ([]Route, error) {
				all, err := resolve(peer)
				all[1].Alternate, all[1].Endpoint = true, nil
				all[1].Reopen = func() (btl.Endpoint, error) { return w.rails[1][0].reopen(peer) }
				return all, err
			}
		}
	})
	resolve(w)
	w.rails[0][0].lose(1, pathError(0))
	require.Equal(t, PeerNoPath, w.ranks[0].Peer(1).state)
}

// A message that every rail fails to deliver ends after the grace time, even if the rails of a
// module have the same name.
func TestGraceOfRailsWithOneName(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec), func(w *wire) { w.attrs[1].Name = w.attrs[0].Name }, withRoutes(func(all []Route) {
		all[1].Alternate, all[1].Endpoint, all[1].Local = true, nil, all[0].Local
	}))
	resolve(w)
	pr := w.ranks[0].Peer(1)
	w.ranks[0].send(1, "a")
	for tries := 0; pr.IsAlive(); tries++ {
		require.Less(t, tries, 20)
		w.failAll()
		w.pass(2 * sec)
	}
	require.ErrorContains(t, pr.cause, "longer than the grace time")
}

// All rails of a module that fails as a whole have its cause.
func TestRailsOfOneModuleFailTogether(t *testing.T) {
	w := newWire(t, 2, withRails(3), withGrace(10*sec), withRoutes(func(all []Route) {
		all[1].Module, all[1].Local = all[0].Module, all[0].Local
	}))
	var left []int
	w.ranks[0].cfg.OnRail = func(e RailEvent) { left = append(left, e.Left) }
	resolve(w)
	pr := w.ranks[0].Peer(1)
	cause := pathError(0)
	w.rails[0][0].fail(btl.AllPeers, cause)
	require.EqualValues(t, 0b100, pr.up)
	require.ErrorIs(t, pr.rails[0].recovery.cause, cause)
	require.ErrorIs(t, pr.rails[1].recovery.cause, cause)
	require.Equal(t, []int{1, 1}, left)
	require.Len(t, pr.draining, 2)
	w.rails[0][0].drain(btl.AllPeers)
	require.Empty(t, pr.draining)
}

// A BTL that did not know the number of the peer's module when an endpoint failed knows it when the
// endpoint is drained.
func TestWayThatGetsItsNumberLater(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), mended, withRoutes(func(all []Route) {
		all[0].Remote, all[0].Local = 1, 1
		all[0].Endpoint.(*wireEndpoint).state = btl.Failed
	}))
	r, m := w.ranks[0], w.rails[0][0]
	r.Failed(m, btl.Path{Peer: 1}, pathError(0))
	pr := r.Peer(1)
	require.NotEmpty(t, pr.draining)
	m.endpoints[1].state = btl.Drained
	r.Drained(m, btl.Path{Peer: 1, Module: 1})
	require.Empty(t, pr.draining)
}

// A lost peer is told by every rail of the module by which it was heard: it may probe any of them.
func TestLostPeerIsToldByAllRailsOfAModule(t *testing.T) {
	var opened []int
	w := newWire(t, 2, withRails(2), withGrace(10*sec), mended, withRoutes(func(all []Route) {
		for i := range all {
			reopen := all[i].Reopen
			all[i].Reopen = func() (btl.Endpoint, error) { opened = append(opened, i); return reopen() }
		}
		all[1].Module, all[1].Local = all[0].Module, all[0].Local
	}))
	resolve(w)
	r := w.ranks[0]
	r.ProtocolError(r.Peer(1), ErrMalformed)
	r.Progress()
	w.rails[0][0].drain(1)
	w.rails[1][0].drain(1)
	r.Drained(w.rails[0][0], btl.Path{Peer: 1, Module: 1})
	require.True(t, r.Peer(1).IsLost())
	r.Arrived(w.rails[0][0], 1, TagProbe, railMessage(railHeader{}))
	r.Progress()
	slices.Sort(opened)
	require.Equal(t, []int{0, 1}, slices.Compact(opened))
}

// An alternate that is needed again before it would be closed stays.
func TestAlternateThatIsNeededAgainStays(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), mended, withAlternate)
	resolve(w)
	pr := w.ranks[0].Peer(1)
	alternate := &pr.rails[2]
	w.rails[0][0].lose(1, pathError(0))
	answers(w, 2)
	require.Equal(t, fullHealth, alternate.health)
	answers(w, 0)
	trust(w, 0)
	require.False(t, pr.needs(alternate))
	w.pass(2 * sec)
	w.rails[0][0].openError = btl.ErrFailed
	w.rails[0][0].lose(1, pathError(0))
	w.pass(5 * sec)
	require.True(t, pr.needs(alternate))
	require.Equal(t, railUp, alternate.state)
}

// An alternate that was closed, and is not needed while another rail returns, is opened at once
// when it is needed again.
func TestClosedAlternateIsOpenedAtOnce(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), mended, withAlternate)
	resolve(w)
	pr := w.ranks[0].Peer(1)
	rl := &pr.rails[2]
	require.Equal(t, railDown, rl.state)
	rl.health = fullHealth
	w.ranks[0].useAlternates(pr)
	require.Nil(t, rl.recovery.timer)
	w.rails[0][0].lose(1, pathError(0))
	w.pass(50 * msec)
	require.Equal(t, railProbing, rl.state)
}

// Errors with two peers, whose machine may be dead, open no alternates to others.
func TestTimeoutsToDeadPeersOpenNoAlternatesToOthers(t *testing.T) {
	const n = 10
	w := newWire(t, n, withGrace(10*sec), mended, withAlternate)
	r := w.ranks[0]
	for p := 1; p < n; p++ {
		require.NoError(t, r.Resolve(r.Peer(p)))
	}
	for p := 1; p <= 2; p++ {
		w.rails[0][0].lose(p, &btl.Error{Rail: "wire0", Peer: p, Class: btl.ClassTimeout, Side: btl.SideBoth, Err: btl.ErrInjected})
	}
	require.Less(t, r.Peer(3).rails[0].trust(), trusted)
	w.pass(50 * msec)
	for p := 3; p < n; p++ {
		require.Equal(t, railDown, r.Peer(p).rails[2].state)
	}
}

// An alternate is opened, and used, while a rail of one of its modules is up and not trusted.
func TestAlternateStandsInForIllRail(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), mended, withAlternate)
	resolve(w)
	r, pr := w.ranks[0], w.ranks[0].Peer(1)
	r.penalizeEnd(&pr.rails[0].trustee, fullHealth)
	require.Equal(t, railUp, pr.rails[0].state)
	answers(w, 2)
	require.EqualValues(t, 0b111, pr.up)
	w.passDelivering(sec)
	require.Equal(t, fullHealth, pr.rails[0].trust())
	require.EqualValues(t, 0b011, pr.up)
}

// An alternate is opened, and used, while a rail of one of its modules delivers much less than its
// modules did before.
func TestAlternateStandsInForLaggingRail(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), mended, func(w *wire) {
		withAlternate(w)
		for i := range w.attrs {
			w.attrs[i].MaxSendBytes = 1 << 20
		}
	})
	resolve(w)
	r, pr := w.ranks[0], w.ranks[0].Peer(1)
	w.ranks[1].message = make([]byte, 64<<20)
	for i := range 2 {
		w.measure(pr, i, msec/100, 1)
	}
	w.pass(25 * msec)
	m := r.newLong(1, pattern(64<<20, 1))
	m.advance()
	w.pass(2 * msec)
	require.Zero(t, pr.lagging)
	for n := 0; pr.lagging == 0; n++ { // rail 0 delivers a piece each 200 ms, rail 1 all each 1 ms
		require.Less(t, n, 20_000)
		w.pass(msec)
		slow := w.rails[0][0].take(1)
		w.acknowledge()
		if n%200 == 0 && len(slow) > 0 {
			w.end(slow[0], nil)
			slow = slow[1:]
		}
		w.flying = append(w.flying, slow...)
		if m.t.left == 0 {
			m = r.sendLong(1, m.data)
		}
	}
	require.EqualValues(t, 0b001, pr.lagging)
	require.True(t, pr.needs(&pr.rails[2]))
	answers(w, 2)
	require.EqualValues(t, 0b111, pr.up)
}

// An alternate that is not needed here stays up until the peer closes it on request. That is no
// failure, whatever error the transport reports.
func TestPeerIsAskedToCloseAlternate(t *testing.T) {
	w := newWire(t, 2, withGrace(10*sec), mended, withAlternate)
	resolve(w)
	r, pr := w.ranks[0], w.ranks[0].Peer(1)
	rl := &pr.rails[2]
	r.Arrived(w.rails[2][0], 1, TagProbe, railMessage(railHeader{sender: rl.remote, receiver: rl.local, epoch: 2}))
	w.settle()
	require.Equal(t, railUp, rl.state)
	require.EqualValues(t, 0b011, pr.up, "it is not needed here")
	w.passDelivering(6 * sec)
	require.Equal(t, railUp, rl.state)
	require.True(t, rl.recovery.isClosing)
	w.rails[2][0].lose(1, pathError(2))
	require.True(t, isClosed(rl.recovery.cause))
	require.Equal(t, fullHealth, rl.trust())
	require.Zero(t, r.Stats().RailsFailed)
}

// An end closes an alternate on request, unless it needs it, or has another incarnation.
func TestAlternateIsClosedUnlessNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		isNeeded bool
		epoch    uint32
		want     railState
	}{
		"not needed": {false, 2, railFailing}, "needed": {true, 2, railUp}, "earlier": {false, 1, railUp},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, 2, withGrace(10*sec), mended, withAlternate)
			resolve(w)
			r, pr := w.ranks[0], w.ranks[0].Peer(1)
			rl := &pr.rails[2]
			if c.isNeeded {
				w.rails[0][0].lose(1, pathError(0))
			}
			r.Arrived(w.rails[2][0], 1, TagProbe, railMessage(railHeader{sender: rl.remote, receiver: rl.local, epoch: 2}))
			w.settle()
			require.Equal(t, railUp, rl.state)
			h := railHeader{sender: rl.remote, receiver: rl.local, epoch: c.epoch, notNeeded: true}
			r.Arrived(w.rails[1][0], 1, TagRailDown, railMessage(h))
			require.Equal(t, c.want, rl.state)
			require.Equal(t, fullHealth, rl.trust())
		})
	}
}
