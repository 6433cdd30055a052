package ibverbs

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// TestCreditsWaitForBuffers: credits for which there was no send buffer are given back later,
// although the peer can send nothing before.
func TestCreditsWaitForBuffers(t *testing.T) { onEachFabric(t, testCreditsWaitForBuffers) }

func testCreditsWaitForBuffers(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{RecvDepth: 8})
	w.connect()
	b.end().maxInline = 0 // a device that takes nothing inline
	free := b.end().withoutBuffers()
	for range 8 {
		require.NoError(t, a.send("x"))
	}
	w.until("fragments", func() bool { return len(b.arrived) == 8 && a.isIdle() })
	w.turns(50)
	require.ErrorIs(t, a.send("x"), btl.ErrResource)
	free()
	w.until("credits", func() bool { return a.end().credits >= 4 })
	w.works()
}

// TestCreditsAfterBatchOfControlMessages: because COMM_EST comes first, the passive end finds
// HELLO, the offer of a ring and two credit messages in one batch, and uses all credits before it
// can give back the credits for these messages with a fragment. It gives them back nevertheless.
// Otherwise neither end could send any more.
func TestCreditsAfterBatchOfControlMessages(t *testing.T) {
	onEachFabric(t, testCreditsAfterBatchOfControlMessages)
}

func testCreditsAfterBatchOfControlMessages(t *testing.T, link verbs.LinkLayer) {
	w, a, b := newWorld(t, link, Config{RecvDepth: 8, SendDepth: 32, EagerPeers: 1, EagerAfter: 4})
	a.connect()
	w.deliver()
	b.progress()
	b.connect()
	for i := range 24 {
		require.NoError(t, b.send(fmt.Sprint(i)))
	}
	w.deliver()
	a.progress() // HELLO
	w.deliver()
	require.Equal(t, phaseAccepted, b.end().phase)
	b.m.readEvents()
	require.True(t, b.isReady())
	for range 50 { // a progresses often, so it sends a credit message for every four fragments
		w.f.Advance()
		a.m.Progress()
	}
	require.Len(t, a.arrived, 8)
	w.until("all fragments", func() bool { return len(a.arrived) == 24 })
	w.until("completions", b.isIdle)
	w.works()
}

// TestCreditsWhileQueueIsEmptied: all completions of a queue are taken at once if another endpoint
// on it has failed and is not drained. The receives of credit messages that arrive meanwhile are
// posted again as usual.
func TestCreditsWhileQueueIsEmptied(t *testing.T) { onEachFabric(t, testCreditsWhileQueueIsEmptied) }

func testCreditsWhileQueueIsEmptied(t *testing.T, link verbs.LinkLayer) {
	const all = 64
	w, a, b := newWorld(t, link, Config{RecvDepth: 8, SendDepth: 32})
	w.connect()
	peerProgresses := func() {
		for range 50 {
			w.f.Advance()
			b.m.Progress()
		}
	}
	sent, inside := 0, false
	var pump func()
	pump = func() {
		for ; sent < all; sent++ {
			if a.post(a.ep.Send, new(btl.Op), func(err error) {
				require.NoError(t, err)
				if inside {
					peerProgresses()
				}
				pump()
			}) != nil {
				return
			}
		}
	}
	pump()
	peerProgresses()
	inside = true
	a.m.pollOut(a.end().group)
	inside = false
	require.Zero(t, a.end().repostingControl, "their receives are posted in between")
	w.until("all fragments", func() bool { pump(); return len(b.arrived) == all })
	w.until("completions", a.isIdle)
}

// TestCreditsAfterOffersOfBothEnds: each end has sent the offer of its ring and two credit messages
// before it handles the other's. One end then uses all credits before it can give back the credits
// for these messages with a fragment, and the other end sends nothing. The first end gives credits
// back nevertheless.
func TestCreditsAfterOffersOfBothEnds(t *testing.T) {
	onEachFabric(t, testCreditsAfterOffersOfBothEnds)
}

func testCreditsAfterOffersOfBothEnds(t *testing.T, link verbs.LinkLayer) {
	const depth = 2 * pollBatch // so that two progress calls take everything that can arrive
	w, a, b := newWorld(t, link, withRings(Config{RecvDepth: depth, SendDepth: 4 * depth}))
	w.connect()
	flood := func(r *testRank) {
		for i := range depth {
			require.NoError(t, r.send(fmt.Sprint(i)))
		}
	}
	deliver := func() {
		for w.f.Advance() {
		}
	}
	flood(b)
	deliver()
	for range 4 {
		b.m.Progress() // completions
	}
	require.Zero(t, b.inFlight)
	flood(a)
	deliver()
	for _, r := range w.ranks {
		r.m.Progress()
		r.m.Progress()
		require.Len(t, r.arrived, depth)
		require.NotNil(t, r.end().in)
	}
	deliver() // the control messages of both ends arrive

	from, to := b.memory(8, btl.AccessLocal), a.memory(8, btl.AccessRemoteWrite)
	b.put(from, to.Key(), func(error) {
		require.Equal(t, depth, b.end().credits, "by credit messages in the same batch")
		flood(b)
	})
	deliver()
	w.until("all fragments", func() bool { return len(a.arrived) == 2*depth && b.isIdle() })
	w.until("credits", func() bool { return b.end().credits > 0 })
	w.works()
}

