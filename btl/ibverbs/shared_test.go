package ibverbs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/race"
)

// TestSharePlan: receives are shared if the setting says so, or if queues for all peers would have
// more receives. Each peer's part has at least the receives that a connection needs.
func TestSharePlan(t *testing.T) {
	for _, c := range []struct {
		shared Shared
		size   int
		attr   verbs.DeviceAttr
		want   sharePlan
	}{
		{shared: SharedOff, size: 1000},
		{shared: SharedAuto, size: 2},
		{shared: SharedAuto, size: 60},
		{shared: SharedAuto, size: 61, want: sharePlan{most: 4096, capacity: 5120, window: 63}},
		{shared: SharedAuto, size: 316, want: sharePlan{most: 4096, capacity: 6616, window: 8}},
		{shared: SharedAuto, size: 317, want: sharePlan{most: 4096, capacity: 6624, window: 8, scarce: true}},
		{shared: SharedAuto, size: 100000, want: sharePlan{most: 4096, capacity: 8192, window: 8, scarce: true}},
		{shared: SharedOn, size: 1, want: sharePlan{most: 4096, capacity: 5120, window: 64}},
		{shared: SharedOn, size: 2, want: sharePlan{most: 4096, capacity: 5120, window: 64}},
		{shared: SharedOn, size: 11, attr: verbs.DeviceAttr{MaxSRQWR: 500}, want: sharePlan{most: 400, capacity: 500, window: 35}},
		{shared: SharedOn, size: 11, attr: verbs.DeviceAttr{MaxCQE: 200}, want: sharePlan{most: 120, capacity: 150, window: 8, scarce: true}},
		{shared: SharedAuto, size: 100, attr: verbs.DeviceAttr{MaxSRQ: -1}},
		{shared: SharedAuto, size: 100, attr: verbs.DeviceAttr{MaxSRQWR: 15}},
	} {
		h := hca{attr: verbs.DeviceAttr{MaxSRQ: 1, MaxSRQWR: 1 << 15, MaxCQE: 1 << 20}}
		for _, v := range []struct{ to, from *int }{
			{&h.attr.MaxSRQ, &c.attr.MaxSRQ}, {&h.attr.MaxSRQWR, &c.attr.MaxSRQWR}, {&h.attr.MaxCQE, &c.attr.MaxCQE},
		} {
			if *v.from != 0 {
				*v.to = *v.from
			}
		}
		got, err := h.planShared(&Config{Shared: c.shared, SharedDepth: 4096, RecvDepth: 64, SendDepth: 128, Size: c.size})
		require.NoError(t, err, "%+v", c)
		require.Equal(t, c.want, got, "%+v", c)
		require.True(t, got.scarce || (c.size-1)*(got.window+controlDepth) <= max(got.most, (c.size-1)*controlDepth), "%+v", c)
	}
	h := hca{}
	_, err := h.planShared(&Config{Shared: SharedOn, SharedDepth: 4096, RecvDepth: 64, Size: 2})
	require.ErrorIs(t, err, errLimit)
	require.ErrorContains(t, err, "set ibverbs.srq=off")
}

// crowd is a rank with shared receives to which all other ranks are connected.
func crowd(t *testing.T, peers int, cfg Config, devices ...simhca.DeviceConfig) (w *world, hub *testRank, eps []*endpoint) {
	if devices == nil {
		devices = make([]simhca.DeviceConfig, peers+1)
	}
	return star(t, withSharedReceives(cfg), devices...)
}

// star is a rank to which all other ranks are connected.
func star(t *testing.T, cfg Config, devices ...simhca.DeviceConfig) (w *world, hub *testRank, eps []*endpoint) {
	w, hub, _ = newWorld(t, verbs.LinkEthernet, cfg, devices...)
	eps = w.fan()
	for _, r := range w.ranks[1:] {
		ep, err := r.m.Connect(btl.Path{}, hub.m.Address())
		require.NoError(t, err)
		r.ep = ep
		w.until("a connection", func() bool { return r.end().phase == phaseReady })
	}
	w.turns(50)
	return w, hub, eps
}

// floods sends fragments to rank 0 until the endpoint takes no more, and returns their number.
func (r *testRank) floods() int {
	n := 0
	for r.send(fmt.Sprint(r.rank)) == nil {
		n++
	}
	return n
}

