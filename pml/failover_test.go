package pml

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// TestRandomFailover breaks and mends rails at random moments of random programs over a virtual btl/loop, and heals all in the
// end. Then every request is complete, without an error; each message was received once, in order, with its bytes; no
// buffer was touched after its request was complete; and nothing is left.
func TestRandomFailover(t *testing.T) {
	seeds := uint64(1000)
	if raced { // there is one goroutine, and so nothing for the detector to find
		seeds = 100
	}
	if *onlySeed != 0 {
		var trace bytes.Buffer
		defer func() { t.Logf("trace:\n%s", trace.String()) }()
		newFailovers(t, *onlySeed, &trace).run()
		return
	}
	var sum Stats
	for seed := uint64(1); seed <= seeds; seed++ {
		w := newFailovers(t, seed, nil)
		w.run()
		for _, p := range w.pmls {
			st := p.Stats()
			sum.RailsFailed += st.RailsFailed
			sum.RailsReturned += st.RailsReturned
			sum.Resent += st.Resent
			sum.Restarts += st.Restarts
			sum.StaleFragments += st.StaleFragments
			sum.Duplicates += st.Duplicates
			sum.Unread += st.Unread
		}
	}
	t.Logf("%+v", sum)
	require.Greater(t, sum.RailsFailed, seeds)
	require.Greater(t, sum.RailsReturned, seeds)
	require.Greater(t, sum.Resent, seeds/2)
	require.Greater(t, sum.Restarts, seeds/4)
	require.Greater(t, sum.Duplicates, seeds/10)
}

type failovers struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	fabric  *loop.Fabric
	engines []*progress.Engine
	pmls    []*PML
	ctxs    []*Context
	modules [][]btl.Module // by rank, then rail
	regions ledger
	trace   *bytes.Buffer
	sends   []lossSend
	recvs   []lossRecv
	over    []overRecv
	silent  bool // an operation may never be called back by itself
	nextID  uint64
	got     map[uint64]bool
	last    map[[3]int]uint64 // message received last of short ones, by receiver, sender and tag
}

// overRecv is a receive that is complete: its buffer, and what it has to hold.
type overRecv struct{ buf, want []byte }

func newFailovers(t *testing.T, seed uint64, trace *bytes.Buffer) *failovers {
	w := &failovers{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 2)), trace: trace, got: map[uint64]bool{}, last: map[[3]int]uint64{}}
	n, rails := 2+w.rng.IntN(2), 1+w.rng.IntN(3)
	most := []int{256, 300, 1000}[w.rng.IntN(3)]
	var err error
	w.fabric, err = loop.NewFabric(loop.Config{
		Ranks: n, Rails: rails, Slots: 1 << w.rng.IntN(6), Seed: seed, Virtual: true,
		Rail: []loop.RailConfig{{LatencyNanos: 1000, JitterNanos: 10_000, BandwidthMBps: 100, MaxSendBytes: most, EagerBytes: 128}},
	})
	require.NoError(t, err)
	if trace != nil {
		w.fabric.Trace(trace)
	}
	world := make([]int, n)
	for rank := range world {
		world[rank] = rank
	}
	group := NewGroup(world)
	protocol := Protocol(w.rng.IntN(4))
	window := []int64{0, 1000}[w.rng.IntN(2)]
	w.modules = make([][]btl.Module, n)
	for rank := range n {
		eng := progress.New(progress.Config{Clock: fabricClock{w.fabric}})
		p := New(Config{
			Rank: rank, Size: n, Engine: eng, Protocol: protocol, WindowBytes: window, RDMABytes: 200, GraceNanos: 1 << 60,
			Resolve: func(peer int) (routes []Route, err error) {
				for rail, m := range w.modules[rank] {
					card := w.modules[peer][rail].Card()
					open := func() (btl.Endpoint, error) {
						ep, err := m.Connect(peer, card)
						if err != nil {
							return nil, err
						}
						return countedEndpoint{ep, &w.regions}, nil
					}
					r := Route{Module: countedModule{m, &w.regions}, Local: rail, Remote: rail, Reopen: open}
					if ep, err := open(); err == nil {
						r.Endpoint = ep
					}
					routes = append(routes, r)
				}
				return routes, nil
			},
			OnIllegal: func(what string) { w.fail("illegal transition: %s", what) },
			OnRail: func(e RailEvent) {
				w.note("rank %d: %s to %d up %v, %d left: %v", rank, e.Rail, e.Peer, e.Up, e.Left, e.Cause)
			},
		})
		eng.Lock()
		for rail := range rails {
			m, err := w.fabric.Module(rank, rail, failoverEvents{w, countedEvents{p, &w.regions}, rank}, nil)
			require.NoError(w.t, err)
			w.modules[rank] = append(w.modules[rank], m)
			eng.AddHigh(m)
		}
		eng.AddHigh(p)
		w.engines, w.pmls = append(w.engines, eng), append(w.pmls, p)
		w.ctxs = append(w.ctxs, p.AddContext(WorldContext, group, rank, testCaller{}))
	}
	return w
}

