package simhca

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// Small sends, writes and reads allocate nothing.
func TestSmallMessagesDoNotAllocate(t *testing.T) {
	for _, op := range []verbs.Opcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead} {
		for _, cfg := range []Config{{}, {Virtual: true}} {
			a, b := pair(t, setup{cfg: cfg, real: !cfg.Virtual})
			wrs := []verbs.SendWR{a.wr(1, op, b, 0, 64)}
			if op == verbs.WRSend {
				wrs[0].Flags |= verbs.SendInline
				wrs[0].SGE[0].LKey = 0
			}
			recvs := []verbs.RecvWR{{ID: 1, NumSGE: 1, SGE: [verbs.MaxSGE]verbs.SGE{b.sge(0, 64)}}}
			wcs := make([]verbs.WC, 4)
			step := func() {
				if op == verbs.WRSend {
					if _, err := b.qp.PostRecv(recvs); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := a.qp.PostSend(wrs); err != nil {
					t.Fatal(err)
				}
				for cfg.Virtual && a.f.Advance() {
				}
				if n, err := a.cq.Poll(wcs); n != 1 || err != nil || wcs[0].Status != verbs.StatusSuccess {
					t.Fatal(n, err)
				}
				if n, err := b.cq.Poll(wcs); n != 1 != (op != verbs.WRSend) || err != nil {
					t.Fatal(n, err)
				}
			}
			for range 1000 {
				step()
			}
			require.Zero(t, testing.AllocsPerRun(1000, step), "%v %v", op, cfg.Virtual)
		}
	}
}

func BenchmarkSend(b *testing.B) {
	x, y := pair(b, setup{real: true})
	wrs := []verbs.SendWR{x.wr(1, verbs.WRSend, y, 0, 64)}
	recvs := []verbs.RecvWR{{ID: 1, NumSGE: 1, SGE: [verbs.MaxSGE]verbs.SGE{y.sge(0, 64)}}}
	wcs := make([]verbs.WC, 4)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = y.qp.PostRecv(recvs)
		_, _ = x.qp.PostSend(wrs)
		_, _ = x.cq.Poll(wcs)
		_, _ = y.cq.Poll(wcs)
	}
}

func BenchmarkWrite1M(b *testing.B) {
	x, y := pair(b, setup{real: true, memory: 1 << 20, change: func(e *end) { e.mtu = verbs.MTU4096 }})
	wrs := []verbs.SendWR{x.wr(1, verbs.WRRDMAWrite, y, 0, 1<<20)}
	wcs := make([]verbs.WC, 4)
	b.SetBytes(1 << 20)
	for b.Loop() {
		_, _ = x.qp.PostSend(wrs)
		if n, _ := x.cq.Poll(wcs); n != 1 {
			b.Fatal(n)
		}
	}
}

// Timers fire without a call into the device, and raise completion events.
func TestTimerRaisesCompletionEvent(t *testing.T) {
	a, b := pair(t, setup{real: true, cfg: Config{Latency: 100 * time.Microsecond, Jitter: 50 * time.Microsecond}, change: func(e *end) { e.timeout = 12 }})
	notified := make(chan struct{}, 100)
	a.ch.Notify(func() { notified <- struct{}{} })
	wait := func() []string {
		require.NoError(t, a.cq.ReqNotify(false))
		for {
			if got := a.results(); len(got) > 0 {
				return got
			}
			select {
			case <-notified:
			case <-time.After(30 * time.Second):
				t.Fatal("no completion event within 30 s")
			}
			// An event may be for completions that the last wait has already polled.
			_, ok, err := a.ch.NextEvent()
			require.NoError(t, err)
			require.True(t, ok)
			a.cq.AckEvents(1)
		}
	}
	b.recv(1, 0, 100)
	a.post(a.wr(1, verbs.WRSend, b, 0, 8))
	require.Equal(t, []string{"1 SUCCESS"}, wait())
	start := time.Now()
	a.hca.Inject(Fault{Kind: FaultPacketLost, Count: 100})
	a.post(a.wr(2, verbs.WRSend, b, 0, 8))
	require.Equal(t, []string{"2 RETRY_EXC_ERR"}, wait())
	require.GreaterOrEqual(t, time.Since(start), 4*verbs.AckTimeout(12))
}

