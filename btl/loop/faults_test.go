package loop

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
)

// exchange sends a fragment each way, and expects that both arrive.
func (w *world) exchange(a, b *node) {
	w.t.Helper()
	beforeA, beforeB := a.arrived, b.arrived
	require.True(w.t, a.send(b.rank, 100))
	require.True(w.t, b.send(a.rank, 100))
	w.settle()
	require.Equal(w.t, []int{beforeA + 1, beforeB + 1}, []int{a.arrived, b.arrived})
	require.Equal(w.t, a.eps[b.rank].Epoch(), b.eps[a.rank].Epoch())
}

// pairOfNodes makes two nodes of a world that have exchanged fragments.
func pairOfNodes(t *testing.T, cfg Config) (w *world, a, b *node) {
	w, a, b = twoNodes(t, cfg)
	w.exchange(a, b)
	return w, a, b
}

// comeBack expects that both ends are drained, and that the next incarnation works.
func (w *world) comeBack(a, b *node) {
	w.t.Helper()
	w.settle()
	require.Equal(w.t, btl.Drained, a.eps[1].State())
	require.Equal(w.t, btl.Drained, b.eps[0].State())
	w.exchange(a, b)
}

// cutOnce cuts the link of ranks 0 and 1 for a moment. Only rank first gets a notice.
func (w *world) cutOnce(first int) {
	w.t.Helper()
	require.NoError(w.t, w.f.FailLane(first, 1-first, 0, Cut{HalfOpen: true}))
	require.NoError(w.t, w.f.ReviveLane(0, 1, 0))
}

func TestFailLane(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w, a, b := pairOfNodes(t, Config{Virtual: virtual, Ranks: 3})
		c := w.nodes[2][0]
		w.exchange(a, c)
		require.NoError(t, w.f.FailLane(0, 1, 0, Cut{}))
		w.settle()
		require.Equal(t, []int{1, 1}, []int{a.failures, b.failures})
		w.exchange(a, c) // a third rank does not notice
		require.Equal(t, uint32(1), c.eps[0].Epoch())

		// While the link is cut, a new endpoint fails when it sends.
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
		w.comeBack(a, b)
	}
}

// TestFailLaneHalfOpen: the end that gets no notice fails when it sends.
func TestFailLaneHalfOpen(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w, a, b := pairOfNodes(t, Config{Virtual: virtual})
		w.cutOnce(1)
		w.settle()
		require.Equal(t, btl.Drained, b.eps[0].State())
		require.Equal(t, btl.Up, a.eps[1].State())
		a.send(1, 100)
		w.settle()
		require.Equal(t, 1, b.arrived)
		w.comeBack(a, b)
	}
}

// TestSendOverCutDoesNotArrive: a fragment sent over a cut link or to a broken device does not
// arrive, even while neither end has failed.
func TestSendOverCutDoesNotArrive(t *testing.T) {
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
		require.Zero(t, b.pending)
		require.Equal(t, btl.Drained, b.eps[0].State())
	}
}

// TestLateNoticeOfCut: the notice of a cut does not end an incarnation that began after the cut.
func TestLateNoticeOfCut(t *testing.T) {
	w, a, b := pairOfNodes(t, Config{})
	a.eps[1].Fail(errTest)
	b.eps[0].Fail(errTest)
	w.settle()
	require.NoError(t, w.f.FailLane(0, 1, 0, Cut{}))
	require.NoError(t, w.f.ReviveLane(0, 1, 0))
	w.exchange(a, b)
	require.Equal(t, []btl.State{btl.Up, btl.Up}, []btl.State{a.eps[1].State(), b.eps[0].State()})
}

// TestFateOfFragments: Cut.Fate decides how many of the fragments in flight arrive when a link is
// cut. All of them end with an error.
func TestFateOfFragments(t *testing.T) {
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
			require.Zero(t, a.pending)
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
			w.comeBack(a, b)
		}
	}
	require.Greater(t, len(some), 4, "DeliverSome is not always the same")
}

// TestCutBeforeAcknowledgement: a fragment that is delivered but not yet acknowledged when the link
// is cut ends with an error, and is not delivered again.
func TestCutBeforeAcknowledgement(t *testing.T) {
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
		require.Zero(t, a.pending)
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
		// No endpoint can be made on a broken device.
		for range 3 {
			_, err := a.m.Connect(btl.Path{Peer: 1}, b.m.Address())
			be := btltest.AsError(t, err)
			require.Equal(t, btl.ClassDevice, be.Class)
			require.Equal(t, btl.SideLocal, be.Side)
		}
		// Its peers fail when they send to it. They still reach each other.
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
		w.comeBack(a, b)
	}
}

