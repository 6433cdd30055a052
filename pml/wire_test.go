package pml

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// wire is a transport for tests of this package. Posted operations wait in one queue until the test
// delivers them, so a test can choose their order and its own moment.
type wire struct {
	t       wireT
	pmls    []*PML
	modules []*wireModule   // by rank, of the first rail
	rails   [][]*wireModule // by rail, then rank
	attrs   btl.Attrs       // of the first rail
	others  []btl.Attrs     // of the other rails
	config  Config          // of all ranks
	async   bool            // operations complete only when they are delivered
	keeps   bool            // the same, and the payload is read only then
	refuse  int             // number of posts to refuse for lack of room
	// wrong, if set, reports which operations are refused as invalid (btl.ClassUsage): when they
	// are posted, or with later when they are called back.
	wrong func(f *flight) bool
	later bool
	// delivered says that operations that are refused later have arrived nevertheless.
	delivered bool
	flying    []flight
	now       int64 // the engines' time, in nanoseconds
	mended    bool  // failed rails can be opened again
	// log, if set, is called for each step of an operation.
	log func(what string, f *flight)

	wireMemory
}

// flight is an operation under way: a fragment, or a remote read or write.
type flight struct {
	from, to int
	rail     int
	tag      btl.Tag
	frag     []byte  // nil of a read or write
	op       *btl.Op // to be called back; may be nil
	failed   error   // with which a read or write is to be called back
}

// isRemote reports whether it is a read or a write.
func (f *flight) isRemote() bool { return f.tag == bml.TagGet || f.tag == bml.TagPut }

type wireModule struct {
	w          *wire
	rank, rail int
	attrs      *btl.Attrs
	down       map[int]error // by peer: the result of every post
	failed     []int         // peers whose endpoints were failed (Endpoint.Fail)
	fallen     error         // why the whole rail has failed; nil while it has not
	epochs     map[int]uint32
}

// lose reports that the rail to a peer, or to all peers, has failed and is drained.
func (m *wireModule) lose(peer int, err *btl.Error) {
	if peer == btl.AllPeers {
		m.fallen = err
	}
	m.w.pmls[m.rank].Failed(m, m.path(peer), err)
	m.drain(peer)
}

// drain reports that the rail to a peer is drained.
func (m *wireModule) drain(peer int) {
	p := m.w.pmls[m.rank]
	p.Drained(m, m.path(peer))
	p.Progress()
}

// path is the path to a peer, or the whole rail.
func (m *wireModule) path(peer int) btl.Path {
	if peer == btl.AllPeers {
		return btl.WholeModule
	}
	return btl.Path{Peer: peer, Module: uint8(m.rail)}
}

type wireEndpoint struct {
	m     *wireModule
	to    int
	epoch uint32
}

// wireClock is the time of a wire.
type wireClock struct{ w *wire }

func (c wireClock) Now() int64 { return c.w.now }

// reopen makes the next incarnation of a failed rail, if the wire is mended.
func (m *wireModule) reopen(peer int) (btl.Endpoint, error) {
	if !m.w.mended {
		return nil, btl.ErrFailed
	}
	delete(m.down, peer)
	m.epochs[peer]++
	return &wireEndpoint{m, peer, m.epochs[peer]}, nil
}

func (w *wire) newModule(rank, rail int) *wireModule {
	m := &wireModule{w: w, rank: rank, rail: rail, attrs: &w.attrs, down: map[int]error{}, epochs: map[int]uint32{}}
	if rail > 0 {
		m.attrs = &w.others[rail-1]
	}
	return m
}

// route is a rail to a peer, where it has the number remote.
func (m *wireModule) route(peer, remote int) bml.Route {
	return bml.Route{Module: m, Endpoint: &wireEndpoint{m, peer, 1}, Local: m.rail, Remote: remote}
}

func (m *wireModule) Attrs() *btl.Attrs { return m.attrs }
func (m *wireModule) Address() []byte   { return nil }
func (m *wireModule) Connect(to btl.Path, _ []byte) (btl.Endpoint, error) {
	return nil, btl.ErrUnreachable
}
func (m *wireModule) Progress() int { return 0 }
func (m *wireModule) Fail(error)    {}
func (m *wireModule) Close() error  { return nil }

func (e *wireEndpoint) Path() btl.Path   { return e.m.path(e.to) }
func (e *wireEndpoint) Epoch() uint32    { return e.epoch }
func (e *wireEndpoint) State() btl.State { return btl.Up }
func (e *wireEndpoint) Fail(err error)   { e.m.failed = append(e.m.failed, e.to) }

// Rebind succeeds for fragments, because the wire copies them when they are posted. It fails for
// writes, whose payload is read at delivery, as by a device.
func (e *wireEndpoint) Rebind(op *btl.Op, payload []byte) bool {
	if slices.ContainsFunc(e.m.w.flying, func(f flight) bool { return f.op == op && f.tag == bml.TagPut }) {
		return false
	}
	op.Payload = payload
	return true
}

