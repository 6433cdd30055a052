package loop

import "github.com/mpigo/mpigo/btl"

var (
	_ btl.Endpoint = (*endpoint)(nil)
	_ btl.Inliner  = (*endpoint)(nil)
	_ btl.Putter   = (*endpoint)(nil)
	_ btl.Getter   = (*endpoint)(nil)
)

// endpoint is a rank's end of one incarnation of a link.
type endpoint struct {
	m     *module
	peer  int
	inc   *incarnation
	end   int   // its number in inc
	out   *lane // nil if there is no way through
	epoch uint32
	state btl.State

	// doom is set when a post finds out that the endpoint is to fail; the next turn of
	// progress then says so. Until then posts are refused for lack of resources.
	doom *btl.Error
	// cause of the failure, once Failed. culprit is the operation that it is of, if any.
	cause   *btl.Error
	culprit *btl.Op
	byRail  bool // failed with the whole rail, whose Drained covers it

	held    btl.Queue // accepted and not yet called back
	flights []*flight // of a virtual fabric: those of held that are under way
}

type verb uint8

const (
	send verb = iota
	put
	get
)

func (v verb) String() string { return [...]string{"send", "put", "get"}[v] }

// Peer implements btl.Endpoint.
func (e *endpoint) Peer() int { return e.peer }

// Epoch implements btl.Endpoint.
func (e *endpoint) Epoch() uint32 { return e.epoch }

// State implements btl.Endpoint.
func (e *endpoint) State() btl.State { return e.state }

// plain reports whether a post can go the short way: straight into the lane.
func (e *endpoint) plain() bool {
	return e.out != nil && e.out.slots != nil && len(e.m.injector.faults) == 0 && e.doom == nil
}

// Send implements btl.Endpoint.
func (e *endpoint) Send(op *btl.Op) error {
	if e.state != btl.Up {
		return btl.ErrFailed
	}
	if op.HdrLen > btl.MaxHeaderBytes || op.Len() > e.m.attrs.MaxSendBytes {
		return btl.ErrTooLong
	}
	if !e.plain() {
		return e.post(send, op)
	}
	switch e.out.publish(&e.m.bufs, e.epoch, op.Tag, op.Hdr[:op.HdrLen], op.Payload) {
	case laneFull:
		return btl.ErrResource
	case laneClosed:
		e.condemn(lost(e.m, e.peer), nil)
		return btl.ErrResource
	}
	op.Done(op, nil)
	return nil
}

// SendInline implements btl.Inliner.
func (e *endpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	if e.state != btl.Up || len(hdr)+len(payload) > e.m.attrs.InlineBytes || !e.plain() && !e.passInline() {
		return false
	}
	switch e.out.publish(&e.m.bufs, e.epoch, tag, hdr, payload) {
	case laneFull:
		return false
	case laneClosed:
		e.condemn(lost(e.m, e.peer), nil)
		return false
	}
	return true
}

// passInline decides about a fragment when faults are armed: one that is to be struck has
// to come as an operation.
func (e *endpoint) passInline() bool {
	return e.out != nil && e.out.slots != nil && e.doom == nil &&
		e.out.room() == published && e.m.injector.passes(e.peer)
}

// Put implements btl.Putter.
func (e *endpoint) Put(op *btl.Op) error { return e.postRemote(put, op) }

// Get implements btl.Getter.
func (e *endpoint) Get(op *btl.Op) error { return e.postRemote(get, op) }

func (e *endpoint) postRemote(v verb, op *btl.Op) error {
	if e.state != btl.Up {
		return btl.ErrFailed
	}
	return e.post(v, op)
}

// post takes an operation the long way.
func (e *endpoint) post(v verb, op *btl.Op) error {
	if e.doom != nil {
		return btl.ErrResource
	}
	if e.m.f.sim != nil {
		return e.launch(v, op)
	}
	if e.out == nil {
		e.condemn(lost(e.m, e.peer), nil)
		return btl.ErrResource
	}
	if v == send {
		switch e.out.room() {
		case laneFull:
			return btl.ErrResource
		case laneClosed:
			e.condemn(lost(e.m, e.peer), nil)
			return btl.ErrResource
		}
	} else if e.m.touched >= turnBytes {
		return btl.ErrResource
	}
	hit, struck := e.m.injector.strike(e.peer, v)
	if struck {
		switch hit.Kind {
		case btl.FaultRefuse:
			return btl.ErrResource
		case btl.FaultWrong:
			return e.callWrong(v, op)
		case btl.FaultSilence:
			e.held.Push(op)
			return nil
		case btl.FaultErrorLost:
			e.held.Push(op)
			e.condemn(e.m.injected(e.peer, hit.Kind), op)
			return nil
		}
	}
	if v == send {
		if e.out.publish(&e.m.bufs, e.epoch, op.Tag, op.Header(), op.Payload) == laneClosed {
			e.condemn(lost(e.m, e.peer), nil)
			return btl.ErrResource
		}
	} else if err := e.reach(v, op); err != nil {
		e.held.Push(op)
		e.refuse(op, err)
		return nil
	}
	if struck {
		switch hit.Kind {
		case btl.FaultErrorDelivered:
			e.held.Push(op)
			e.condemn(e.m.injected(e.peer, hit.Kind), op)
			return nil
		case btl.FaultLate:
			e.held.Push(op)
			e.m.delay(e, op, hit.Count)
			return nil
		case btl.FaultStale:
			e.m.remember(e, v, op)
		}
	}
	op.Done(op, nil)
	return nil
}

