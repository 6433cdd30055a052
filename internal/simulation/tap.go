package simulation

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Names of what is no fragment.
const (
	remoteRead  = "read"
	remoteWrite = "write"
)

// tap is a rank's rail as its PML sees it: the module itself, with somebody between who notes what goes over it, and aims faults at
// fragments of a kind. It is also what the module reports to.
type tap struct {
	btl.Module
	w          *world
	rank, rail int
	until      int64 // when it is looked at again

	// What the module has told and the PML not yet heard, from a Drained on, and when it does.
	untold []func()
	tellAt int64
	// late are the buffers of reads that ended in an error. Until Drained the transport may still write to them.
	late []lateRead
	// refused are operations that are to be called back, see endRefused.
	refused []func()
}

// aim is a fault that waits for a fragment of a kind.
type aim struct {
	name  string
	fault btl.FaultKind
	ghost bool // instead: the endpoint fails at once, and what was posted arrives later
	left  int  // fragments that still pass
}

func (a *aim) String() string {
	if a.ghost {
		return ghostFault
	}
	return a.fault.String()
}

// ghostFault is the name of what a ghost is.
const ghostFault = "ghost"

var errReleased = errors.New("released twice")

// sleep has nobody look at a rail for 2^bits ns.
func (t *tap) sleep(bits int) { t.until = max(t.until, t.w.net.Now()+1<<bits) }

// region is one of a tap's, counted.
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

// connect makes the endpoint to a peer.
func (t *tap) connect(peer int) (btl.Endpoint, error) {
	at := peer
	if own, ok := t.w.net.ownRail(); ok && t.rail == own {
		at = 0 // of a fabric of a single rank
	}
	ep, err := t.Connect(at, t.w.ranks[peer].taps[t.rail].Card())
	if err != nil {
		return nil, err
	}
	e := &end{Endpoint: ep, t: t, peer: peer}
	if _, ok := ep.(btl.Inliner); ok {
		return inlineEnd{e}, nil
	}
	return e, nil
}

// end is an endpoint of a tap.
type end struct {
	btl.Endpoint
	t    *tap
	peer int
}

// Peer implements btl.Endpoint.
func (e *end) Peer() int { return e.peer }

// Send implements btl.Endpoint.
func (e *end) Send(op *btl.Op) error {
	return e.post(e.t.w.ranks[e.t.rank].p.FragmentName(op.Tag), op, e.Endpoint.Send)
}

// Put implements btl.Putter.
func (e *end) Put(op *btl.Op) error {
	return e.post(remoteWrite, op, e.Endpoint.(btl.Putter).Put)
}

// Get implements btl.Getter.
func (e *end) Get(op *btl.Op) error {
	done, t := op.Done, e.t
	op.Done = func(op *btl.Op, err error) {
		op.Done = done
		var be *btl.Error
		if errors.As(err, &be) && be.Class != btl.ClassUsage {
			t.late = append(t.late, lateRead{e.peer, op.Payload})
		}
		done(op, err)
	}
	err := e.post(remoteRead, op, e.Endpoint.(btl.Getter).Get)
	if err != nil {
		op.Done = done
	}
	return err
}

// Tally implements btl.Tallier. What counts nothing has carried nothing.
func (e *end) Tally() (delivered, taken uint32) {
	if t, ok := e.Endpoint.(btl.Tallier); ok {
		return t.Tally()
	}
	return 0, 0
}

func (e *end) post(name string, op *btl.Op, how func(*btl.Op) error) error {
	local := op.Local
	if r, ok := local.(*region); ok {
		op.Local = r.Region
	}
	t := e.t
	t.w.note(evPost, t.rank, e.Peer(), t.rail, uint64(op.Tag), uint64(op.Len()))
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
	if a != nil && !a.ghost {
		in := t.Module.(btl.Injector)
		before = in.Fired()
		in.Inject(btl.Fault{Kind: a.fault, Peer: e.Endpoint.Peer(), Count: 1})
	}
	isLate := a != nil && a.ghost && t.rail < len(t.w.plan.setup.rails)
	if isLate {
		t.w.net.slow(t.rail, 1<<(10+t.w.rng.IntN(15)))
	}
	line := ""
	if t.w.ladder != nil { // before others are posted from inside
		line = t.w.ladder.posting(t, e.Peer(), name, op)
	}
	err := e.postOrRefuse(name, op, how)
	if isLate {
		t.w.net.slow(t.rail, t.w.latency[t.rail])
	}
	if err != nil {
		op.Local = local
	} else if t.w.ladder != nil {
		t.w.ladder.line(line)
	}
	switch {
	case a == nil:
	case a.ghost:
		if err == nil {
			r.broken = append(r.broken, e)
			t.struck(name, e.Peer(), a)
			// Its own half goes on for a while, so that what is on its way can do harm.
			t.w.ranks[e.Peer()].taps[t.rail].sleep(18 + t.w.rng.IntN(9))
		}
	case a.fault == btl.FaultErrorDelivered && err == nil || t.Module.(btl.Injector).Fired() > before:
		t.struck(name, e.Peer(), a)
	}
	return err
}

func (t *tap) struck(name string, peer int, a *aim) {
	t.w.result.Struck[Hit{name, a.String()}]++
	t.w.tell("%s from %d to %d by rail %d is struck: %v", name, t.rank, peer, t.rail, a)
	t.w.delay(peer, t.rail)
}

// delay has what comes to a rank by all rails but one other than rail, perhaps, be looked at only after much has happened.
func (w *world) delay(peer, rail int) {
	if w.rng.IntN(2) == 0 {
		return
	}
	n := len(w.plan.setup.rails)
	quick := w.rng.IntN(n)
	for i := range n {
		if i != rail && i != quick {
			w.ranks[peer].taps[i].sleep(20 + w.rng.IntN(7))
		}
	}
}