func TestFailRail(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		for _, fate := range []Fate{Lose, Deliver} {
			w, a, b := pairOfNodes(t, Config{Virtual: virtual, Rails: 2})
			require.True(t, w.nodes[0][1].send(1, 100))
			require.True(t, a.send(1, 100))
			require.NoError(t, w.f.FailModule(0, fate))
			w.settle()
			require.Equal(t, []int{1, 1}, []int{a.railFails, b.railFails})
			require.Equal(t, []int{0, 0}, []int{a.failures, b.failures})
			want := 2
			if virtual && fate == Lose {
				want = 1
			}
			require.Equal(t, want, b.arrived)
			require.Equal(t, 1, w.nodes[1][1].arrived, "the other rail still works")
			require.Zero(t, w.nodes[1][1].railFails)
			require.NoError(t, w.f.ReviveRail(0))
			w.comeBack(a, b)
		}
	}
}

// TestFaultEndsIncarnationOfPeer: a fault also ends an incarnation that a peer has begun and this
// rank has not joined. Later fragments belong to the next incarnation.
func TestFaultEndsIncarnationOfPeer(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		for _, rail := range []bool{false, true} {
			w, a, b := twoNodes(t, Config{Virtual: virtual})
			require.True(t, a.send(1, 100))
			w.settle()
			if rail {
				b.m.Fail(errTest)
			} else {
				w.cutOnce(1)
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

// TestCloseTellsPeers: a rank that closes its module notifies the connected peers, and peers that
// connect later.
func TestCloseTellsPeers(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		w, a, b := pairOfNodes(t, Config{Virtual: virtual})
		var got *btl.Error
		a.inner.Events = &eventHook{Events: a.inner.Events, failed: func(err *btl.Error) { got = err }}
		require.NoError(t, b.m.Close())
		w.settle()
		require.Equal(t, btl.Drained, a.eps[1].State())
		require.Equal(t, btl.ClassClosed, got.Class)
		require.Equal(t, btl.SideRemote, got.Side)
		a.connect(1)
		got = nil
		w.settle()
		require.Equal(t, btl.Drained, a.eps[1].State())
		require.Equal(t, btl.ClassClosed, got.Class)
	}
}

// TestConnectToClosedPeer: the fragments that a peer sent before it closed its module are handed
// up, although the receiver never polled before.
func TestConnectToClosedPeer(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		for _, many := range []int{1, 10} {
			w, a, b := twoNodes(t, Config{Slots: 16, Virtual: virtual})
			for range many {
				require.True(t, a.send(1, 100))
			}
			for virtual && w.f.Advance() { // until all have arrived
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

// eventHook calls functions of a test for events, and passes the events on.
type eventHook struct {
	btl.Events
	failed  func(*btl.Error)
	drained func() // called once
}

// Failed implements btl.Events.
func (h *eventHook) Failed(m btl.Module, to btl.Path, err *btl.Error) {
	if h.failed != nil {
		h.failed(err)
	}
	h.Events.Failed(m, to, err)
}

// Drained implements btl.Events.
func (h *eventHook) Drained(m btl.Module, to btl.Path) {
	h.Events.Drained(m, to)
	if drained := h.drained; drained != nil {
		h.drained = nil
		drained()
	}
}

// TestNoticesWake: a notice does not come in a lane, and wakes a sleeping rank too.
func TestNoticesWake(t *testing.T) {
	wakeup := &wakeCounter{}
	s := newSides(t, Config{Ranks: 2}, wakeup)
	f := s[0].mod.f
	for i, notify := range []func(){
		func() { s[1].connect(t, s[0]) },
		func() { require.NoError(t, f.FailLane(0, 1, 0, Cut{})) },
		func() { require.NoError(t, f.FailPort(0, 0, Lose)) },
		func() { require.NoError(t, s[1].mod.Close()) },
	} {
		s[0].poll()
		require.True(t, s[0].mod.Arm())
		require.Zero(t, s[0].mod.Progress())
		notify()
		require.Equal(t, i+1, wakeup.wakes)
		s[0].mod.Disarm()
		s[1].mod.Progress() // so that it is connected for the next one
		require.NoError(t, f.ReviveLane(0, 1, 0))
		require.NoError(t, f.RevivePort(0, 0))
		if i == 1 {
			s[1].connect(t, s[0])
		}
	}
}

func TestFaultOfUnknownRankOrRailFails(t *testing.T) {
	f, err := NewFabric(Config{Ranks: 2, Rails: 2})
	require.NoError(t, err)
	for i, err := range []error{
		f.FailLane(-1, 0, 0, Cut{}), f.FailLane(0, 2, 0, Cut{}), f.FailLane(0, 1, 2, Cut{}),
		f.ReviveLane(0, 2, 0), f.ReviveLane(0, 1, -1),
		f.FailPort(2, 0, Lose), f.FailPort(0, 2, Lose), f.RevivePort(-1, 0),
		f.FailModule(2, Lose), f.ReviveRail(-1),
		f.SetLoss(Port{0, 0}, Port{2, 0}, nil),
		f.SetLoss(Port{0, 0}, Port{1, 0}, nil), // the fabric is not virtual
	} {
		require.ErrorIs(t, err, ErrConfig, fmt.Sprint(i))
	}
	// Ranks without a module can have faults.
	require.NoError(t, f.FailLane(0, 1, 0, Cut{}))
	require.NoError(t, f.FailModule(1, Deliver))
}