// Several machines run at once, each in its own goroutine, and receivers poll memory. The race
// detector checks the accesses.
func TestConcurrentMachines(t *testing.T) {
	const ends, rounds = 4, 200
	f := NewFabric(Config{})
	t.Cleanup(f.Close)
	var all [ends][2]*end // queue pairs to the next machine and from the previous one
	for i := range all {
		j := (i + 1) % ends
		all[i][0], all[j][1] = newEnd(t, f, setup{service: verbs.ServiceRC}), newEnd(t, f, setup{service: verbs.ServiceRC})
		connect(t, all[i][0], all[j][1])
	}
	var wg sync.WaitGroup
	var failed atomic.Bool
	for i := range all {
		to, from := all[i][0], all[i][1]
		peer := all[(i+1)%ends][1]
		wg.Go(func() {
			for r := uint64(1); r <= rounds && !failed.Load(); r++ {
				// The last word contains the round of the other bytes.
				for k := 0; k < 256; k++ {
					to.mem[k] = byte(r)
				}
				*word(to.mem[256:]) = r
				wr := to.wr(r, verbs.WRRDMAWrite, peer, 0, 264)
				if _, err := to.qp.PostSend([]verbs.SendWR{wr}); err != nil {
					t.Error(err)
					failed.Store(true)
					return
				}
				for atomic.LoadUint64(word(from.mem[256:])) != r && !failed.Load() {
					if _, err := from.cq.Poll(make([]verbs.WC, 1)); err != nil {
						t.Error(err)
						failed.Store(true)
					}
				}
				if from.mem[0] != byte(r) || from.mem[255] != byte(r) {
					t.Errorf("round %d: found %d and %d", r, from.mem[0], from.mem[255])
					failed.Store(true)
				}
				// The receiver acknowledges that it has read the memory.
				from.mem[300] = 1
				back := from.wr(r, verbs.WRRDMAWrite, from, 0, 0)
				prev := all[(i+ends-1)%ends][0]
				*word(from.mem[512:]) = r
				back.RemoteAddr, back.RKey, back.SGE[0] = prev.mr.Addr()+520, prev.mr.RKey(), from.sge(512, 8)
				if _, err := from.qp.PostSend([]verbs.SendWR{back}); err != nil {
					t.Error(err)
					failed.Store(true)
				}
				for atomic.LoadUint64(word(to.mem[520:])) != r && !failed.Load() {
					_, _ = to.cq.Poll(make([]verbs.WC, 1))
				}
				for _, e := range []*end{to, from} {
					_, _ = e.cq.Poll(make([]verbs.WC, 8))
				}
			}
		})
	}
	wg.Wait()
}

// Created, used and failed queue pairs leak nothing.
func TestQueuePairsDoNotLeak(t *testing.T) {
	a, b := pair(t, setup{})
	limits := verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4}
	for i := range 10_000 {
		b.recv(1, 0, 100)
		a.post(a.wr(1, verbs.WRSend, b, 0, 8))
		if i%2 == 0 {
			a.run()
		} else {
			a.modify(verbs.StateErr) // while a packet is on the network
		}
		for _, e := range []*end{a, b} {
			if i%3 == 0 {
				e.poll()
			}
			require.NoError(t, e.qp.Destroy())
			e.newQP(verbs.ServiceRC, limits)
		}
		connect(t, a, b)
	}
	a.run()
	require.Len(t, a.hca.qps, 1)
	require.Empty(t, a.f.events.heap)
	require.Empty(t, a.poll())
	packets := 0
	for p := a.f.pool; p != nil; p = p.next {
		packets++
	}
	require.Less(t, packets, 100)
	a.close()
	b.close()
	for _, e := range []*end{a, b} {
		require.Zero(t, e.hca.locked)
		require.Zero(t, e.hca.regions.used())
		require.Empty(t, e.hca.contexts)
	}
}
