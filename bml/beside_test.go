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
func newTiers(t *testing.T, beside bool, rails ...loop.RailConfig) (w *pair, pr *Peer) {
	w = newPair(t, 10*sec, rails...)
	for _, r := range w.ranks {
		r.cfg.Beside = beside
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

// A rail of a later tier is opened for the first long message, takes its share of long messages,
// and no short ones.
func TestRailBesideSharesLongMessages(t *testing.T) {
	w, pr := newTiers(t, true, loop.RailConfig{BandwidthMBps: 20}, loop.RailConfig{BandwidthMBps: 10})
	w.ranks[0].send(1, "short")
	w.run(sec, 0, 1)
	require.Equal(t, railDown, pr.rails[1].state, "it is opened for a short message")
	w.stream(t, sec)
	require.Equal(t, railUp, pr.rails[1].state)
	before := [2]int64{pr.rails[0].deliveredBytes, pr.rails[1].deliveredBytes}
	w.stream(t, 2*sec)
	share := float64(pr.rails[1].deliveredBytes-before[1]) / float64(pr.rails[0].deliveredBytes-before[0])
	require.InDelta(t, 0.5, share, 0.2)
	require.Same(t, &pr.rails[0], pr.first)
	require.Equal(t, PeerUp, pr.State())
	require.True(t, pr.isMixed())
}

// Rails of later tiers stay spare if the setting or their route says so.
func TestRailsThatAreNotBeside(t *testing.T) {
	for _, beside := range []bool{false, true} {
		w, pr := newTiers(t, beside, loop.RailConfig{BandwidthMBps: 20}, loop.RailConfig{BandwidthMBps: 20})
		pr.rails[1].mayBeBeside = !beside
		w.stream(t, sec/2)
		require.Equal(t, railDown, pr.rails[1].state)
		require.EqualValues(t, 0b01, pr.up)
	}
}

// If the rails of the first tier are down, a rail beside them carries everything.
func TestRailBesideTakesOver(t *testing.T) {
	w, pr := newTiers(t, true, loop.RailConfig{BandwidthMBps: 20}, loop.RailConfig{BandwidthMBps: 20})
	w.stream(t, sec/2)
	require.EqualValues(t, 0b11, pr.up)
	require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
	w.ranks[0].send(1, "short")
	w.stream(t, sec/2)
	require.Equal(t, []string{"short"}, w.ranks[1].got)
	require.Same(t, &pr.rails[1], pr.first)
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.stream(t, 3*sec)
	require.Same(t, &pr.rails[0], pr.first)
	require.EqualValues(t, 0b11, pr.up)
}

// The rails of a later tier are beside the others if together they promise a quarter as much.
func TestRailsBesidePromiseAQuarter(t *testing.T) {
	for name, c := range map[string]struct {
		promised []int64
		tiers    []int
		alone    int // a rail that may not be beside others by its route
		want     RailSet
	}{
		"a quarter":          {[]int64{1000, 250}, []int{0, 1}, -1, 0b11},
		"less":               {[]int64{1000, 249}, []int{0, 1}, -1, 0b01},
		"of the sum":         {[]int64{1000, 1000, 499}, []int{0, 0, 1}, -1, 0b011},
		"together":           {[]int64{1000, 1000, 250, 250}, []int{0, 0, 1, 1}, -1, 0b1111},
		"each tier":          {[]int64{1000, 249, 250}, []int{0, 1, 2}, -1, 0b101},
		"of those that may":  {[]int64{1000, 200, 200}, []int{0, 1, 1}, 2, 0b001},
		"nothing is known":   {[]int64{0, 0}, []int{0, 1}, -1, 0b11},
		"much more than all": {[]int64{1, 1e6}, []int{0, 1}, -1, 0b11},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, 2, withRails(len(c.tiers)), withGrace(10*sec), func(w *wire) {
				for i, mbps := range c.promised {
					w.attrs[i].BandwidthMBps = mbps
				}
			}, withRoutes(func(all []Route) {
				for i := range all {
					all[i].Tier, all[i].Beside = c.tiers[i], i != c.alone
				}
			}))
			r := w.ranks[0]
			r.cfg.Beside = true
			resolve(w)
			r.Transfer(nil, r.Peer(1), nil)
			require.Equal(t, c.want, r.Peer(1).up)
		})
	}
}

// While messages go by rails of several tiers they are not read if they have several pieces. Rails
// with remote writes write.
func TestNoRemoteReadsByRailsOfSeveralTiers(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec), func(w *wire) {
		for i := range w.attrs {
			w.attrs[i].MaxSendBytes = 512
		}
	}, withRoutes(func(all []Route) { all[1].Tier, all[1].Beside = 1, true }))
	r := w.ranks[0]
	r.cfg.Beside = true
	resolve(w)
	pr := r.Peer(1)
	sets := func() []RailSet {
		short := pr.exposed(remotePieceBytes, btl.AccessRemoteRead)
		require.Equal(t, pr.Getters(), short)
		return []RailSet{pr.exposed(remotePieceBytes+1, btl.AccessRemoteRead), pr.exposed(1<<30, btl.AccessRemoteWrite)}
	}
	require.Equal(t, []RailSet{0b01, 0b01}, sets())
	r.Transfer(nil, pr, nil)
	require.EqualValues(t, 0b11, pr.up)
	require.Equal(t, []RailSet{0, 0b11}, sets())
	w.rails[0][0].lose(1, pathError(0))
	require.Equal(t, []RailSet{0b10, 0b10}, sets())
	w.rails[1][0].lose(1, pathError(1))
	require.Equal(t, []RailSet{0, 0}, sets(), "no rail is up")
}

// The first transfer opens the rails beside others. It does not delay an opening that is already
// scheduled.
func TestTransferOpensRailsBeside(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec), mended, withRoutes(func(all []Route) {
		all[1].Tier, all[1].Beside, all[1].Endpoint = 1, true, nil
	}))
	r := w.ranks[0]
	r.cfg.Beside = true
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
}

// An alternate is beside others only while one of its modules needs it.
func TestAlternateBesideIsNeeded(t *testing.T) {
	w := newWire(t, 2, withRails(3), withGrace(10*sec), withRoutes(func(all []Route) {
		for i := 1; i < 3; i++ {
			all[i].Tier, all[i].Beside = 1, true
		}
		all[2].Local, all[2].Remote, all[2].Alternate = 1, 1, true
	}))
	r := w.ranks[0]
	r.cfg.Beside = true
	resolve(w)
	pr := r.Peer(1)
	r.Transfer(nil, pr, nil)
	require.EqualValues(t, 0b011, pr.up)
	w.rails[1][0].lose(1, pathError(1))
	require.EqualValues(t, 0b101, pr.up)
}
