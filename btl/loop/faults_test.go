package loop

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// pairOfNodes is two connected nodes of a world, which have exchanged a message each.
func pairOfNodes(t *testing.T, cfg Config) (w *world, a, b *node) {
	cfg.Ranks = max(cfg.Ranks, 2)
	w = newWorld(t, cfg)
	a, b = w.nodes[0][0], w.nodes[1][0]
	require.True(t, a.send(1, 100))
	require.True(t, b.send(0, 100))
	w.settle()
	require.Equal(t, []int{1, 1}, []int{a.arrived, b.arrived})
	return w, a, b
}

// comeBack expects that both ends are down, and that new ones work.
func comeBack(t *testing.T, w *world, a, b *node) {
	t.Helper()
	w.settle()
	require.Equal(t, btl.Drained, a.eps[1].State())
	require.Equal(t, btl.Drained, b.eps[0].State())
	beforeA, beforeB := a.arrived, b.arrived
	require.True(t, a.send(1, 100))
	require.True(t, b.send(0, 100))
	w.settle()
	require.Equal(t, []int{beforeA + 1, beforeB + 1}, []int{a.arrived, b.arrived})
	require.Equal(t, a.eps[1].Epoch(), b.eps[0].Epoch())
}

func TestFailLane(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w, a, b := pairOfNodes(t, Config{Virtual: virtual, Ranks: 3})
		c := w.nodes[2][0]
		require.True(t, a.send(2, 100))
		w.settle()
		require.NoError(t, w.f.FailLane(0, 1, 0, Cut{}))
		w.settle()
		require.Equal(t, []int{1, 1}, []int{a.failures, b.failures})
		// A third rank does not notice.
		require.True(t, a.send(2, 100))
		require.True(t, c.send(0, 100))
		w.settle()
		require.Equal(t, 2, c.arrived)

		// As long as it is cut, a new endpoint fails when it sends.
		require.Equal(t, btl.Up, a.connect(1).State())
		w.settle()
		require.Equal(t, btl.Up, a.eps[1].State())
		a.send(1, 100)
		w.settle()
		require.Equal(t, btl.Drained, a.eps[1].State())
		require.Equal(t, 1, b.arrived)
		b.send(0, 100)
		w.settle()

		require.NoError(t, w.f.ReviveLane(1, 0, 0))
		comeBack(t, w, a, b)
	}
}

// TestFailLaneHalfOpen: the end that is not told finds out when it sends.
func TestFailLaneHalfOpen(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w, a, b := pairOfNodes(t, Config{Virtual: virtual})
		require.NoError(t, w.f.FailLane(1, 0, 0, Cut{HalfOpen: true}))
		require.NoError(t, w.f.ReviveLane(0, 1, 0))
		w.settle()
		require.Equal(t, btl.Drained, b.eps[0].State())
		require.Equal(t, btl.Up, a.eps[1].State())
		a.send(1, 100)
		w.settle()
		require.Equal(t, 1, b.arrived)
		comeBack(t, w, a, b)
	}
}

// TestCutCarriesNothing: what is sent over a cut does not arrive, also while no end has noticed.
func TestCutCarriesNothing(t *testing.T) {
	for _, device := range []bool{false, true} {
		w, a, b := pairOfNodes(t, Config{Virtual: true})
		if device {
			require.NoError(t, w.f.FailPort(0, 0, Lose))
		} else {
			require.NoError(t, w.f.FailLane(0, 1, 0, Cut{HalfOpen: true}))
		}
		require.True(t, b.send(0, 100))
		for w.f.Advance() {
		}
		w.settle()
		require.Equal(t, 1, a.arrived)
		require.Zero(t, b.under)
		require.Equal(t, btl.Drained, b.eps[0].State())
	}
}

// TestLateNotice: the news of a cut does not end an incarnation that began after it.
func TestLateNotice(t *testing.T) {
	w, a, b := pairOfNodes(t, Config{})
	a.eps[1].Fail(errTest)
	b.eps[0].Fail(errTest)
	w.settle()
	require.NoError(t, w.f.FailLane(0, 1, 0, Cut{}))
	require.NoError(t, w.f.ReviveLane(0, 1, 0))
	require.True(t, a.send(1, 100))
	require.True(t, b.send(0, 100))
	w.settle()
	require.Equal(t, []int{2, 2}, []int{a.arrived, b.arrived})
	require.Equal(t, []btl.State{btl.Up, btl.Up}, []btl.State{a.eps[1].State(), b.eps[0].State()})
}

// TestFate: what is in flight when a lane is cut.
func TestFate(t *testing.T) {
	some := map[int]bool{}
	for seed := range uint64(20) {
		for _, fate := range []Fate{Lose, Deliver, DeliverSome} {
			w, a, b := pairOfNodes(t, Config{Virtual: true, Seed: seed})
			var trace bytes.Buffer
			w.f.Trace(&trace)
			for range 10 {
				require.True(t, a.send(1, 100))
			}
			require.NoError(t, w.f.FailLane(0, 1, 0, Cut{Fate: fate}))
			w.settle()
			require.Zero(t, a.under)
			require.Equal(t, 10, bytes.Count(trace.Bytes(), []byte(" error ")), "no acknowledgement comes")
			arrived := b.arrived - 1
			switch fate {
			case Lose:
				require.Zero(t, arrived)
			case Deliver:
				require.Equal(t, 10, arrived)
			case DeliverSome:
				some[arrived] = true
			}
			require.NoError(t, w.f.ReviveLane(0, 1, 0))
			comeBack(t, w, a, b)
		}
	}
	require.Greater(t, len(some), 4, "DeliverSome is not always the same")
}

