package sm

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

// meshPlan is the plan of one of several processes that all send to each other.
type meshPlan struct {
	Rank, Size int
	Count      int // fragments to each peer
	RingSlots  int
	Token      bool // each rank only forwards a token to the next one
}

// meshRank is the layer above of such a process: it sends, and checks arriving fragments.
type meshRank struct {
	meshPlan
	peers []meshPeer
	left  int // fragments to be sent and to arrive
	w     *progress.Waiter
	t     testing.TB
}

// meshPeer is one rank, as seen by another one.
type meshPeer struct {
	ep      btl.Inliner // nil: the rank itself
	in, out *rand.Rand  // of the fragments from and to the peer
	next    []byte      // to be sent, nil if it is not drawn yet
	nextTag btl.Tag
	sent    int
	arrived int
}

// draw draws the next fragment from one rank to another.
func draw(rng *rand.Rand) (btl.Tag, []byte) {
	n := rng.IntN(400)
	if rng.IntN(20) == 0 {
		n = rng.IntN(8 << 10)
	}
	return btl.Tag(rng.Uint32()), content(int(rng.Uint32()>>8), n)
}

func stream(from, to int) *rand.Rand { return rand.New(rand.NewPCG(uint64(from), uint64(to))) }

// finished counts a fragment that was sent or has arrived.
func (r *meshRank) finished() {
	if r.left--; r.left == 0 {
		r.w.Finish()
	}
}

func (r *meshRank) Arrived(_ btl.Module, peer int, tag btl.Tag, frag []byte) {
	p := &r.peers[peer]
	wantTag, want := draw(p.in)
	if tag != wantTag || !bytes.Equal(want, frag) {
		require.Fail(r.t, "another fragment", "rank %d from %d, fragment %d: tag %d, %d bytes; want %d, %d",
			r.Rank, peer, p.arrived, tag, len(frag), wantTag, len(want))
	}
	p.arrived++
	r.finished()
}
func (r *meshRank) Failed(_ btl.Module, _ btl.Path, err *btl.Error) { require.NoError(r.t, err) }
func (r *meshRank) Drained(btl.Module, btl.Path)                    {}

// allowed returns how many fragments may have been sent.
func (r *meshRank) allowed(to int) int {
	if !r.Token {
		return r.Count
	}
	if to != (r.Rank+1)%r.Size {
		return 0
	}
	n := r.peers[(r.Rank+r.Size-1)%r.Size].arrived
	if r.Rank == 0 {
		n++
	}
	return min(n, r.Count)
}

// Progress posts fragments while there is room. It is a poller that follows the module.
func (r *meshRank) Progress() int {
	n := 0
	for to := range r.peers {
		p := &r.peers[to]
		for burst := 0; burst < 16 && p.ep != nil && p.sent < r.allowed(to); burst++ {
			if p.next == nil {
				p.nextTag, p.next = draw(p.out)
			}
			if !p.ep.SendInline(p.nextTag, nil, p.next) {
				break
			}
			p.next = nil
			p.sent++
			r.finished()
			n++
		}
	}
	return n
}
func (r *meshRank) Arm() bool { return true }
func (r *meshRank) Disarm()   {}

func meshRole(t testing.TB, parent *btltest.Process) {
	r := &meshRank{t: t, w: new(progress.Waiter), meshPlan: btltest.Ask[meshPlan](parent)}
	wakeup := btltest.NewPipeWakeup(t)
	m, err := New(Config{
		Rank: r.Rank, Size: r.Size, Events: r, Wakeup: wakeup, RingSlots: r.RingSlots, FragBytes: 8 << 10,
	})
	require.NoError(t, err)
	parent.Tell(m.Address())
	addresses := btltest.Ask[[][]byte](parent)
	r.peers = make([]meshPeer, r.Size)
	for peer := range r.peers {
		p := &r.peers[peer]
		p.in, p.out = stream(peer, r.Rank), stream(r.Rank, peer)
		if peer != r.Rank {
			p.ep = connect(t, m.(*module), peer, addresses[peer])
		}
	}
	cfg := progress.Config{Wakeup: deepWakeup{wakeup}, Processor: progress.SystemProcessor(), YieldNanos: int64(50 * time.Microsecond)}
	r.left = 2 * r.Count * (r.Size - 1)
	if r.Token {
		cfg.YieldNanos = 0
		r.left = 2 * r.Count
	}
	eng := progress.New(cfg)
	r.w.Reset(1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	eng.Lock()
	eng.AddPoller(m)
	eng.AddPoller(r)
	require.NoError(t, eng.Wait(ctx, r.w), "rank %d with %+v", r.Rank, r.peers)
	sleeps := eng.Counters().Sleeps
	eng.Unlock()
	parent.Tell(sleeps)
	btltest.Ask[bool](parent) // no rank closes its module before all have everything
	require.NoError(t, m.Close())
}

// deepWakeup sleeps until it is woken: a short sleep would hide that a wakeup was lost.
type deepWakeup struct{ *progress.PipeWakeup }

func (w deepWakeup) Sleep(nanos int64) (woken bool) {
	// The nap before it, which covers missed wakeups, is unchanged.
	if nanos > int64(time.Millisecond) {
		nanos = int64(time.Hour)
	}
	return w.PipeWakeup.Sleep(nanos)
}

// TestMesh: several processes send as much as they can to each other, through rings that are always
// full, on shared processors. They sleep whenever there is nothing to do.
func TestMesh(t *testing.T) {
	for _, plan := range []meshPlan{
		{Size: 4, Count: 3000, RingSlots: 8},
		{Size: 6, Count: 500, RingSlots: 2, Token: true},
	} {
		children := make([]*btltest.Process, plan.Size)
		addresses := make([][]byte, plan.Size)
		for rank := range children {
			children[rank] = btltest.Start(t, "mesh")
			plan.Rank = rank
			children[rank].Tell(plan)
		}
		for rank, c := range children {
			addresses[rank] = btltest.Ask[[]byte](c)
		}
		for _, c := range children {
			c.Tell(addresses)
		}
		slept := uint64(0)
		for _, c := range children {
			slept += btltest.Ask[uint64](c)
		}
		for _, c := range children {
			c.Tell(true)
		}
		for _, c := range children {
			c.Wait()
		}
		t.Logf("%d ranks slept %d times", plan.Size, slept)
	}
}
