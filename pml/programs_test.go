package pml

import (
	"bytes"
	"errors"
	"flag"
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

var onlySeed = flag.Uint64("seed", 0, "run only the random program of this seed, and log its trace")

// TestRandomPrograms runs random programs over btl/loop and holds every rank to the model: who
// gets which message, with which status, and every byte. At the end nothing is left. The same
// seed gives the same trace.
func TestRandomPrograms(t *testing.T) {
	programs := uint64(2000)
	if raced { // there is one goroutine, and so nothing for the detector to find
		programs = 300
	}
	if *onlySeed != 0 {
		var trace bytes.Buffer
		defer func() { t.Logf("trace:\n%s", trace.String()) }()
		runProgram(t, *onlySeed, &trace)
		return
	}
	did := map[string]uint64{}
	for seed := uint64(1); seed <= programs; seed++ {
		if seed%20 != 0 {
			runProgram(t, seed, nil).addTo(did)
			continue
		}
		var first, second bytes.Buffer
		runProgram(t, seed, &first).addTo(did)
		runProgram(t, seed, &second)
		require.NotZero(t, first.Len())
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			require.Equal(t, first.String(), second.String(), "seed %d twice", seed)
		}
	}
	t.Log(did)
	for _, what := range []string{
		"inline", "eager", "rendezvous", "unexpected", "retries", "parked", "truncated", "cancelled",
		"probes", "matched probes", "restarts", "to itself", "freed",
		"read", "invited", "written", "announced though small", "held", "read in vain", "written in vain", "not registered", "credits", "in added memory",
		"detached", "by several rails",
	} {
		require.Greater(t, did[what], programs/20, what)
	}
}

// program is a random one, with what it expects.
type program struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	fabric  *loop.Fabric
	players []*player
	groups  [][]int // of contexts, by index
	trace   *bytes.Buffer
	most    int // bytes in a message, but for the edges of protocols
	largest int // that there was
	edges   []int
	window  int64
	regions ledger
	order   messageOrder

	nextID int
	sent   map[[2]int][]modelMsg // by sender and receiver, in the order of their starts
	sizes  map[int]int           // of messages, by id
	taken  map[int]bool          // messages that a matched probe took and a receive has got
	did    map[string]uint64
}

var contextIDs = []ContextID{WorldContext, 6, ContextID(6).Collective()}

// player is one rank.
type player struct {
	w       *program
	rank    int
	p       *PML
	modules []btl.Module
	ctxs    []*Context // by index; nil if not made yet, or if the rank is not in it
	model   *model
	lent    lent

	sends    []*sending
	recvs    []*receiving
	probes   []*probing
	messages []*taken
	detached []detached
}

type sending struct {
	r          *SendRequest
	id         int // of the message; 0 if inactive
	ctx        int
	dest, tag  int
	mode       Mode
	buf        []byte
	persistent bool
}

type receiving struct {
	r           *RecvRequest
	id          int // 0 if inactive
	ctx         int
	source, tag int
	elem        int
	whole, buf  []byte // buf, and what lies behind it
	message     int    // that it gets, if the model need not be asked
	persistent  bool
	freed       bool
}

type probing struct {
	r   *ProbeRequest
	id  int
	ctx int
	modelRecv
}

type taken struct {
	m   *Message
	ctx int
	modelMsg
}

// orderedEndpoint tells which messages are posted.
type orderedEndpoint struct {
	countedEndpoint
	rank  int
	order *messageOrder
}

func (e orderedEndpoint) Send(op *btl.Op) error {
	tag, hdr := op.Tag, slices.Clone(op.Header())
	e.order.posted(e.rank, e.Peer(), tag, hdr) // before others are posted from inside
	err := e.countedEndpoint.Send(op)
	if err != nil {
		e.order.refused(e.rank, e.Peer(), tag, hdr)
	}
	return err
}

func (e orderedEndpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	e.order.posted(e.rank, e.Peer(), tag, hdr)
	taken := e.countedEndpoint.SendInline(tag, hdr, payload)
	if !taken {
		e.order.refused(e.rank, e.Peer(), tag, hdr)
	}
	return taken
}

// ear is between the fabric and a rank.
type ear struct{ *player }

