package simulation

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// world is a running simulation.
type world struct {
	plan    *plan
	net     network
	rng     *rand.Rand // for the order in which rails are polled, and for delays
	ranks   []*rank
	groups  []*pml.Group
	result  *Result
	ladder  *ladder // nil if nothing is traced
	hash    hash.Hash64
	scratch [32]byte

	messages []*message
	sent     map[[2]int]int        // messages so far, by sender and communicator
	between  map[[2]int][]*message // by sender and receiver, in the order of their starts
	received []*receive            // receives that have got a message
	order    int                   // number of receives and probes so far
	finished []finishedBuffer
	parted   bool
	healing  bool
	latency  []int64 // present latency by rail, in nanoseconds
}

// rank is one rank of the simulation.
type rank struct {
	w          *world
	rank       int
	eng        *progress.Engine
	p          *pml.PML
	taps       []*tap // by rail
	ctxs       []*pml.Context
	registered []byte // memory that is registered once (PML.AddMemory); nil if the plan has none
	used       int    // bytes of registered that are used
	dead       bool
	failing    []*tapEndpoint // endpoints to fail at the next turn
	regions    int            // number of registered regions
	aims       []*aim
	wrongs     map[int]int // by peer: faults that refuse an operation as wrong
	matching   *matching
	waiting    bool // in a call of the Wait family
	emptyTurns int  // turns of that call without an event
	unexpected unexpected

	sends  []*send
	recvs  []*receive
	probes []*probe
	freed  []*receive // that go on
	taken  []*taken
	// detached are buffers that sends have given back and that are not reused yet.
	detached []detached
}

// failed is the panic value of a broken invariant.
type failed Failure

func (w *world) fail(invariant, format string, args ...any) {
	panic(failed{Invariant: invariant, What: fmt.Sprintf(format, args...)})
}

// describer adds the operation to an error, as comm does.
type describer struct{ rank int }

func (d describer) Describe(op string, peer, tag int, err error) error {
	return fmt.Errorf("%s with rank %d tag %d: %w", op, peer, tag, err)
}

