package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
)

// timed is a pair that counts the traffic of each rail.
type timed struct {
	*pair
	t     *testing.T
	moved []int64       // bytes posted by rail
	sends []int64       // operations posted by rail
	told  map[int]int64 // by rail: a wrong bandwidth that it claims to have
}

// counted is an endpoint that counts its traffic.
type counted struct {
	btl.Endpoint
	w    *timed
	rail int
}

func (e *counted) count(op *btl.Op, err error) error {
	if err == nil {
		e.w.moved[e.rail] += int64(len(op.Payload))
		e.w.sends[e.rail]++
	}
	return err
}

func (e *counted) Send(op *btl.Op) error { return e.count(op, e.Endpoint.Send(op)) }
func (e *counted) Get(op *btl.Op) error  { return e.count(op, e.Endpoint.(btl.Getter).Get(op)) }
func (e *counted) Put(op *btl.Op) error  { return e.count(op, e.Endpoint.(btl.Putter).Put(op)) }

// misrated is a module that claims a wrong bandwidth.
type misrated struct {
	btl.Module
	told int64
}

func (b misrated) Attrs() *btl.Attrs {
	a := *b.Module.Attrs()
	a.BandwidthMBps = b.told
	return &a
}

func (b misrated) Register(mem []byte, access btl.Access) (btl.Region, error) {
	return b.Module.(btl.Registrar).Register(mem, access)
}

func newTimed(t *testing.T, protocol Protocol, rails ...loop.RailConfig) *timed {
	for i := range rails {
		rails[i].JitterNanos = -1
	}
	w := &timed{
		pair: newPairOf(t, protocol, 0, rails...), t: t,
		moved: make([]int64, len(rails)), sends: make([]int64, len(rails)), told: map[int]int64{},
	}
	for _, p := range w.pmls {
		resolve := p.cfg.Resolve
		p.cfg.Resolve = func(peer int) ([]bml.Route, error) {
			routes, err := resolve(peer)
			for i := range routes {
				r := &routes[i]
				r.Endpoint = &counted{r.Endpoint, w, i}
				if told, ok := w.told[i]; ok {
					r.Module = misrated{r.Module, told}
				}
			}
			return routes, err
		}
	}
	return w
}

func (w *timed) settle() {
	for quiet := 0; quiet < 3; quiet++ {
		events, blocked := 0, false
		for rank, p := range w.pmls {
			for _, m := range w.modules[rank] {
				events += m.Progress()
			}
			events += p.Progress()
			blocked = blocked || isBlocked(p)
		}
		if events > 0 || w.fabric.Advance() || blocked {
			quiet = -1
		}
	}
}

// send sends a message of n bytes, and returns the time in nanoseconds.
func (w *timed) send(n int) int64 {
	clear(w.moved)
	clear(w.sends)
	in, out := pattern(n, n), make([]byte, n)
	r := w.pmls[1].Irecv(w.ctxs[1], out, 1, 0, 1, "recv")
	begin := w.fabric.Now()
	s := w.pmls[0].Isend(w.ctxs[0], in, 1, 1, Standard, "send")
	w.settle()
	requireSuccess(w.t, s, r)
	require.Equal(w.t, in, out)
	return w.fabric.Now() - begin
}

// TestTwoEqualRailsNearlyDoubleBandwidth sends a long message.
func TestTwoEqualRailsNearlyDoubleBandwidth(t *testing.T) {
	const n = 8 << 20
	rail := loop.RailConfig{LatencyNanos: 1000, BandwidthMBps: 10_000}
	// Reads of a virtual fabric do not share bandwidth.
	for _, protocol := range []Protocol{Copy, Put} {
		one := newTimed(t, protocol, rail).send(n)
		w := newTimed(t, protocol, rail, rail)
		two := w.send(n)
		require.GreaterOrEqual(t, float64(one)/float64(two), 1.9, "%v: %d and %d ns, %v", protocol, one, two, w.moved)
	}
}

