package ibverbs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var testSecret = []byte("0123456789abcdef0123456789abcdef")

// fabricClock is a fabric's time. Virtual time stands still while nothing is in flight; pass then
// advances it.
type fabricClock struct {
	f     *simhca.Fabric
	extra *int64
}

func (c fabricClock) Now() int64 { return int64(c.f.Now()) + *c.extra }

func (c fabricClock) pass() {
	if !c.f.Advance() {
		c.skip(time.Millisecond)
	}
}

// skip advances the time while no rank makes progress.
func (c fabricClock) skip(d time.Duration) { *c.extra += int64(d) }

// fixedRandom is a source of numbers that are the same in each run of a simulation.
type fixedRandom struct{ next byte }

func (z *fixedRandom) Read(b []byte) (int, error) {
	for i := range b {
		z.next = z.next*13 + 7
		b[i] = z.next
	}
	return len(b), nil
}

// openSim makes the module of a rank on a simulated device of its own.
func openSim(t testing.TB, f *simhca.Fabric, dev simhca.DeviceConfig, cfg Config) (*module, *simhca.HCA) {
	dev.Name = "sim0"
	node := f.NewNode(dev)
	cfg.Provider, cfg.Device, cfg.Secret = node, dev.Name, testSecret
	cfg.Random = &fixedRandom{byte(cfg.Rank)}
	m, err := New(cfg)
	require.NoError(t, err)
	return m.(*module), node.HCA(dev.Name)
}

// world holds the ranks of a job on a simulated network in virtual time. Each rank has a device
// with one port. Most tests have two ranks, and connect each to the other.
type world struct {
	t     *testing.T
	f     *simhca.Fabric
	clock fabricClock
	ranks []*testRank
}

// testRank is a rank, and the reports of its module.
type testRank struct {
	w    *world
	rank int
	m    *module
	ep   btl.Endpoint // to the other of two ranks
	hca  *simhca.HCA
	// published is the address that the other rank connects to; nil stands for the current one.
	published []byte

	arrived  []string
	failed   []*btl.Error // one for each Failed, with AllPeers for the rail
	drained  []int        // peers
	ended    []error      // of operations, in order
	inFlight int          // operations
}

func (r *testRank) Arrived(_ btl.Module, _ int, _ btl.Tag, frag []byte) {
	r.arrived = append(r.arrived, string(frag))
}

func (r *testRank) Failed(_ btl.Module, _ btl.Path, err *btl.Error) { r.failed = append(r.failed, err) }

func (r *testRank) Drained(_ btl.Module, to btl.Path) { r.drained = append(r.drained, to.Peer) }

// onEachFabric runs a test on a network of RoCE and on one of InfiniBand.
func onEachFabric(t *testing.T, test func(t *testing.T, link verbs.LinkLayer)) {
	for name, link := range map[string]verbs.LinkLayer{"RoCE": verbs.LinkEthernet, "InfiniBand": verbs.LinkInfiniBand} {
		t.Run(name, func(t *testing.T) { test(t, link) })
	}
}

// newWorld makes a rank for each device, or two ranks, and returns the first two.
func newWorld(t *testing.T, link verbs.LinkLayer, cfg Config, devices ...simhca.DeviceConfig) (w *world, a, b *testRank) {
	if devices == nil {
		devices = make([]simhca.DeviceConfig, 2)
	}
	f := simhca.NewFabric(simhca.Config{Virtual: true, Link: link})
	w = &world{t: t, f: f, clock: fabricClock{f, new(int64)}}
	cfg.Size, cfg.Clock, cfg.Pass = len(devices), w.clock, w.clock.pass
	for rank, device := range devices {
		r := &testRank{w: w, rank: rank}
		cfg.Rank, cfg.Events = rank, r
		r.m, r.hca = openSim(t, f, device, cfg)
		r.published = r.m.Address()
		w.ranks = append(w.ranks, r)
	}
	t.Cleanup(func() {
		for _, r := range w.ranks {
			require.NoError(t, r.m.Close())
			require.Zero(t, r.inFlight, "operations in flight after Close")
		}
		f.Close()
	})
	return w, w.ranks[0], w.ranks[1]
}

