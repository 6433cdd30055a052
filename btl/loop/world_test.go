package loop

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
)

// world is a fabric with a node for each rank and rail. The nodes send to each other, come back
// after failures, and check their events.
type world struct {
	t     testing.TB
	f     *Fabric
	nodes [][]*node // by rank, then rail

	mu   sync.Mutex
	sent map[string]*fragment // by their first 28 bytes; guarded by mu
}

// fragment is one that was accepted or is being posted.
type fragment struct {
	seq                int
	succeeded, arrived bool
}

// node is one module and its record of events. One goroutine at a time uses it.
type node struct {
	w          *world
	rank, rail int
	m          btl.Module // inner, decorated by package faults
	inner      *module
	rng        *rand.Rand
	eps        []btl.Endpoint // by peer
	seq        []int          // by peer: the last that was sent
	seen       []int          // by peer: the last that has arrived
	drained    []uint32       // by peer: the epoch that was drained last
	pending    int            // operations outstanding
	failures   int            // calls of Failed for a peer
	railFails  int            // calls of Failed for the rail
	arrived    int
}

func newWorld(t testing.TB, cfg Config) *world {
	f, err := NewFabric(cfg)
	require.NoError(t, err)
	w := &world{t: t, f: f, sent: map[string]*fragment{}}
	for rank := range f.Ranks() {
		var ns []*node
		for rail := range f.Rails() {
			n := &node{
				w: w, rank: rank, rail: rail,
				rng:     rand.New(rand.NewPCG(cfg.Seed, uint64(rank*100+rail))),
				eps:     make([]btl.Endpoint, f.Ranks()),
				seq:     make([]int, f.Ranks()),
				seen:    make([]int, f.Ranks()),
				drained: make([]uint32, f.Ranks()),
			}
			n.m, err = faults.Wrap(faults.Config{Events: n}, func(ev btl.Events) (btl.Module, error) {
				m, err := f.Module(rank, rail, ev, nil)
				n.inner, _ = m.(*module)
				return m, err
			})
			require.NoError(t, err)
			ns = append(ns, n)
		}
		w.nodes = append(w.nodes, ns)
	}
	t.Cleanup(func() { w.all(func(n *node) { require.NoError(t, n.m.Close()) }) })
	return w
}

// twoNodes makes a world of at least two ranks, and returns the nodes of ranks 0 and 1 on rail 0.
func twoNodes(t testing.TB, cfg Config) (w *world, a, b *node) {
	cfg.Ranks = max(cfg.Ranks, 2)
	w = newWorld(t, cfg)
	return w, w.nodes[0][0], w.nodes[1][0]
}

// Arrived implements btl.Events.
func (n *node) Arrived(_ btl.Module, peer int, _ btl.Tag, frag []byte) {
	if len(frag) < 28 || crc32.ChecksumIEEE(frag[4:]) != binary.LittleEndian.Uint32(frag) {
		n.w.t.Errorf("%d<%d: damaged fragment of %d bytes", n.rank, peer, len(frag))
		return
	}
	word := func(i int) int { return int(binary.LittleEndian.Uint32(frag[4*i:])) }
	if word(1) != peer || word(2) != n.rank || word(3) != n.rail {
		n.w.t.Errorf("%d<%d: fragment from %d to %d on rail %d", n.rank, peer, word(1), word(2), word(3))
		return
	}
	epoch, seq := uint32(word(4)), word(5)
	if seq <= n.seen[peer] {
		n.w.t.Errorf("%d<%d rail %d: fragment %d arrives after %d", n.rank, peer, n.rail, seq, n.seen[peer])
	}
	if epoch <= n.drained[peer] {
		n.w.t.Errorf("%d<%d rail %d: fragment of epoch %d arrives after %d was drained", n.rank, peer, n.rail, epoch, n.drained[peer])
	}
	n.seen[peer] = seq
	n.arrived++
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if f := n.w.sent[string(frag[:28])]; f != nil {
		f.arrived = true
	} else {
		n.w.t.Error("a fragment arrives that was not sent")
	}
}

// Failed implements btl.Events.
func (n *node) Failed(_ btl.Module, to btl.Path, err *btl.Error) {
	if to == btl.WholeModule {
		n.railFails++
	} else {
		n.failures++
	}
}

// Drained implements btl.Events.
func (n *node) Drained(_ btl.Module, to btl.Path) {
	for p, ep := range n.eps {
		if ep != nil && (p == to.Peer || to == btl.WholeModule) {
			n.drained[p] = ep.Epoch()
		}
	}
}

func (n *node) done(op *btl.Op, err error) {
	f := op.Owner.(*fragment)
	if err == nil {
		n.w.mu.Lock()
		f.succeeded = true
		n.w.mu.Unlock()
	}
	n.pending--
}

// connect returns the endpoint to peer. If that is Drained, it makes the next one; nil if it
// cannot.
func (n *node) connect(peer int) btl.Endpoint {
	ep := n.eps[peer]
	if ep != nil && ep.State() != btl.Drained {
		return ep
	}
	next, err := n.m.Connect(btl.Path{Peer: peer}, n.w.nodes[peer][n.rail].m.Address())
	if err != nil {
		return nil
	}
	if ep != nil && next.Epoch() <= ep.Epoch() {
		n.w.t.Errorf("%d>%d: epoch %d after %d", n.rank, peer, next.Epoch(), ep.Epoch())
	}
	n.eps[peer] = next
	return next
}

