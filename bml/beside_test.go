package bml

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
)

// newTiers makes a pair whose rail i is of tier i. Those of later tiers may be beside the first
// one, and are not open.
func newTiers(t *testing.T, factor int, rails ...loop.RailConfig) (w *pair, pr *Peer) {
	w = newPair(t, 10*sec, rails...)
	for _, r := range w.ranks {
		r.cfg.StripeFactor = factor
		resolve := r.cfg.Resolve
		r.cfg.Resolve = func(peer int) ([]Route, error) {
			routes, err := resolve(peer)
			for i := range routes {
				if routes[i].Tier, routes[i].Beside = i, true; i > 0 {
					routes[i].Endpoint = nil
				}
			}
			return routes, err
		}
	}
	require.NoError(t, w.ranks[1].Resolve(w.ranks[1].Peer(0)))
	require.NoError(t, w.ranks[0].Resolve(w.ranks[0].Peer(1)))
	return w, w.ranks[0].Peer(1)
}

// stream sends long messages, one after the other, for a while, and compares their bytes.
func (w *pair) stream(t *testing.T, nanos int64) {
	for end := w.fabric.Now() + nanos; w.fabric.Now() < end; {
		in := pattern(512<<10, int(w.fabric.Now()/1000))
		w.ranks[1].message = make([]byte, len(in))
		for m := w.ranks[0].sendLong(1, in); !m.isDone; {
			require.NoError(t, m.err)
			for range 4 {
				w.ranks[0].eng.Turn()
				w.ranks[1].eng.Turn()
			}
			w.fabric.AdvanceTo(w.fabric.Now() + msec/4)
		}
		require.True(t, bytes.Equal(in, w.ranks[1].message))
	}
}

// carried is how many bytes a rail has delivered since the last call.
func carried(rl *Rail) int64 {
	n := rl.meter.deliveredBytes
	rl.meter.deliveredBytes = 0
	return n
}

// A rail of a later tier that is as fast as it has to be shares long messages, and takes no short
// ones.
func TestRailBesideSharesLongMessages(t *testing.T) {
	w, pr := newTiers(t, 3, loop.RailConfig{BandwidthMBps: 20}, loop.RailConfig{BandwidthMBps: 10})
	w.ranks[0].send(1, "short")
	w.run(sec, 0, 1)
	require.Equal(t, railDown, pr.rails[1].state, "it is opened for a short message")
	w.stream(t, 2*sec)
	require.Equal(t, railUp, pr.rails[1].state)
	for i := range pr.rails {
		carried(&pr.rails[i])
	}
	w.stream(t, sec)
	share := float64(carried(&pr.rails[1])) / float64(carried(&pr.rails[0]))
	require.InDelta(t, 0.5, share, 0.2)
	require.Zero(t, pr.slow)
	require.Same(t, &pr.rails[0], pr.first)
	require.Equal(t, PeerUp, pr.State())
	require.True(t, pr.isMixed())

	// It becomes too slow, and is as it was.
	ends := []loop.Port{{Rank: 0, Rail: 1}, {Rank: 1, Rail: 1}}
	require.NoError(t, w.fabric.ImpairLink(ends[0], ends[1], loop.Impairment{PerByte: 20}))
	w.stream(t, 2*sec)
	require.EqualValues(t, 0b10, pr.slow)
	require.False(t, pr.isMixed())
	require.NoError(t, w.fabric.ImpairLink(ends[0], ends[1], loop.Impairment{}))
	w.stream(t, 11*sec)
	require.Zero(t, pr.slow)
}

// A rail that is slower than that takes nothing, though it keeps what its link promises, and is
// tried ever more seldom.
func TestRailBesideThatIsTooSlow(t *testing.T) {
	w, pr := newTiers(t, 3, loop.RailConfig{BandwidthMBps: 20}, loop.RailConfig{BandwidthMBps: 2})
	w.stream(t, 5*sec)
	require.Equal(t, railUp, pr.rails[1].state)
	require.EqualValues(t, 0b10, pr.slow)
	require.Positive(t, pr.rails[1].beside.rest)
	require.Equal(t, firstRest, pr.rails[1].beside.pause)
	last := pr.lastTrial
	w.stream(t, sec)
	require.Less(t, pr.lastTrial, last+8, "it is tried while it rests")
	w.stream(t, 10*sec)
	require.Equal(t, 2*firstRest, pr.rails[1].beside.pause)
	require.Zero(t, w.ranks[0].Stats().RailsFailed)
}

