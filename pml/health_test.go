package pml

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/request"
)

// Every rule of health.go, one by one, on real rails in virtual time.

const msec = int64(1e6)

// watched is a pair whose rails a test breaks, and that notes what becomes of them.
type watched struct {
	*pair
	pr     *peer          // rank 1, as rank 0 knows it
	opens  []int64        // when rank 0 has tried to open the next incarnation of its rail 0
	shut   bool           // that cannot be opened
	probes []int64        // when rank 0 has posted a PROBE by that rail
	told   map[bool]int64 // when rank 0 was last told that it is up, and that it is not
}

// newWatched is two ranks whose rails are all in use.
func newWatched(t *testing.T, grace int64, rails ...loop.RailConfig) *watched {
	w := &watched{pair: newPairBy(t, grace, rails...), told: map[bool]int64{}}
	p := w.pmls[0]
	resolve := p.cfg.Resolve
	p.cfg.Resolve = func(peer int) ([]Route, error) {
		routes, err := resolve(peer)
		open := routes[0].Reopen
		routes[0].Reopen = func() (btl.Endpoint, error) {
			w.opens = append(w.opens, w.fabric.Now())
			if w.shut {
				return nil, btl.ErrUnreachable
			}
			ep, err := open()
			return &noted{Endpoint: ep, w: w}, err
		}
		return routes, err
	}
	p.cfg.OnRail = func(e RailEvent) {
		if e.Rail == w.modules[0][0].Attrs().Name {
			w.told[e.Up] = w.fabric.Now()
		}
	}
	r := w.pmls[1].Irecv(w.ctxs[1], nil, 1, 0, 6, "recv")
	w.pmls[0].Isend(w.ctxs[0], nil, 1, 6, Standard, "send").Abandon()
	w.run(100*msec, 0, 1)
	_, err := r.Take()
	require.NoError(t, err)
	w.pr = p.peer(1)
	return w
}

// noted is an endpoint whose PROBEs are noted.
type noted struct {
	btl.Endpoint
	w *watched
}

func (e *noted) Send(op *btl.Op) error {
	err := e.Endpoint.Send(op)
	if err == nil && op.Tag == tagProbe {
		e.w.probes = append(e.w.probes, e.w.fabric.Now())
	}
	return err
}

// until lets time pass until something holds, and gives how much that was.
func (w *watched) until(t *testing.T, what string, holds func() bool, ranks ...int) int64 {
	t.Helper()
	begin := w.fabric.Now()
	for !holds() {
		require.Less(t, w.fabric.Now(), begin+100*sec, "waited too long for %s", what)
		w.run(msec, ranks...)
	}
	return w.fabric.Now() - begin
}

// breaks has rank 0's half of a rail fail, and gives how long it takes until the next incarnation
// is tried.
func (w *watched) breaks(t *testing.T, rail int) int64 {
	t.Helper()
	n := len(w.opens)
	w.pr.rails[rail].endpoint.Fail(sideErr(btl.SideRemote))
	return w.until(t, "the next incarnation", func() bool { return len(w.opens) > n }, 0, 1)
}

// isUp reports whether both ranks use rail 0.
func (w *watched) isUp() bool {
	return w.pr.rails[0].state == railUp && w.pmls[1].peer(0).rails[0].state == railUp
}

func sideErr(side btl.Side) *btl.Error { return &btl.Error{Class: btl.ClassPath, Side: side} }

// millis are times in ms.
func millis(nanos []int64) (all []int64) {
	for _, n := range nanos {
		all = append(all, n/msec)
	}
	return all
}