func (e *wireEndpoint) Send(op *btl.Op) error {
	w := e.m.w
	f := flight{from: e.m.rank, to: e.to, rail: e.m.rail, tag: op.Tag, frag: append(append([]byte(nil), op.Header()...), op.Payload...)}
	if err := e.refuses(&f); err != nil {
		return err
	}
	if n := op.Len(); n > e.m.attrs.MaxSendBytes {
		w.t.Errorf("a fragment of %d bytes", n)
	}
	if w.async || w.keeps {
		f.op = op
	}
	w.note("posted", &f)
	w.flying = append(w.flying, f)
	if f.op == nil {
		op.Done(op, nil)
	}
	return nil
}

// refuses returns the error of a post that is not accepted.
func (e *wireEndpoint) refuses(f *flight) error {
	w := e.m.w
	if err := e.m.down[e.to]; err != nil {
		return err
	}
	if w.refuse > 0 {
		w.refuse--
		w.note("refused", f)
		return btl.ErrResource
	}
	if !w.later && w.wrong != nil && w.wrong(f) {
		return btl.ErrTooLong
	}
	return nil
}

func (e *wireEndpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	w := e.m.w
	if e.m.down[e.to] != nil || w.refuse > 0 {
		return false
	}
	if n := len(hdr) + len(payload); n > e.m.attrs.InlineBytes {
		w.t.Errorf("an inline fragment of %d bytes", n)
	}
	f := flight{from: e.m.rank, to: e.to, rail: e.m.rail, tag: tag, frag: append(append([]byte(nil), hdr...), payload...)}
	w.note("posted inline", &f)
	w.flying = append(w.flying, f)
	return true
}

func (w *wire) note(what string, f *flight) {
	if w.log != nil {
		w.log(what, f)
	}
}

type testCaller struct{}

func (testCaller) Describe(_ string, _, _ int, err error) error { return err }

// newWire makes n ranks that share a world context.
func newWire(t wireT, n int, changes ...func(w *wire)) (*wire, []*Context) {
	w := &wire{t: t, attrs: btl.Attrs{Name: "wire", EagerBytes: 128, MaxSendBytes: 128, InlineBytes: 40, Caps: btl.CapInline}}
	for _, change := range changes {
		change(w)
	}
	world := make([]int, n)
	for i := range world {
		world[i] = i
	}
	group := NewGroup(world)
	w.rails = make([][]*wireModule, 1+len(w.others))
	var ctxs []*Context
	for rank := range n {
		for rail := range w.rails {
			w.rails[rail] = append(w.rails[rail], w.newModule(rank, rail))
		}
		cfg := w.config
		cfg.Rank, cfg.Size, cfg.Engine = rank, n, progress.New(progress.Config{Clock: wireClock{w}})
		cfg.Resolve = func(peer int) ([]bml.Route, error) {
			var routes []bml.Route
			for rail := range w.rails {
				m := w.rails[rail][rank]
				if m.fallen != nil && len(w.rails) == 1 {
					return nil, m.fallen
				}
				m.epochs[peer] = 1
				r := m.route(peer, rail)
				if cfg.GraceNanos > 0 {
					r.Reopen = func() (btl.Endpoint, error) { return m.reopen(peer) }
				}
				routes = append(routes, r)
			}
			return routes, nil
		}
		cfg.OnIllegal = func(what string) { t.Errorf("illegal transition: %s", what) }
		p := New(cfg)
		w.pmls = append(w.pmls, p)
		ctxs = append(ctxs, p.AddContext(WorldContext, group, rank, testCaller{}))
	}
	w.modules = w.rails[0]
	return w, ctxs
}

// withRemote gives the first rail remote reads or writes, for all messages that are not eager.
func withRemote(caps btl.Caps) func(w *wire) {
	return func(w *wire) {
		w.attrs.Caps |= caps
		w.attrs.RDMABytes = 1
	}
}

func withAsync(async bool) func(w *wire) { return func(w *wire) { w.async = async } }

func withProtocol(p Protocol) func(w *wire) { return func(w *wire) { w.config.Protocol = p } }

func withWindow(bytes int64) func(w *wire) { return func(w *wire) { w.config.WindowBytes = bytes } }

func withGrace(nanos int64) func(w *wire) { return func(w *wire) { w.config.GraceNanos = nanos } }

// withRails gives each pair of ranks a rail for each weight, with remote reads and writes.
func withRails(weights ...int64) func(w *wire) {
	return func(w *wire) {
		withRemote(getPut)(w)
		w.attrs.BandwidthMBps = weights[0]
		for i, weight := range weights[1:] {
			a := w.attrs
			a.Name, a.BandwidthMBps, a.LatencyNanos = fmt.Sprintf("wire%d", i+1), weight, int64(i+1)
			w.others = append(w.others, a)
		}
	}
}

// withTwoKeys lets an announcement and its answer have two remote key descriptors. It comes after
// withRails.
func withTwoKeys(w *wire) {
	w.attrs.MaxSendBytes = 256
	for i := range w.others {
		w.others[i].MaxSendBytes = 256
	}
}