func (e ear) Failed(_ btl.Module, peer int, err *btl.Error) {
	e.w.fail("rank %d lost %d: %v", e.rank, peer, err)
}
func (e ear) Drained(btl.Module, int) {}
func (e ear) Arrived(m btl.Module, peer int, tag btl.Tag, frag []byte) {
	e.w.note("%d<%d kind %d of %d bytes", e.rank, peer, tag, len(frag))
	if tag == tagCredit {
		e.w.did["credits"]++
	}
	err := e.model.hear(peer, tag, frag, func(number uint32) modelMsg {
		return e.w.sent[[2]int{peer, e.rank}][e.w.order.of(peer, e.rank, number)]
	})
	if err != nil {
		e.w.fail("%v", err)
	}
	e.p.Arrived(countedModule{m, &e.w.regions}, peer, tag, frag)
}

func (w *program) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

func (w *program) check(ok bool, format string, args ...any) {
	if !ok {
		w.t.Helper()
		w.fail(format, args...)
	}
}

func (w *program) note(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, format+"\n", args...)
	}
}

func (w *program) addTo(did map[string]uint64) {
	for what, n := range w.did {
		did[what] += n
	}
}

func runProgram(t *testing.T, seed uint64, trace *bytes.Buffer) *program {
	w := &program{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), trace: trace, nextID: 1,
		sent: map[[2]int][]modelMsg{}, sizes: map[int]int{}, taken: map[int]bool{}, did: map[string]uint64{},
	}
	defer func() {
		if e := recover(); e != nil {
			t.Errorf("seed %d", seed)
			panic(e)
		}
	}()

	w.build()
	for range 20 + w.rng.IntN(100) {
		w.act(w.players[w.rng.IntN(len(w.players))])
	}
	w.drain()
	return w
}

// build makes the fabric and the ranks.
func (w *program) build() {
	rng := w.rng
	n := 1 + rng.IntN(4)
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	cfg := loop.Config{
		Ranks: n, Rails: 1 + rng.IntN(3), Slots: pick(2, 4, 8, 64), Seed: w.seed, Virtual: rng.IntN(3) > 0,
	}
	w.most = 3000
	longest := pick(64, 100, 512, 4096)
	switch rng.IntN(60) {
	case 0:
		w.most, longest = 300<<10, pick(4096, 64<<10)
	case 1, 2:
		w.most = 30_000
	}
	for range cfg.Rails {
		cfg.Rail = append(cfg.Rail, loop.RailConfig{
			LatencyNanos:  int64(pick(1, 100, 5000)),
			JitterNanos:   int64(pick(1, 1000, 100_000)),
			BandwidthMBps: int64(pick(1, 100, 10_000)),
			MaxSendBytes:  longest,
			EagerBytes:    pick(1, 40, longest/2, longest),
			InlineBytes:   min(pick(16, 24, 100), longest),
		})
	}
	eager := pick(0, 0, 1, 50, 5000)
	protocol := []Protocol{Auto, Auto, Copy, Get, Put}[rng.IntN(5)]
	rdma := pick(0, 1, 500, 2000)
	w.window = int64(pick(0, 0, 200, 2000))
	w.edges = []int{longest, longest - rndvBytes, longest - matchBytes, eager, 24, 84, cfg.Rail[0].EagerBytes}
	var err error
	w.fabric, err = loop.NewFabric(cfg)
	require.NoError(w.t, err)
	if w.trace != nil {
		w.fabric.Trace(w.trace)
	}
	world := make([]int, n)
	for r := range world {
		world[r] = r
	}
	if rng.IntN(2) == 0 {
		w.regions.refuse = func() bool {
			no := rng.IntN(10) == 0
			if no {
				w.did["not registered"]++
			}
			return no
		}
		w.regions.spoil = func() bool { return rng.IntN(10) == 0 }
	}
	w.groups = [][]int{world, world, rng.Perm(n)[:1+rng.IntN(n)]}
	for rank := range n {
		nd := &player{w: w, rank: rank, ctxs: make([]*Context, len(w.groups)), model: newModel()}
		rails := make([][]int, n) // by peer: the two directions may use different ones
		for peer := range rails {
			rails[peer] = rng.Perm(cfg.Rails)[:1+rng.IntN(cfg.Rails)]
		}
		nd.p = New(Config{
			Rank: rank, Size: n, Engine: progress.New(progress.Config{}), EagerBytes: eager,
			Protocol: protocol, RDMABytes: rdma, WindowBytes: w.window,
			Resolve: func(peer int) (routes []bml.Route, err error) {
				for _, rail := range rails[peer] {
					m := nd.modules[rail]
					ep, cerr := m.Connect(peer, w.players[peer].modules[rail].Card())
					routes = append(routes, bml.Route{Module: countedModule{m, &w.regions}, Endpoint: orderedEndpoint{countedEndpoint{ep, &w.regions}, rank, &w.order}, Local: rail, Remote: rail})
					err = errors.Join(err, cerr)
				}
				if len(routes) > 1 {
					w.did["by several rails"]++
				}
				return routes, err
			},
			OnIllegal: func(what string) { w.fail("illegal transition: %s", what) },
		})
		nd.lent.p = nd.p
		for rail := range cfg.Rails {
			m, err := faultyModule(w.fabric, rank, rail, ear{nd})
			require.NoError(w.t, err)
			nd.modules = append(nd.modules, m)
		}
		nd.makeContext(0)
		w.players = append(w.players, nd)
	}
}

