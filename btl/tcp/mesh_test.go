package tcp

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/progress"
)

// counts is Events that count by peer.
type counts struct {
	mate
	from map[int]int
}

func (c *counts) Arrived(_ btl.Module, peer int, _ btl.Tag, frag []byte) {
	if int(frag[0]) != peer {
		panic("a fragment of another peer")
	}
	c.from[peer]++
}

// TestMesh: every rank exchanges fragments with every other one, although each progress call reads
// only some connections.
func TestMesh(t *testing.T) {
	leavesNothing(t)
	const ranks, frags = 7, 150
	var ms [ranks]*module
	var evs [ranks]*counts
	for i := range ms {
		evs[i] = &counts{from: map[int]int{}}
		ms[i] = newAt(t, Config{Size: ranks, Local: loopback4, Secret: secret}, i, evs[i])
	}
	type stream struct {
		e    btl.Endpoint
		ops  [4]btl.Op
		free []*btl.Op
		left int
	}
	var streams []*stream
	for i := range ms {
		for j := range ms {
			if i == j {
				continue
			}
			e, err := ms[i].Connect(btl.Path{Peer: j}, ms[j].Address())
			require.NoError(t, err)
			s := &stream{e: e, left: frags}
			for k := range s.ops {
				s.ops[k] = btl.Op{Payload: append([]byte{byte(i)}, make([]byte, 1+k*3000)...), Done: func(op *btl.Op, err error) {
					require.NoError(t, err)
					s.free = append(s.free, op)
				}}
				s.free = append(s.free, &s.ops[k])
			}
			streams = append(streams, s)
		}
	}
	until(t, "all fragments", func() bool {
		busy := false
		for _, s := range streams {
			for s.left > 0 && len(s.free) > 0 {
				op := s.free[len(s.free)-1]
				s.free = s.free[:len(s.free)-1]
				require.NoError(t, s.e.Send(op))
				s.left--
			}
			busy = busy || s.left > 0 || len(s.free) < len(s.ops)
		}
		return !busy
	}, ms[:]...)
	for i := range evs {
		require.Len(t, evs[i].from, ranks-1)
		for peer, n := range evs[i].from {
			require.Equal(t, frags, n, "from %d to %d", peer, i)
		}
	}
	// All others detect that a rank closes.
	require.NoError(t, ms[0].Close())
	until(t, "all others to know", func() bool {
		for _, ev := range evs[1:] {
			if ev.drained == 0 {
				return false
			}
		}
		return true
	}, ms[1:]...)
	for _, ev := range evs[1:] {
		require.Equal(t, btl.ClassClosed, ev.failed.Class)
	}
}

// waiting is Events that end a wait.
type waiting struct {
	mate
	w   *progress.Waiter
	got int
}

func (e *waiting) Arrived(btl.Module, int, btl.Tag, []byte) {
	e.got++
	if e.w != nil {
		w := e.w
		e.w = nil
		w.Signal()
	}
}

// deepWakeup sleeps until it is woken, because the end of a short sleep would hide a missed wakeup.
type deepWakeup struct{ *progress.PipeWakeup }

func (w deepWakeup) Sleep(nanos int64) (woken bool) {
	if nanos > int64(time.Millisecond) {
		nanos = int64(time.Hour)
	}
	return w.PipeWakeup.Sleep(nanos)
}

// TestSleepingRanksAreWoken: two ranks play ping-pong. Their engines sleep at once when there is
// nothing to do. If a wakeup is missed, they sleep forever.
func TestSleepingRanksAreWoken(t *testing.T) {
	leavesNothing(t)
	var engines [2]*progress.Engine
	var ms [2]*module
	var evs [2]*waiting
	var eps [2]btl.Endpoint
	for i := range ms {
		wakeup := btltest.NewPipeWakeup(t)
		evs[i] = &waiting{}
		e := progress.New(progress.Config{Wakeup: deepWakeup{wakeup}})
		turn := func() {
			e.Lock()
			defer e.Unlock()
			e.Turn()
		}
		m, err := New(Config{Rank: i, Size: 2, Local: loopback4, Secret: secret, Events: evs[i], Wakeup: wakeup, AsyncProgress: asyncProgress(t, turn)})
		require.NoError(t, err)
		engines[i], ms[i] = e, m.(*module)
		e.Lock()
		e.AddPoller(m)
		e.Unlock()
	}
	defer func() {
		for i, m := range ms {
			engines[i].Lock()
			require.NoError(t, m.Close())
			engines[i].Unlock()
			require.NoError(t, engines[i].Close())
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const rounds = 200
	play := func(i int) error {
		e := engines[i]
		e.Lock()
		defer e.Unlock()
		var err error
		if eps[i], err = ms[i].Connect(btl.Path{Peer: 1 - i}, ms[1-i].Address()); err != nil {
			return err
		}
		for round := range rounds {
			w := e.GetWaiter(2)
			op := &btl.Op{Payload: []byte{byte(round)}, Done: func(_ *btl.Op, failed error) {
				err = failed
				w.Signal()
			}}
			if evs[i].got > round {
				w.Signal()
			} else {
				evs[i].w = w
			}
			if refused := eps[i].Send(op); refused != nil {
				return refused
			}
			if failed := e.Wait(ctx, w); failed != nil || err != nil {
				return fmt.Errorf("round %d: %v, %v", round, failed, err)
			}
			e.PutWaiter(w)
		}
		return nil
	}
	results := make(chan error, 2)
	for i := range ms {
		go func() { results <- play(i) }()
	}
	for range ms {
		require.NoError(t, <-results)
	}
	sleeps := uint64(0)
	for _, e := range engines {
		e.Lock()
		sleeps += e.Counters().Sleeps
		e.Unlock()
	}
	require.Positive(t, sleeps)
}

// TestSendAllocatesNothing: long fragments, and fragments posted from inside a progress call, are
// sent without allocation.
func TestSendAllocatesNothing(t *testing.T) {
	c := newCouple(t, Config{})
	for _, size := range []int{100, 8 << 10, 128 << 10} {
		done := 0
		var first, second btl.Op
		first = btl.Op{HdrLen: 16, Payload: make([]byte, size), Done: func(*btl.Op, error) {
			if err := c.ea.Send(&second); err != nil {
				panic(err)
			}
		}}
		second = btl.Op{HdrLen: 16, Payload: make([]byte, size), Done: func(*btl.Op, error) { done++ }}
		once := func() {
			done = 0
			if c.ea.Send(&first) != nil {
				panic("refused")
			}
			for done == 0 {
				c.a.Progress()
				c.b.Progress()
			}
		}
		for range 50 {
			once()
		}
		require.Zero(t, testing.AllocsPerRun(100, once), "%d bytes", size)
	}
}