// callWrong does what btl.FaultWrong wants.
func (e *endpoint) callWrong(v verb, op *btl.Op) error {
	if v == send {
		return btl.ErrTooLong
	}
	e.held.Push(op)
	e.refuse(op, e.m.errorf(e.peer, btl.ClassUsage, btl.SideBoth, btl.FaultWrong.String(), btl.ErrInjected))
	return nil
}

// refusal is an operation that was wrong in itself: it ends in an error, and its endpoint lives.
type refusal struct {
	e   *endpoint
	op  *btl.Op
	err *btl.Error
}

// refuse makes the next turn of progress complete op, which is held, with err: with the failure
// of the endpoint, if that is what err is of.
func (e *endpoint) refuse(op *btl.Op, err *btl.Error) {
	if err.Class != btl.ClassUsage {
		e.condemn(err, op)
		return
	}
	e.m.refused = append(e.m.refused, refusal{e, op, err})
	e.m.unsettled = true
}

func (m *module) settleRefused() int {
	n := 0
	refused := m.refused
	m.refused = nil
	for _, r := range refused {
		if r.e.state == btl.Up { // else the tear-down completes it
			r.e.held.Remove(r.op)
			r.e.done(r.op, r.err)
			n++
		}
	}
	return n
}

// condemn makes the next turn of progress fail the endpoint, at operation op if not nil.
func (e *endpoint) condemn(err *btl.Error, op *btl.Op) {
	if e.doom != nil {
		return
	}
	e.doom, e.culprit = err, op
	e.m.doomed = append(e.m.doomed, e)
	e.m.unsettled = true
}

// Rebind implements btl.Endpoint. A fragment is copied when it is accepted. A Put on its way
// through a virtual fabric is not: as by a device, its bytes are read when they arrive.
func (e *endpoint) Rebind(op *btl.Op, payload []byte) bool {
	for _, f := range e.flights {
		if f.op == op && f.v == put && !f.over {
			return false
		}
	}
	op.Payload = payload
	return true
}

// Fail implements btl.Endpoint.
func (e *endpoint) Fail(cause error) {
	if e.state == btl.Up {
		e.fail(e.m.because(e.peer, btl.ClassClosed, cause))
	}
}

// fail is the first half of a failure; the next settle does the other.
func (e *endpoint) fail(err *btl.Error) {
	e.state, e.cause = btl.Failed, err
	e.m.dying = append(e.m.dying, e)
	e.m.unsettled = true
	e.m.f.tracef("failed %s %d>%d epoch %d: %v", e.m.attrs.Name, e.m.port.rank, e.peer, e.epoch, err)
	e.m.ev.Failed(e.m, e.peer, err)
}

// flush calls back what is outstanding.
func (e *endpoint) flush() int {
	for _, f := range e.flights {
		if !f.over {
			f.readPut()
		}
		f.op = nil // what becomes of it is of no interest any more
	}
	e.flights = nil
	cause := e.cause
	if cause == nil {
		cause = e.m.railErr
	}
	n := 0
	for op := e.held.Pop(); op != nil; op = e.held.Pop() {
		var err *btl.Error
		if op == e.culprit {
			err = e.doom
		} else {
			err = e.m.errorf(e.peer, btl.ClassFlushed, btl.SideNone, "", cause)
		}
		e.done(op, err)
		n++
	}
	e.culprit = nil
	return n
}

// done calls an operation back, which is in no list any more.
func (e *endpoint) done(op *btl.Op, err *btl.Error) {
	if err != nil {
		e.m.f.tracef("error %s %d>%d epoch %d: %v", e.m.attrs.Name, e.m.port.rank, e.peer, e.epoch, err)
		op.Done(op, err)
		return
	}
	e.m.f.tracef("complete %s %d>%d epoch %d", e.m.attrs.Name, e.m.port.rank, e.peer, e.epoch)
	op.Done(op, nil)
}
