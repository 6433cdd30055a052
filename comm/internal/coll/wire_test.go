package coll

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// wire joins ranks for tests of this package. Everything that is posted waits in one queue until
// the test delivers it. So a test chooses the order and the moment of each delivery.
type wire struct {
	pmls    []*pml.PML
	modules []*wireModule
	attrs   btl.Attrs
	config  pml.Config // what the ranks have in common
	async   bool       // operations complete only when they are delivered
	refuse  int        // how many posts to refuse for lack of room
	flying  []flight
	regions map[uint64]*wireRegion
	numbers uint64 // of regions, so far
	now     int64  // the engines' time, in nanoseconds
}

// flight is a fragment, or a remote read or write, under way.
type flight struct {
	from, to int
	tag      btl.Tag
	frag     []byte  // nil for a remote read or write
	op       *btl.Op // to be called back, if any
	isPut    bool    // else it is a read, if frag is nil
}

type wireModule struct {
	w    *wire
	rank int
}

type wireEndpoint struct {
	m  *wireModule
	to int
}

func (m *wireModule) Attrs() *btl.Attrs { return &m.w.attrs }
func (m *wireModule) Address() []byte   { return nil }
func (m *wireModule) Connect(to btl.Path, _ []byte) (btl.Endpoint, error) {
	return nil, btl.ErrUnreachable
}
func (m *wireModule) Progress() int { return 0 }
func (m *wireModule) Fail(error)    {}
func (m *wireModule) Close() error  { return nil }

func (e *wireEndpoint) Path() btl.Path                      { return btl.Path{Peer: e.to} }
func (e *wireEndpoint) Epoch() uint32                       { return 1 }
func (e *wireEndpoint) State() btl.State                    { return btl.Up }
func (e *wireEndpoint) Fail(error)                          {}
func (e *wireEndpoint) Rebind(op *btl.Op, with []byte) bool { op.Payload = with; return true }

func (e *wireEndpoint) Send(op *btl.Op) error {
	w := e.m.w
	if w.refuse > 0 {
		w.refuse--
		return btl.ErrResource
	}
	f := flight{from: e.m.rank, to: e.to, tag: op.Tag, frag: slices.Concat(op.Header(), op.Payload)}
	if w.async {
		f.op = op
	}
	w.flying = append(w.flying, f)
	if f.op == nil {
		op.Done(op, nil)
	}
	return nil
}

func (e *wireEndpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	w := e.m.w
	if w.refuse > 0 {
		return false
	}
	w.flying = append(w.flying, flight{from: e.m.rank, to: e.to, tag: tag, frag: slices.Concat(hdr, payload)})
	return true
}

func (e *wireEndpoint) Get(op *btl.Op) error { return e.postRemote(op, false) }
func (e *wireEndpoint) Put(op *btl.Op) error { return e.postRemote(op, true) }

func (e *wireEndpoint) postRemote(op *btl.Op, isPut bool) error {
	w := e.m.w
	f := flight{from: e.m.rank, to: e.to, op: op, isPut: isPut}
	if w.async {
		w.flying = append(w.flying, f)
	} else {
		op.Done(op, w.reach(&f))
	}
	return nil
}

// wireRegion is registered memory. Its key is its number.
type wireRegion struct {
	w      *wire
	number uint64
	mem    []byte
}

func (m *wireModule) Register(mem []byte, _ btl.Access) (btl.Region, error) {
	w := m.w
	w.numbers++
	r := &wireRegion{w, w.numbers, mem}
	w.regions[r.number] = r
	return r, nil
}

func (r *wireRegion) Key() (key btl.Key) {
	binary.LittleEndian.PutUint64(key[:], r.number)
	return key
}

func (r *wireRegion) Release() error {
	delete(r.w.regions, r.number)
	return nil
}

// reach does a remote read or write.
func (w *wire) reach(f *flight) error {
	r := w.regions[binary.LittleEndian.Uint64(f.op.Remote[:])]
	if r == nil {
		return &btl.Error{Rail: "wire", Peer: f.to, Class: btl.ClassUsage, Err: errors.New("stale key")}
	}
	theirs := r.mem[f.op.RemoteOffset:]
	if f.isPut {
		copy(theirs, f.op.Payload)
	} else {
		copy(f.op.Payload, theirs)
	}
	return nil
}

// step delivers the i-th fragment, read or write in flight.
func (w *wire) step(i int) {
	f := w.flying[i]
	w.flying = append(w.flying[:i:i], w.flying[i+1:]...)
	if f.frag == nil {
		f.op.Done(f.op, w.reach(&f))
		return
	}
	w.pmls[f.to].Arrived(w.modules[f.to], f.from, f.tag, f.frag)
	if f.op != nil {
		f.op.Done(f.op, nil)
	}
}

// settle delivers everything, in order.
func (w *wire) settle() {
	for {
		n := 0
		for _, p := range w.pmls {
			n += p.Progress()
		}
		if len(w.flying) > 0 {
			w.step(0)
			n++
		}
		if n == 0 && w.refuse == 0 {
			return
		}
	}
}

