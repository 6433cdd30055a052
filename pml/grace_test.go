package pml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// pair is two ranks over a virtual fabric. A rank makes progress only inside run.
type pair struct {
	fabric  *loop.Fabric
	engines []*progress.Engine
	pmls    []*PML
	ctxs    []*Context
	modules [][]btl.Module
}

func newPair(t *testing.T, rails int, grace int64) *pair {
	return newPairOf(t, Auto, grace, make([]loop.RailConfig, rails)...)
}

// newPairOf is newPair with configured rails, and the protocol for long messages.
func newPairOf(t *testing.T, protocol Protocol, grace int64, rails ...loop.RailConfig) *pair {
	w := &pair{}
	var err error
	w.fabric, err = loop.NewFabric(loop.Config{Ranks: 2, Rails: len(rails), Rail: rails, Virtual: true, Seed: 1})
	require.NoError(t, err)
	group := NewGroup([]int{0, 1})
	w.modules = make([][]btl.Module, 2)
	for rank := range 2 {
		eng := progress.New(progress.Config{Clock: fabricClock{w.fabric}})
		p := New(Config{
			Rank: rank, Size: 2, Engine: eng, GraceNanos: grace, Protocol: protocol,
			Resolve: func(peer int) (routes []bml.Route, err error) {
				for rail, m := range w.modules[rank] {
					address := w.modules[peer][rail].Address()
					open := func() (btl.Endpoint, error) { return m.Connect(btl.Path{Peer: peer, Module: uint8(rail)}, address) }
					r := bml.Route{Module: m, Local: rail, Remote: rail, Reopen: open}
					if ep, err := open(); err == nil {
						r.Endpoint = ep
					}
					routes = append(routes, r)
				}
				return routes, nil
			},
			OnIllegal: func(what string) { t.Errorf("illegal transition: %s", what) },
		})
		eng.Lock()
		for rail := range rails {
			// Operations of the module fail on request (btl.Injector).
			m, err := faults.Wrap(faults.Config{Events: p}, func(ev btl.Events) (btl.Module, error) {
				return w.fabric.Module(rank, rail, ev, nil)
			})
			require.NoError(t, err)
			w.modules[rank] = append(w.modules[rank], m)
			eng.AddPoller(m)
		}
		eng.AddPoller(p)
		w.engines, w.pmls = append(w.engines, eng), append(w.pmls, p)
		w.ctxs = append(w.ctxs, p.AddContext(WorldContext, group, rank, testCaller{}))
	}
	return w
}

// run lets time pass. Only the listed ranks make progress.
func (w *pair) run(nanos int64, ranks ...int) {
	for end := w.fabric.Now() + nanos; w.fabric.Now() < end; {
		for range 8 {
			for _, r := range ranks {
				w.engines[r].Turn()
			}
		}
		w.fabric.AdvanceTo(w.fabric.Now() + 1_000_000)
	}
}

const sec = int64(1e9)

// TestRailReturnsWhileBothRanksCompute: both ranks make no progress for longer than the grace time.
// The rail comes back before that.
func TestRailReturnsWhileBothRanksCompute(t *testing.T) {
	w := newPair(t, 1, 10*sec)
	s := w.pmls[0].Isend(w.ctxs[0], pattern(100_000, 1), 1, 7, Standard, "send")
	r := w.pmls[1].Irecv(w.ctxs[1], make([]byte, 100_000), 1, 0, 7, "recv")
	w.engines[0].Turn()
	require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{Fate: loop.Fate(0)}))
	w.run(sec/2, 0, 1)
	require.Equal(t, request.Active, s.State())
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.fabric.AdvanceTo(w.fabric.Now() + 12*sec) // both ranks compute
	w.run(2*sec, 0, 1)
	require.Equal(t, request.Complete, r.State())
	requireSuccess(t, s)
}

// TestRailReturnsWhilePeerComputes: the peer makes no progress for longer than the grace time, from
// the failure on or after it has seen the failure. The rail comes back before that.
func TestRailReturnsWhilePeerComputes(t *testing.T) {
	for _, sees := range []bool{false, true} {
		w := newPair(t, 1, 10*sec)
		s := w.pmls[0].Isend(w.ctxs[0], pattern(100_000, 1), 1, 7, Standard, "send")
		w.run(sec/10, 0, 1)
		require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{Fate: loop.Fate(0)}))
		if sees {
			w.run(sec/2, 0, 1)
		} else {
			w.run(sec/100, 0)
		}
		require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
		w.run(13*sec, 0) // rank 1 computes
		w.pmls[1].Irecv(w.ctxs[1], make([]byte, 100_000), 1, 0, 7, "recv")
		w.run(2*sec, 0, 1)
		_, err := s.Take()
		require.NoError(t, err, "the peer has seen the failure: %v", sees)
	}
}

// fabricClock is the time of a virtual fabric.
type fabricClock struct{ f *loop.Fabric }

func (c fabricClock) Now() int64 { return c.f.Now() }

