package rating

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/internal/race"
)

// limit ends a run that goes wrong.
const limit = 400 * network.Second

// traffic describes the messages over the rails of a world.
type traffic struct {
	size   int64
	count  int // of each direction and peer
	window int // messages at the same time; 0: 1
	ways   int // directions; 0: 1
	peers  int // over the same rails; 0: 1
	seed   uint64
	away   func(side int, now int64) int64
}

// outcome of a run.
type outcome struct {
	first, others float64 // ratios to the fluid model: of the first message, of the others; of all
	seconds       float64
	twice         float64 // share of the bytes that was sent twice
}

func run(t *testing.T, rails []rail, k traffic) (o outcome) {
	t.Helper()
	w := newWorld(max(k.seed, 1), slices.Clone(rails)...)
	if k.away != nil {
		w.away = k.away
	}
	k.window, k.ways, k.peers = max(k.window, 1), max(k.ways, 1), max(k.peers, 1)
	left, first, end := 0, int64(0), int64(0)
	var list []*peer
	for range k.peers {
		wires := w.wires()
		for side := range k.ways {
			p := w.peer(side, wires)
			list = append(list, p)
			todo := k.count
			left += k.count
			var next func()
			next = func() {
				if todo == 0 {
					return
				}
				todo--
				p.long(k.size, func() {
					left--
					if end = w.Now(); first == 0 {
						first = end
					}
					next()
				})
			}
			for range k.window {
				next()
			}
		}
	}
	w.Run(limit, func() bool { return left == 0 })
	require.Zero(t, left, "messages that did not arrive")
	var moved, twice int64
	for _, p := range list {
		moved += p.moved
		twice += p.twice
	}
	o.seconds, o.twice = float64(end)/1e9, float64(twice)/float64(moved)
	assert.LessOrEqual(t, float64(twice), budgetShare*float64(moved)+firstBudget*float64(len(list)), "bytes that were sent twice")
	all := float64(k.size) * float64(k.count) * float64(k.peers)
	o.first = float64(first) / float64(ideal(rails, 0, float64(k.size)))
	o.others = float64(end) / float64(ideal(rails, 0, all))
	if k.window == 1 && k.ways == 1 && k.peers == 1 && k.count > 1 {
		o.others = float64(end-first) / float64(ideal(rails, first, all-float64(k.size)))
	}
	return o
}

// far has a round trip of 10 ms.
func far(r rail) rail {
	r.delay = network.Steady(5 * network.Millisecond)
	return r
}

// constant are settings of rails whose rates do not change.
var constant = map[string][]rail{
	"100+20":       {tcp(100), tcp(20)},
	"100+5":        {tcp(100), tcp(5)},
	"40+40":        {tcp(40), tcp(40)},
	"1000+100":     {tcp(1000), tcp(100)},
	"25+50+100":    {tcp(25), tcp(50), tcp(100)},
	"16 x 50":      slices.Repeat([]rail{tcp(50)}, 16),
	"10+1 GB/s":    {direct(10e9), direct(1e9)},
	"100+20, far":  {far(tcp(100)), far(tcp(20))},
	"100 alone":    {tcp(100)},
	"10 GB/s only": {direct(10e9)},
}

// TestSharesFollowRates sends messages one after another over rails of different rates. The limits
// are the ratios of the first one and of the others.
func TestSharesFollowRates(t *testing.T) {
	for _, k := range []struct {
		rails         string
		size          int64
		count         int
		first, others float64
	}{
		{"100+20", 256 << 10, 21, 1.10, 1.10},
		{"100+20", 1e6, 21, 1.05, 1.05},
		{"100+20, far", 1e7, 6, 1.15, 1.10},
		{"100+5", 256 << 10, 21, 1.10, 1.10},
		{"100+5", 1e6, 21, 1.05, 1.05},
		{"100+5", 1e7, 6, 1.03, 1.03},
		{"1000+100", 256 << 10, 21, 1.35, 1.15},
		{"1000+100", 1e6, 21, 1.10, 1.05},
		{"10+1 GB/s", 256 << 10, 21, 1.20, 1.15},
		{"10+1 GB/s", 1e7, 6, 1.05, 1.05},
		{"40+40", 1e6, 11, 1.15, 1.10},
		{"25+50+100", 1e6, 11, 1.15, 1.10},
		{"16 x 50", 1e7, 3, 1.15, 1.10},
		{"100 alone", 1e6, 5, 1.05, 1.05},
		{"10 GB/s only", 1e7, 5, 1.05, 1.05},
	} {
		t.Run(fmt.Sprintf("%s, %d", k.rails, k.size), func(t *testing.T) {
			o := run(t, constant[k.rails], traffic{size: k.size, count: k.count})
			t.Logf("first %.2f, others %.2f, twice %.2f %%", o.first, o.others, 100*o.twice)
			assert.LessOrEqual(t, o.first, k.first, "first message")
			assert.LessOrEqual(t, o.others, k.others, "other messages")
		})
	}
}

