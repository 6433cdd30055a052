package sm

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// meshPlan is for one of several processes that all send to each other.
type meshPlan struct {
	Rank, Size int
	Count      int // fragments to each
	Rooms      int // slots of a ring
	// Token: each sends to the next one only, and only what has come round to it.
	Token bool
}

// meshRank is the layer above of such a process: it sends, and checks what arrives.
type meshRank struct {
	meshPlan
	eps     []btl.Endpoint
	rngs    []*rand.Rand // of what is to arrive, by source
	outs    []*rand.Rand
	next    [][]byte // what is to be sent, by destination
	nextTag []btl.Tag
	sent    []int
	arrived []int
	left    int // fragments to be sent and to arrive
	w       *progress.Waiter
	err     error
}

// draw is the next fragment from one rank to another.
func draw(rng *rand.Rand) (btl.Tag, []byte) {
	n := rng.IntN(400)
	if rng.IntN(20) == 0 {
		n = rng.IntN(8 << 10)
	}
	return btl.Tag(rng.Uint32()), content(int(rng.Uint32()>>8), n)
}

func stream(from, to int) *rand.Rand { return rand.New(rand.NewPCG(uint64(from), uint64(to))) }

func (r *meshRank) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("rank %d: "+format, append([]any{r.Rank}, args...)...)
		r.w.Finish()
	}
}

func (r *meshRank) finished(n int) {
	if r.left -= n; r.left == 0 {
		r.w.Finish()
	}
}

func (r *meshRank) Arrived(_ btl.Module, peer int, tag btl.Tag, frag []byte) {
	wantTag, want := draw(r.rngs[peer])
	if tag != wantTag || !bytes.Equal(want, frag) {
		r.fail("fragment %d from %d is another one: tag %d, %d bytes; want %d, %d",
			r.arrived[peer], peer, tag, len(frag), wantTag, len(want))
		return
	}
	r.arrived[peer]++
	r.finished(1)
}
func (r *meshRank) Failed(_ btl.Module, peer int, err *btl.Error) { r.fail("%v", err) }
func (r *meshRank) Drained(btl.Module, int)                       {}

// allowed is how many fragments may have been sent.
func (r *meshRank) allowed(to int) int {
	if !r.Token {
		return r.Count
	}
	if to != (r.Rank+1)%r.Size {
		return 0
	}
	n := r.arrived[(r.Rank+r.Size-1)%r.Size]
	if r.Rank == 0 {
		n++
	}
	return min(n, r.Count)
}

// Progress posts what there is room for. It is a poller after the module.
func (r *meshRank) Progress() int {
	n := 0
	for to, ep := range r.eps {
		for burst := 0; burst < 16 && ep != nil && r.sent[to] < r.allowed(to); burst++ {
			if r.next[to] == nil {
				r.nextTag[to], r.next[to] = draw(r.outs[to])
			}
			if !ep.(btl.Inliner).SendInline(r.nextTag[to], r.next[to][:0], r.next[to]) {
				break
			}
			r.next[to] = nil
			r.sent[to]++
			r.finished(1)
			n++
		}
	}
	return n
}
func (r *meshRank) Arm() bool { return true }
func (r *meshRank) Disarm()   {}

func meshRole(conn *net.UnixConn) error {
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	r := &meshRank{w: new(progress.Waiter)}
	if err := dec.Decode(&r.meshPlan); err != nil {
		return err
	}
	bell, err := progress.NewPipeWakeup()
	if err != nil {
		return err
	}
	m, err := New(Config{Rank: r.Rank, Size: r.Size, Events: r, Wakeup: bell, RingSlots: r.Rooms, FragBytes: 8 << 10})
	if err != nil {
		return err
	}
	if err := enc.Encode(m.Address()); err != nil {
		return err
	}
	var addresses [][]byte
	if err := dec.Decode(&addresses); err != nil {
		return err
	}
	r.eps = make([]btl.Endpoint, r.Size)
	r.next, r.nextTag = make([][]byte, r.Size), make([]btl.Tag, r.Size)
	r.sent, r.arrived = make([]int, r.Size), make([]int, r.Size)
	for peer := range r.Size {
		r.rngs = append(r.rngs, stream(peer, r.Rank))
		r.outs = append(r.outs, stream(r.Rank, peer))
		if peer != r.Rank {
			if r.eps[peer], err = m.Connect(peer, addresses[peer]); err != nil {
				return err
			}
		}
	}
	cfg := progress.Config{Wakeup: deepBell{bell}, YieldProcess: true, YieldNanos: int64(50 * time.Microsecond)}
	r.left = 2 * r.Count * (r.Size - 1)
	if r.Token {
		cfg.YieldNanos = 0
		r.left = 2 * r.Count
	}
	eng := progress.New(cfg)
	r.w.Reset(1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	eng.Lock()
	eng.AddPoller(m.(progress.Poller))
	eng.AddPoller(r)
	if err := eng.Wait(ctx, r.w); err != nil {
		return fmt.Errorf("rank %d: %w; sent %v, arrived %v", r.Rank, err, r.sent, r.arrived)
	}
	sleeps := eng.Counters().Sleeps
	eng.Unlock()
	if r.err != nil {
		return r.err
	}
	if err := enc.Encode(sleeps); err != nil {
		return err
	}
	var all bool
	_ = dec.Decode(&all) // all are done: nobody closes before the others have all
	return m.Close()
}

// deepBell sleeps until it is rung: a ring that gets lost is not made up for by a sleep that is
// short.
type deepBell struct{ *progress.PipeWakeup }

func (b deepBell) Sleep(nanos int64) (rung bool) {
	// Not the nap before it, which is for what membarrier misses.
	if nanos > int64(time.Millisecond) {
		nanos = int64(time.Minute)
	}
	return b.PipeWakeup.Sleep(nanos)
}

// TestMesh: several processes send to each other what they can, through rings that are always full,
// on processors that they share, and sleep whenever there is nothing to do.
func TestMesh(t *testing.T) {
	for _, plan := range []meshPlan{
		{Size: 4, Count: 3000, Rooms: 8},
		{Size: 6, Count: 500, Rooms: 2, Token: true},
	} {
		children := make([]*child, plan.Size)
		addresses := make([][]byte, plan.Size)
		for rank := range children {
			children[rank] = start(t, "mesh")
			plan.Rank = rank
			children[rank].tell(t, plan)
		}
		for rank, c := range children {
			c.ask(t, &addresses[rank])
		}
		for _, c := range children {
			c.tell(t, addresses)
		}
		slept := uint64(0)
		for _, c := range children {
			var sleeps uint64
			c.ask(t, &sleeps)
			slept += sleeps
		}
		for _, c := range children {
			c.tell(t, true)
		}
		for _, c := range children {
			require.NoError(t, c.cmd.Wait())
		}
		t.Logf("%d ranks slept %d times", plan.Size, slept)
	}
}