// TestSharedReceivesAreEnoughForAllCredits: if the parts of all peers fit into the queue, no peer
// finds it empty, whatever all peers send before the rank polls.
func TestSharedReceivesAreEnoughForAllCredits(t *testing.T) {
	const peers = 10
	w, hub, _ := crowd(t, peers, Config{SharedDepth: peers * (minRecvDepth + controlDepth)})
	s := hub.m.h.shared
	require.False(t, s.scarce())
	for range 20 {
		before, sent := len(hub.arrived), 0
		for _, r := range w.ranks[1:] {
			sent += r.floods()
		}
		require.Positive(t, sent)
		for w.f.Advance() {
		}
		for _, r := range w.ranks[1:] {
			r.progress()
			require.Zero(t, r.end().awaited, "a peer waits for a receive")
		}
		w.until("all fragments", func() bool { return len(hub.arrived) == before+sent })
		w.turns(50)
	}
	require.Zero(t, s.lost)
	require.LessOrEqual(t, len(s.slots), s.plan.most+sharedChunk)
}

// TestScarceSharedReceives: the peers may send more than there are receives, and do so while the
// rank makes no progress. Their devices wait, the rank is woken before the queue is empty, and each
// progress call makes room for all. No fragment is lost or comes twice.
func TestScarceSharedReceives(t *testing.T) {
	const peers, rounds = 30, 10
	w, hub, _ := crowd(t, peers, Config{SharedDepth: 32})
	woken := 0
	hub.m.cfg.AsyncProgress = func() { woken++ }
	s := hub.m.h.shared
	require.True(t, s.scarce())
	require.Len(t, s.slots, sharedChunk)
	for round := range rounds {
		woken = 0
		before, sent := len(hub.arrived), 0
		for _, r := range w.ranks[1:] {
			sent += r.floods()
		}
		require.Greater(t, sent, len(s.slots))
		for range 1000 {
			w.f.Advance()
		}
		require.Positive(t, woken, "in round %d the rank does not know of the messages", round)
		calls := 0
		for turns := 0; len(hub.arrived) < before+sent-len(s.slots); turns++ {
			require.Less(t, turns, 10000)
			if woken > 0 { // like a computing program, it polls only when it is woken
				woken = 0
				calls++
				hub.m.Progress()
			}
			w.f.Advance()
		}
		require.Less(t, calls, 3*sent/len(s.slots))
		w.until("the rest", func() bool { return len(hub.arrived) >= before+sent })
		require.Len(t, hub.arrived, before+sent)
		w.turns(100)
	}
	for _, r := range w.ranks {
		require.Empty(t, r.failed)
		require.Zero(t, r.inFlight)
	}
}

// TestPeerWithoutCreditsFails: a peer that sends more than its credits fails its own connection at
// the first such fragment. The other peers' messages arrive.
func TestPeerWithoutCreditsFails(t *testing.T) {
	w, hub, eps := crowd(t, 4, Config{SharedDepth: 64})
	bad, good := w.ranks[1], w.ranks[2]
	window := eps[1].window
	sent := 0
	for range 200 {
		for bad.end().credits = 2 * window; bad.send("too many") == nil; { // it does not count them
			sent++
		}
		require.NoError(t, good.send("x"))
		for w.f.Advance() {
		}
		w.until("the fragment", good.isIdle)
		if len(hub.failed) > 0 {
			break
		}
	}
	require.Greater(t, sent, window)
	require.Len(t, hub.failed, 1)
	require.Equal(t, []any{1, btl.ClassProtocol}, []any{hub.failed[0].Peer, hub.failed[0].Class}, "%v", hub.failed[0])
	require.ErrorContains(t, hub.failed[0], "is without a credit")
	for range 100 {
		before := len(hub.arrived)
		require.NoError(t, good.send("after"))
		w.until("the fragment", func() bool { return len(hub.arrived) == before+1 })
	}
	require.Len(t, hub.failed, 1)
}

// TestFloodDoesNotStarveOthers: three peers use all their credits all the time. Another one sends
// and gets through as often.
func TestFloodDoesNotStarveOthers(t *testing.T) {
	w, hub, _ := crowd(t, 4, Config{SharedDepth: leastShared})
	require.True(t, hub.m.h.shared.scarce())
	quiet := w.ranks[4]
	for range 200 {
		for _, r := range w.ranks[1:4] {
			r.floods()
		}
		require.NoError(t, quiet.send("quiet"))
		w.until("the quiet peer's fragment", quiet.isIdle)
	}
	require.Empty(t, hub.failed)
}