// step delivers the i-th operation under way.
func (w *wire) step(i int) {
	f := w.flying[i]
	if i == 0 {
		w.flying = w.flying[1:]
	} else {
		w.flying = append(w.flying[:i:i], w.flying[i+1:]...)
	}
	if w.later && w.wrong != nil && w.wrong(&f) {
		w.note("is refused", &f)
		if w.delivered && !f.isRemote() {
			w.pmls[f.to].Arrived(w.rails[f.rail][f.to], f.from, f.tag, f.frag)
		}
		f.op.Done(f.op, usage("fragment too long"))
		return
	}
	if f.isRemote() {
		err := w.reach(&f)
		if err != nil {
			w.note("fails", &f)
		} else {
			w.note("is done", &f)
		}
		f.op.Done(f.op, err)
		return
	}
	if w.keeps && f.op != nil {
		f.frag = append(append(f.frag[:0:0], f.op.Header()...), f.op.Payload...)
	}
	w.note("arrives", &f)
	w.pmls[f.to].Arrived(w.rails[f.rail][f.to], f.from, f.tag, f.frag)
	if f.op != nil {
		f.op.Done(f.op, nil)
	}
}

// take takes the operations that match out of the queue.
func (w *wire) take(matches func(f *flight) bool) (taken []flight) {
	w.flying = slices.DeleteFunc(w.flying, func(f flight) bool {
		matching := matches(&f)
		if matching {
			taken = append(taken, f)
		}
		return matching
	})
	return taken
}

// failPieces loses every piece of a message that is under way, and calls it back with an error.
func (w *wire) failPieces() {
	for _, f := range w.take(func(f *flight) bool { return isBound(f.tag) }) {
		f.op.Done(f.op, &btl.Error{Rail: "wire", Peer: f.to, Class: btl.ClassPath, Err: btl.ErrInjected})
	}
}

// loseRail fails a rank's half of a rail and the operations on it. It stays Failed.
func (w *wire) loseRail(rail, rank int) {
	m := w.rails[rail][rank]
	w.pmls[rank].Failed(m, m.path(1-rank), pathErr)
	for _, f := range w.take(func(f *flight) bool { return f.rail == rail && f.from == rank }) {
		if f.op != nil {
			f.op.Done(f.op, pathErr)
		}
	}
}

// elapse lets time pass for all ranks.
func (w *wire) elapse(d time.Duration) {
	w.now += int64(d)
	for _, p := range w.pmls {
		for range 8 { // one of them checks timers
			p.eng.Turn()
		}
	}
}

// pass is elapse, and delivers everything.
func (w *wire) pass(d time.Duration) {
	w.elapse(d)
	w.settle()
}

// settle delivers everything in order.
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
		if n == 0 && !anyBlocked(w) {
			return
		}
	}
}

// ended is a request of any kind.
type ended interface {
	State() request.State
	Take() (request.Status, error)
}

// requireSuccess checks that requests are complete without an error, and takes them. It returns the
// status of the last one.
func requireSuccess(t require.TestingT, all ...ended) (st request.Status) {
	for i, r := range all {
		require.Equal(t, request.Complete, r.State(), "request %d", i)
		var err error
		st, err = r.Take()
		require.NoError(t, err, "request %d", i)
	}
	return st
}

// requireFailure is requireSuccess for requests that end with an error. It returns the last error.
func requireFailure(t require.TestingT, want error, all ...ended) (err error) {
	for i, r := range all {
		require.Equal(t, request.Complete, r.State(), "request %d", i)
		_, err = r.Take()
		require.ErrorIs(t, err, want, "request %d", i)
	}
	return err
}

// requireArrival receives a message of rank 0 at rank 1, and checks its bytes.
func requireArrival(t require.TestingT, w *wire, c *Context, tag int, want []byte) {
	out := make([]byte, len(want))
	r := w.pmls[1].Irecv(c, out, 1, 0, tag, "recv")
	w.settle()
	require.EqualValues(t, len(want), requireSuccess(t, r).Bytes)
	require.Equal(t, want, out)
}

// newPairContext makes a communicator of ranks 0 and 1 of a job of two.
func newPairContext(w *wire, c []*Context) (id ContextID, c0, c1 *Context) {
	id = w.pmls[0].NewContextID()
	c0 = w.pmls[0].AddContext(id, c[0].group, 0, testCaller{})
	return id, c0, w.pmls[1].AddContext(id, c[1].group, 1, testCaller{})
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i/251 + seed)
	}
	return b
}

func TestMessageOfEverySizeAndModeArrives(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, n := range []int{0, 1, 24, 25, 96, 97, 112, 113, 1000, 100_000} {
			for _, mode := range []Mode{Standard, Synchronous, Ready, Buffered} {
				for _, expected := range []bool{true, false} {
					w, c := newWire(t, 2, withAsync(async))
					exchange(t, w, c, n, n, mode, expected)
				}
			}
		}
	}
}

// wireT is the part of a test, benchmark or fuzz target that newWire needs.
type wireT interface {
	require.TestingT
	Errorf(format string, args ...any)
}

// anyBlocked reports whether a rank has operations that wait for a rail.
func anyBlocked(w *wire) bool {
	return slices.ContainsFunc(w.pmls, isBlocked)
}