func (n *player) makeContext(i int) {
	rank := slices.Index(n.w.groups[i], n.rank)
	if n.ctxs[i] != nil || rank < 0 {
		return
	}
	if n.p.earlyContext[contextIDs[i]] != nil {
		n.w.did["parked"]++
	}
	n.ctxs[i] = n.p.AddContext(contextIDs[i], NewGroup(n.w.groups[i]), rank, testCaller{})
}

// act does something at random.
func (w *program) act(n *player) {
	ctx := w.rng.IntN(len(w.groups))
	if n.ctxs[ctx] == nil {
		if w.rng.IntN(3) > 0 {
			w.step(n)
			return
		}
		n.makeContext(ctx)
	}
	if n.ctxs[ctx] == nil {
		ctx = 0
	}
	switch w.rng.IntN(30) {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		n.send(ctx)
	case 8, 9, 10, 11, 12:
		n.receive(ctx)
	case 13, 14:
		n.cancel()
	case 15:
		n.probe(ctx)
	case 16:
		n.iprobe(ctx)
	case 17:
		n.improbe(ctx)
	case 18, 19:
		n.restart()
	case 20:
		n.free()
	case 21:
		n.receiveTaken()
	case 22:
		n.trouble()
	case 23, 24:
		n.detach()
	default:
		w.step(n)
	}
	n.observe()
	st := n.p.Stats()
	w.check(st.Malformed == 0, "rank %d was sent nonsense", n.rank)
	bound := n.p.peer(n.rank).credit.window * int64(len(w.players))
	w.check(st.UnexpectedPeakBytes <= bound, "rank %d kept %d bytes, not %d", n.rank, st.UnexpectedPeakBytes, bound)
}

// step lets time pass, or a rank poll.
func (w *program) step(n *player) {
	if w.rng.IntN(2) == 0 {
		w.fabric.Advance()
		return
	}
	n.poll()
}

func (n *player) poll() int {
	events := 0
	for _, m := range n.modules {
		events += m.Progress()
	}
	events += n.p.Progress()
	n.reuse()
	n.observe()
	return events
}

func (w *program) id() int {
	w.nextID++
	return w.nextID
}

func (w *program) size() int {
	switch w.rng.IntN(10) {
	case 0:
		return 0
	case 1, 2, 3:
		return w.rng.IntN(200)
	case 4, 5, 6:
		return max(0, w.edges[w.rng.IntN(len(w.edges))]+w.rng.IntN(3)-1)
	case 7:
		return w.most
	}
	return w.rng.IntN(w.most)
}

// settle goes on until nothing happens any more.
func (w *program) settle() {
	const (
		lateTurns = 8         // longer than a late completion takes
		most      = 1_000_000 // turns, after which they go round in circles
	)
	turns := 0
	for quiet := 0; quiet < lateTurns; quiet++ {
		turns++
		w.check(turns < most, "there is no end")
		events := 0
		for _, n := range w.players {
			events += n.poll() + n.p.bml.Deferred()
		}
		if w.fabric.Advance() {
			events++
		}
		if events > 0 {
			quiet = -1
		}
	}
}