// withoutEvents is a device that never raises certain events.
type withoutEvents struct {
	verbs.Device
	t verbs.EventType
}

func (d withoutEvents) NextEvent() (verbs.AsyncEvent, bool, error) {
	for {
		ev, ok, err := d.Device.NextEvent()
		if !ok || err != nil || ev.Type != d.t {
			return ev, ok, err
		}
		d.AckEvent(ev)
	}
}

// TestDrainWithoutLastWQEReached: if the device does not say that a queue pair takes no more shared
// receives, the drain ends by its deadline, and one receive counts as lost. Other receives replace
// lost ones until too many are lost. Then the rail fails, and comes back with a new queue.
func TestDrainWithoutLastWQEReached(t *testing.T) {
	w, a, b := connectedWorld(t, verbs.LinkEthernet, withSharedReceives(Config{SharedDepth: 20, RecvDepth: 8}))
	a.m.h.dev = withoutEvents{a.m.h.dev, verbs.EventQPLastWQEReached}
	first := a.m.h.shared
	spare := first.plan.capacity - first.plan.most
	require.Positive(t, spare)
	for n := 1; len(a.failed) == 0 || a.failed[len(a.failed)-1].Peer != btl.AllPeers; n++ {
		require.LessOrEqual(t, n, spare+1, "%d receives are lost", first.lost)
		since := w.clock.Now()
		a.ep.Fail(&btl.Error{Class: btl.ClassPath})
		w.until("Drained", a.isDrained)
		require.Less(t, w.clock.Now()-since, int64(50e6))
		w.recovers()
		w.until("the end of the queue pair", func() bool { return len(a.m.toDestroy) == 0 || first.broken })
		require.Equal(t, n, first.lost)
		require.LessOrEqual(t, len(first.slots)-1, first.plan.capacity)
	}
	hasClass(t, btl.ClassDevice, a.failed[len(a.failed)-1])
	w.recovers()
	require.NotSame(t, first, a.m.h.shared)
	require.Empty(t, first.slabs, "the memory of the first queue is released")
	require.Zero(t, a.m.h.shared.lost)
	require.Equal(t, b.m.h.shared.need, a.m.h.shared.need)
}

// heldEvents is a device whose events are late.
type heldEvents struct {
	verbs.Device
	held bool
}

func (d *heldEvents) NextEvent() (verbs.AsyncEvent, bool, error) {
	if d.held {
		return verbs.AsyncEvent{}, false, nil
	}
	return d.Device.NextEvent()
}

// TestDrainAwaitsLastWQEReached: the sends of a queue pair with shared receives have completed. Its
// end is not Drained before the device reports that it takes no more receives. The event may even
// come after the drain, while the queue pair still exists. Then no receive counts as lost.
func TestDrainAwaitsLastWQEReached(t *testing.T) {
	for _, late := range []bool{false, true} {
		w, a, _ := connectedWorld(t, verbs.LinkEthernet, withSharedReceives(Config{}))
		d := &heldEvents{Device: a.m.h.dev, held: true}
		a.m.h.dev = d
		a.ep.Fail(&btl.Error{Class: btl.ClassPath})
		a.progress()
		require.Equal(t, phaseFlushed, a.end().phase)
		require.False(t, a.isDrained())
		if late {
			w.until("Drained", a.isDrained)
			require.Len(t, a.m.toDestroy, 1)
		}
		d.held = false
		a.m.wakeup(eventSignal)
		a.progress()
		require.True(t, a.isDrained())
		w.recovers()
		w.until("the end of the queue pair", func() bool { return len(a.m.toDestroy) == 0 })
		require.Zero(t, a.m.h.shared.lost)
	}
}