// connectedWorld does what newWorld does, but the ranks are connected and have sent to each other.
// If cfg permits rings, each rank writes to a ring of the other.
func connectedWorld(t *testing.T, link verbs.LinkLayer, cfg Config, devices ...simhca.DeviceConfig) (w *world, a, b *testRank) {
	w, a, b = newWorld(t, link, cfg, devices...)
	w.begin()
	return w, a, b
}

// withRings returns cfg with a ring for each peer from its first fragment on.
func withRings(cfg Config) Config {
	cfg.EagerPeers, cfg.EagerAfter = 1, 1
	return cfg
}

// withSharedReceives returns cfg with a shared receive queue.
func withSharedReceives(cfg Config) Config {
	cfg.Shared = SharedOn
	return cfg
}

// bothWays runs a test on connected ranks of each fabric with sends and with writes to rings, each
// with receives for each queue pair and with shared ones.
func bothWays(t *testing.T, cfg Config, test func(t *testing.T, w *world, a, b *testRank)) {
	onEachFabric(t, func(t *testing.T, link verbs.LinkLayer) {
		for name, cfg := range map[string]Config{
			"sends": cfg, "rings": withRings(cfg),
			"shared": withSharedReceives(cfg), "shared-rings": withSharedReceives(withRings(cfg)),
		} {
			t.Run(name, func(t *testing.T) {
				w, a, b := connectedWorld(t, link, cfg)
				test(t, w, a, b)
			})
		}
	})
}

// turn makes all ranks progress once, and lets time pass if nothing happens.
func (w *world) turn() {
	n := 0
	for _, r := range w.ranks {
		n += r.m.Progress()
	}
	if n == 0 {
		w.clock.pass()
	}
}

func (w *world) turns(n int) {
	for range n {
		w.turn()
	}
}

// until makes all ranks progress until cond holds.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	for range 200000 {
		if cond() {
			return
		}
		w.turn()
	}
	for _, r := range w.ranks {
		w.t.Logf("rank %d: arrived %d, failed %v, drained %v, ended %v, in flight %d",
			r.rank, len(r.arrived), r.failed, r.drained, r.ended, r.inFlight)
	}
	require.FailNow(w.t, "waited too long for "+what)
}

// deliver advances the network until all posted requests are delivered. No rank makes progress
// meanwhile.
func (w *world) deliver() {
	for range 50 {
		w.f.Advance()
	}
}

// progress makes only this rank progress, often enough to handle everything that has arrived.
func (r *testRank) progress() {
	for range 2 * attendEvery {
		r.m.Progress()
	}
}

func (r *testRank) other() *testRank { return r.w.ranks[1-r.rank] }

// connect connects the rank to the other one.
func (r *testRank) connect() {
	r.w.t.Helper()
	address := r.other().published
	if address == nil {
		address = r.other().m.Address()
	}
	ep, err := r.m.Connect(btl.Path{Peer: 1 - r.rank}, address)
	require.NoError(r.w.t, err)
	r.ep = ep
}

// end returns the rank's end of the connection.
func (r *testRank) end() *endpoint { return r.ep.(*endpoint) }

func (r *testRank) isReady() bool   { return r.end().phase == phaseReady }
func (r *testRank) isDrained() bool { return r.ep.State() == btl.Drained }
func (r *testRank) isIdle() bool    { return r.inFlight == 0 }

// connect connects both ranks, and waits until both can send.
func (w *world) connect() {
	w.t.Helper()
	for _, r := range w.ranks {
		r.connect()
	}
	w.until("a connection", func() bool { return w.ranks[0].isReady() && w.ranks[1].isReady() })
	w.turns(50)
}

func (w *world) begin() {
	w.t.Helper()
	w.connect()
	w.works()
	if a, b := w.ranks[0], w.ranks[1]; a.m.cfg.EagerPeers > 0 {
		w.until("rings", func() bool { return a.end().out != (outRing{}) && b.end().out != (outRing{}) })
		w.turns(20)
		w.works()
	}
}