// Rails of later tiers stay spare if the setting is 0, or if they are not such rails.
func TestRailsThatAreNotBeside(t *testing.T) {
	for _, factor := range []int{0, 3} {
		w, pr := newTiers(t, factor, loop.RailConfig{BandwidthMBps: 20}, loop.RailConfig{BandwidthMBps: 20})
		pr.rails[1].mayBeBeside = factor == 0
		w.stream(t, sec)
		require.Equal(t, railDown, pr.rails[1].state)
		require.EqualValues(t, 0b01, pr.up)
	}
}

// If the rails of the first tier are down, a rail beside them carries everything.
func TestRailBesideTakesOver(t *testing.T) {
	w, pr := newTiers(t, 3, loop.RailConfig{BandwidthMBps: 20}, loop.RailConfig{BandwidthMBps: 20})
	w.stream(t, sec)
	require.EqualValues(t, 0b11, pr.up)
	require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
	w.ranks[0].send(1, "short")
	w.stream(t, sec)
	require.Equal(t, []string{"short"}, w.ranks[1].got)
	require.Same(t, &pr.rails[1], pr.first)
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.stream(t, 3*sec)
	require.Same(t, &pr.rails[0], pr.first)
	require.EqualValues(t, 0b11, pr.up)
	require.Zero(t, pr.slow)
}

// While messages go by rails of several tiers they go in fragments.
func TestNoRemoteAccessByRailsOfSeveralTiers(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec), func(w *wire) {
		for i := range w.attrs {
			w.attrs[i].MaxSendBytes = 512
		}
	}, withRoutes(func(all []Route) { all[1].Tier, all[1].Beside = 1, true }))
	r := w.ranks[0]
	r.cfg.StripeFactor = 2
	resolve(w)
	pr := r.Peer(1)
	sets := func() []RailSet { return []RailSet{pr.Getters(), pr.Putters()} }
	require.Equal(t, []RailSet{0b01, 0b01}, sets())
	r.Transfer(nil, pr, nil)
	require.EqualValues(t, 0b11, pr.up)
	require.EqualValues(t, 0b10, pr.slow, "it has not shown how fast it is")
	require.Equal(t, []RailSet{0b11, 0b11}, sets())
	pr.becomesFast(&pr.rails[1])
	require.Equal(t, []RailSet{0, 0}, sets())
	pr.rails[0].health = 0 // it has just come back
	r.prefer(pr)
	require.Same(t, &pr.rails[1], pr.first)
	require.EqualValues(t, 0b11, pr.up)
	require.Equal(t, []RailSet{0, 0}, sets(), "the first rail is of the later tier")
	w.rails[0][0].lose(1, pathError(0))
	require.Equal(t, []RailSet{0b10, 0b10}, sets())
	w.rails[1][0].lose(1, pathError(1))
	require.Equal(t, []RailSet{0, 0}, sets(), "no rail is up")
	require.NotZero(t, pr.rails[0].module.Attrs().Caps&btl.CapGet)
}

// An alternate is beside others only while one of its modules needs it. Then it, too, has to show
// how fast it is.
func TestAlternateBesideIsNeeded(t *testing.T) {
	w := newWire(t, 2, withRails(3), withGrace(10*sec), withRoutes(func(all []Route) {
		for i := 1; i < 3; i++ {
			all[i].Tier, all[i].Beside = 1, true
		}
		all[2].Local, all[2].Remote, all[2].Alternate = 1, 1, true
	}))
	r := w.ranks[0]
	r.cfg.StripeFactor = 2
	resolve(w)
	pr := r.Peer(1)
	r.Transfer(nil, pr, nil)
	require.EqualValues(t, 0b011, pr.up)
	w.rails[1][0].lose(1, pathError(1))
	require.EqualValues(t, 0b101, pr.up)
	require.True(t, pr.slow.Has(2))
}

// The rails beside others are opened by the first transfer. A rail that is to be opened already is
// opened no later for it.
func TestTransferOpensRailsBeside(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec), mended, withRoutes(func(all []Route) {
		all[1].Tier, all[1].Beside, all[1].Endpoint = 1, true, nil
	}))
	r := w.ranks[0]
	r.cfg.StripeFactor = 2
	resolve(w)
	pr := r.Peer(1)
	require.Nil(t, pr.rails[1].recovery.timer)
	r.Transfer(nil, pr, nil)
	timer := pr.rails[1].recovery.timer
	require.NotNil(t, timer)
	pr.hasLong = false
	r.Transfer(nil, pr, nil)
	require.Same(t, timer, pr.rails[1].recovery.timer, "its pause begins anew")
	answers(w, 1)
	require.EqualValues(t, 0b11, pr.up)
	pr.becomesFast(&pr.rails[1])
	r.Transfer(nil, pr, nil)
	require.Zero(t, pr.slow, "it has to show again how fast it is")
}