// TestLastMessageBeforeDrained: the completion of a message that has arrived enters the queue after
// the marker, behind completions of other connections. When the drain ends, the progress call has
// not yet polled that completion. The message is delivered before Drained nevertheless, and its
// receive is not lost.
func TestLastMessageBeforeDrained(t *testing.T) {
	for name, cfg := range map[string]Config{"own": {}, "shared": withSharedReceives(Config{})} {
		for _, class := range []btl.Class{btl.ClassPath, btl.ClassUsage} {
			t.Run(fmt.Sprint(name, "/", class), func(t *testing.T) {
				devices := make([]simhca.DeviceConfig, 4)
				devices[0].LastWQEDelay = time.Millisecond
				w, hub, eps := star(t, cfg, devices...)
				require.NoError(t, w.ranks[1].send("last"))
				w.deliver()
				eps[1].Fail(&btl.Error{Class: class})
				for range 10 {
					hub.m.Progress()
				}
				require.Equal(t, phaseFlushed, eps[1].phase)
				require.NotContains(t, hub.arrived, "last", "its completion is late")
				before, sent := len(hub.arrived), 0
				for _, r := range w.ranks[2:] {
					sent += r.floods()
				}
				w.deliver()
				require.Greater(t, sent, pollBatch, "which a progress call polls first")
				w.f.AdvanceTo(w.f.Now() + 2*time.Millisecond)
				w.clock.skip(2 * flushNanos)
				hub.m.Progress()
				require.Equal(t, []int{1}, hub.drained)
				require.Contains(t, hub.arrived, "last")
				_, taken := eps[1].DeliveryCounters()
				require.Equal(t, w.ranks[1].end().sent, uint64(taken))
				w.until("the others' messages", func() bool { return len(hub.arrived) == before+sent+1 })
				w.until("the end of the queue pair", func() bool { return len(hub.m.toDestroy) == 0 })
				if s := hub.m.h.shared; s != nil {
					require.Zero(t, s.lost)
					w.turns(200)
					require.NotContains(t, s.posted, false, "all receives are posted")
				}
			})
		}
	}
}

// TestDrainTakesNoSharedReceives: with the event, nothing is lost however often connections fail.
func TestDrainTakesNoSharedReceives(t *testing.T) {
	w, a, _ := connectedWorld(t, verbs.LinkEthernet, withSharedReceives(Config{}))
	for i := range 100 {
		require.NoError(t, a.send("in flight"))
		[]*testRank{a, w.ranks[1]}[i%2].ep.Fail(nil)
		w.recovers()
	}
	for _, r := range w.ranks {
		s := r.m.h.shared
		require.Zero(t, s.lost)
		require.Len(t, s.slots, 3*sharedChunk)
		w.turns(200)
		require.Empty(t, s.free, "all receives are posted")
	}
}

// TestSharedQueueFails: SRQ_ERR at any time under traffic of several peers fails the rail. All
// connections return on a new queue. Fragments arrive in order and at most once, and those whose
// sends have succeeded arrive exactly once.
func TestSharedQueueFails(t *testing.T) {
	const peers = 3
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			cfg := Config{RecvDepth: 8, SharedDepth: leastShared + int(seed)*2}
			if seed%3 == 0 {
				cfg.EagerPeers, cfg.EagerAfter = 2, 2
			}
			w, hub, _ := crowd(t, peers, cfg)
			for range 3 {
				queue := hub.m.h.shared
				hub.arrived, hub.failed = nil, nil
				var sent [peers + 1]int
				for _, r := range w.ranks {
					r.ended = nil
				}
				for range 100 + rnd.IntN(300) {
					r := w.ranks[1+rnd.IntN(peers)]
					switch rnd.IntN(5) {
					case 0, 1:
						if r.send(fmt.Sprint(r.rank, " ", sent[r.rank])) == nil {
							sent[r.rank]++
						}
					case 2:
						w.ranks[rnd.IntN(peers+1)].m.Progress()
					default:
						w.f.Advance()
					}
				}
				require.True(t, hub.hca.BreakSRQs())
				w.until("the failure", func() bool { return len(hub.failed) > 0 })
				require.Equal(t, []any{btl.AllPeers, verbs.EventSRQErr.Native()}, []any{hub.failed[0].Peer, hub.failed[0].Native})
				w.until("Drained", func() bool {
					for _, r := range w.ranks[1:] {
						if r.ep.State() == btl.Up {
							r.ep.Fail(nil)
						}
						if !r.isDrained() {
							return false
						}
					}
					return hub.m.ModuleError() == nil && hub.m.Draining() == 0
				})
				got := map[string]int{}
				var next [peers + 1]int
				for _, text := range hub.arrived {
					var rank, i int
					_, err := fmt.Sscan(text, &rank, &i)
					require.NoError(t, err)
					require.Equal(t, next[rank], i, "from rank %d", rank)
					next[rank]++
					got[text]++
				}
				for _, r := range w.ranks[1:] {
					require.Len(t, r.ended, sent[r.rank])
					for i, err := range r.ended {
						if err == nil {
							require.Equal(t, 1, got[fmt.Sprint(r.rank, " ", i)], "a delivered fragment of rank %d", r.rank)
						}
					}
				}
				for _, r := range w.ranks[1:] {
					ep, err := r.m.Connect(btl.Path{}, hub.m.Address())
					require.NoError(t, err)
					r.ep, r.failed = ep, nil
				}
				w.fan()
				w.turns(50)
				require.NotSame(t, queue, hub.m.h.shared)
				require.Empty(t, queue.slabs)
			}
		})
	}
}

