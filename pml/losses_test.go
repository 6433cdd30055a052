package pml

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// TestRandomLosses breaks links, or a whole rail, at random moments of random programs over
// btl/loop. What needs a lost peer ends, with an error or because it had been done; nothing
// else does; what is received is right and in order; no buffer is touched after its request is
// complete, however that ended; and nothing is left.
func TestRandomLosses(t *testing.T) {
	seeds := uint64(1500)
	if raced {
		seeds = 150
	}
	failed, received := 0, 0
	var sum Stats
	for seed := range seeds {
		w := &losses{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), last: map[[4]int]uint64{}}
		w.run()
		failed += w.failed
		received += w.received
		for _, p := range w.pmls {
			st := p.Stats()
			sum.ReceivedGet += st.ReceivedGet
			sum.SentPut += st.SentPut
		}
	}
	t.Log(failed, "failed", received, "received", sum.ReceivedGet, "read", sum.SentPut, "written")
	require.Greater(t, sum.ReceivedGet, seeds)
	require.Greater(t, sum.SentPut, seeds/2)
	require.Greater(t, failed, int(seeds))
	require.Greater(t, received, int(seeds))
}

type losses struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	fabric  *loop.Fabric
	pmls    []*PML
	ctxs    []*Context
	modules [][]btl.Module // by rank, then rail
	lent    []lent         // by rank
	regions ledger
	over    [][]byte // buffers of receives that have failed, as they must stay
	sends   []lossSend
	recvs   []lossRecv
	nextID  uint64
	last    map[[4]int]uint64 // message received last, by receiver, sender, tag and kind of receive

	failed, received int
}

type lossSend struct {
	r        *SendRequest
	from, to int
	buf      []byte
}

type lossRecv struct {
	r            *RecvRequest
	rank, source int
	buf          []byte
}

func (w *losses) run() {
	n := 2 + w.rng.IntN(3)
	var err error
	rails := 1 + w.rng.IntN(3)
	w.fabric, err = loop.NewFabric(loop.Config{
		Ranks: n, Rails: rails, Slots: 1 << w.rng.IntN(5), Seed: w.seed, Virtual: w.rng.IntN(3) > 0,
		Rail: []loop.RailConfig{{LatencyNanos: 100, JitterNanos: 1000, MaxSendBytes: 256, EagerBytes: 128, InlineBytes: 48}},
	})
	require.NoError(w.t, err)
	world := make([]int, n)
	for rank := range world {
		world[rank] = rank
	}
	group := NewGroup(world)
	protocol := Protocol(w.rng.IntN(4))
	window := []int64{0, 1000}[w.rng.IntN(2)]
	w.modules = make([][]btl.Module, n)
	for rank := range n {
		p := New(Config{
			Rank: rank, Size: n, Engine: progress.New(progress.Config{}), Protocol: protocol, WindowBytes: window,
			Resolve: func(peer int) (routes []bml.Route, err error) {
				var failed error
				up := false
				for rail, m := range w.modules[rank] {
					ep, err := m.Connect(peer, w.modules[peer][rail].Card())
					if err != nil {
						failed = err
						routes = append(routes, bml.Route{Module: countedModule{m, &w.regions}, Local: rail, Remote: rail})
						continue
					}
					up = true
					routes = append(routes, bml.Route{Module: countedModule{m, &w.regions}, Endpoint: countedEndpoint{ep, &w.regions}, Local: rail, Remote: rail})
				}
				if !up {
					return nil, failed
				}
				return routes, nil
			},
			OnIllegal: func(what string) { w.fail("illegal transition: %s", what) },
		})
		for rail := range rails {
			m, err := faultyModule(w.fabric, rank, rail, countedEvents{p, &w.regions})
			require.NoError(w.t, err)
			w.modules[rank] = append(w.modules[rank], m)
		}
		w.pmls, w.lent = append(w.pmls, p), append(w.lent, lent{p: p})
		w.ctxs = append(w.ctxs, p.AddContext(WorldContext, group, rank, testCaller{}))
	}
	steps := 20 + w.rng.IntN(60)
	breaks := w.rng.IntN(steps)
	for i := range steps {
		if i == breaks {
			w.breakSomething()
		}
		switch rank := w.rng.IntN(n); w.rng.IntN(6) {
		case 0, 1:
			w.send(rank, w.rng.IntN(n), w.rng.IntN(2))
		case 2, 3:
			w.receive(rank, w.rng.IntN(n+1)-1, w.rng.IntN(2))
		case 4:
			w.poll(rank)
		default:
			w.fabric.Advance()
		}
		w.observe()
	}
	w.settle()
	w.drain()
}

func (w *losses) breakSomething() {
	a := w.rng.IntN(len(w.pmls))
	b := (a + 1 + w.rng.IntN(len(w.pmls)-1)) % len(w.pmls)
	fate := loop.Fate(w.rng.IntN(3))
	if w.rng.IntN(4) == 0 {
		require.NoError(w.t, w.fabric.FailRail(w.rng.IntN(w.fabric.Rails()), fate))
		return
	}
	for rail := range w.fabric.Rails() { // all of them, so that both ends find out
		require.NoError(w.t, w.fabric.FailLane(a, b, rail, loop.Cut{Fate: fate}))
	}
}

