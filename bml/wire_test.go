package bml

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// wire is a transport of fake rails. A posted operation waits in one queue until the test delivers
// it, so a test can choose its order and its moment.
type wire struct {
	t     testT
	ranks []*testRank
	rails [][]*wireModule // by rail, then rank
	attrs []btl.Attrs     // by rail
	grace int64           // of all ranks
	// change, if set, changes the configuration of each rank.
	change func(cfg *Config)
	// async operations complete when they arrive, others when they are posted.
	async  bool
	refuse int  // number of posts to refuse for want of room
	mended bool // failed rails can be opened again
	// isRead: devices read the payloads, so that Rebind fails.
	isRead bool
	// startDown: no rail has an endpoint at first.
	startDown bool
	flying    []flight
	now       int64 // the engines' time
	// inside is how many calls of a BTL into a BML are active.
	inside  int
	regions int // registered, and not released
}

// flight is an operation under way.
type flight struct {
	from, to, rail int
	tag            btl.Tag
	frag           []byte
	op             *btl.Op // to be called back; nil if it was
}

type wireModule struct {
	w          *wire
	rank, rail int
	attrs      *btl.Attrs
	endpoints  map[int]*wireEndpoint // the last incarnation, by peer
	down       map[int]error         // by peer: what every post returns
	fallen     error                 // why the whole rail has failed
	full       bool                  // it has no room
	limit      int                   // it has room for nothing longer; 0: for all
	opened     int                   // number of calls to make an incarnation
	openError  error                 // what such a call returns
}

type wireEndpoint struct {
	m                *wireModule
	to               int
	epoch            uint32
	state            btl.State
	cause            error // of Fail
	delivered, taken uint32
}

// wireClock is the time of a wire.
type wireClock struct{ w *wire }

func (c wireClock) Now() int64 { return c.w.now }

// newWire makes n ranks, with one rail unless a change says otherwise.
func newWire(t testT, n int, changes ...func(w *wire)) *wire {
	w := &wire{t: t, async: true}
	w.attrs = []btl.Attrs{{Name: "wire0", EagerBytes: 128, MaxSendBytes: 128, BandwidthMBps: 1000}}
	for _, change := range changes {
		change(w)
	}
	for rail := range w.attrs {
		var all []*wireModule
		for rank := range n {
			all = append(all, &wireModule{
				w: w, rank: rank, rail: rail, attrs: &w.attrs[rail], down: map[int]error{}, endpoints: map[int]*wireEndpoint{},
			})
		}
		w.rails = append(w.rails, all)
	}
	for rank := range n {
		eng := progress.New(progress.Config{Clock: wireClock{w}})
		r := newTestRank(t, rank, n, eng, w.grace, func(cfg *Config) {
			cfg.Resolve = func(peer int) ([]Route, error) { return w.routes(rank, peer), nil }
			if w.change != nil {
				w.change(cfg)
			}
		})
		eng.AddPoller(r)
		w.ranks = append(w.ranks, r)
	}
	return w
}

// withRails gives each pair of ranks this many rails, with remote reads and writes. The latency
// grows with the number of the rail.
func withRails(n int) func(w *wire) {
	return func(w *wire) {
		first := w.attrs[0]
		first.Caps |= btl.CapGet | btl.CapPut
		w.attrs = nil
		for i := range n {
			a := first
			a.Name, a.LatencyNanos = fmt.Sprintf("wire%d", i), int64(i)
			w.attrs = append(w.attrs, a)
		}
	}
}

func withGrace(nanos int64) func(w *wire) { return func(w *wire) { w.grace = nanos } }

// mended lets failed rails be opened again.
func mended(w *wire) { w.mended = true }

// synchronous has operations complete when they are posted.
func synchronous(w *wire) { w.async = false }

// withRoutes has a function change what each rank resolves a peer to.
func withRoutes(change func(all []Route)) func(w *wire) {
	return func(w *wire) {
		w.change = func(cfg *Config) {
			resolve := cfg.Resolve
			cfg.Resolve = func(peer int) ([]Route, error) {
				all, err := resolve(peer)
				change(all)
				return all, err
			}
		}
	}
}

// routes are all rails from one rank to another. With a grace time they can be opened again.
func (w *wire) routes(from, to int) (all []Route) {
	for rail := range w.rails {
		m := w.rails[rail][from]
		r := Route{Module: m, Local: rail, Remote: rail}
		if w.startDown {
			r.Down = pathError(rail)
		} else {
			r.Endpoint = m.open(to)
		}
		if w.grace > 0 {
			r.Reopen = func() (btl.Endpoint, error) { return m.reopen(to) }
		}
		all = append(all, r)
	}
	return all
}