// TestUntrustedSharedCompletions: completions that name no posted receive are ignored. A completion
// that names a receive of a destroyed queue pair gives the receive back.
func TestUntrustedSharedCompletions(t *testing.T) {
	w, a, _ := connectedWorld(t, verbs.LinkEthernet, withSharedReceives(Config{}))
	s, qpn := a.m.h.shared, a.end().qpn
	for a.m.turns%attendEvery != 1 {
		a.m.Progress()
	}
	good := makeID(wrSharedRecv, uint32(s.slots[5]), s.number, 5)
	arrived, stale := len(a.arrived), a.m.Stale
	for name, id := range map[string]wrID{
		"of another queue":       makeID(wrSharedRecv, uint32(s.slots[5]), s.number+1, 5),
		"of an earlier post":     makeID(wrSharedRecv, uint32(s.slots[5])-1, s.number, 5),
		"beyond the queue":       makeID(wrSharedRecv, 1, s.number, uint32(len(s.slots))),
		"a receive of its own":   makeID(wrRecv, a.end().made, a.end().number, uint32(a.m.receives())),
		"far beyond the receive": makeID(wrSharedRecv, 1, s.number, 1<<20-1),
	} {
		a.m.complete(&verbs.WC{ID: uint64(id), QPNum: qpn, Opcode: verbs.WCRecv, ByteLen: 100}, nil)
		stale++
		require.Equal(t, stale, a.m.Stale, name)
		require.Empty(t, s.free, name)
	}
	a.m.complete(&verbs.WC{ID: uint64(good), QPNum: qpn + 7, Opcode: verbs.WCRecv, ByteLen: 100}, nil)
	require.Equal(t, []int32{5}, s.free)
	a.m.complete(&verbs.WC{ID: uint64(good), QPNum: qpn, Opcode: verbs.WCRecv, ByteLen: 100}, nil)
	require.Equal(t, []int32{5}, s.free, "it completes once")
	require.Len(t, a.arrived, arrived)
	require.Empty(t, a.failed)
	// The device still has this receive, although the test has marked it as free: it must not be
	// posted again.
	s.free, s.posted[5] = nil, true
	for range 3 * len(s.slots) {
		w.works()
	}
}

// TestSharedReceivesWithLittleLockedMemory: if there is memory for the receives of some connections
// only, all connections share these. Without memory for the fewest receives there is no connection.
func TestSharedReceivesWithLittleLockedMemory(t *testing.T) {
	cfg := withSharedReceives(Config{SharedDepth: 1024})
	w, a, _ := newWorld(t, verbs.LinkEthernet, cfg, make([]simhca.DeviceConfig, 6)...)
	pd, restore := a.faultPD()
	real := pd.regMR
	chunks := 0
	pd.regMR = func(mem []byte, access verbs.Access) (verbs.MR, error) {
		if chunks == 0 {
			return nil, verbs.ErrNoMemory
		}
		chunks--
		return real(mem, access)
	}
	_, err := a.m.Connect(btl.Path{Peer: 1}, w.ranks[1].m.Address())
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.Zero(t, a.m.h.shared.users)
	chunks = 1
	for range 3 {
		eps := w.fan()
		require.True(t, a.m.h.shared.scarce())
		for _, r := range w.ranks[1:] {
			if r.ep == nil {
				r.ep, err = r.m.Connect(btl.Path{}, a.m.Address())
				require.NoError(t, err)
			}
		}
		w.turns(50)
		before, sent := len(a.arrived), 0
		for _, r := range w.ranks[1:] {
			sent += r.floods()
		}
		w.until("all fragments", func() bool { return len(a.arrived) == before+sent })
		require.Len(t, eps, 6)
	}
	restore()
	require.Empty(t, a.failed)
}