// post passes an operation to do, a method of an endpoint. When the operation ends, then is called
// with its error, unless then is nil.
func (r *testRank) post(do func(*btl.Op) error, op *btl.Op, then func(error)) error {
	op.Done = func(_ *btl.Op, err error) {
		if then != nil {
			then(err)
		}
		r.ended = append(r.ended, err)
		r.inFlight--
	}
	r.inFlight++
	err := do(op)
	if err != nil {
		r.inFlight--
	}
	return err
}

// send posts a fragment.
func (r *testRank) send(text string) error {
	return r.post(r.ep.Send, &btl.Op{Payload: []byte(text)}, nil)
}

// memory registers n bytes.
func (r *testRank) memory(n int, access btl.Access) *region {
	r.w.t.Helper()
	reg, err := r.m.Register(make([]byte, n), access)
	require.NoError(r.w.t, err)
	return reg.(*region)
}

// get posts a read of the other rank's memory into a region.
func (r *testRank) get(into *region, from btl.Key, then func(error)) {
	r.w.t.Helper()
	op := &btl.Op{Payload: into.mem, Local: into, Remote: from}
	require.NoError(r.w.t, r.post(r.end().Get, op, then))
}

// put posts a write of a region into the other rank's memory.
func (r *testRank) put(from *region, to btl.Key, then func(error)) {
	r.w.t.Helper()
	op := &btl.Op{Payload: from.mem, Local: from, Remote: to}
	require.NoError(r.w.t, r.post(r.end().Put, op, then))
}

// carries shows that a fragment arrives from this rank at the other one.
func (r *testRank) carries(text string) {
	w, other := r.w, r.other()
	w.t.Helper()
	before := len(other.arrived)
	require.NoError(w.t, r.send(text))
	w.until("a fragment", func() bool {
		return len(other.arrived) > before || len(r.failed) > 0 && r.isDrained()
	})
	require.Len(w.t, other.arrived, before+1, "%v", r.failed)
	require.Equal(w.t, text, other.arrived[before])
}

// works shows that fragments arrive in both directions.
func (w *world) works() {
	w.t.Helper()
	for _, r := range w.ranks {
		r.carries(fmt.Sprintf("from %d, after %d", r.rank, len(r.other().arrived)))
	}
	w.until("completions", func() bool { return w.ranks[0].isIdle() && w.ranks[1].isIdle() })
}

// recovers waits until both ends are drained, connects them again, and shows that they work.
func (w *world) recovers() {
	w.t.Helper()
	w.until("both ends to be drained", func() bool {
		for _, r := range w.ranks {
			if r.ep.State() == btl.Up && r.other().ep.State() != btl.Up {
				r.ep.Fail(nil) // as the layer above does when the other rank reports the failure
			}
			if !r.isDrained() || r.m.ModuleError() != nil || r.m.reopen {
				return false
			}
		}
		return true
	})
	for _, r := range w.ranks {
		r.ended = nil
	}
	w.connect()
	w.works()
}

// fails expects that the rank reports exactly one failure, of its endpoint or its rail, and that it
// drains after all operations have ended.
func (r *testRank) fails(peer int, class btl.Class, side btl.Side, native string) {
	w := r.w
	w.t.Helper()
	w.until("the failure", func() bool { return len(r.failed) > 0 })
	require.Len(w.t, r.failed, 1)
	err := r.failed[0]
	require.Equal(w.t, []any{peer, class, side, native}, []any{err.Peer, err.Class, err.Side, err.Native}, "%v", err)
	w.until("Drained", func() bool { return len(r.drained) > 0 })
	require.Equal(w.t, []int{peer}, r.drained)
	require.True(w.t, r.isDrained())
	require.Zero(w.t, r.inFlight, "operations in flight after Drained")
}

// message makes a connection message that this rank could send to the other one.
func (r *testRank) message(kind kind, epoch uint32) *message {
	return &message{
		kind: kind, from: uint32(r.rank), to: uint32(1 - r.rank),
		fromNonce: r.m.me, toNonce: r.other().m.me, epoch: epoch, address: r.m.h.address(),
	}
}