// TestFateOfAcknowledgement: delivered and not yet acknowledged when the lane is cut.
func TestFateOfAcknowledgement(t *testing.T) {
	for _, halfOpen := range []bool{false, true} {
		w, a, b := pairOfNodes(t, Config{Virtual: true})
		require.True(t, a.send(1, 100))
		for b.arrived < 2 {
			require.True(t, w.f.Advance())
			b.m.Progress()
		}
		first, second := 0, 1
		if halfOpen {
			first, second = 1, 0 // the sender is not told
		}
		require.NoError(t, w.f.FailLane(first, second, 0, Cut{Fate: Deliver, HalfOpen: halfOpen}))
		w.settle()
		require.Equal(t, 2, b.arrived, "not delivered again")
		require.Zero(t, a.under)
		require.Equal(t, btl.Drained, a.eps[1].State())
		for _, f := range w.sent {
			require.Equal(t, f.seq == 1, f.succeeded)
		}
	}
}

func TestFailPort(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w, a, b := pairOfNodes(t, Config{Virtual: virtual, Ranks: 3})
		c := w.nodes[2][0]
		require.NoError(t, w.f.FailPort(0, 0, Lose))
		w.settle()
		require.Equal(t, 1, a.railFails)
		require.Zero(t, a.failures)
		require.Equal(t, btl.Drained, a.eps[1].State())
		// Nothing can be made on a broken device.
		for range 3 {
			_, err := a.m.Connect(1, b.m.Address())
			var be *btl.Error
			require.ErrorAs(t, err, &be)
			require.Equal(t, btl.ClassDevice, be.Class)
			require.Equal(t, btl.SideLocal, be.Side)
		}
		// Its peers find out when they send, the others go on.
		require.Equal(t, btl.Up, b.eps[0].State())
		b.send(0, 100)
		c.send(0, 100)
		c.send(1, 100)
		w.settle()
		require.Equal(t, btl.Drained, b.eps[0].State())
		require.Equal(t, btl.Drained, c.eps[0].State())
		require.Equal(t, 2, b.arrived)
		require.Equal(t, 1, a.arrived)

		require.NoError(t, w.f.RevivePort(0, 0))
		comeBack(t, w, a, b)
	}
}

func TestFailRailOfAll(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		for _, fate := range []Fate{Lose, Deliver} {
			w, a, b := pairOfNodes(t, Config{Virtual: virtual, Rails: 2})
			require.True(t, w.nodes[0][1].send(1, 100))
			require.True(t, a.send(1, 100))
			require.NoError(t, w.f.FailRail(0, fate))
			w.settle()
			require.Equal(t, []int{1, 1}, []int{a.railFails, b.railFails})
			require.Equal(t, []int{0, 0}, []int{a.failures, b.failures})
			want := 2
			if virtual && fate == Lose {
				want = 1
			}
			require.Equal(t, want, b.arrived)
			require.Equal(t, 1, w.nodes[1][1].arrived, "the other rail goes on")
			require.Zero(t, w.nodes[1][1].railFails)
			require.NoError(t, w.f.ReviveRail(0))
			comeBack(t, w, a, b)
		}
	}
}

// TestFaultOfPassiveEnd: a fault also ends what a peer has begun and this rank has not joined: what
// comes later is of the next incarnation.
func TestFaultOfPassiveEnd(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		for _, rail := range []bool{false, true} {
			w := newWorld(t, Config{Ranks: 2, Virtual: virtual})
			a, b := w.nodes[0][0], w.nodes[1][0]
			require.True(t, a.send(1, 100))
			w.settle()
			if rail {
				b.m.Fail(errTest)
			} else {
				require.NoError(t, w.f.FailLane(1, 0, 0, Cut{HalfOpen: true}))
				require.NoError(t, w.f.ReviveLane(0, 1, 0))
			}
			w.settle()
			a.send(1, 100)
			w.settle()
			require.Equal(t, 1, b.arrived)
			require.Equal(t, btl.Drained, a.eps[1].State())
			require.True(t, a.send(1, 100))
			w.settle()
			require.Equal(t, 2, b.arrived)
		}
	}
}

// TestPeerIsTold: a rank that closes its module tells those that are connected to it.
func TestPeerIsTold(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w, a, b := pairOfNodes(t, Config{Virtual: virtual})
		var got *btl.Error
		a.inner.Events = &failureHook{a.inner.Events, func(err *btl.Error) { got = err }}
		require.NoError(t, b.m.Close())
		w.settle()
		require.Equal(t, btl.Drained, a.eps[1].State())
		require.Equal(t, btl.ClassClosed, got.Class)
		require.Equal(t, btl.SideRemote, got.Side)
		// So are those who come later, and those get first what it has sent.
		a.connect(1)
		got = nil
		w.settle()
		require.Equal(t, btl.Drained, a.eps[1].State())
		require.Equal(t, btl.ClassClosed, got.Class)
	}
}