func TestHealthAfterFailure(t *testing.T) {
	of := func(class btl.Class, side btl.Side) error { return &btl.Error{Class: class, Side: side} }
	for _, c := range []struct {
		name               string
		err                error
		rail, device, flap int
	}{
		{"remote", of(btl.ClassPath, btl.SideRemote), 0, 1000, 1},
		{"local", of(btl.ClassPath, btl.SideLocal), 0, 600, 1},
		{"both", of(btl.ClassTimeout, btl.SideBoth), 0, 600, 1},
		{"none", of(btl.ClassPath, btl.SideNone), 0, 1000, 1},
		{"device", of(btl.ClassDevice, btl.SideLocal), 0, 600, 1},
		{"of no transport", errors.New("unknown"), 0, 1000, 1},
		// What is no evidence against a rail takes nothing from it.
		{"usage", of(btl.ClassUsage, btl.SideLocal), 1000, 1000, 1},
		{"flushed", of(btl.ClassFlushed, btl.SideLocal), 1000, 1000, 1},
		{"closed here", of(btl.ClassClosed, btl.SideLocal), 1000, 1000, 0},
		{"closed there", of(btl.ClassClosed, btl.SideRemote), 1000, 1000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
			w.pmls[0].railFailed(&w.pr.rails[0], c.err)
			rl := &w.pr.rails[0]
			require.Equal(t, []int{c.rail, c.device, c.flap}, []int{int(rl.health), int(rl.device.health), rl.mending.flaps})
			require.Equal(t, fullHealth, w.pr.rails[1].trust(), "the other rail")
		})
	}
}

// TestDeviceHealthNotNegative: failures of a device do not add up beyond its worst.
func TestDeviceHealthNotNegative(t *testing.T) {
	w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
	rl := &w.pr.rails[0]
	for _, left := range []health{600, 200, 0, 0} {
		w.pmls[0].hurt(rl, sideErr(btl.SideLocal), true)
		require.Equal(t, left, rl.device.health)
	}
}

// TestDeviceHealthReturns: a device that was debited gets an eighth back every tenth of a second.
func TestDeviceHealthReturns(t *testing.T) {
	w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
	rl := &w.pr.rails[1]
	w.pmls[0].hurt(&w.pr.rails[0], sideErr(btl.SideLocal), true)
	for range 2 {
		w.pmls[0].hurt(rl, sideErr(btl.SideLocal), true)
	}
	rl.health = fullHealth
	begin := w.fabric.Now()
	var at []int64
	for want := health(325); ; want = min(want+125, fullHealth) {
		w.until(t, "health", func() bool { return rl.device.health == want }, 0)
		at = append(at, w.fabric.Now()-begin)
		require.Equal(t, rl.module.Attrs().BandwidthMBps*int64(want)/1000, rl.weight, "its ways are weighed by it")
		if want == fullHealth {
			break
		}
	}
	require.Equal(t, []int64{101, 201, 301, 401, 501, 601, 701}, millis(at))
}

// TestDeviceHealthBoundsAllItsWays: what fails at this end of a rail to one peer takes from the
// shares of the device's ways to all others, and from their rank among the rails there.
func TestDeviceHealthBoundsAllItsWays(t *testing.T) {
	w, _ := newWire(t, 3, func(w *wire) {
		withRails(1000, 1000)(w)
		w.config.GraceNanos = 10 * sec
	})
	p := w.pmls[0]
	for _, rank := range []int{1, 2} {
		require.NoError(t, p.route(p.peer(rank)))
	}
	for i, want := range []int64{600, 200} {
		p.hurt(&p.peer(1).rails[0], sideErr(btl.SideLocal), true)
		other := p.peer(2)
		require.Equal(t, health(want), other.rails[0].trust())
		require.Equal(t, fullHealth, other.rails[0].health)
		require.Equal(t, []int64{want, 1000}, []int64{other.rails[0].weight, other.rails[1].weight})
		require.Equal(t, i == 0, other.first == &other.rails[0], "below %d another rail is the first", trusted)
	}
}

func TestWeightOfHealth(t *testing.T) {
	w := newWatched(t, 10*sec, loop.RailConfig{BandwidthMBps: 8000})
	rl := &w.pr.rails[0]
	for _, c := range []struct {
		rail, device health
		want         int64
	}{
		{1000, 1000, 8000}, {500, 1000, 4000}, {1000, 500, 4000}, {250, 500, 2000}, {125, 1000, 1000}, {0, 1000, 1}, {1000, 0, 1},
	} {
		rl.health, rl.device.health = c.rail, c.device
		rl.weigh()
		require.Equal(t, c.want, rl.weight, "%+v", c)
	}
}

