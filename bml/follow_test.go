package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
)

// following is a rank with two rails to a peer, which sends by the rails that the test names.
func following(t *testing.T, rank int) (w *wire, r *testRank, pr *Peer, ticks func(n, rail int)) {
	w = newWire(t, 2, withRails(2), withGrace(10*sec), mended, func(w *wire) {
		w.attrs[1].LatencyNanos = w.attrs[0].LatencyNanos
	})
	r = w.ranks[rank]
	pr = r.Peer(1 - rank)
	require.NoError(t, r.Resolve(pr))
	seq := uint32(0)
	return w, r, pr, func(n, rail int) {
		for range n {
			w.arrive(rail, 1-rank, rank, tagNumbered, numbered(seq, "by a rail"))
			seq++
			pr.followPeer(rank < pr.rank)
			r.prefer(pr)
		}
	}
}

// Both ends take one rail, also if only one of them finds the other rail slow.
func TestRankFollowsPeer(t *testing.T) {
	for rank, need := range []int{followTicksLower, followTicks} {
		_, _, pr, ticks := following(t, rank)
		ticks(5, 0)
		require.Same(t, &pr.rails[0], pr.first)
		ticks(need-1, 1)
		ticks(1, 0)
		ticks(need-1, 1)
		require.Same(t, &pr.rails[0], pr.first, "rank %d follows too soon", rank)
		ticks(1, 1)
		require.Same(t, &pr.rails[1], pr.first)
		ticks(need-1, 0)
		require.Same(t, &pr.rails[1], pr.first, "rank %d follows back too soon", rank)
		ticks(1, 0)
		require.Same(t, &pr.rails[0], pr.first, "it does not follow back")
	}
}

// A rank does not follow to a rail that is slow, not trusted, of another latency, or down; nor when
// that is over, unless the peer still takes that rail.
func TestRankDoesNotFollow(t *testing.T) {
	for name, change := range map[string]func(w *wire, pr *Peer){
		"slow":        func(_ *wire, pr *Peer) { pr.becomesSlow(&pr.rails[1]) },
		"not trusted": func(_ *wire, pr *Peer) { pr.rails[1].health = trusted - 1 },
		"latency":     func(_ *wire, pr *Peer) { pr.rails[1].latencyNanos++ },
		"down":        func(w *wire, _ *Peer) { w.rails[1][1].lose(0, pathError(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			w, r, pr, ticks := following(t, 1)
			change(w, pr)
			ticks(20, 1)
			require.Same(t, &pr.rails[0], pr.first)
			if rl := &pr.rails[1]; rl.state == railUp {
				pr.becomesFast(rl)
				rl.health, rl.latencyNanos = fullHealth, pr.rails[0].latencyNanos
			}
			r.prefer(pr)
			require.Same(t, &pr.rails[0], pr.first, "it follows to where the peer was")
		})
	}
}

// A rail that is trusted just enough is followed to.
func TestRankFollowsToTrustedRail(t *testing.T) {
	_, _, pr, ticks := following(t, 1)
	pr.rails[1].health = trusted
	ticks(followTicks, 1)
	require.Same(t, &pr.rails[1], pr.first)
}

// Two ranks that take different rails at first do not change places for ever.
func TestRanksThatFollowEachOther(t *testing.T) {
	w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
	there := w.ranks[1].Peer(0)
	there.follow.rail = &there.rails[1]
	w.ranks[1].prefer(there)
	require.NotEqual(t, w.pr.first.index, there.first.index)
	for range 1000 {
		w.ranks[0].send(1, "question")
		w.ranks[1].send(0, "answer")
		w.run(msec, 0, 1)
	}
	require.Equal(t, w.pr.first.index, there.first.index)
}

// A rank notices at its ticks that the peer takes another rail.
func TestBothEndsTakeOneRail(t *testing.T) {
	w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
	there := w.ranks[1].Peer(0)
	there.becomesSlow(&there.rails[0])
	there.rails[0].grade.need = 1 << 30
	w.ranks[1].prefer(there)
	for range 1000 {
		w.ranks[1].send(0, "answer")
		w.exchange(1)
	}
	require.Same(t, &there.rails[1], there.first)
	require.Same(t, &w.pr.rails[1], w.pr.first)
	require.Zero(t, w.pr.slow)
}

// The rail that a rank followed to loses its place to one that promises less latency.
func TestFollowedRailAndBetterOne(t *testing.T) {
	_, r, pr, ticks := following(t, 1)
	ticks(followTicks, 1)
	pr.rails[0].latencyNanos--
	r.prefer(pr)
	require.Same(t, &pr.rails[0], pr.first)
}

// The rail that a rank followed to loses its place when it becomes slow, or has failed.
func TestFollowedRailIsNotAsGood(t *testing.T) {
	for _, change := range []func(pr *Peer){
		func(pr *Peer) { pr.becomesSlow(&pr.rails[1]) },
		func(pr *Peer) { pr.rails[1].health = trusted - 1 },
	} {
		_, r, pr, ticks := following(t, 1)
		ticks(followTicks, 1)
		require.Same(t, &pr.rails[1], pr.first)
		change(pr)
		r.prefer(pr)
		require.Same(t, &pr.rails[0], pr.first)
	}
}