// send sends a fragment to peer and reports whether it was taken. The fragment begins with words of
// 4 bytes: a checksum of the rest, sender, receiver, rail, epoch, sequence number, size.
func (n *node) send(peer, size int) bool {
	ep := n.connect(peer)
	if ep == nil || ep.State() != btl.Up {
		return false
	}
	size = max(size, 28)
	frag := make([]byte, size)
	for i, v := range []int{n.rank, peer, n.rail, int(ep.Epoch()), n.seq[peer] + 1, size} {
		binary.LittleEndian.PutUint32(frag[4*i+4:], uint32(v))
	}
	for i := 28; i < size; i++ {
		frag[i] = byte(i * size)
	}
	binary.LittleEndian.PutUint32(frag, crc32.ChecksumIEEE(frag[4:]))
	n.pending++
	n.seq[peer]++
	f := &fragment{seq: n.seq[peer]}
	hdr := n.rng.IntN(29)
	op := &btl.Op{Done: n.done, Owner: f, Tag: btl.Tag(size), Payload: frag[hdr:]}
	op.HdrLen = uint8(copy(op.Hdr[:], frag[:hdr]))
	key := string(frag[:28])
	n.w.mu.Lock()
	n.w.sent[key] = f
	n.w.mu.Unlock()
	if inl, ok := ep.(btl.Inliner); ok && size <= n.m.Attrs().InlineBytes && n.rng.IntN(2) == 0 &&
		inl.SendInline(op.Tag, frag[:hdr], frag[hdr:]) {
		n.done(op, nil)
		return true
	}
	if err := ep.Send(op); err != nil {
		n.pending--
		n.seq[peer]--
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		if f.arrived {
			n.w.t.Error("a fragment arrives that was refused")
		}
		delete(n.w.sent, key)
		return false
	}
	return true
}

// missing returns the number of fragments that have succeeded and not arrived.
func (w *world) missing() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := 0
	for _, f := range w.sent {
		if f.succeeded && !f.arrived {
			k++
		}
	}
	return k
}

// all calls fn for every node.
func (w *world) all(fn func(n *node)) {
	for _, ns := range w.nodes {
		for _, n := range ns {
			fn(n)
		}
	}
}

// turn drives all nodes once, from one goroutine, and returns the number of events.
func (w *world) turn() int {
	w.t.Helper()
	events := 0
	w.all(func(n *node) { events += n.m.Progress() })
	if w.t.Failed() {
		w.t.FailNow()
	}
	return events
}

// settle drives a world that belongs to one goroutine until nothing more happens. Only operations
// struck by FaultSilence stay outstanding.
func (w *world) settle() {
	w.t.Helper()
	for quiet := 0; quiet < 100; quiet++ {
		if w.turn() > 0 || w.f.Advance() {
			quiet = 0
		}
	}
	require.Zero(w.t, w.missing(), "fragments that have succeeded and not arrived")
}

// breakSomething makes or ends a random fault, and reports which of the two it did.
func (w *world) breakSomething(rng *rand.Rand) (breaks bool) {
	f := w.f
	a, b, rail := rng.IntN(f.Ranks()), rng.IntN(f.Ranks()), rng.IntN(f.Rails())
	cut := Cut{Fate: Fate(rng.IntN(3)), HalfOpen: rng.IntN(2) == 0}
	var err error
	switch rng.IntN(12) {
	case 0:
		breaks, err = true, f.FailModule(rail, cut.Fate)
	case 1, 2:
		breaks, err = true, f.FailPort(a, rail, cut.Fate)
	case 3, 4, 5, 6:
		breaks, err = true, f.FailLane(a, b, rail, cut)
	case 7:
		err = f.ReviveRail(rail)
	case 8:
		err = f.RevivePort(a, rail)
	default:
		err = f.ReviveLane(a, b, rail)
	}
	require.NoError(w.t, err)
	return breaks
}

// reviveAll ends all faults of the fabric.
func (w *world) reviveAll() {
	for rail := range w.f.Rails() {
		require.NoError(w.t, w.f.ReviveRail(rail))
		for a := range w.f.Ranks() {
			for b := range a + 1 {
				require.NoError(w.t, w.f.ReviveLane(a, b, rail))
			}
		}
	}
}

// injectSomething arms a random fault at the node.
func (n *node) injectSomething() {
	n.m.(btl.Injector).Inject(btl.Fault{
		Kind:  btl.FaultKind(n.rng.IntN(6)),
		Peer:  n.rng.IntN(len(n.eps)+1) - 1,
		After: n.rng.IntN(5),
		Count: n.rng.IntN(3),
	})
}

// failSomething fails an endpoint or the module of the node.
func (n *node) failSomething() {
	if n.rng.IntN(4) == 0 {
		n.m.Fail(errTest)
	} else if ep := n.eps[n.rng.IntN(len(n.eps))]; ep != nil {
		ep.Fail(errTest)
	}
}

// failAll fails every endpoint, to end silent operations, and checks that all operations end. It
// returns the number of failures.
func (w *world) failAll() (failures int) {
	w.all(func(n *node) {
		for _, ep := range n.eps {
			if ep != nil {
				ep.Fail(errTest)
			}
		}
	})
	w.settle()
	w.all(func(n *node) {
		require.Zero(w.t, n.pending, "rank %d rail %d: operations outstanding", n.rank, n.rail)
		failures += n.failures + n.railFails
	})
	return failures
}