func newWorld(p *plan, trace bool) (*world, error) {
	s := &p.setup
	w := &world{plan: p, rng: rand.New(rand.NewPCG(p.seed, 0x706f6c6c)), result: newResult(p), hash: fnv.New64a(), sent: map[[2]int]int{}, between: map[[2]int][]*message{}}
	if trace {
		w.ladder = &ladder{w: w}
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
		r := &rank{w: w, rank: i, wrongs: map[int]int{}, ctxs: make([]*pml.Context, len(s.groups))}
		for range s.ranks {
			r.unexpected.early = append(r.unexpected.early, map[uint32]int64{})
		}
		r.matching = newMatching(r)
		r.eng = progress.New(progress.Config{Clock: w.net, Idle: r.runOthers})
		grace := s.grace
		if grace == 0 && s.ending != Breaks {
			grace = 1 << 60
		}
		r.p = pml.New(pml.Config{
			Rank: i, Size: s.ranks, Engine: r.eng, EagerBytes: s.eager, Protocol: s.protocol, RDMABytes: s.rdma, WindowBytes: s.window,
			GraceNanos: grace, Resolve: r.resolve, Beside: s.beside,
			OnIllegal: func(what string) { w.fail("transition", "rank %d: %s", i, what) },
			OnRail: func(e pml.RailEvent) {
				w.result.Rails++
				if e.Alternate && e.Up {
					w.result.Alternates++
				}
				if e.Up {
					w.traceOf(i, "%s to rank %d is up again; %d rails are up", e.Rail, e.Peer, e.Left)
				} else {
					w.traceOf(i, "%s to rank %d failed; %d rails are up: %v", e.Rail, e.Peer, e.Left, e.Cause)
				}
			},
		})
		rails := make([]int, s.portsOf(i))
		for rail := range rails {
			rails[rail] = rail
		}
		if own, ok := w.net.ownRail(); ok {
			rails = append(rails, own)
		}
		for _, rail := range rails {
			t := &tap{w: w, rank: i, rail: rail}
			if t.Module, err = w.net.module(i, rail, t); err != nil {
				return nil, err
			}
			r.taps = append(r.taps, t)
		}
		r.eng.Lock()
		r.eng.AddPoller(r)
		if s.registered {
			r.registered = make([]byte, 64<<10)
			r.p.AddMemory(r.registered)
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

// tap returns the tap of a rail. The rail to the rank itself is the last one.
func (r *rank) tap(rail int) *tap { return r.taps[min(rail, len(r.taps)-1)] }

func (r *rank) resolve(peer int) (routes []pml.Route, err error) {
	own, hasOwn := r.w.net.ownRail()
	add := func(p transport.Pair) {
		t := r.tap(p.Local)
		open := func() (btl.Endpoint, error) { return t.connect(port{peer, p.Remote}) }
		route := pml.Route{Module: t, Local: p.Local, Remote: p.Remote, Tier: p.Level, Extra: p.Extra, Alternate: p.Alternate, Beside: true, Reopen: open}
		// As package comm does, an extra rail or an alternate is opened later if others are up.
		isUp := slices.ContainsFunc(routes, func(o pml.Route) bool { return o.Endpoint != nil })
		if !(p.Extra || p.Alternate || p.Level > 0) || !isUp {
			if ep, err := open(); err == nil {
				route.Endpoint = ep
			}
		}
		routes = append(routes, route)
	}
	switch {
	case peer == r.rank && hasOwn:
		add(transport.Pair{Local: own, Remote: own})
	default:
		for _, p := range r.w.plan.setup.pairs(r.rank, peer) {
			add(p)
		}
	}
	return routes, nil
}

// Progress polls the rails in a random order, and skips some. So the fragments of one rail may be
// handled long after later fragments of another rail.
func (r *rank) Progress() int {
	n := 0
	rng := r.w.rng
	r.failEndpoints()
	first := rng.IntN(len(r.taps))
	if rng.IntN(8) == 0 {
		n += r.p.Progress()
	}
	for i := range r.taps {
		t := r.taps[(first+i)%len(r.taps)]
		t.reportDue()
		if w := r.w; w.net.Now() < t.until || rng.IntN(w.plan.setup.skipOdds) == 0 {
			continue
		}
		n += t.Progress()
	}
	return n + r.p.Progress()
}

// failEndpoints fails endpoints whose operations are still in flight.
func (r *rank) failEndpoints() {
	broken := r.failing
	r.failing = nil
	for _, e := range broken {
		e.Fail(&btl.Error{Rail: e.t.Attrs().Name, Peer: e.peer, Class: btl.ClassPath, Side: btl.SideBoth, Native: delayedFault, Err: btl.ErrInjected})
	}
}

// turn runs one turn of a rank's progress engine.
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

// call calls f with the rank's PML and the lock held.
func (r *rank) call(f func(p *pml.PML)) {
	r.eng.Lock()
	defer r.eng.Unlock()
	f(r.p)
}

// next advances time to the next event of the network. It reports false if there is none.
func (w *world) next() bool {
	at, ok := w.net.Next()
	if ok {
		if w.plan.setup.impaired { // with timers in between
			at = min(at, w.net.Now()+longStepNanos)
		}
		w.net.AdvanceTo(at)
	}
	return ok
}

func (w *world) pass(nanos int64) { w.net.AdvanceTo(w.net.Now() + nanos) }

// Kinds of events in the digest of a run.
const (
	evPost = iota
	evArrive
	evFail
	evDrain
	evTurn
	evDone
)

// note adds an event to the digest.
func (w *world) note(what, a, b, c int, d, e uint64) {
	s := append(w.scratch[:0], byte(what), byte(a), byte(b), byte(c))
	s = binary.LittleEndian.AppendUint64(s, d)
	s = binary.LittleEndian.AppendUint64(s, e)
	s = binary.LittleEndian.AppendUint64(s, uint64(w.net.Now()))
	_, _ = w.hash.Write(s) // it never fails
	w.result.Events++
}

// traceAll adds a line about the whole world to the ladder.
func (w *world) traceAll(format string, args ...any) {
	if w.ladder != nil {
		w.ladder.event(-1, fmt.Sprintf(format, args...))
	}
}

// traceOf adds a line to a rank's column of the ladder.
func (w *world) traceOf(rank int, format string, args ...any) {
	if w.ladder != nil {
		w.ladder.event(rank, fmt.Sprintf(format, args...))
	}
}

func peerName(peer int) string {
	if peer == btl.AllPeers {
		return "all"
	}
	return strconv.Itoa(peer)
}

// cover counts the combination of a fragment that arrives and the states of its sender and
// receiver.
func (w *world) cover(from, to int, f pml.Fragment) {
	if e := w.plan.setup.ending; e == Refuses || e == Breaks {
		return // the lists of combinations are about failover
	}
	if w.isLost(from, to) {
		return // one of them only reports the loss to the other
	}
	m := Combination{Name: f.Name}
	p, q := w.ranks[from].p, w.ranks[to].p
	if f.Numbered {
		switch q.Turn(from, f.Number) {
		case -1:
			m.Name += " again"
			w.result.Combinations[m]++
			return
		case 1:
			m.Name += " early"
			w.result.Combinations[m]++
			return
		}
	}
	m.Sender, m.Receiver = p.StateOf(to, f, true), q.StateOf(from, f, false)
	w.result.Combinations[m]++
}

// contextIDs are the contexts of a setup's groups, by index: the world, another communicator, and
// that one's context for collectives.
var contextIDs = [...]pml.ContextID{0, 6, pml.ContextID(6).Collective()}

// makeContext makes the context of a group, if the rank is in the group and has not made it yet.
// Until then messages of that context wait in the PML. A communicator gets both of its contexts at
// the same time.
func (r *rank) makeContext(i int) {
	for j := range r.w.groups {
		g := r.w.groups[j]
		if place, ok := g.Rank(r.rank); ok && r.ctxs[j] == nil && contextIDs[j].Collective() == contextIDs[i].Collective() {
			r.ctxs[j] = r.p.AddContext(contextIDs[j], g, place, describer{r.rank})
		}
	}
}

// pickContext returns the index of the context that a number selects, and makes that context if
// necessary. A rank that is not in the group takes the world.
func (r *rank) pickContext(choice int) int {
	i := choice % len(r.w.groups)
	r.call(func(*pml.PML) { r.makeContext(i) })
	if r.ctxs[i] == nil {
		return 0
	}
	return i
}

// pickSource returns the source that a number selects: a rank of the group, or the wildcard.
func (w *world) pickSource(ctx, choice int) int {
	return choice%(len(w.plan.setup.groups[ctx])+1) - 1
}