type fabricClock struct{ f *loop.Fabric }

func (c fabricClock) Now() int64 { return c.f.Now() }

// failoverEvents writes a trace of what arrives.
type failoverEvents struct {
	w *failovers
	countedEvents
	rank int
}

func (e failoverEvents) Arrived(m btl.Module, peer int, tag btl.Tag, frag []byte) {
	if e.w.trace != nil {
		seq := ""
		if isNumbered(tag) {
			seq = fmt.Sprint(" number ", sequenceOf(frag))
		}
		e.w.note("  %d<%d %s kind %d%s of %d bytes", e.rank, peer, m.Attrs().Name, tag, seq, len(frag))
	}
	e.countedEvents.Arrived(m, peer, tag, frag)
}

func (w *failovers) note(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%d "+format+"\n", append([]any{w.fabric.Now()}, args...)...)
	}
}

func (w *failovers) fail(format string, args ...any) {
	w.t.Helper()
	for rank, p := range w.pmls {
		w.note("rank %d: %v %+v", rank, p.Pending(), p.Stats())
		for _, pr := range p.peers {
			if pr == nil {
				continue
			}
			w.note(" peer %d up %b stranded %v failing %v lost %v sent %d got %d early %d limbo %v waiting %v unfenced %d draining %d", pr.rank, pr.up, pr.stranded, pr.failing, pr.lost,
				pr.sendSeq, pr.recvSeq, len(pr.early), !pr.limbo.empty(), !pr.waiting.empty(), pr.unfenced, len(pr.draining))
			for i := range pr.rails {
				rl := &pr.rails[i]
				w.note("  rail %d %v %+v", i, rl.state, rl.mending)
			}
		}
	}
	w.t.Fatalf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

func (w *failovers) run() {
	n := len(w.pmls)
	for range 30 + w.rng.IntN(200) {
		switch rank := w.rng.IntN(n); w.rng.IntN(12) {
		case 0, 1:
			w.send(rank, w.rng.IntN(n), w.rng.IntN(2))
		case 2, 3:
			w.receive(rank, w.rng.IntN(n+1)-1, w.rng.IntN(2))
		case 4, 5, 6:
			w.engines[rank].Turn()
		case 7:
			w.disturb()
		case 8:
			// Rails recover in between, or do not.
			w.fabric.AdvanceTo(w.fabric.Now() + int64(w.rng.IntN([]int{20_000_000, 400_000_000}[w.rng.IntN(2)])))
		default:
			w.fabric.Advance()
		}
		w.observe()
	}
	w.heal()
	w.drain()
}

// disturb breaks or mends something.
func (w *failovers) disturb() {
	n := len(w.pmls)
	a, rail := w.rng.IntN(n), w.rng.IntN(w.fabric.Rails())
	b := (a + 1 + w.rng.IntN(n-1)) % n
	fate := loop.Fate(w.rng.IntN(3))
	var err error
	switch w.rng.IntN(12) {
	case 10:
		if w.rng.IntN(3) == 0 {
			w.modules[a][rail].Fail(&btl.Error{Rail: "loop", Peer: btl.AllPeers, Class: btl.ClassDevice, Side: btl.SideLocal})
		}
	case 11:
		if pr := w.pmls[a].peers[b]; pr != nil && len(pr.rails) > rail && pr.rails[rail].endpoint != nil {
			pr.rails[rail].endpoint.Fail(&btl.Error{Rail: "loop", Peer: b, Class: btl.ClassPath, Side: btl.SideBoth})
		}
	case 0, 1:
		err = w.fabric.FailLane(a, b, rail, loop.Cut{Fate: fate, HalfOpen: w.rng.IntN(2) == 0})
	case 2:
		err = w.fabric.FailPort(a, rail, fate)
	case 3:
		if w.rng.IntN(3) == 0 {
			err = w.fabric.FailRail(rail, fate)
		}
	case 4, 5:
		err = w.fabric.ReviveLane(a, b, rail)
	case 6:
		err = w.fabric.RevivePort(a, rail)
	default:
		kind := btl.FaultKind(w.rng.IntN(6))
		count := 1 + w.rng.IntN(2)
		if kind == btl.FaultSilence {
			w.silent = true
		}
		w.modules[a][rail].(btl.Injector).Inject(btl.Fault{Kind: kind, Peer: b, After: w.rng.IntN(4), Count: count})
	}
	require.NoError(w.t, err)
}

// heal mends everything.
func (w *failovers) heal() {
	w.note("heal")
	for rail := range w.fabric.Rails() {
		require.NoError(w.t, w.fabric.ReviveRail(rail))
		for a := range w.pmls {
			for b := range a {
				require.NoError(w.t, w.fabric.ReviveLane(a, b, rail))
			}
		}
	}
}

// message is one that has its id in its first bytes, and a length and a content that follow from it.
func failoverMessage(id uint64) []byte {
	n := 8 + int(id*37%1500)
	if id%3 == 0 {
		n = 8 + int(id%80)
	}
	b := pattern(n, int(id))
	binary.LittleEndian.PutUint64(b, id)
	return b
}

func (w *failovers) send(from, to, tag int) {
	w.nextID++
	s := lossSend{from: from, to: to, buf: failoverMessage(w.nextID)}
	w.note("rank %d sends %d of %d bytes to %d", from, w.nextID, len(s.buf), to)
	s.r = w.pmls[from].Isend(w.ctxs[from], s.buf, to, tag, Mode(w.rng.IntN(4)), "send")
	w.sends = append(w.sends, s)
}

func (w *failovers) receive(rank, source, tag int) {
	r := lossRecv{rank: rank, source: source, buf: make([]byte, 2000)}
	r.r = w.pmls[rank].Irecv(w.ctxs[rank], r.buf, 1, source, tag, "recv")
	w.recvs = append(w.recvs, r)
}

func (w *failovers) observe() {
	w.sends = slices.DeleteFunc(w.sends, func(s lossSend) bool {
		if s.r.State() != request.Complete {
			return false
		}
		if _, err := s.r.Take(); err != nil {
			w.fail("rank %d: a send to %d: %v", s.from, s.to, err)
		}
		clear(s.buf) // it is the user's again
		return true
	})
	w.recvs = slices.DeleteFunc(w.recvs, func(r lossRecv) bool {
		if r.r.State() != request.Complete {
			return false
		}
		st, err := r.r.Take()
		if err != nil {
			w.fail("rank %d: a receive from %d: %v", r.rank, r.source, err)
		}
		if st.Cancelled {
			return true
		}
		id := binary.LittleEndian.Uint64(r.buf)
		w.note("rank %d has got %d", r.rank, id)
		if !bytes.Equal(failoverMessage(id), r.buf[:st.Bytes]) {
			w.fail("rank %d received %d bytes from %d that nobody sent", r.rank, st.Bytes, st.Source)
		}
		if w.got[id] {
			w.fail("rank %d received message %d twice", r.rank, id)
		}
		w.got[id] = true
		// Long ones may be complete out of order if receives compete for them.
		if way := [3]int{r.rank, st.Source, st.Tag}; st.Bytes < 97 && r.source >= 0 {
			if id <= w.last[way] {
				w.fail("rank %d received %d after %d", r.rank, id, w.last[way])
			}
			w.last[way] = id
		}
		for i := range r.buf {
			r.buf[i] ^= 0x5a // as a user would, who has it again
		}
		w.over = append(w.over, overRecv{r.buf, slices.Clone(r.buf)})
		return true
	})
}

// settle lets time pass until nothing changes any more.
func (w *failovers) settle() {
	deadlines := 0
	for quiet := 0; quiet < 300; quiet++ {
		before := len(w.sends) + len(w.recvs)
		for range 8 {
			for _, e := range w.engines {
				e.Turn()
			}
		}
		if !w.fabric.Advance() || quiet > 100 {
			w.fabric.AdvanceTo(w.fabric.Now() + 20_000_000)
		}
		w.observe()
		if len(w.sends)+len(w.recvs) != before {
			quiet = 0
		}
		if w.silent && quiet == 200 && deadlines < 2 { // as the deadline of a transport does
			deadlines++
			for _, p := range w.pmls {
				for _, pr := range p.peers {
					for i := 0; pr != nil && i < len(pr.rails); i++ {
						if ep := pr.rails[i].endpoint; ep != nil {
							ep.Fail(&btl.Error{Rail: "loop", Peer: pr.rank, Class: btl.ClassTimeout, Side: btl.SideBoth})
						}
					}
				}
			}
			quiet = 0
		}
	}
}

func (w *failovers) allUp() bool {
	for _, p := range w.pmls {
		for _, pr := range p.peers {
			if pr != nil && int(pr.up) != 1<<len(pr.rails)-1 {
				return false
			}
		}
	}
	return true
}

// drain receives what is there, withdraws what waits, and looks at what is left.
func (w *failovers) drain() {
	w.settle()
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
		if again {
			w.settle()
		}
	}
	for _, r := range w.recvs {
		if r.r.Cancel(); r.r.State() != request.Complete {
			w.fail("rank %d: a receive from %d is %v, and nothing happens any more", r.rank, r.source, r.r.state)
		}
	}
	w.observe()
	for _, s := range w.sends {
		w.fail("rank %d: a send to %d is %v, and nothing happens any more", s.from, s.to, s.r.state)
	}
	for id := uint64(1); id <= w.nextID; id++ {
		if !w.got[id] {
			w.fail("message %d was lost", id)
		}
	}
	for end := w.fabric.Now() + int64(mostHold); !w.allUp() && w.fabric.Now() < end; {
		w.settle()
	}
	for rank, p := range w.pmls {
		st := p.Stats()
		if p.Busy() != 0 || len(p.Pending()) != 0 || st.UnexpectedBytes != 0 || st.Malformed != 0 || st.Illegal != 0 {
			w.fail("rank %d: busy %d, pending %v, %+v", rank, p.Busy(), p.Pending(), st)
		}
		for _, pr := range p.peers {
			if pr == nil {
				continue
			}
			for i := range pr.rails {
				if s := pr.rails[i].state; s != railUp {
					w.fail("rank %d: rail %d to %d is %v", rank, i, pr.rank, s)
				}
			}
			if !pr.limbo.empty() || !pr.waiting.empty() || pr.unfenced != 0 || len(pr.draining) != 0 || len(pr.early) != 0 || pr.credit.kept != 0 || pr.credit.notices != 0 {
				w.fail("rank %d: something is left of %d: %+v", rank, pr.rank, pr)
			}
		}
	}
	if w.regions.live != 0 || w.regions.twice != 0 {
		w.fail("regions: %+v", w.regions)
	}
	for _, o := range w.over {
		if !bytes.Equal(o.buf, o.want) {
			w.fail("a buffer was written after its receive was complete")
		}
	}
}