// receiveAll receives all that is there, and reports whether there was something.
func (w *program) receiveAll() (any bool) {
	for _, n := range w.players {
		for len(n.messages) > 0 {
			n.receiveTaken()
			any = true
		}
		for ctx := range w.groups {
			if n.ctxs[ctx] == nil {
				continue
			}
			for n.model.oldest(modelRecv{source: request.AnySource, context: ctx, tag: request.AnyTag}) >= 0 {
				r := &receiving{ctx: ctx, source: request.AnySource, tag: request.AnyTag, elem: 1, whole: make([]byte, w.largest+8)}
				r.buf = r.whole[:len(r.whole)-8]
				n.beginReceive(r)
				r.r = n.p.Irecv(n.ctxs[ctx], r.buf, 1, r.source, r.tag, "irecv")
				n.recvs = append(n.recvs, r)
				any = true
			}
		}
	}
	return any
}

// drain ends what is still active in an orderly way, and looks at what is left.
func (w *program) drain() {
	for _, n := range w.players {
		for i := range w.groups {
			n.makeContext(i)
		}
	}
	w.settle()
	for _, n := range w.players {
		for _, r := range slices.Clone(n.recvs) {
			switch m, matched := n.matched(r); {
			case r.id == 0:
			case matched && r.freed:
				n.compare(r, m)
			case r.freed: // it is posted, and so still what it was
				w.check(n.model.cancel(r.id), "receive %d is not posted", r.id)
				r.r.Cancel()
			case !n.cancelOne(r):
				w.fail("receive %d of rank %d is %v, and nothing happens any more", r.id, n.rank, r.r.state)
			}
		}
		for _, pr := range n.probes {
			pr.r.Cancel()
			w.check(n.model.cancel(pr.id) && pr.r.State() == request.Complete, "probe %d was not cancelled", pr.id)
			st, err := pr.r.Take()
			w.check(err == nil && st.Cancelled, "probe %d was not cancelled: %v", pr.id, err)
		}
		n.probes = nil
	}
	for w.receiveAll() { // what is held comes when there is room for it
		w.settle()
	}
	for _, n := range w.players {
		for _, s := range n.sends {
			w.check(s.id == 0, "send %d of rank %d is %v, and nothing happens any more", s.id, n.rank, s.r.state)
			s.r.Abandon()
		}
		for _, r := range n.recvs {
			w.check(r.freed || r.id == 0, "receive %d of rank %d is %v, and nothing happens any more", r.id, n.rank, r.r.state)
			if !r.freed {
				r.r.Abandon()
			}
		}
		for _, c := range n.ctxs {
			if c == nil {
				continue
			}
			q := &c.posted
			w.check(q.count+q.anyTag+q.anySource+q.anyBoth+q.table.live == 0, "rank %d: receives are left: %+v", n.rank, q)
			w.check(c.unexpected.count+c.unexpected.table.live+c.persistent+len(c.probes) == 0, "rank %d: messages are left", n.rank)
			n.p.RemoveContext(c)
		}
		st := n.p.Stats()
		w.check(n.p.Busy() == 0 && len(n.p.Pending()) == 0, "rank %d: %d busy, pending %v", n.rank, n.p.Busy(), n.p.Pending())
		w.check(st.UnexpectedBytes == 0, "rank %d: %d bytes are left", n.rank, st.UnexpectedBytes)
		for _, pr := range n.p.peers {
			if pr != nil {
				c := pr.credit
				w.check(c.kept == 0 && c.notices == 0 && c.rtsReceived == c.rtsTaken && pr.pending == sendQueue{}, "rank %d: %+v of %d", n.rank, c, pr.Rank())
			}
		}
		w.check(n.p.blockedPeers == 0, "rank %d: %d peers have no room", n.rank, n.p.blockedPeers)
		w.check(len(n.p.contexts) == 0 && len(n.p.earlyContext) == 0, "rank %d: contexts are left", n.rank)
		w.check(st.Malformed+st.Illegal+st.Duplicates+st.Early == 0, "rank %d: %+v", n.rank, st)
		w.did["inline"] += st.SentInline
		w.did["eager"] += st.SentEager
		w.did["rendezvous"] += st.SentRendezvous
		w.did["unexpected"] += st.Unexpected
		w.did["retries"] += st.Retries
		w.did["read"] += st.ReceivedGet
		w.did["invited"] += st.ReceivedPut
		w.did["written"] += st.SentPut
		w.did["announced though small"] += st.Throttled
		w.did["held"] += st.Deferred
		w.did["read in vain"] += st.Unread
		w.did["written in vain"] += st.Unwritten
		n.lent.takeBack()
		w.note("%d: %+v", n.rank, st)
	}
	w.check(w.regions.live == 0 && w.regions.twice == 0, "regions: %+v", w.regions)
}
