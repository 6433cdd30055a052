package loop

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// TestFailRacesWithSender: each fragment that a sender publishes while the receiver closes the lane
// is either delivered or refused.
func TestFailRacesWithSender(t *testing.T) {
	for round := range 80 {
		from, to := pairOfSides(t, Config{Slots: 1 << (round % 4)})
		sent := 0
		var wg sync.WaitGroup
		wg.Go(func() {
			big := make([]byte, 1000)
			for i := 0; from.ep.State() == btl.Up; i++ {
				payload := big[:(i%3)*500]
				if from.ep.SendInline(1, nil, payload[:min(len(payload), slotBytes)]) {
					sent++
				}
				if from.ep.Send(&btl.Op{Payload: payload, Done: func(*btl.Op, error) {}}) == nil {
					sent++
				}
				from.mod.Progress()
			}
		})
		for to.arrived <= round%50 {
			if to.mod.Progress() == 0 {
				runtime.Gosched()
			}
		}
		to.failAndDrain()
		wg.Wait()
		require.Equal(t, sent, to.arrived, "published and delivered, round %d", round)
	}
}

// TestFailBeforeLaneIsKnown: a peer has joined an incarnation and published a fragment, but the
// other end has not seen the notice yet. The fragment is delivered before the other end is Drained.
func TestFailBeforeLaneIsKnown(t *testing.T) {
	w, a, b := twoNodes(t, Config{})
	require.NotNil(t, b.connect(0))
	require.True(t, a.send(1, 100)) // b has not polled since
	b.failAndDrain(0)
	require.Equal(t, 1, b.arrived)
	require.False(t, a.send(1, 100), "sent to a drained end")
	w.settle()
	require.Equal(t, btl.Drained, a.eps[1].State())
}

// failAndDrain fails the endpoint to peer, and polls until it is drained.
func (n *node) failAndDrain(peer int) {
	n.eps[peer].Fail(errTest)
	for n.eps[peer].State() != btl.Drained {
		n.m.Progress()
	}
}

// TestJoinDuringTearDown: a peer joins an incarnation just before this end is drained. Its fragment
// is delivered before Drained. If the peer sends later, it begins the next incarnation.
func TestJoinDuringTearDown(t *testing.T) {
	w := newWorld(t, Config{Ranks: 3})
	a, b := w.nodes[0][0], w.nodes[1][0]
	hook := &eventHook{Events: b.inner.Events, drained: func() { require.True(t, a.send(1, 100)) }}
	b.inner.Events = hook
	require.NotNil(t, b.connect(2))
	require.NotNil(t, b.connect(0))
	b.eps[2].Fail(errTest)
	b.failAndDrain(0)
	require.Equal(t, 1, b.arrived)
	require.Equal(t, uint32(1), a.eps[1].Epoch())
	w.settle() // would find an arrival after Drained
	require.False(t, a.send(1, 100))
	w.settle()

	hook.drained = func() { require.True(t, a.send(1, 100)) }
	require.NotNil(t, b.connect(0))
	b.eps[0].Fail(errTest)
	w.settle()
	require.Equal(t, 2, b.arrived)
	require.Greater(t, a.eps[1].Epoch(), b.eps[0].Epoch())
}

// TestManyIncarnationsBeforeProgress: if a receiver does not poll during several incarnations of
// its peer, it later gets the fragments of all of them in order.
func TestManyIncarnationsBeforeProgress(t *testing.T) {
	for _, connected := range []bool{false, true} {
		w, a, b := twoNodes(t, Config{})
		if connected {
			require.NotNil(t, b.connect(0))
		}
		for range 5 {
			require.True(t, a.send(1, 200))
			require.True(t, a.send(1, 30))
			a.failAndDrain(1)
		}
		require.True(t, a.send(1, 100))
		require.Zero(t, b.arrived)
		w.settle()
		require.Equal(t, 11, b.arrived)
		require.Equal(t, uint32(6), a.eps[1].Epoch())
		if connected {
			require.Equal(t, 1, b.failures, "the end of an old incarnation")
		}
		require.NotNil(t, b.connect(0))
		require.Equal(t, uint32(6), b.eps[0].Epoch(), "both ends agree on the epoch")
		require.True(t, b.send(0, 100))
		w.settle()
		require.Equal(t, 1, a.arrived)
	}
}

// TestBuffersAreReused: the buffer of a long fragment is used again.
func TestBuffersAreReused(t *testing.T) {
	from, to := pairOfSides(t, Config{})
	op := &btl.Op{Payload: make([]byte, 40000), Done: func(*btl.Op, error) {}}
	send := func(times int) {
		for range times {
			for from.ep.Send(op) != nil {
				to.mod.Progress()
			}
		}
		to.poll()
	}
	send(300)
	require.Zero(t, testing.AllocsPerRun(200, func() { send(10) }))
	pool := &from.mod.bufs
	pool.collect()
	n := 0
	for b := pool.free[16]; b != nil; b = b.next {
		n++
	}
	require.LessOrEqual(t, n, 64, "no more buffers than the slots of a lane")
}

func TestBufferClasses(t *testing.T) {
	var p pool
	for _, n := range []int{1, 255, 256, 257, 4096, 4097, 1 << 20} {
		b := p.get(n)
		require.GreaterOrEqual(t, len(b.mem), n)
		require.Less(t, len(b.mem), max(2*n, 257))
		b.giveBack()
		require.Same(t, b, p.get(n), "the same buffer again for %d bytes", n)
		p.put(b)
	}
}

func TestGate(t *testing.T) {
	var g gate
	require.True(t, g.enter())
	require.True(t, g.enter())
	closed := make(chan struct{})
	go func() {
		g.close()
		close(closed)
	}()
	for !g.closed() {
		runtime.Gosched()
	}
	require.False(t, g.enter())
	g.leave()
	select {
	case <-closed:
		t.Fatal("close has returned while a goroutine is inside")
	default:
	}
	g.leave()
	<-closed
	require.False(t, g.enter())
}
