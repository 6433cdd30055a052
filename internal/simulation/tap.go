package simulation

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Names of operations that are not fragments.
const (
	remoteRead  = "read"
	remoteWrite = "write"
)

// tap stands between a module and the PML of its rank, in both directions. It records operations
// and events, aims faults at kinds of fragments, and delays polls and events.
type tap struct {
	btl.Module
	w          *world
	rank, rail int
	until      int64 // the rail is not polled before that time

	// pending are delayed events, the first of which is a Drained. They are reported at
	// pendingUntil.
	pending      []func()
	pendingUntil int64
	// late are the buffers of failed reads to endpoints that are not drained.
	late []lateRead
	// refused are operations that are to be called back, see endRefused.
	refused []func()
}

// aim is a fault that waits for an operation with a name.
type aim struct {
	name  string
	fault btl.FaultKind
	// delayed: instead of the fault, the endpoint fails at once, and posted fragments arrive later.
	delayed bool
	left    int // number of such operations that still pass
}

func (a *aim) String() string {
	if a.delayed {
		return delayedFault
	}
	return a.fault.String()
}

// delayedFault is the name of the fault of an aim that is delayed.
const delayedFault = "delayed"

var errReleased = errors.New("released twice")

// sleep keeps the rank from polling the rail for 2^bits ns.
func (t *tap) sleep(bits int) { t.until = max(t.until, t.w.net.Now()+1<<bits) }

// region is a registered region. The rank counts its regions.
type region struct {
	btl.Region
	r        *rank
	released bool
}

func (r *region) Release() error {
	if r.released {
		r.r.w.fail("leak", "a region was released twice")
		return errReleased
	}
	r.released = true
	r.r.regions--
	return r.Region.Release()
}

// Register implements btl.Registrar.
func (t *tap) Register(mem []byte, access btl.Access) (btl.Region, error) {
	if t.cannotRegister() {
		return nil, btl.ErrMemory
	}
	inner, err := t.Module.(btl.Registrar).Register(mem, access)
	if err != nil {
		return nil, err
	}
	r := t.w.ranks[t.rank]
	r.regions++
	return &region{Region: inner, r: r}, nil
}

// connect makes an endpoint to a port, with its current address: the launcher tells ranks about
// addresses that change.
func (t *tap) connect(to port) (btl.Endpoint, error) {
	at, address := to.rank, t.Address()
	if own, ok := t.w.net.ownRail(); ok && t.rail == own {
		at = 0 // a rank's own fabric has only rank 0
	} else {
		address = t.w.ranks[to.rank].taps[to.rail].Address()
	}
	ep, err := t.Connect(btl.Path{Peer: at, Module: uint8(to.rail)}, address)
	if err != nil {
		return nil, err
	}
	e := &tapEndpoint{Endpoint: ep, t: t, peer: to.rank, remote: to.rail}
	if _, ok := ep.(btl.Inliner); ok {
		return inlineEnd{e}, nil
	}
	return e, nil
}

// tapEndpoint is an endpoint of a tap.
type tapEndpoint struct {
	btl.Endpoint
	t            *tap
	peer, remote int
}

// Path implements btl.Endpoint.
func (e *tapEndpoint) Path() btl.Path { return btl.Path{Peer: e.peer, Module: uint8(e.remote)} }

// Send implements btl.Endpoint.
func (e *tapEndpoint) Send(op *btl.Op) error {
	return e.post(e.t.w.ranks[e.t.rank].p.FragmentName(op.Tag), op, e.Endpoint.Send)
}

// Put implements btl.Putter.
func (e *tapEndpoint) Put(op *btl.Op) error {
	return e.post(remoteWrite, op, e.Endpoint.(btl.Putter).Put)
}

// Get implements btl.Getter.
func (e *tapEndpoint) Get(op *btl.Op) error {
	done, t := op.Done, e.t
	op.Done = func(op *btl.Op, err error) {
		op.Done = done
		var be *btl.Error
		if errors.As(err, &be) && be.Class != btl.ClassUsage {
			t.late = append(t.late, lateRead{e.Path(), op.Payload})
		}
		done(op, err)
	}
	err := e.post(remoteRead, op, e.Endpoint.(btl.Getter).Get)
	if err != nil {
		op.Done = done
	}
	return err
}

// DeliveryCounters implements btl.DeliveryCounter. For the BML, zeros mean that the endpoint does
// not count.
func (e *tapEndpoint) DeliveryCounters() (delivered, taken uint32) {
	if t, ok := e.Endpoint.(btl.DeliveryCounter); ok {
		return t.DeliveryCounters()
	}
	return 0, 0
}