// TestBounceShares: the number of free buffers bounds how many an endpoint may take, and each
// endpoint has its own buffers.
func TestBounceShares(t *testing.T) {
	h := new(hca)
	for i := range int32(bounceBuffers) {
		h.bounceFree = append(h.bounceFree, i)
	}
	var shares []*bounceShare
	var taken [][]int32
	common := map[int32]bool{}
	for n := range 2 * bounceBuffers {
		s := wholeShare
		var mine []int32
		own := map[int32]bool{}
		for i := s.take(h); i != noBuffer; i = s.take(h) {
			seen := own
			if i < bounceBuffers {
				seen = common
			}
			require.False(t, seen[i], "buffer %d twice", i)
			seen[i] = true
			mine = append(mine, i)
		}
		require.Len(t, own, ownBuffers)
		require.LessOrEqual(t, s.common, bounceBuffers/4)
		switch n {
		case 0:
			require.Equal(t, bounceBuffers/4, s.common, "one endpoint alone")
		case 4:
			require.GreaterOrEqual(t, s.common, 20, "beside four that keep their buffers")
		}
		shares, taken = append(shares, &s), append(taken, mine)
	}
	for n, s := range shares {
		for _, i := range taken[n] {
			s.giveBack(h, i)
		}
		require.Equal(t, wholeShare, *s)
	}
	require.Len(t, h.bounceFree, bounceBuffers)
}

// fan connects rank 0 to all others, and returns its endpoints by rank.
func (w *world) fan() []*endpoint {
	m := w.ranks[0].m
	eps := make([]*endpoint, len(w.ranks))
	for rank, r := range w.ranks[1:] {
		ep, err := m.Connect(btl.Path{Peer: rank + 1}, r.m.Address())
		require.NoError(w.t, err)
		eps[rank+1] = ep.(*endpoint)
	}
	w.until("connections", func() bool {
		for _, e := range eps[1:] {
			if e.phase != phaseReady {
				return false
			}
		}
		return len(m.asking) == 0
	})
	return eps
}

// sendLong posts a fragment at an endpoint of this rank that does not go inline.
func (r *testRank) sendLong(e *endpoint) error {
	return r.post(e.Send, &btl.Op{Payload: []byte(x(1000))}, nil)
}

// sendsMore sends until total fragments were sent, of which some were sent before.
func (r *testRank) sendsMore(e *endpoint, sent, total int) {
	for ; sent < total; sent++ {
		r.w.until("room", func() bool { return r.sendLong(e) == nil })
	}
	to := r.w.ranks[e.p.rank]
	r.w.until("the fragments", func() bool { return len(to.arrived) == total && e.awaited == 0 })
}

// TestSendBesideSilentPeers: sends to peers whose devices do not acknowledge keep their buffers.
// Sends to another peer continue, in bursts if there are few silent peers.
func TestSendBesideSilentPeers(t *testing.T) { onEachFabric(t, testSendBesideSilentPeers) }

func testSendBesideSilentPeers(t *testing.T, link verbs.LinkLayer) {
	for _, silent := range []int{1, 4, 40} {
		t.Run(fmt.Sprint(silent), func(t *testing.T) {
			// The silent peers stay connected for the whole test.
			cfg := Config{AckTimeout: 24, RetryCount: 6, Deadline: 1 << 40}
			w, sender, _ := newWorld(t, link, cfg, make([]simhca.DeviceConfig, silent+2)...)
			eps := w.fan()
			here, well := sender.m.h.gid.GID, eps[silent+1]
			for rank := 1; rank <= silent; rank++ {
				require.True(t, w.f.Partition(here, w.ranks[rank].m.h.gid.GID, true))
				for sender.sendLong(eps[rank]) == nil {
				}
			}
			burst := 0
			for sender.sendLong(well) == nil {
				burst++
			}
			require.GreaterOrEqual(t, burst, ownBuffers)
			if silent <= 4 {
				require.GreaterOrEqual(t, burst, ownBuffers+20)
			}
			sender.sendsMore(well, burst, 2000)
			require.Empty(t, sender.failed)
			for rank := 1; rank <= silent; rank++ {
				require.Positive(t, eps[rank].awaited)
				require.ErrorIs(t, sender.sendLong(eps[rank]), btl.ErrResource)
				w.f.Heal(here, w.ranks[rank].m.h.gid.GID)
				eps[rank].Fail(nil)
			}
			w.until("all operations to end", sender.isIdle)
			require.Len(t, sender.m.h.bounceFree, bounceBuffers)
		})
	}
}

// TestSendWithOwnBuffersAlone: other endpoints have all common buffers. An endpoint continues with
// its own.
func TestSendWithOwnBuffersAlone(t *testing.T) { onEachFabric(t, testSendWithOwnBuffersAlone) }

func testSendWithOwnBuffersAlone(t *testing.T, link verbs.LinkLayer) {
	w, a, _ := newWorld(t, link, Config{})
	e, h := w.fan()[1], a.m.h
	free := h.bounceFree
	h.bounceFree = nil
	for range ownBuffers {
		require.NoError(t, a.sendLong(e))
	}
	require.ErrorIs(t, a.sendLong(e), btl.ErrResource)
	a.sendsMore(e, ownBuffers, 500)
	h.bounceFree = free
	require.Equal(t, wholeShare, e.share)
}