// open makes the first incarnation of an endpoint.
func (m *wireModule) open(peer int) *wireEndpoint {
	m.endpoints[peer] = &wireEndpoint{m: m, to: peer, epoch: 1}
	return m.endpoints[peer]
}

// reopen makes the next incarnation of a drained endpoint, if the wire is mended.
func (m *wireModule) reopen(peer int) (btl.Endpoint, error) {
	m.opened++
	switch {
	case m.w.inside > 0:
		m.w.t.Errorf("an endpoint is opened inside a call of a BTL")
	case m.openError != nil:
		return nil, m.openError
	case !m.w.mended:
		return nil, btl.ErrFailed
	}
	delete(m.down, peer)
	epoch := uint32(0)
	if last := m.endpoints[peer]; last != nil {
		epoch = last.epoch
	}
	m.open(peer).epoch = epoch + 1
	return m.endpoints[peer], nil
}

// call runs f as a call of a BTL.
func (w *wire) call(f func()) {
	w.inside++
	f()
	w.inside--
}

// fail reports that the endpoint to a peer, or to all, has failed.
func (m *wireModule) fail(peer int, err *btl.Error) {
	if peer == btl.AllPeers {
		m.fallen = err
	}
	for to, ep := range m.endpoints {
		if peer == to || peer == btl.AllPeers {
			ep.state = max(ep.state, btl.Failed)
		}
	}
	m.w.call(func() { m.w.ranks[m.rank].Failed(m, m.path(peer), err) })
}

// drain calls back the operations under way with an error, and reports the endpoint as drained.
func (m *wireModule) drain(peer int) {
	for _, f := range m.take(peer) {
		m.w.end(f, &btl.Error{Rail: m.attrs.Name, Peer: f.to, Class: btl.ClassFlushed, Err: btl.ErrInjected})
	}
	for to, ep := range m.endpoints {
		if peer == to || peer == btl.AllPeers {
			ep.state = btl.Drained
		}
	}
	m.w.call(func() { m.w.ranks[m.rank].Drained(m, m.path(peer)) })
}

// path is that to a peer, or the whole rail.
func (m *wireModule) path(peer int) btl.Path {
	if peer == btl.AllPeers {
		return btl.WholeModule
	}
	return btl.Path{Peer: peer, Module: uint8(m.rail)}
}

// take takes the operations of a module to a peer out of the queue.
func (m *wireModule) take(peer int) (mine []flight) {
	m.w.flying = slices.DeleteFunc(m.w.flying, func(f flight) bool {
		isMine := f.from == m.rank && f.rail == m.rail && (f.to == peer || peer == btl.AllPeers)
		if isMine {
			mine = append(mine, f)
		}
		return isMine
	})
	return mine
}

// lose is fail and drain, and a turn of progress.
func (m *wireModule) lose(peer int, err *btl.Error) {
	m.fail(peer, err)
	m.drain(peer)
	m.w.ranks[m.rank].Progress()
}

func (m *wireModule) Attrs() *btl.Attrs { return m.attrs }
func (m *wireModule) Address() []byte   { return nil }
func (m *wireModule) Connect(to btl.Path, _ []byte) (btl.Endpoint, error) {
	return nil, btl.ErrUnreachable
}
func (m *wireModule) Progress() int { return 0 }
func (m *wireModule) Fail(error)    {}
func (m *wireModule) Close() error  { return nil }

// wireRegion is registered memory.
type wireRegion struct {
	m        *wireModule
	released bool
}

func (m *wireModule) Register([]byte, btl.Access) (btl.Region, error) {
	m.w.regions++
	return &wireRegion{m: m}, nil
}

func (r *wireRegion) Key() btl.Key { return btl.Key{byte(r.m.rail)} }

func (r *wireRegion) Release() error {
	if r.released {
		return errors.New("released")
	}
	r.released = true
	r.m.w.regions--
	return nil
}

func (e *wireEndpoint) Path() btl.Path                              { return e.m.path(e.to) }
func (e *wireEndpoint) Epoch() uint32                               { return e.epoch }
func (e *wireEndpoint) State() btl.State                            { return e.state }
func (e *wireEndpoint) Get(op *btl.Op) error                        { return e.Send(op) }
func (e *wireEndpoint) Put(op *btl.Op) error                        { return e.Send(op) }
func (e *wireEndpoint) DeliveryCounters() (delivered, taken uint32) { return e.delivered, e.taken }

// Fail fails the endpoint. The test says when it is drained.
func (e *wireEndpoint) Fail(cause error) {
	if e.m.w.inside > 0 {
		e.m.w.t.Errorf("an endpoint is failed inside a call of a BTL")
	}
	if e.state != btl.Up {
		return
	}
	e.cause = cause
	err := &btl.Error{Rail: e.m.attrs.Name, Peer: e.to, Class: btl.ClassClosed, Side: btl.SideLocal, Err: cause}
	errors.As(cause, &err)
	e.m.fail(e.to, err)
}