// TestShareRampsUp: a rail that is back begins with the least share, and has all of it after eight
// steps of a tenth of a second.
func TestShareRampsUp(t *testing.T) {
	w := newWatched(t, 10*sec, loop.RailConfig{BandwidthMBps: 8000}, loop.RailConfig{BandwidthMBps: 8000})
	rl := &w.pr.rails[0]
	w.breaks(t, 0)
	w.until(t, "the rail", w.isUp, 0, 1)
	begin := w.told[true]
	require.EqualValues(t, 1, rl.weight)
	var at, weights []int64
	for last := rl.weight; rl.weight < 8000; last = rl.weight {
		w.until(t, "more", func() bool { return rl.weight != last }, 0, 1)
		at, weights = append(at, w.fabric.Now()-begin), append(weights, rl.weight)
		require.Equal(t, rl.weight >= 4000, w.pr.first == rl, "it takes what is short when it is trusted again")
	}
	require.Equal(t, []int64{1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000}, weights)
	require.Equal(t, []int64{101, 201, 301, 401, 501, 601, 701, 801}, millis(at))
}

// TestNoHealthWhileDown: time gives nothing back to a rail that is down.
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
	w.pmls[0].railFailed(&w.pr.rails[0], sideErr(btl.SideRemote)) // and is not Drained for a while
	w.run(sec, 0)
	require.Equal(t, railFailing, w.pr.rails[0].state)
	require.Zero(t, w.pr.rails[0].health)
}

// TestHealthNotBeyondFull: a rail that comes back in full health has no more than that.
func TestHealthNotBeyondFull(t *testing.T) {
	w := newWatched(t, 10*sec, loop.RailConfig{BandwidthMBps: 8000})
	w.pr.rails[0].endpoint.Fail(&btl.Error{Class: btl.ClassUsage})
	w.until(t, "the failure", func() bool { return !w.isUp() }, 0, 1)
	w.until(t, "the rail", w.isUp, 0, 1)
	w.run(sec, 0, 1)
	require.EqualValues(t, 8000, w.pr.rails[0].weight)
	require.Equal(t, fullHealth, w.pr.rails[0].health)
}

// TestRetries: a rail that is down is tried again after 5 ms, and then after twice as long each
// time, up to half a second; and after 5 ms again once it was up.
func TestRetries(t *testing.T) {
	w := newWatched(t, 100*sec, loop.RailConfig{})
	w.shut = true
	var pauses []int64
	pauses = append(pauses, w.breaks(t, 0))
	for range 9 {
		n := len(w.opens)
		pauses = append(pauses, w.until(t, "a try", func() bool { return len(w.opens) > n }, 0, 1))
	}
	require.Equal(t, []int64{6, 10, 20, 40, 80, 160, 320, 500, 500, 500}, millis(pauses))
	w.shut = false
	w.until(t, "the rail", w.isUp, 0, 1)
	require.EqualValues(t, 6, w.breaks(t, 0)/msec)
}

// TestHoldDown: a rail that fails again each time it was back is left alone for longer each time,
// up to half a minute, while another one is up. Ten seconds without a failure take one of them
// away.
func TestHoldDown(t *testing.T) {
	w := newWatched(t, 100*sec, make([]loop.RailConfig, 2)...)
	back := func() { w.until(t, "the rail", w.isUp, 0, 1) }
	var pauses []int64
	for range 15 {
		pauses = append(pauses, w.breaks(t, 0))
		back()
	}
	for i, want := range []int64{5, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10_240, 20_480, 30_000, 30_000, 30_000} {
		require.InDelta(t, want, pauses[i]/msec, 3, "%v", millis(pauses))
	}
	flaps := w.pr.rails[0].mending.flaps
	require.Equal(t, 15, flaps)
	w.run(35*sec, 0, 1)
	pause := w.breaks(t, 0)
	require.Equal(t, flaps-3+1, w.pr.rails[0].mending.flaps)
	require.InDelta(t, 30_000, pause/msec, 3)
	back()
	w.run(200*sec, 0, 1) // which takes away all of them, and no more
	for _, want := range []int64{5, 20, 40} {
		pause = w.breaks(t, 0)
		back()
		require.InDelta(t, want, pause/msec, 3)
	}
}