// TestRailDownOfLaterIncarnation: the peer's half has failed twice, and its word of the first time is still on its way. Our half
// of the first is up, and ends before the second is said to be over.
func TestRailDownOfLaterIncarnation(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1))
	p := w.pmls[0]
	p.Isend(c[0], nil, 1, 1, Standard, "send").Abandon()
	w.settle()
	p.Arrived(w.rails[0][0], 1, tagRailDown, railOf(railHdr{rail: 1, epoch: 2}))
	require.Equal(t, railFailing, p.peer(1).rails[1].state)
	require.Empty(t, answersAbout(w, 1), "it is not Drained")
	p.Drained(w.rails[1][0], 1)
	require.Equal(t, []railHdr{{rail: 1, epoch: 2}}, answersAbout(w, 1))

	// Of what is over, or was never known, nothing can come.
	for _, h := range []railHdr{{rail: 1, epoch: 1}, {rail: 9, epoch: 1}} {
		w.flying = nil
		p.Arrived(w.rails[0][0], 1, tagRailDown, railOf(h))
		require.Equal(t, []railHdr{h}, answersAbout(w, 1))
	}
}

// answersAbout are the RAILDOWNACKs on their way to a rank.
func answersAbout(w *wire, to int) []railHdr {
	var all []railHdr
	for _, f := range w.flying {
		if f.tag == tagRailDownAck && f.to == to {
			var h railHdr
			require.NoError(w.t, h.decode(f.frag))
			all = append(all, h)
		}
	}
	return all
}