func TestRailsShareLongMessageByBandwidth(t *testing.T) {
	const n = 8 << 20
	for _, protocol := range []Protocol{Copy, Put} {
		w := newTimed(t, protocol, loop.RailConfig{LatencyNanos: 1000, BandwidthMBps: 3000}, loop.RailConfig{LatencyNanos: 1000, BandwidthMBps: 9000})
		w.send(n)
		require.InDelta(t, 3, float64(w.moved[1])/float64(w.moved[0]), 0.2, "%v: %v", protocol, w.moved)
	}
}

// TestRailSlowerThanRatedGetsLess: a rail has a tenth of the bandwidth that it claims.
func TestRailSlowerThanRatedGetsLess(t *testing.T) {
	rail := loop.RailConfig{LatencyNanos: 1000, BandwidthMBps: 10_000}
	slow := rail
	slow.BandwidthMBps = 1000
	for _, protocol := range []Protocol{Copy, Put} {
		w := newTimed(t, protocol, rail, slow)
		w.told[1] = 10_000
		w.send(32 << 20)
		require.Greater(t, w.moved[0], 5*w.moved[1], "%v", protocol)
	}
}

// TestSecondRailNeverSlowsMessage: with any second rail, a message of any length takes no longer
// than by the best rail alone, but for the time in which the room of a new rail grows.
func TestSecondRailNeverSlowsMessage(t *testing.T) {
	const growth = 5 * 2 * 1000
	best := loop.RailConfig{LatencyNanos: 1000, BandwidthMBps: 10_000}
	// Reads of a virtual fabric do not share bandwidth.
	for _, protocol := range []Protocol{Copy, Put} {
		for n := 16 << 10; n <= 2<<20; n *= 2 {
			alone := newTimed(t, protocol, best).send(n)
			for _, other := range []loop.RailConfig{
				{LatencyNanos: 1000, BandwidthMBps: 9000},
				{LatencyNanos: 1000, BandwidthMBps: 3000},
				{LatencyNanos: 1000, BandwidthMBps: 100},
				{LatencyNanos: 100_000, BandwidthMBps: 10_000},
				{LatencyNanos: 1_000_000, BandwidthMBps: 100_000},
			} {
				w := newTimed(t, protocol, best, other)
				both := w.send(n)
				require.Less(t, float64(both), 1.5*float64(alone)+growth, "%v of %d bytes with %+v: %v", protocol, n, other, w.moved)
			}
		}
	}
}

// TestOnlyLongMessagesUseSlowRail: only long messages use a rail of much higher latency. All
// messages arrive in the order of their sends.
func TestOnlyLongMessagesUseSlowRail(t *testing.T) {
	const long = 8 << 20
	for _, protocol := range []Protocol{Copy, Get, Put} {
		w := newTimed(t, protocol,
			loop.RailConfig{LatencyNanos: 100_000, BandwidthMBps: 20_000},
			loop.RailConfig{LatencyNanos: 1000, BandwidthMBps: 10_000})
		for n := 1; n <= 256<<10; n *= 4 {
			w.send(n)
			require.Zero(t, w.sends[0], "%v of %d bytes", protocol, n)
		}
		w.send(long)
		require.NotZero(t, w.sends[0], "%v", protocol)

		var sends []ended
		sizes := []int{0, 100, long, 1, 9000, 1 << 20, long, 0, 10}
		buf := pattern(long, 1)
		for _, n := range sizes {
			sends = append(sends, w.pmls[0].Isend(w.ctxs[0], buf[:n], 1, 1, Standard, "send"))
		}
		out := make([]byte, len(buf))
		for _, n := range sizes {
			r := w.pmls[1].Irecv(w.ctxs[1], out, 1, 0, 1, "recv")
			w.settle()
			st := requireSuccess(t, r)
			require.EqualValues(t, n, st.Bytes)
		}
		requireSuccess(t, sends...)
	}
}