// TestMessagesShareRails sends several messages at a time, in both directions, and to several
// peers.
func TestMessagesShareRails(t *testing.T) {
	for _, name := range []string{"100+20", "100+5", "1000+100", "25+50+100", "10+1 GB/s"} {
		for _, k := range []struct {
			name string
			traffic
		}{
			{"four at a time", traffic{size: 1e7, count: 8, window: 4}},
			{"both ways", traffic{size: 1e7, count: 4, ways: 2}},
			{"three peers", traffic{size: 1e7, count: 3, peers: 3}},
		} {
			t.Run(name+", "+k.name, func(t *testing.T) {
				o := run(t, constant[name], k.traffic)
				t.Logf("%.2f", o.others)
				assert.LessOrEqual(t, o.others, 1.10)
			})
		}
	}
}

// TestRatesThatChange: rails that swap, and foreign flows that come and go every two seconds. No
// rate is known before.
func TestRatesThatChange(t *testing.T) {
	swapping := func(a, b float64, period int64) []rail {
		list := []rail{tcp(a), tcp(a)}
		list[0].rate = network.Swap(network.Mbit(a), network.Mbit(b), period)
		list[1].rate = network.Swap(network.Mbit(b), network.Mbit(a), period)
		return list
	}
	foreign := func(flows int) []rail {
		list := []rail{tcp(100), tcp(100)}
		list[0].foreign, list[0].isForeign = flows, network.Swap(false, true, 2*network.Second)
		return list
	}
	for _, k := range []struct {
		name  string
		rails []rail
		size  int64
		count int
		most  float64
	}{
		{"100 and 5 swap, 100 MB", swapping(100, 5, 2*network.Second), 1e8, 2, 1.05},
		{"100 and 5 swap, 10 MB", swapping(100, 5, 2*network.Second), 1e7, 20, 1.05},
		{"100 and 5 swap, 1 MB", swapping(100, 5, 2*network.Second), 1e6, 100, 1.10},
		{"100 and 25 swap, 60 MB", swapping(100, 25, 3*network.Second), 6e7, 3, 1.05},
		{"one foreign flow, 10 MB", foreign(1), 1e7, 20, 1.15},
		{"eight foreign flows, 10 MB", foreign(8), 1e7, 20, 1.10},
		{"eight foreign flows, 1 MB", foreign(8), 1e6, 100, 1.10},
	} {
		t.Run(k.name, func(t *testing.T) {
			o := run(t, k.rails, traffic{size: k.size, count: k.count})
			ratio := o.seconds * 1e9 / float64(ideal(k.rails, 0, float64(k.size)*float64(k.count)))
			t.Logf("%.2f, twice %.2f %%", ratio, 100*o.twice)
			assert.LessOrEqual(t, ratio, k.most)
		})
	}
}

// TestBadRailDoesNoHarm: beside one bad rail of two, messages are as fast as with the good one
// alone.
func TestBadRailDoesNoHarm(t *testing.T) {
	worse := func(change func(r *rail)) []rail {
		bad := tcp(100)
		change(&bad)
		return []rail{tcp(100), bad}
	}
	for _, k := range []struct {
		name  string
		rails []rail
		seeds uint64
	}{
		{"5 % loss", worse(func(r *rail) { r.loss = network.Steady(0.05) }), 3},
		{"30 % loss", worse(func(r *rail) { r.loss = network.Steady(0.3) }), 3},
		{"200 ms added", worse(func(r *rail) { r.delay = network.Steady(tcpDelay + 200*network.Millisecond) }), 1},
		{"100 times slower", worse(func(r *rail) { r.rate = network.Steady(network.Mbit(1)) }), 1},
	} {
		for _, s := range []traffic{{size: 256 << 10, count: 60}, {size: 1e6, count: 30}, {size: 1e7, count: 4}} {
			if k.rails[0].isDirect && s.size < 1e7 {
				continue
			}
			if k.rails[0].isDirect { // what it has under way at 5 ms is late once
				s.count = int(20e9 / s.size)
			}
			t.Run(fmt.Sprintf("%s, %d", k.name, s.size), func(t *testing.T) {
				for s.seed = range k.seeds {
					s.seed++
					alone := run(t, k.rails[:1], s)
					o := run(t, k.rails, s)
					t.Logf("speed %.2f, twice %.2f %%", alone.seconds/o.seconds, 100*o.twice)
					assert.GreaterOrEqual(t, alone.seconds/o.seconds, 0.95)
				}
			})
		}
	}
}