// A rail beside others is compared with those of lower tiers that are up and have been measured.
// One that has a share leaves if its bytes take more than twice the factor.
func TestFactorOfRailBeside(t *testing.T) {
	_, pr := threeRails(t)
	pr.b.cfg.StripeFactor, pr.hasLong = 2, true
	for i := range pr.rails {
		pr.rails[i].tier, pr.rails[i].mayBeBeside = min(i, 1), true
		pr.rails[i].meter.long.usual = []int64{100, 500, 1}[i]
	}
	pr.b.prefer(pr)
	factor := func(own int64) float64 { return pr.besideFactor(1, own, longOf) }
	require.EqualValues(t, 3, factor(300), "rail 2 is of the same tier")
	require.Zero(t, factor(0))
	require.True(t, pr.b.compareBeside(pr, 1))
	require.True(t, pr.slow.Has(1), "it takes five times as long")
	for usual, isSlow := range map[int64]bool{400: false, 401: true} {
		pr.becomesFast(&pr.rails[1])
		pr.rails[1].meter.long.usual = usual
		require.True(t, pr.b.compareBeside(pr, 1))
		require.Equal(t, isSlow, pr.slow.Has(1))
	}
	for _, usual := range [][]int64{{100, 50}, {50, 100}} {
		pr.rails[0].meter.long.usual, pr.rails[2].meter.long.usual, pr.rails[2].tier = usual[0], usual[1], 0
		require.EqualValues(t, 6, factor(300), "the best of the lower tier counts")
	}
	pr.rails[2].tier = 1
	pr.rails[0].meter.long.usual = 0
	require.Zero(t, factor(300))
	pr.rails[0].meter.long.usual = 100
	pr.up &^= 0b001
	require.Zero(t, factor(300))
}

// A slow rail beside others is fast while its TRIALs take no more than the factor, rests after
// besideMisses that took more, and twice as long each time. Ticks without an answer change nothing.
func TestTicksOfRailBeside(t *testing.T) {
	for name, c := range map[string]struct {
		picos        int64 // of its long TRIAL for a byte, where the first rail takes 100; 0: none
		before, want beside
		isFast       bool
	}{
		"fast":              {150, beside{misses: 3, pause: 400, rest: 5}, beside{wasFast: true, rest: 4}, true},
		"as fast as needed": {200, beside{}, beside{wasFast: true}, true},
		"too slow":          {201, beside{misses: 3, pause: 400}, beside{misses: 4, pause: 400}, false},
		"no longer fast":    {201, beside{wasFast: true}, beside{misses: 1}, false},
		"still fast":        {0, beside{wasFast: true}, beside{wasFast: true}, true},
		"not known":         {0, beside{misses: 3, pause: 400, rest: 1}, beside{misses: 3, pause: 400}, false},
		"first rest":        {201, beside{misses: besideMisses - 1}, beside{pause: firstRest, rest: firstRest}, false},
		"second rest":       {201, beside{misses: besideMisses - 1, pause: firstRest}, beside{pause: 2 * firstRest, rest: 2 * firstRest}, false},
		"longest rest":      {201, beside{misses: besideMisses - 1, pause: 8000}, beside{pause: mostRest, rest: mostRest}, false},
	} {
		_, pr := threeRails(t)
		pr.b.cfg.StripeFactor = 2
		rl := &pr.rails[1]
		rl.tier, rl.beside = 1, c.before
		pr.becomesSlow(rl)
		pr.rails[0].meter.longTrials.usual = 100
		if c.picos > 0 {
			rl.meter.longTrials.add(c.picos)
		}
		require.Equal(t, c.isFast, pr.b.compareBeside(pr, 1), name)
		require.Equal(t, c.want, rl.beside, name)
		require.True(t, pr.slow.Has(1), name)
	}
}

// Only rails of later tiers that may be beside others are so, and only for long messages.
func TestWhichRailsAreBeside(t *testing.T) {
	for _, c := range []struct {
		hasLong, may bool
		tier         int
		want         bool
	}{{true, true, 1, true}, {false, true, 1, false}, {true, false, 1, false}, {true, true, 0, false}} {
		_, pr := threeRails(t)
		pr.hasLong, pr.rails[2].mayBeBeside, pr.rails[2].tier = c.hasLong, c.may, c.tier
		require.Equal(t, c.want, pr.isBeside(&pr.rails[2]), "%+v", c)
	}
}