// TestLockedMemoryIsBounded: with shared receives, a rank with many connected peers has registered
// no more than with few. The table comes from docs/evidence/verbs.md.
func TestLockedMemoryIsBounded(t *testing.T) {
	var own, shared []int64
	counts := []int{1, 8, 64, 256, 1024}
	if race.Enabled { // with one goroutine there is no race to find
		counts = []int{1, 128, 256}
	}
	for _, peers := range counts {
		rings := lockedBy(t, peers, SharedOff)
		srq := lockedBy(t, peers, SharedOn)
		auto := lockedBy(t, peers, SharedAuto)
		t.Logf("%4d peers: %7.1f MiB with receives for each, %5.1f MiB with shared ones, %5.1f MiB by default",
			peers, float64(rings)/(1<<20), float64(srq)/(1<<20), float64(auto)/(1<<20))
		own, shared = append(own, rings), append(shared, srq)
		require.LessOrEqual(t, auto, max(rings, srq))
		most := int64(lockedAlone+slabBytes(4096+sharedChunk, headBytes+defaultFrag)) + (1 << 20)
		require.LessOrEqual(t, srq, most, "%d peers", peers)
		require.LessOrEqual(t, auto, most, "%d peers", peers)
	}
	last := len(own) - 1
	require.Greater(t, 10*own[last], int64(counts[last])*own[0], "receives for each peer lock memory for each")
	require.Equal(t, shared[last-1], shared[last], "more peers lock no more memory")
}

const (
	defaultFrag = 8<<10 + btl.MaxHeaderBytes
	lockedAlone = (bounceBuffers + 1) * (headBytes + defaultFrag + 64)
)

// lockedBy returns how many bytes a rank has registered that is connected to the given number of
// peers, with the default settings. The peers have short queues.
func lockedBy(t *testing.T, peers int, how Shared) int64 {
	t.Helper()
	f := simhca.NewFabric(simhca.Config{Virtual: true, Link: verbs.LinkEthernet})
	clock := fabricClock{f, new(int64)}
	w := &world{t: t, f: f, clock: clock}
	for rank := range peers + 1 {
		cfg := Config{Rank: rank, Size: peers + 1, Clock: clock, Pass: clock.pass, Shared: SharedOff, RecvDepth: 8, SendDepth: 4, FragBytes: defaultFrag}
		device := simhca.DeviceConfig{MaxCQE: 64, MaxQPWR: 32}
		if rank == 0 {
			cfg = Config{Size: peers + 1, Clock: clock, Pass: clock.pass, Shared: how}
			device = simhca.DeviceConfig{}
		}
		r := &testRank{w: w, rank: rank}
		cfg.Events, cfg.KeepAlive, cfg.ConnectTimeout = r, -1, time.Hour
		r.m, r.hca = openSim(t, f, device, cfg)
		w.ranks = append(w.ranks, r)
	}
	w.fan()
	locked := w.ranks[0].hca.Locked()
	for _, r := range w.ranks {
		require.Empty(t, r.failed)
	}
	w.ranks[0].m.Closed = true // without GOODBYE to so many peers
	f.Close()
	return locked
}

// BenchmarkRoundTrip measures a round trip of a fragment over simulated devices, with receives for
// each queue pair and with shared ones.
func BenchmarkRoundTrip(b *testing.B) {
	for _, how := range []Shared{SharedOff, SharedOn} {
		b.Run("shared-"+string(how), func(b *testing.B) {
			f := simhca.NewFabric(simhca.Config{Virtual: true})
			defer f.Close()
			clock := fabricClock{f, new(int64)}
			var ranks [2]testRank
			for i := range ranks {
				r := &ranks[i]
				r.m, _ = openSim(b, f, simhca.DeviceConfig{}, Config{Rank: i, Size: 2, Clock: clock, Pass: clock.pass, Events: r, Shared: how})
			}
			for i := range ranks {
				var err error
				ranks[i].ep, err = ranks[i].m.Connect(btl.Path{Peer: 1 - i}, ranks[1-i].m.Address())
				require.NoError(b, err)
			}
			op := btl.Op{Payload: make([]byte, 8), Done: func(*btl.Op, error) {}}
			ops := [2]btl.Op{op, op}
			trip := func() {
				for i := range ranks {
					to := &ranks[1-i]
					for ranks[i].ep.Send(&ops[i]) != nil {
						ranks[i].m.Progress()
						to.m.Progress()
						clock.pass()
					}
					for len(to.arrived) == 0 {
						ranks[i].m.Progress()
						to.m.Progress()
						f.Advance()
					}
					to.arrived = to.arrived[:0]
				}
			}
			for range 1000 {
				trip()
			}
			for b.Loop() {
				trip()
			}
		})
	}
}