// TestFirstBudgetSuffices: the first messages beside a rail that loses packets are not slower than
// with the good rail alone. With MPIGO_TEST_ALL it takes 40 seeds.
func TestFirstBudgetSuffices(t *testing.T) {
	seeds := uint64(3)
	if race.All() {
		seeds = 40
	}
	for _, loss := range []float64{0.01, 0.02, 0.05, 0.1, 0.3} {
		bad := tcp(100)
		bad.loss = network.Steady(loss)
		rails := []rail{tcp(100), bad}
		for _, size := range []int64{64 << 10, 256 << 10, 1e6} {
			for seed := range seeds {
				k := traffic{size: size, count: 60, seed: seed + 1}
				speed := run(t, rails[:1], k).seconds / run(t, rails, k).seconds
				assert.GreaterOrEqual(t, speed, 0.99, "loss %.2f, %d bytes, seed %d", loss, size, k.seed)
			}
		}
	}
}

// TestDirectRailThatFallsStallsAFewTimes: one of two rails of 10 GB/s becomes 100 times slower.
// What it has under way then is late, and its estimate falls with each time that this happens.
func TestDirectRailThatFallsStallsAFewTimes(t *testing.T) {
	slower := direct(10e9)
	slower.rate = network.During(0, 5*network.Millisecond, 10e9, 10e7)
	k := traffic{size: 1e7, count: 300}
	alone := run(t, []rail{direct(10e9)}, k)
	o := run(t, []rail{direct(10e9), slower}, k)
	t.Logf("lost %.0f ms", (o.seconds-alone.seconds)*1e3)
	assert.LessOrEqual(t, o.seconds-alone.seconds, 4*mostRoom/10e7+0.005, "four times its room")
}

// TestAwaySidesKeepTheRate: both sides lose their processors for a part of the time.
func TestAwaySidesKeepTheRate(t *testing.T) {
	pauses := func(length, period int64) func(side int, now int64) int64 {
		return func(side int, now int64) int64 {
			return max(length-(now+int64(side)*period*3/8)%period, 0)
		}
	}
	for _, k := range []struct {
		rails string
		away  func(side int, now int64) int64
		most  float64
	}{
		{"100+20", pauses(5*network.Millisecond, 25*network.Millisecond), 1.10},
		{"1000+100", pauses(5*network.Millisecond, 25*network.Millisecond), 1.10},
		{"1000+100", pauses(network.Millisecond, 10*network.Millisecond), 1.10},
		{"100+20", pauses(20*network.Millisecond, 100*network.Millisecond), 1.15},
		{"1000+100", pauses(20*network.Millisecond, 100*network.Millisecond), 1.45},
		{"100+20", pauses(15*network.Millisecond, 30*network.Millisecond), 1.15},
		{"10+1 GB/s", pauses(50*network.Microsecond, 250*network.Microsecond), 1.10},
		{"10+1 GB/s", pauses(200*network.Microsecond, network.Millisecond), 1.15},
	} {
		o := run(t, constant[k.rails], traffic{size: 3e7, count: 2, away: k.away})
		t.Logf("%s: %.2f", k.rails, o.others)
		assert.LessOrEqual(t, o.others, k.most, k.rails)
	}
}

// TestSilentRailHoldsLittle: a rail goes silent in the middle of a message. What has to be sent
// again is bounded by its room, and the other rail does not pause.
func TestSilentRailHoldsLittle(t *testing.T) {
	for _, k := range []struct {
		rails string
		size  int64
		most  int64 // bytes
	}{
		{"100+20", 4e7, 256 << 10},
		{"40+40", 4e7, 256 << 10},
		{"1000+100", 3e8, mostRoom},
	} {
		t.Run(k.rails, func(t *testing.T) {
			rails := slices.Clone(constant[k.rails])
			rails[0].silent = network.During(network.Second, limit, true, false)
			w := newWorld(1, rails...)
			p := w.peer(0, w.wires())
			p.deadline = 3 * network.Second
			isDone := false
			p.long(k.size, func() { isDone = true })
			var pause, last, seen int64
			for !isDone && w.Now() < limit {
				w.Run(w.Now()+network.Millisecond, func() bool { return isDone })
				if p.delivered[1] != seen {
					seen, last = p.delivered[1], w.Now()
				}
				if now := w.Now(); now > network.Second && !isDone {
					pause = max(pause, now-last)
				}
			}
			require.True(t, isDone)
			t.Logf("sent again %d KB, pause %d ms", (p.resent+p.twice)>>10, pause/network.Millisecond)
			assert.False(t, p.alive.Has(0), "the silent rail was taken out")
			assert.LessOrEqual(t, p.resent+p.twice, k.most)
			assert.LessOrEqual(t, pause, 60*network.Millisecond)
		})
	}
}