// hasClass expects an error of this package with the given class.
func hasClass(t *testing.T, class btl.Class, err error) {
	t.Helper()
	var be *btl.Error
	require.ErrorAs(t, err, &be)
	require.Equal(t, class, be.Class, "%v", err)
}

// silence keeps the next request of the rank from ever completing.
func (r *testRank) silence() {
	r.hca.Inject(simhca.Fault{Kind: simhca.FaultSilence, QPN: r.end().qpn})
}

// completeWith makes the next send, or the next receive, of the rank complete with a status.
func (r *testRank) completeWith(kind simhca.FaultKind, status verbs.Status) {
	r.hca.Inject(simhca.Fault{Kind: kind, QPN: r.end().qpn, Status: status})
}

// cut drops all packets between both ranks. No port reports that.
func (w *world) cut() {
	w.t.Helper()
	require.True(w.t, w.f.Partition(w.ranks[0].m.h.gid.GID, w.ranks[1].m.h.gid.GID, true))
}

func (w *world) heal() { w.f.Heal(w.ranks[0].m.h.gid.GID, w.ranks[1].m.h.gid.GID) }

// faultyQP is a queue pair whose methods a test replaces.
type faultyQP struct {
	verbs.QP
	modify    func(*verbs.QPAttr, verbs.AttrMask) error
	postSend  func([]verbs.SendWR) (int, error)
	destroy   func() error
	destroyed int           // calls of Destroy
	state     verbs.QPState // of the last call of Modify
}

func newFaultyQP(qp verbs.QP) *faultyQP {
	return &faultyQP{QP: qp, modify: qp.Modify, postSend: qp.PostSend, destroy: qp.Destroy}
}

// faultQP puts a faultyQP in the place of the rank's queue pair.
func (r *testRank) faultQP() *faultyQP {
	qp := newFaultyQP(r.end().qp)
	r.end().qp = qp
	return qp
}

// ignore makes changes to a state have no effect except to return err.
func (q *faultyQP) ignore(state verbs.QPState, err error) {
	modify := q.modify
	q.modify = func(attr *verbs.QPAttr, mask verbs.AttrMask) error {
		if attr.State == state {
			return err
		}
		return modify(attr, mask)
	}
}

// postInError makes posts of sends in Error return n and err.
func (q *faultyQP) postInError(n int, err error) {
	q.postSend = func(wrs []verbs.SendWR) (int, error) {
		if q.state == verbs.StateErr {
			return n, err
		}
		return q.QP.PostSend(wrs)
	}
}

func (q *faultyQP) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	q.state = attr.State
	return q.modify(attr, mask)
}

func (q *faultyQP) PostSend(wrs []verbs.SendWR) (int, error) { return q.postSend(wrs) }

func (q *faultyQP) Destroy() error {
	q.destroyed++
	return q.destroy()
}

// faultyPD is a protection domain whose methods a test replaces.
type faultyPD struct {
	verbs.PD
	createQP func(verbs.QPInit) (verbs.QP, error)
	createAH func(verbs.AHAttr) (verbs.AH, error)
	resolve  func(verbs.AHAttr, func(error))
	regMR    func([]byte, verbs.Access) (verbs.MR, error)
}

// faultPD puts a faultyPD in the place of the rank's domain. restore ends that.
func (r *testRank) faultPD() (pd *faultyPD, restore func()) {
	h, real := r.m.h, r.m.h.pd
	pd = &faultyPD{PD: real, createQP: real.CreateQP, createAH: real.CreateAH, resolve: real.Resolve, regMR: real.RegMR}
	h.pd = pd
	return pd, func() { h.pd = real }
}

func (d *faultyPD) CreateQP(init verbs.QPInit) (verbs.QP, error) { return d.createQP(init) }
func (d *faultyPD) CreateAH(attr verbs.AHAttr) (verbs.AH, error) { return d.createAH(attr) }
func (d *faultyPD) Resolve(attr verbs.AHAttr, done func(error))  { d.resolve(attr, done) }
func (d *faultyPD) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	return d.regMR(mem, access)
}