// TestHoldDownAfterFailedAttempts: attempts in vain to come back are no failures that hold a rail
// down.
func TestHoldDownAfterFailedAttempts(t *testing.T) {
	w := newWatched(t, 100*sec, make([]loop.RailConfig, 2)...)
	require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
	w.run(5*sec, 0, 1)
	require.Greater(t, len(w.opens), 10)
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.until(t, "the rail", w.isUp, 0, 1)
	require.InDelta(t, 20, w.breaks(t, 0)/msec, 3)
}

// TestRetriesAfterHoldDown: when it cannot be opened once it was held down, it is tried as soon
// again as any other.
func TestRetriesAfterHoldDown(t *testing.T) {
	w := newWatched(t, 100*sec, make([]loop.RailConfig, 2)...)
	for range 8 {
		w.breaks(t, 0)
		w.until(t, "the rail", w.isUp, 0, 1)
	}
	w.shut = true
	pauses := []int64{w.breaks(t, 0)}
	for range 3 {
		n := len(w.opens)
		pauses = append(pauses, w.until(t, "a try", func() bool { return len(w.opens) > n }, 0, 1))
	}
	require.InDelta(t, 2560, pauses[0]/msec, 3)
	require.Equal(t, []int64{20, 40}, millis(pauses[2:]), "in between the peer asks")
}

// TestHoldDownOfTheLastRail: nobody holds down a rail while no other one is up.
func TestHoldDownOfTheLastRail(t *testing.T) {
	w := newWatched(t, 100*sec, make([]loop.RailConfig, 2)...)
	for range 12 {
		w.breaks(t, 0)
		w.until(t, "the rail", w.isUp, 0, 1)
	}
	n := len(w.opens)
	w.pr.rails[0].endpoint.Fail(sideErr(btl.SideRemote))
	w.run(100*msec, 0, 1)
	require.Len(t, w.opens, n, "it is held down")
	w.pr.rails[1].endpoint.Fail(sideErr(btl.SideRemote))
	pause := w.until(t, "the next incarnation", func() bool { return len(w.opens) > n }, 0, 1)
	require.EqualValues(t, 6, pause/msec)
}

// TestPreferredRail: the first rail is that of the lowest latency of those that are trusted, else
// the healthiest; of the lowest tier that has one which is up.
func TestPreferredRail(t *testing.T) {
	type rails struct {
		health []health // −1: it is down
		tier   []int
	}
	for _, c := range []struct {
		rails
		first int
		up    railSet
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
			w.pmls[0].prefer(w.pr)
			require.Equal(t, []int{c.first, int(c.up)}, []int{int(w.pr.first.index), int(w.pr.up)})
		})
	}
}

// TestProbeNotDelivered: an incarnation whose PROBE is not delivered in two seconds is given up.
// Meanwhile that is the only one.
func TestProbeNotDelivered(t *testing.T) {
	w := newWatched(t, 100*sec, loop.RailConfig{})
	w.breaks(t, 0)
	w.until(t, "the rail", w.isUp, 0, 1)
	w.modules[0][0].(btl.Injector).Inject(btl.Fault{Kind: btl.FaultSilence, Peer: 1, Count: 1})
	w.probes = nil
	w.breaks(t, 0)
	rl := &w.pr.rails[0]
	require.Equal(t, railProbing, rl.state)
	took := w.until(t, "the end of the incarnation", func() bool { return rl.state != railProbing }, 0)
	require.InDelta(t, 2000, took/msec, 15)
	require.Len(t, w.probes, 1)
	w.until(t, "the rail", w.isUp, 0, 1)
	require.Zero(t, rl.device.probes)
}

