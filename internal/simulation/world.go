package simulation

import (
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"strconv"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// world is a simulation under way.
type world struct {
	plan    *plan
	net     network
	rng     *rand.Rand // of the order in which rails are looked at
	ranks   []*rank
	mover   *rank // whose devices may be lost; nil until one is
	groups  []*pml.Group
	result  *Result
	ladder  *ladder // nil if nobody wants it
	hash    hash.Hash64
	scratch [32]byte

	messages []*message
	sent     map[[2]int]int        // messages so far, by sender and communicator
	between  map[[2]int][]*message // by sender and receiver, in the order of their starts
	received []*receive            // that have got a message, or will
	order    int                   // receives and probes so far
	over     []kept
	parted   bool
	healing  bool
	latency  []int64 // of rails, as it is now
}

// rank is one of the ranks.
type rank struct {
	w        *world
	rank     int
	eng      *progress.Engine
	p        *pml.PML
	taps     []*tap // by rail
	ctxs     []*pml.Context
	lent     []byte // registered once; nil if nothing is
	used     int    // of lent
	dead     bool
	broken   []*end // endpoints that are to fail at once
	regions  int    // registered now
	aims     []*aim
	matching *matching
	waiting  bool // in a call that waits
	idle     int  // turns in it that found nothing

	sends  []*send
	recvs  []*receive
	probes []*probe
	freed  []*receive // that go on
	taken  []*taken
	// detached are buffers of sends that have given them back, and that devices still read.
	detached []detached
}

// failed is what a simulation panics with when an invariant does not hold.
type failed Failure

func (w *world) fail(invariant, format string, args ...any) {
	panic(failed{Invariant: invariant, What: fmt.Sprintf(format, args...)})
}

// describer describes errors as comm does.
type describer struct{ rank int }

func (d describer) Describe(op string, peer, tag int, err error) error {
	return fmt.Errorf("%s with rank %d tag %d: %w", op, peer, tag, err)
}

func newWorld(p *plan, trace bool) (*world, error) {
	s := &p.setup
	w := &world{plan: p, rng: rand.New(rand.NewPCG(p.seed, 0x706f6c6c)), result: newResult(p), hash: fnv.New64a(), sent: map[[2]int]int{}, between: map[[2]int][]*message{}}
	if trace {
		w.ladder = newLadder(w)
	}
	var err error
	w.net, err = [...]func(uint64, *setup) (network, error){newLoopNet, newVerbsNet, newTCPNet, newDirectNet}[p.transport](p.seed, s)
	if err != nil {
		return nil, err
	}
	for _, g := range s.groups {
		w.groups = append(w.groups, pml.NewGroup(g))
	}
	for _, r := range s.rails {
		w.latency = append(w.latency, r.latency)
	}
	for i := range s.ranks {
		r := &rank{w: w, rank: i, ctxs: make([]*pml.Context, len(s.groups))}
		r.matching = newMatching(r)
		r.eng = progress.New(progress.Config{Clock: w.net, Idle: r.waits})
		grace := s.grace
		if grace == 0 && s.ending != Breaks {
			grace = 1 << 60
		}
		r.p = pml.New(pml.Config{
			Rank: i, Size: s.ranks, Engine: r.eng, EagerBytes: s.eager, Protocol: s.protocol, RDMABytes: s.rdma, WindowBytes: s.window,
			GraceNanos: grace, Resolve: r.resolve,
			OnIllegal: func(what string) { w.fail("transition", "rank %d: %s", i, what) },
			OnRail: func(e pml.RailEvent) {
				w.result.Rails++
				if e.Up {
					w.tellOf(i, "%s to %d is up again, %d are", e.Rail, e.Peer, e.Left)
				} else {
					w.tellOf(i, "%s to %d is out of use, %d left: %v", e.Rail, e.Peer, e.Left, e.Cause)
				}
			},
		})
		rails := len(s.rails)
		if _, ok := w.net.ownRail(); ok {
			rails++
		}
		for rail := range rails {
			t := &tap{w: w, rank: i, rail: rail}
			if t.Module, err = w.net.module(i, rail, t); err != nil {
				return nil, err
			}
			r.taps = append(r.taps, t)
		}
		r.eng.Lock()
		r.eng.AddPoller(r)
		if s.lent {
			r.lent = make([]byte, 64<<10)
			r.p.AddMemory(r.lent)
		}
		for j := range w.groups {
			if j == 0 || !s.lateContexts {
				r.makeContext(j)
			}
		}
		r.eng.Unlock()
		w.ranks = append(w.ranks, r)
	}
	return w, nil
}

func (r *rank) resolve(peer int) (routes []pml.Route, err error) {
	own, hasOwn := r.w.net.ownRail()
	for rail, t := range r.taps {
		if hasOwn && (rail == own) != (peer == r.rank) {
			continue
		}
		open := func() (btl.Endpoint, error) { return t.connect(peer) }
		route := pml.Route{Module: t, Local: rail, Remote: rail, Reopen: open}
		if ep, err := open(); err == nil {
			route.Endpoint = ep
		}
		routes = append(routes, route)
	}
	return routes, nil
}

// Progress looks at the rails, in any order, and not at all of them: what one rail has brought may be looked at long after what another one has.
func (r *rank) Progress() int {
	n := 0
	rng := r.w.rng
	r.breakEnds()
	first := rng.IntN(len(r.taps))
	if rng.IntN(8) == 0 {
		n += r.p.Progress()
	}
	for i := range r.taps {
		t := r.taps[(first+i)%len(r.taps)]
		t.tell()
		if w := r.w; w.net.Now() < t.until || rng.IntN(w.plan.setup.lazy) == 0 {
			continue
		}
		n += t.Progress()
	}
	return n + r.p.Progress()
}

// breakEnds fails endpoints whose operations are still under way.
func (r *rank) breakEnds() {
	broken := r.broken
	r.broken = nil
	for _, e := range broken {
		e.Fail(&btl.Error{Rail: e.t.Attrs().Name, Peer: e.peer, Class: btl.ClassPath, Side: btl.SideBoth, Native: ghostFault, Err: btl.ErrInjected})
	}
}

// turn makes progress at a rank.
func (r *rank) turn() {
	if r.dead {
		return
	}
	r.w.note(evTurn, r.rank, 0, 0, 0, 0)
	r.eng.Lock()
	defer r.eng.Unlock()
	r.eng.Turn()
	r.reuse()
}

// call calls the rank's PML.
func (r *rank) call(f func(p *pml.PML)) {
	r.eng.Lock()
	defer r.eng.Unlock()
	f(r.p)
}

// next lets the next thing happen that is to, within reason.
func (w *world) next() bool {
	at, ok := w.net.Next()
	if ok {
		w.net.AdvanceTo(at)
	}
	return ok
}

func (w *world) pass(nanos int64) { w.net.AdvanceTo(w.net.Now() + nanos) }

// What is noted of a run, so that two can be compared.
const (
	evPost = iota
	evArrive
	evFail
	evDrain
	evTurn
	evDone
)

func (w *world) note(what, a, b, c int, d, e uint64) {
	s := w.scratch[:]
	s[0], s[1], s[2], s[3] = byte(what), byte(a), byte(b), byte(c)
	put64(s[4:], d)
	put64(s[12:], e)
	put64(s[20:], uint64(w.net.Now()))
	_, _ = w.hash.Write(s[:28]) // it never fails
	w.result.Events++
}

func put64(b []byte, v uint64) {
	for i := range 8 {
		b[i] = byte(v >> (8 * i))
	}
}

func (w *world) tell(format string, args ...any) {
	if w.ladder != nil {
		w.ladder.tell(-1, fmt.Sprintf(format, args...))
	}
}

func (w *world) tellOf(rank int, format string, args ...any) {
	if w.ladder != nil {
		w.ladder.tell(rank, fmt.Sprintf(format, args...))
	}
}

func peerName(peer int) string {
	if peer == btl.AllPeers {
		return "all"
	}
	return strconv.Itoa(peer)
}

// cover counts the states in which a fragment meets both sides.
func (w *world) cover(from, to int, f pml.Fragment) {
	if e := w.plan.setup.ending; e == Refuses || e == Breaks {
		return // the lists of meetings are about failover
	}
	m := Meeting{Name: f.Name}
	p, q := w.ranks[from].p, w.ranks[to].p
	if f.Numbered {
		switch q.Turn(from, f.Number) {
		case -1:
			m.Name += " again"
			w.result.Meetings[m]++
			return
		case 1:
			m.Name += " early"
			w.result.Meetings[m]++
			return
		}
	}
	m.Sender, m.Receiver = p.StateOf(to, f, true), q.StateOf(from, f, false)
	w.result.Meetings[m]++
}