// TestConnectToClosed: what a peer has sent is there, though it closed before anybody had looked.
func TestConnectToClosed(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		for _, many := range []int{1, 10} {
			w := newWorld(t, Config{Ranks: 2, Slots: 16, Virtual: virtual})
			a, b := w.nodes[0][0], w.nodes[1][0]
			for range many {
				require.True(t, a.send(1, 100))
			}
			for virtual && w.f.Advance() { // until all is there
			}
			require.NoError(t, a.m.Close())
			ep := b.connect(0)
			require.Equal(t, btl.Up, ep.State())
			b.m.Progress()
			require.Equal(t, many, b.arrived)
			require.Equal(t, btl.Drained, ep.State())
			require.Equal(t, 1, b.failures)
		}
	}
}

type failureHook struct {
	btl.Events
	hook func(*btl.Error)
}

// Failed implements btl.Events.
func (h *failureHook) Failed(m btl.Module, peer int, err *btl.Error) {
	h.hook(err)
	h.Events.Failed(m, peer, err)
}

// TestNewsWake: what a sleeping rank is told outside of its lanes wakes it.
func TestNewsWake(t *testing.T) {
	s := newSides(t, 2)
	bell := &ringCounter{}
	s[0].mod.(*module).port.bell = bell
	f := s[0].mod.(*module).f
	for i, news := range []func(){
		func() { s[1].connect(t, 0, s[0]) },
		func() { require.NoError(t, f.FailLane(0, 1, 0, Cut{})) },
		func() { require.NoError(t, f.FailPort(0, 0, Lose)) },
		func() { require.NoError(t, s[1].mod.Close()) },
	} {
		for s[0].mod.Progress() > 0 {
		}
		idler := s[0].mod.(progress.Idler)
		require.True(t, idler.Arm())
		require.Zero(t, s[0].mod.Progress())
		news()
		require.Equal(t, i+1, bell.rings)
		idler.Disarm()
		s[1].mod.Progress() // so that it is connected for the next one
		require.NoError(t, f.ReviveLane(0, 1, 0))
		require.NoError(t, f.RevivePort(0, 0))
		if i == 1 {
			s[1].connect(t, 0, s[0])
		}
	}
}

// TestDeferredFailureRefusesPosts: between the post that an endpoint fails at and the progress call
// that reports the failure, the endpoint accepts nothing.
func TestDeferredFailureRefusesPosts(t *testing.T) {
	w, a, _ := pairOfNodes(t, Config{})
	a.m.(btl.Injector).Inject(btl.Fault{Kind: btl.FaultErrorDelivered, Peer: 1})
	require.True(t, a.send(1, 500))
	require.Equal(t, btl.ErrResource, a.eps[1].Send(&btl.Op{Done: a.done}))
	require.False(t, a.eps[1].(btl.Inliner).SendInline(1, nil, nil))
	w.settle()
	require.Equal(t, btl.ErrFailed, a.eps[1].Send(&btl.Op{Done: a.done}))
}

// TestStaleFragmentIsDropped: a fragment with the epoch of an incarnation that is over does not
// reach the layer above.
func TestStaleFragmentIsDropped(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w, a, b := pairOfNodes(t, Config{Virtual: virtual})
		in := a.m.(btl.Injector)
		in.Inject(btl.Fault{Kind: btl.FaultStale, Peer: 1})
		require.True(t, a.send(1, 200))
		w.settle()
		a.eps[1].Fail(errTest)
		b.eps[0].Fail(errTest)
		w.settle()
		require.Zero(t, in.Fired())
		comeBack(t, w, a, b)
		w.settle()
		require.Equal(t, 1, in.Fired())
		require.Equal(t, uint64(1), w.f.Stale())
	}
}

func TestFaultsOfNobody(t *testing.T) {
	f, err := NewFabric(Config{Ranks: 2, Rails: 2})
	require.NoError(t, err)
	for i, err := range []error{
		f.FailLane(-1, 0, 0, Cut{}), f.FailLane(0, 2, 0, Cut{}), f.FailLane(0, 1, 2, Cut{}),
		f.ReviveLane(0, 2, 0), f.ReviveLane(0, 1, -1),
		f.FailPort(2, 0, Lose), f.FailPort(0, 2, Lose), f.RevivePort(-1, 0),
		f.FailRail(2, Lose), f.ReviveRail(-1),
		f.SetLoss(0, 2, 0, nil), f.SetLoss(0, 1, 0, nil), // which is not virtual
	} {
		require.ErrorIs(t, err, ErrConfig, fmt.Sprint(i))
	}
	// Of ranks that have made nothing yet.
	require.NoError(t, f.FailLane(0, 1, 0, Cut{}))
	require.NoError(t, f.FailRail(1, Deliver))
}