// TestProbeNotAnswered: a PROBE that was delivered is sent again every two seconds while the peer
// is busy elsewhere, and the incarnation is kept.
func TestProbeNotAnswered(t *testing.T) {
	w := newWatched(t, 5*sec, loop.RailConfig{})
	w.pr.rails[0].endpoint.Fail(sideErr(btl.SideRemote))
	w.run(21*sec, 0)
	require.Len(t, w.opens, 1)
	require.Equal(t, railProbing, w.pr.rails[0].state)
	require.Len(t, w.probes, 12)
	require.EqualValues(t, 200, (w.probes[1]-w.probes[0])/msec, "the peer may not have been ready")
	for i := 2; i < len(w.probes); i++ {
		require.InDelta(t, 2000, (w.probes[i]-w.probes[i-1])/msec, 2)
	}
	require.NoError(t, w.pr.lost, "it is busy elsewhere for longer than the grace time")
	w.until(t, "the rail", w.isUp, 0, 1)
}

// TestProbesOfOneDevice: when a device is back no more than so many of its rails are probed at
// once. The others have their turn, and nobody is given up for having waited.
func TestProbesOfOneDevice(t *testing.T) {
	const most, n = 32, 96
	w, _ := newWire(t, n+1, func(w *wire) {
		w.async, w.mended = true, true
		w.config.GraceNanos = 100 * sec
	})
	p := w.pmls[0]
	for rank := 1; rank <= n; rank++ {
		require.NoError(t, p.route(p.peer(rank)))
	}
	w.rails[0][0].lose(btl.AllPeers, pathErr)
	pass := func(nanos int64) {
		for end := w.now + nanos; w.now < end; w.now += msec {
			for range 8 {
				p.eng.Turn()
			}
		}
	}
	p.eng.Lock()
	pass(10 * msec)
	seen := map[int]bool{}
	for rounds := 0; len(seen) < n; rounds++ {
		require.Less(t, rounds, 6)
		require.Len(t, w.flying, most)
		pass(sec)
		require.Len(t, w.flying, most, "their time is not over")
		for _, f := range w.flying {
			require.Equal(t, tagProbe, f.tag)
			seen[f.to] = true
			f.op.Done(f.op, nil)
		}
		w.flying = nil
		pass(250 * msec)
	}
	for rank := 1; rank <= n; rank++ {
		require.Equal(t, railProbing, p.peer(rank).rails[0].state)
		require.EqualValues(t, 2, p.peer(rank).rails[0].endpoint.Epoch(), "given up though it waited for its turn")
	}
}

// TestRailThatStaysDownIsFenced: all rails have failed with pieces of a message, and one is back.
// By that the peer learns that the others have failed, and so the message can begin anew.
func TestRailThatStaysDownIsFenced(t *testing.T) {
	w := newPair(t, 2, 10*sec)
	for _, p := range w.pmls {
		p.cfg.Protocol = Copy
	}
	in, out := pattern(2<<20, 1), make([]byte, 2<<20)
	s := w.pmls[0].Isend(w.ctxs[0], in, 1, 7, Standard, "send")
	r := w.pmls[1].Irecv(w.ctxs[1], out, 1, 0, 7, "recv")
	streaming := func() bool { return s.t != nil && s.t.lanes[0].pieces > 0 && s.t.lanes[1].pieces > 0 }
	for !streaming() {
		w.engines[0].Turn()
		w.engines[1].Turn()
		w.fabric.Advance()
	}
	require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
	require.NoError(t, w.fabric.FailRail(1, loop.Lose)) // which cannot be opened again
	w.run(100*msec, 0, 1)
	require.Positive(t, w.pmls[0].peer(1).unfenced)
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.run(2*sec, 0, 1)
	for _, end := range []ended{s, r} {
		require.Equal(t, request.Complete, end.State())
		_, err := end.Take()
		require.NoError(t, err)
	}
	require.True(t, bytes.Equal(in, out))
	require.Equal(t, railUp, w.pmls[0].peer(1).rails[0].state)
	require.NotEqual(t, railUp, w.pmls[0].peer(1).rails[1].state)
	require.NotZero(t, w.pmls[0].Stats().Restarts)
}