func (e *wireEndpoint) Rebind(op *btl.Op, payload []byte) bool {
	if e.m.w.isRead {
		return false
	}
	op.Payload = payload
	return true
}

func (e *wireEndpoint) Send(op *btl.Op) error {
	w := e.m.w
	if err := e.m.down[e.to]; err != nil {
		return err
	}
	switch {
	case e.state != btl.Up:
		return btl.ErrFailed
	case e.m.full, e.m.limit > 0 && op.Len() > e.m.limit:
		return btl.ErrResource
	case w.refuse > 0:
		w.refuse--
		return btl.ErrResource
	case op.Len() > e.m.attrs.MaxSendBytes && op.Tag != TagGet && op.Tag != TagPut:
		return btl.ErrTooLong
	}
	f := flight{from: e.m.rank, to: e.to, rail: e.m.rail, tag: op.Tag, op: op}
	f.frag = append(append(f.frag, op.Header()...), op.Payload...)
	if !w.async {
		f.op = nil
	}
	w.flying = append(w.flying, f)
	if !w.async {
		op.Done(op, nil)
	}
	return nil
}

// SendInline takes a fragment at once.
func (e *wireEndpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	w := e.m.w
	if e.state != btl.Up || e.m.down[e.to] != nil || w.refuse > 0 {
		return false
	}
	w.flying = append(w.flying, flight{
		from: e.m.rank, to: e.to, rail: e.m.rail, tag: tag, frag: append(append([]byte(nil), hdr...), payload...),
	})
	return true
}

// end calls an operation back.
func (w *wire) end(f flight, err error) {
	if f.op != nil {
		w.call(func() { f.op.Done(f.op, err) })
	}
}

// arrive hands up a fragment.
func (w *wire) arrive(rail, from, to int, tag btl.Tag, frag []byte) {
	w.call(func() { w.ranks[to].Arrived(w.rails[rail][to], from, tag, frag) })
}

// step delivers the i-th operation.
func (w *wire) step(i int) {
	f := w.flying[i]
	w.flying = slices.Delete(w.flying, i, i+1)
	if f.tag != TagGet && f.tag != TagPut {
		w.arrive(f.rail, f.from, f.to, f.tag, f.frag)
	}
	w.end(f, nil)
}

// settle delivers everything, in order.
func (w *wire) settle() {
	for range 1000 {
		deferred := 0
		for _, r := range w.ranks {
			r.Progress()
			deferred += r.Deferred()
		}
		if len(w.flying) > 0 {
			w.step(0)
		} else if deferred == 0 {
			return
		}
	}
	w.t.Errorf("the wire does not settle")
}

// pass lets time pass. All ranks make turns, and no operation under way arrives.
func (w *wire) pass(nanos int64) {
	for end := w.now + nanos; w.now < end; w.now += msec {
		for range 8 {
			for _, r := range w.ranks {
				r.eng.Turn()
			}
		}
	}
}

// passDelivering lets time pass. Everything under way is acknowledged, and arrives nowhere.
func (w *wire) passDelivering(nanos int64) {
	for end := w.now + nanos; w.now < end; {
		w.pass(msec)
		w.acknowledge()
	}
}

// acknowledge has everything under way end as delivered.
func (w *wire) acknowledge() {
	flying := w.flying
	w.flying = nil
	for _, f := range flying {
		w.end(f, nil)
	}
}

// on lists the operations under way with a tag.
func (w *wire) on(tag btl.Tag) (all []flight) {
	for _, f := range w.flying {
		if f.tag == tag {
			all = append(all, f)
		}
	}
	return all
}

// pathError is an error of a rail that blames neither side.
func pathError(rail int) *btl.Error {
	return &btl.Error{Rail: fmt.Sprintf("wire%d", rail), Peer: 1, Class: btl.ClassPath, Err: btl.ErrInjected}
}

// peerGone is the error of a peer whose process has ended.
func peerGone(rail int) *btl.Error {
	err := pathError(rail)
	err.Class = btl.ClassPeerGone
	return err
}

// railMessage is the bytes of a message about a rail.
func railMessage(h railHeader) []byte {
	b := make([]byte, railBytes+h.padding)
	h.version = testVersion
	h.encode(b)
	return b
}

// numbered is the bytes of a numbered fragment.
func numbered(seq uint32, payload string) []byte {
	b := make([]byte, testHeaderBytes)
	binary.LittleEndian.PutUint32(b[12:], seq)
	return append(b, payload...)
}
