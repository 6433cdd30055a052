package loop

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// TestCloseRacesWithSender: whatever a sender publishes while the receiver closes the lane is
// either delivered or refused.
func TestCloseRacesWithSender(t *testing.T) {
	for round := range 80 {
		f, err := NewFabric(Config{Ranks: 2, Slots: 1 << (round % 4)})
		require.NoError(t, err)
		var ev counter
		from, err := f.Module(0, 0, &counter{}, nil)
		require.NoError(t, err)
		to, err := f.Module(1, 0, &ev, nil)
		require.NoError(t, err)
		ep, err := from.Connect(1, to.Address())
		require.NoError(t, err)
		back, err := to.Connect(0, from.Address())
		require.NoError(t, err)
		sent := 0
		var wg sync.WaitGroup
		wg.Add(1)
		go func() {
			defer wg.Done()
			big := make([]byte, 1000)
			for i := 0; ep.State() == btl.Up; i++ {
				payload := big[:(i%3)*500]
				if ep.(btl.Inliner).SendInline(1, nil, payload[:min(len(payload), slotBytes)]) {
					sent++
				}
				if ep.Send(&btl.Op{Payload: payload, Done: func(*btl.Op, error) {}}) == nil {
					sent++
				}
				from.Progress()
			}
		}()
		for ev.arrived <= round%50 {
			if to.Progress() == 0 {
				runtime.Gosched()
			}
		}
		back.Fail(errTest)
		for back.State() != btl.Drained {
			to.Progress()
		}
		wg.Wait()
		require.Equal(t, sent, ev.arrived, "published and delivered, round %d", round)
		require.NoError(t, from.Close())
		require.NoError(t, to.Close())
	}
}

// TestCloseBeforeLaneIsKnown: what a peer published in an incarnation of which the other end has
// not heard yet is delivered before that end is Drained.
func TestCloseBeforeLaneIsKnown(t *testing.T) {
	w := newWorld(t, Config{Ranks: 2})
	a, b := w.nodes[0][0], w.nodes[1][0]
	require.NotNil(t, b.connect(0))
	require.True(t, a.send(1, 100)) // b has not turned since
	b.eps[0].Fail(errTest)
	for b.eps[0].State() != btl.Drained {
		b.m.Progress()
	}
	require.Equal(t, 1, b.arrived)
	require.False(t, a.send(1, 100), "sent to an end that is drained")
	w.settle()
	require.Equal(t, btl.Drained, a.eps[1].State())
}

// drainHook does something once, at the next Drained.
type drainHook struct {
	btl.Events
	hook func()
}

// Drained implements btl.Events.
func (h *drainHook) Drained(m btl.Module, peer int) {
	h.Events.Drained(m, peer)
	if h.hook != nil {
		hook := h.hook
		h.hook = nil
		hook()
	}
}

// TestJoinDuringTearDown: a peer that joins an incarnation in the last moment before this end is
// drained is delivered before Drained; one that comes after that begins the next incarnation.
func TestJoinDuringTearDown(t *testing.T) {
	w := newWorld(t, Config{Ranks: 3})
	a, b := w.nodes[0][0], w.nodes[1][0]
	b.inner.Events = &drainHook{b.inner.Events, func() { require.True(t, a.send(1, 100)) }}
	require.NotNil(t, b.connect(2))
	require.NotNil(t, b.connect(0))
	b.eps[2].Fail(errTest)
	b.eps[0].Fail(errTest)
	for b.eps[0].State() != btl.Drained {
		b.m.Progress()
	}
	require.Equal(t, 1, b.arrived)
	require.Equal(t, uint32(1), a.eps[1].Epoch())
	w.settle() // where an arrival after Drained would be seen
	require.False(t, a.send(1, 100))
	w.settle()

	b.inner.Events.(*drainHook).hook = func() { require.True(t, a.send(1, 100)) }
	require.NotNil(t, b.connect(0))
	b.eps[0].Fail(errTest)
	w.settle()
	require.Equal(t, 2, b.arrived)
	require.Greater(t, a.eps[1].Epoch(), b.eps[0].Epoch())
}

// TestIncarnationsQueue: a receiver that sleeps through several incarnations of its peer gets what
// each of them has delivered, in order.
func TestIncarnationsQueue(t *testing.T) {
	for _, connected := range []bool{false, true} {
		w := newWorld(t, Config{Ranks: 2})
		a, b := w.nodes[0][0], w.nodes[1][0]
		if connected {
			require.NotNil(t, b.connect(0))
		}
		for range 5 {
			require.True(t, a.send(1, 200))
			require.True(t, a.send(1, 30))
			a.eps[1].Fail(errTest)
			for a.eps[1].State() != btl.Drained {
				a.m.Progress()
			}
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

// TestBuffersComeBack: a large fragment's memory is used again.
func TestBuffersComeBack(t *testing.T) {
	s := newSides(t, 2)
	s[0].connect(t, 1, s[1])
	op := &btl.Op{Payload: make([]byte, 40000), Done: func(*btl.Op, error) {}}
	send := func() {
		for s[0].ep.Send(op) != nil {
			s[1].mod.Progress()
		}
	}
	for range 300 {
		send()
	}
	for s[1].mod.Progress() > 0 {
	}
	require.Zero(t, testing.AllocsPerRun(200, func() {
		for range 10 {
			send()
		}
		for s[1].mod.Progress() > 0 {
		}
	}))
	pool := &s[0].mod.(*module).bufs
	pool.collect()
	n := 0
	for b := pool.free[16]; b != nil; b = b.next {
		n++
	}
	require.LessOrEqual(t, n, 64, "buffers for no more than the slots of one lane")
}

func TestBufferClasses(t *testing.T) {
	var p pool
	for _, n := range []int{1, 255, 256, 257, 4096, 4097, 1 << 20} {
		b := p.get(n)
		require.GreaterOrEqual(t, len(b.mem), n)
		require.Less(t, len(b.mem), max(2*n, 257))
		b.giveBack()
		require.Same(t, b, p.get(n), "the same one again for %d bytes", n)
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
		t.Fatal("closed with somebody inside")
	default:
	}
	g.leave()
	<-closed
	require.False(t, g.enter())
}