// lose tells a rank that another rank is gone.
func (w *wire) lose(rank, peer int) {
	p, m := w.pmls[rank], w.modules[rank]
	p.Failed(m, btl.Path{Peer: peer}, &btl.Error{Rail: "wire", Peer: peer, Class: btl.ClassPeerGone, Err: errors.New("killed")})
	p.Drained(m, btl.Path{Peer: peer})
	p.Progress()
}

type testCaller struct{}

func (testCaller) Describe(_ string, _, _ int, err error) error { return err }

// testOwner is the owner of a team whose errors are not wrapped.
type testOwner struct{ testCaller }

func (testOwner) DescribeCollective(_ calls.ID, _ int, err error) error { return err }
func (testOwner) Panicked(v any) error                                  { return fmt.Errorf("panic: %v", v) }
func (testOwner) Crowded() bool                                         { return false }
func (testOwner) Host(rank int) int                                     { return rank }
func (testOwner) Hub() *Hub                                             { return new(Hub) }

// wireClock is the time of a wire.
type wireClock struct{ w *wire }

func (c wireClock) Now() int64 { return c.w.now }

// newWire makes n ranks that share a world context.
func newWire(n int, change func(w *wire)) (*wire, *pml.Group, []*pml.Context) {
	w := &wire{
		attrs:   btl.Attrs{Name: "wire", EagerBytes: 128, MaxSendBytes: 128, InlineBytes: 40, Caps: btl.CapInline},
		regions: map[uint64]*wireRegion{},
	}
	if change != nil {
		change(w)
	}
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	group := pml.NewGroup(ranks)
	var worlds []*pml.Context
	for rank := range n {
		m := &wireModule{w, rank}
		w.modules = append(w.modules, m)
		cfg := w.config
		cfg.Rank, cfg.Size, cfg.Engine = rank, n, progress.New(progress.Config{Clock: wireClock{w}})
		cfg.Resolve = func(peer int) ([]pml.Route, error) {
			return []pml.Route{{Module: m, Endpoint: &wireEndpoint{m, peer}}}, nil
		}
		p := pml.New(cfg)
		p.OnOrphan(Orphans(p))
		w.pmls = append(w.pmls, p)
		worlds = append(worlds, p.AddContext(pml.WorldContext, group, rank, testCaller{}))
	}
	return w, group, worlds
}

// withRemote gives the wire remote reads and writes, for all messages that are not sent eagerly.
func withRemote(protocol pml.Protocol) func(w *wire) {
	return func(w *wire) {
		w.attrs.Caps |= btl.CapGet | btl.CapPut
		w.attrs.RDMABytes = 1
		w.config.Protocol = protocol
	}
}

const teamContext pml.ContextID = 1

// newTeams is newWire with a team of all ranks.
func newTeams(n int, change func(w *wire)) (*wire, []*Team) {
	w, group, _ := newWire(n, change)
	var teams []*Team
	for rank, p := range w.pmls {
		teams = append(teams, NewTeam(p, teamContext, group, rank, testOwner{}))
	}
	return w, teams
}

// inCollective is newTeams with all ranks in the first collective, whose steps the test makes
// itself.
func inCollective(n int, change func(w *wire)) (*wire, []*Team, []*Schedule) {
	w, teams := newTeams(n, change)
	var all []*Schedule
	for _, t := range teams {
		all = append(all, t.Begin(Blocking, calls.Scan, NoRoot))
	}
	return w, teams, all
}

// irecv and isend post a message of a collective with a sequence number.
func (t *Team) irecv(buf []byte, source, seq int) *pml.RecvRequest {
	return t.p.Irecv(t.ctx, buf, 1, source, seq, "recv")
}

func (t *Team) isend(buf []byte, dest, seq int) *pml.SendRequest {
	return t.p.Isend(t.ctx, buf, dest, seq, pml.Standard, "send")
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i/251 + seed)
	}
	return b
}

// header is the header of a fragment of a team: that of a MATCH.
func header(id pml.ContextID, tag int, seq uint32) []byte {
	b := make([]byte, 16)
	binary.LittleEndian.PutUint64(b, uint64(id)|pml.Version<<56)
	binary.LittleEndian.PutUint64(b[8:], uint64(uint32(int32(tag)))|uint64(seq)<<32)
	return b
}

// sleep makes ranks idle for long, as the engine does. They then probe for a mismatch.
func (w *wire) sleep(ranks ...int) {
	for _, rank := range ranks {
		for range 2 {
			w.pmls[rank].Arm()
			w.pmls[rank].Progress()
		}
	}
}

// testingT is a test, or a fuzz target.
type testingT interface {
	require.TestingT
	Helper()
}

// requireClean checks that no rank has an operation under way or keeps a message.
func requireClean(t testingT, w *wire) {
	t.Helper()
	for rank, p := range w.pmls {
		require.Empty(t, p.Pending())
		require.Empty(t, p.Unreceived())
		require.Zero(t, p.Stats().UnexpectedBytes)
		require.Zero(t, p.Stats().Malformed)
		require.Zero(t, p.Busy())
		require.Empty(t, p.Leftovers(), "rank %d", rank)
	}
}