// TestRailGetsItsShareBack: the second of two equal rails is bad for six seconds.
func TestRailGetsItsShareBack(t *testing.T) {
	from, to := 2*network.Second, 8*network.Second
	for _, k := range []struct {
		name   string
		change func(r *rail)
	}{
		{"100 times slower", func(r *rail) { r.rate = network.During(from, to, network.Mbit(1), network.Mbit(100)) }},
		{"30 % loss", func(r *rail) { r.loss = network.During(from, to, 0.3, 0) }},
		{"200 ms added", func(r *rail) {
			r.delay = network.During(from, to, tcpDelay+200*network.Millisecond, tcpDelay)
		}},
	} {
		for _, size := range []int64{1e6, 1e7} {
			t.Run(fmt.Sprintf("%s, %d", k.name, size), func(t *testing.T) {
				rails := []rail{tcp(100), tcp(100)}
				k.change(&rails[1])
				w := newWorld(1, rails...)
				p := w.peer(0, w.wires())
				var next func()
				next = func() { p.long(size, next) }
				next()
				w.Run(to, func() bool { return false })
				// It has its share again when it carries 0.85 of its rate for half a second.
				const span = 500 * network.Millisecond
				back := int64(0)
				for w.Now() < 13*network.Second && back == 0 {
					at, before := w.Now(), p.delivered[1]
					w.Run(at+span, func() bool { return false })
					if float64(p.delivered[1]-before) >= 0.85*network.Mbit(100)*float64(span)/1e9 {
						back = at
					}
				}
				require.NotZero(t, back, "within 5 s")
				t.Logf("back after %.1f s", float64(back-to)/1e9)
			})
		}
	}
}

// TestShortMessagesAvoidABadRail sends short messages at random times. Their mean time beside a bad
// rail is near that of the good one alone, with and without long messages.
func TestShortMessagesAvoidABadRail(t *testing.T) {
	lossy, far := tcp(100), tcp(100)
	lossy.loss = network.Steady(0.05)
	far.delay = network.Steady(tcpDelay + 200*network.Millisecond)
	mean := func(rails []rail, isBusy bool) float64 {
		w := newWorld(2, slices.Clone(rails)...)
		p := w.peer(0, w.wires())
		var next func()
		next = func() { p.long(1e7, next) }
		if isBusy {
			next()
		}
		sum, n := 0.0, 0
		for k := range 2000 {
			w.Run(int64(k)*(5*network.Millisecond+int64(k*k%7)*network.Millisecond/3), func() bool { return false })
			at := w.Now()
			p.short(8<<(k%11), func() {
				if k > 200 {
					sum += float64(w.Now() - at)
					n++
				}
			})
		}
		w.Run(w.Now()+2*network.Second, func() bool { return false })
		require.Equal(t, 1799, n, "short messages that arrived")
		return sum / float64(n)
	}
	for _, k := range []struct {
		name  string
		rails []rail
		// Without long messages and beside them, by the time with the first rail alone.
		idle, busy float64
	}{
		{"100+20", []rail{tcp(100), tcp(20)}, 1.01, 1.20},
		{"100+5", []rail{tcp(100), tcp(5)}, 1.01, 1.20},
		{"5 % loss", []rail{tcp(100), lossy}, 1.01, 1.20},
		{"200 ms added", []rail{tcp(100), far}, 1.01, 1.20},
	} {
		t.Run(k.name, func(t *testing.T) {
			idle, busy := mean(k.rails, false)/mean(k.rails[:1], false), mean(k.rails, true)/mean(k.rails[:1], true)
			t.Logf("idle %.2f, busy %.2f", idle, busy)
			assert.LessOrEqual(t, idle, k.idle)
			assert.LessOrEqual(t, busy, k.busy)
		})
	}
}

// TestOldEstimatesAreForgotten: two rails swap their rates while nothing is sent.
func TestOldEstimatesAreForgotten(t *testing.T) {
	for _, size := range []int64{1e6, 1e7} {
		rails := []rail{tcp(100), tcp(5)}
		rails[0].rate = network.During(0, 30*network.Second, network.Mbit(100), network.Mbit(5))
		rails[1].rate = network.During(0, 30*network.Second, network.Mbit(5), network.Mbit(100))
		w := newWorld(1, rails...)
		p := w.peer(0, w.wires())
		isDone := false
		p.long(1e7, func() { p.long(1e6, func() { isDone = true }) })
		w.Run(31*network.Second, func() bool { return false })
		require.True(t, isDone)
		isDone = false
		from := w.Now()
		p.long(size, func() { isDone = true })
		w.Run(limit, func() bool { return isDone })
		ratio := float64(w.Now()-from) / float64(ideal(rails, from, float64(size)))
		t.Logf("%d: %.2f", size, ratio)
		assert.LessOrEqual(t, ratio, 1.10)
	}
}