func (w *losses) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

// numbered is a message that has its id in its first bytes, and a length and a content that follow from it.
func numbered(id uint64) []byte {
	b := pattern(8+int(id*37%1500), int(id))
	binary.LittleEndian.PutUint64(b, id)
	return b
}

func (w *losses) send(from, to, tag int) {
	w.nextID++
	s := lossSend{from: from, to: to, buf: numbered(w.nextID)}
	if w.rng.IntN(3) == 0 {
		s.buf = w.lent[from].bytes(len(s.buf), 50)
		copy(s.buf, numbered(w.nextID))
	}
	s.r = w.pmls[from].Isend(w.ctxs[from], s.buf, to, tag, Mode(w.rng.IntN(4)), "send")
	w.sends = append(w.sends, s)
}

func (w *losses) receive(rank, source, tag int) {
	r := lossRecv{rank: rank, source: source, buf: make([]byte, 2000)}
	if w.rng.IntN(3) == 0 {
		r.buf = w.lent[rank].bytes(2000, 50)
	}
	r.r = w.pmls[rank].Irecv(w.ctxs[rank], r.buf, 1, source, tag, "recv")
	w.recvs = append(w.recvs, r)
}

func (w *losses) poll(rank int) int {
	n := w.pmls[rank].Progress()
	for _, m := range w.modules[rank] {
		n += m.Progress()
	}
	return n
}

func (w *losses) observe() {
	w.sends = slices.DeleteFunc(w.sends, func(s lossSend) bool {
		if s.r.State() != request.Complete {
			return false
		}
		if _, err := s.r.Take(); err != nil {
			w.expectLost(s.from, s.to, err)
		}
		clear(s.buf)
		return true
	})
	w.recvs = slices.DeleteFunc(w.recvs, func(r lossRecv) bool {
		if r.r.State() != request.Complete {
			return false
		}
		switch st, err := r.r.Take(); {
		case err != nil:
			w.expectLost(r.rank, r.source, err)
			for i := range r.buf {
				r.buf[i] = 0xEE
			}
			w.over = append(w.over, r.buf)
		case !st.Cancelled:
			w.received++
			id := binary.LittleEndian.Uint64(r.buf)
			if !bytes.Equal(numbered(id), r.buf[:st.Bytes]) {
				w.fail("rank %d received %d bytes from %d that nobody sent", r.rank, st.Bytes, st.Source)
			}
			// Receives that compete for the same messages complete out of order if one is long,
			// so only what went the same way is compared.
			way := [4]int{r.rank, st.Source, st.Tag, min(1, len(numbered(id))/97)}
			if way[3] == 0 && r.source >= 0 {
				if id <= w.last[way] {
					w.fail("rank %d received %d after %d", r.rank, id, w.last[way])
				}
				w.last[way] = id
			}
		}
		return true
	})
}

// expectLost holds an error to a peer that was lost.
func (w *losses) expectLost(rank, peer int, err error) {
	w.failed++
	require.ErrorIs(w.t, err, request.ErrUnreachable, "seed %d", w.seed)
	if w.pmls[rank].Lost(w.ctxs[rank], peer) == nil {
		w.fail("rank %d: %v, but rank %d is not lost", rank, err, peer)
	}
}

func (w *losses) settle() {
	for quiet := 0; quiet < 5; quiet++ {
		events := 0
		for rank, p := range w.pmls {
			events += w.poll(rank) + p.bml.Deferred()
		}
		if w.fabric.Advance() {
			events++
		}
		w.observe()
		if events > 0 {
			quiet = -1
		}
	}
}

// drain receives what is there, withdraws what waits for those who are not lost, and looks
// at what is left.
func (w *losses) drain() {
	for _, r := range w.recvs {
		if err := w.pmls[r.rank].Lost(w.ctxs[r.rank], r.source); err != nil {
			w.fail("rank %d waits for %d: %v", r.rank, r.source, err)
		}
		if r.r.Cancel(); r.r.State() != request.Complete {
			w.fail("rank %d: a receive from %d is %v, and nothing happens any more", r.rank, r.source, r.r.state)
		}
	}
	w.observe()
	for again := true; again; {
		again = false
		for rank, p := range w.pmls {
			for source := range w.pmls {
				if env, found := p.Iprobe(w.ctxs[rank], source, request.AnyTag); found {
					w.receive(rank, source, env.Tag)
					again = true
				}
			}
		}
		w.settle()
	}
	for _, s := range w.sends {
		w.fail("rank %d: a send to %d is %v, and nothing happens any more", s.from, s.to, s.r.state)
	}
	for rank, p := range w.pmls {
		st := p.Stats()
		if p.Busy() != 0 || len(p.Pending()) != 0 || st.UnexpectedBytes != 0 || st.Malformed != 0 || st.Illegal != 0 {
			w.fail("rank %d: busy %d, pending %v, %+v", rank, p.Busy(), p.Pending(), st)
		}
		w.lent[rank].takeBack()
	}
	if w.regions.live != 0 || w.regions.twice != 0 {
		w.fail("regions: %+v", w.regions)
	}
	for _, buf := range w.over {
		for i, b := range buf {
			if b != 0xEE {
				w.fail("byte %d of a buffer was written after its receive had failed", i)
			}
		}
	}
}