func (e *tapEndpoint) post(name string, op *btl.Op, how func(*btl.Op) error) error {
	local := op.Local
	if r, ok := local.(*region); ok {
		op.Local = r.Region
	}
	t := e.t
	t.w.note(evPost, t.rank, e.peer, t.rail, uint64(op.Tag), uint64(op.Len()))
	r := t.w.ranks[t.rank]
	i := slices.IndexFunc(r.aims, func(a *aim) bool { return a.name == name })
	var a *aim
	before := 0
	if i >= 0 {
		if a = r.aims[i]; a.left > 0 {
			a.left--
			a = nil
		}
	}
	if a != nil {
		r.aims = slices.Delete(r.aims, i, i+1)
	}
	if a != nil && !a.delayed {
		in := t.Module.(btl.Injector)
		before = in.Fired()
		in.Inject(btl.Fault{Kind: a.fault, Peer: e.Endpoint.Path().Peer, Count: 1})
	}
	isDelayed := a != nil && a.delayed && t.rail < len(t.w.plan.setup.rails)
	if isDelayed {
		t.w.net.slow(t.rail, 1<<(10+t.w.rng.IntN(15)))
	}
	line := ""
	if t.w.ladder != nil { // before the callback posts other operations
		line = t.w.ladder.posting(e, name, op)
	}
	err := e.postOrRefuse(name, op, how)
	if isDelayed {
		t.w.net.slow(t.rail, t.w.latency[t.rail])
	}
	if err != nil {
		op.Local = local
	} else if t.w.ladder != nil {
		t.w.ladder.line(line)
	}
	switch {
	case a == nil:
	case a.delayed:
		if err == nil {
			r.failing = append(r.failing, e)
			t.recordHit(name, e, a)
			// The peer does not poll its half for a while, so stale fragments can arrive there.
			t.w.ranks[e.peer].tap(e.remote).sleep(18 + t.w.rng.IntN(9))
		}
	case a.fault == btl.FaultErrorDelivered && err == nil || t.Module.(btl.Injector).Fired() > before:
		t.recordHit(name, e, a)
	}
	return err
}

func (t *tap) recordHit(name string, e *tapEndpoint, a *aim) {
	t.w.result.Hits[Hit{name, a.String()}]++
	t.w.traceAll("fault %[5]v hits %[1]s from rank %[2]d to rank %[3]d on rail %[4]d", name, t.rank, e.peer, t.rail, a)
	t.w.delay(e.peer, e.remote)
}

// delay makes a rank poll only two of its rails for a while, the given one and a random one. In
// half of the cases it has no effect.
func (w *world) delay(peer, rail int) {
	if w.rng.IntN(2) == 0 {
		return
	}
	n := w.plan.setup.portsOf(peer)
	quick := w.rng.IntN(n)
	for i := range n {
		if i != rail && i != quick {
			w.ranks[peer].taps[i].sleep(20 + w.rng.IntN(7))
		}
	}
}

// The events of a module, which a tap passes on to the PML of its rank.

// lateRead is the buffer of a failed read. The transport may write the requested bytes to it until
// the endpoint is drained. That is harmless while the receive is active.
type lateRead struct {
	path btl.Path
	buf  []byte
}

// lateByte is the byte that the tap writes to that buffer when the endpoint is drained, if the
// receive is over. So a check fails if a receive completed too early.
const lateByte = 0xDD

// Arrived implements btl.Events.
func (t *tap) Arrived(_ btl.Module, peer int, tag btl.Tag, frag []byte) {
	if len(t.pending) > 0 {
		frag = slices.Clone(frag)
		t.pending = append(t.pending, func() { t.arrived(peer, tag, frag) })
		return
	}
	t.arrived(peer, tag, frag)
}

func (t *tap) arrived(peer int, tag btl.Tag, frag []byte) {
	w := t.w
	w.note(evArrive, peer, t.rank, t.rail, uint64(tag), uint64(len(frag)))
	f, err := w.ranks[t.rank].p.Look(tag, frag)
	if err != nil {
		w.fail("protocol", "rank %d sent rank %d a malformed fragment: %v", peer, t.rank, err)
	}
	w.cover(peer, t.rank, f)
	w.ranks[t.rank].matching.fragment(peer, f)
	if w.ladder != nil {
		w.ladder.arrive(t, peer, f, len(frag))
	}
	w.ranks[t.rank].arrived(t, peer, tag, frag, f)
}

// Failed implements btl.Events. The tap does not delay it, because callbacks of operations follow.
func (t *tap) Failed(_ btl.Module, to btl.Path, err *btl.Error) {
	t.reportAll()
	t.w.note(evFail, t.rank, to.Peer, t.rail, uint64(err.Class), 0)
	t.w.traceOf(t.rank, "rail %d to %s fails: %v", t.rail, peerName(to.Peer), err)
	t.w.ranks[t.rank].p.Failed(t, to, err)
}

// Drained implements btl.Events. The tap may delay it, and then delays all later events, too.
func (t *tap) Drained(_ btl.Module, to btl.Path) {
	if len(t.pending) == 0 {
		if t.w.rng.IntN(4) > 0 {
			t.drained(to)
			return
		}
		t.pendingUntil = t.w.net.Now() + 1<<t.w.rng.IntN(25)
	}
	t.pending = append(t.pending, func() { t.drained(to) })
}

// reportDue reports the delayed events when their time has come.
func (t *tap) reportDue() {
	if len(t.pending) > 0 && t.w.net.Now() >= t.pendingUntil {
		t.reportAll()
	}
}

func (t *tap) reportAll() {
	pending := t.pending
	t.pending = nil
	for _, f := range pending {
		f()
	}
}

func (t *tap) drained(to btl.Path) {
	t.late = slices.DeleteFunc(t.late, func(l lateRead) bool {
		if to != btl.WholeModule && to != l.path {
			return false
		}
		if _, isActive := t.w.ranks[t.rank].p.User(l.buf); !isActive {
			for i := range l.buf {
				l.buf[i] = lateByte
			}
		}
		return true
	})
	t.endRefused()
	t.w.note(evDrain, t.rank, to.Peer, t.rail, 0, 0)
	t.w.traceOf(t.rank, "rail %d to %s is drained", t.rail, peerName(to.Peer))
	t.w.ranks[t.rank].p.Drained(t, to)
}