// TestPeerLostWhileMessageArrivesLearnsOfIt: rank 1 gives rank 0 up just when rank 0's message
// arrives. Rank 0's receive must end too.
func TestPeerLostWhileMessageArrivesLearnsOfIt(t *testing.T) {
	w := newPair(t, 1, sec)
	greeting := w.pmls[1].Irecv(w.ctxs[1], nil, 1, 0, 6, "recv")
	w.pmls[0].Isend(w.ctxs[0], nil, 1, 6, Standard, "send").Abandon()
	w.run(sec/10, 0, 1)
	require.Equal(t, request.Complete, greeting.State())

	asked := w.pmls[1].Irecv(w.ctxs[1], make([]byte, 100), 1, 0, 7, "recv")
	answer := w.pmls[0].Irecv(w.ctxs[0], make([]byte, 100), 1, 1, 8, "recv")
	w.pmls[0].Isend(w.ctxs[0], pattern(100, 1), 1, 7, Standard, "send").Abandon()
	w.fabric.AdvanceTo(w.fabric.Now() + sec/10) // the message is at rank 1
	w.pmls[1].bml.Fail(&w.pmls[1].peer(0).Peer, request.ErrUnreachable)
	w.run(5*sec, 0, 1)
	require.Equal(t, request.Complete, asked.State())
	require.Error(t, w.pmls[1].peer(0).Err())
	require.Equal(t, request.Complete, answer.State(), "rank 0 still waits for an answer")
	requireFailure(t, request.ErrUnreachable, answer)
}

// makeSpare makes the second rail a spare one, of a later tier. opens is called when a rank opens
// it.
func (w *pair) makeSpare(opens func(rank int)) {
	for rank, p := range w.pmls {
		resolve := p.cfg.Resolve
		p.cfg.Resolve = func(peer int) ([]bml.Route, error) {
			routes, err := resolve(peer)
			routes[1].Tier, routes[1].Endpoint = 1, nil
			routes[1].Reopen = func() (btl.Endpoint, error) {
				opens(rank)
				return w.modules[rank][1].Connect(btl.Path{Peer: peer, Module: 1}, w.modules[peer][1].Address())
			}
			return routes, err
		}
	}
}

// TestSpareRailOpensWhenFirstTierIsDown: a rail of a later tier is opened when no rail of an
// earlier tier is up. It takes no traffic when one is up again.
func TestSpareRailOpensWhenFirstTierIsDown(t *testing.T) {
	w := newPair(t, 2, 10*sec)
	opened := 0 // the spare rail, at rank 0
	w.makeSpare(func(rank int) {
		if rank == 0 {
			opened++
		}
	})
	goes := func() {
		t.Helper()
		in, out := pattern(100_000, 1), make([]byte, 100_000)
		s := w.pmls[0].Isend(w.ctxs[0], in, 1, 7, Standard, "send")
		r := w.pmls[1].Irecv(w.ctxs[1], out, 1, 0, 7, "recv")
		w.run(sec, 0, 1)
		requireSuccess(t, s, r)
		require.Equal(t, in, out)
	}
	states := func() (all []string) {
		for _, r := range w.pmls[0].Rails() {
			all = append(all, r.State)
		}
		return all
	}
	goes()
	w.run(sec, 0, 1)
	require.Equal(t, []string{"up", "down"}, states())
	require.Zero(t, opened)

	// The spare rail cannot be opened, until the first rail is back and the spare one not needed.
	require.NoError(t, w.fabric.FailLane(0, 1, 1, loop.Cut{}))
	require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
	w.run(sec, 0, 1)
	require.Positive(t, opened)
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.run(2*sec, 0, 1)
	require.Equal(t, "up", states()[0])
	opened = 0
	w.run(5*sec, 0, 1)
	require.Zero(t, opened, "the spare rail was opened although the first is up")

	require.NoError(t, w.fabric.ReviveLane(0, 1, 1))
	require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
	before := w.pmls[0].Stats()
	goes()
	require.Equal(t, "up", states()[1])
	require.Equal(t, before.RailsReturned, w.pmls[0].Stats().RailsReturned, "the spare rail counts as returned")
	require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
	w.run(2*sec, 0, 1)
	goes()
	require.Equal(t, []string{"up", "up"}, states())
	require.True(t, w.pmls[0].Rails()[0].First)
	inUse, _ := w.pmls[0].RailsUp(1)
	require.Equal(t, 1, inUse, "the spare rail takes no traffic")
}

// TestSpareRailWithoutGraceOpens: opening a spare rail may take its time, even if a failed rail
// gets no time to return.
func TestSpareRailWithoutGraceOpens(t *testing.T) {
	for _, works := range []bool{true, false} {
		w := newPair(t, 2, 0)
		w.makeSpare(func(int) {})
		if !works {
			require.NoError(t, w.fabric.FailLane(0, 1, 1, loop.Cut{}))
		}
		r := w.pmls[1].Irecv(w.ctxs[1], make([]byte, 3), 1, 0, 7, "recv")
		w.run(sec/10, 0, 1)
		require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
		w.run(sec/10, 0, 1)
		s := w.pmls[0].Isend(w.ctxs[0], []byte{1, 2, 3}, 1, 7, Standard, "send")
		w.run(3*sec, 0, 1)
		require.Equal(t, request.Complete, s.State())
		require.Equal(t, request.Complete, r.State())
		_, err := r.Take()
		if works {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, request.ErrUnreachable)
		}
	}
}

// TestRailsOfClosedPeerDoNotFail: a peer that closes its modules causes no failure.
func TestRailsOfClosedPeerDoNotFail(t *testing.T) {
	w := newPair(t, 2, sec)
	s := w.pmls[0].Isend(w.ctxs[0], []byte{1, 2, 3}, 1, 7, Standard, "send")
	r := w.pmls[1].Irecv(w.ctxs[1], make([]byte, 3), 1, 0, 7, "recv")
	w.run(sec/10, 0, 1)
	require.Equal(t, request.Complete, s.State())
	require.Equal(t, request.Complete, r.State())
	for _, m := range w.modules[1] {
		require.NoError(t, m.Close())
	}
	w.run(sec, 0)
	require.Zero(t, w.pmls[0].Stats().RailsFailed)
	for _, r := range w.pmls[0].Rails() {
		require.Equal(t, "closed", r.State)
	}
}
