package faults

import (
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// endpoint is the decorator of an endpoint.
type endpoint struct {
	btl.Endpoint // inner
	inner        btl.Endpoint
	m            *module

	deferred *btl.Error // the failure that the next progress call applies; nil if there is none
	culprit  *btl.Op    // the operation that met the failure
	cause    *btl.Error // why the endpoint failed, nil while it is Up
	drained  bool       // its operations were all called back

	struck map[*btl.Op]*struck // operations that inner has, and whose completion is intercepted
	kept   []*struck           // operations that inner does not have, or has completed
}

// struck is an operation that a fault struck.
type struck struct {
	op    *btl.Op
	done  func(op *btl.Op, err error) // the caller's
	kind  btl.FaultKind
	turns int   // FaultLate: progress calls that are still to pass
	until int64 // FaultSilence: the deadline, by Config.Clock
}

// State implements btl.Endpoint.
func (e *endpoint) State() btl.State {
	s := e.inner.State()
	if s == btl.Drained && !e.drained {
		return btl.Failed // the operations kept here are still to be called back
	}
	return s
}

// isPlain reports whether posts need not consult the rules.
func (e *endpoint) isPlain() bool { return len(e.m.rules) == 0 && e.deferred == nil }

// Send implements btl.Endpoint.
func (e *endpoint) Send(op *btl.Op) error {
	if e.isPlain() {
		return e.inner.Send(op)
	}
	if op.HdrLen > btl.MaxHeaderBytes || op.Len() > e.m.Attrs().MaxSendBytes {
		return e.inner.Send(op) // which refuses it
	}
	return e.post(op, true, e.inner.Send)
}

// post posts an operation unless a fault prevents it. An operation that inner refuses meets no
// fault, and no fault counts it.
func (e *endpoint) post(op *btl.Op, isSend bool, post func(op *btl.Op) error) error {
	m := e.m
	switch {
	case e.State() != btl.Up:
		return btl.ErrFailed
	case e.deferred != nil:
		return btl.ErrResource
	}
	before := slices.Clone(m.rules)
	hit, isStruck := m.rules.strike(e.Path().Peer, isSend)
	if !isStruck {
		err := post(op)
		if err != nil {
			m.rules = before
		}
		return err
	}
	s := &struck{op: op, done: op.Done, kind: hit.Kind, turns: hit.Count}
	switch hit.Kind {
	case btl.FaultRefuse:
		m.fired++
		return btl.ErrResource
	case btl.FaultWrong:
		m.fired++
		if isSend {
			return btl.ErrTooLong
		}
		e.kept = append(e.kept, s)
		return nil
	case btl.FaultSilence:
		m.fired++
		if m.cfg.DeadlineNanos > 0 {
			s.until = m.cfg.Clock.Now() + m.cfg.DeadlineNanos
		}
		e.kept = append(e.kept, s)
		return nil
	case btl.FaultErrorLost:
		m.fired++
		e.kept = append(e.kept, s)
		e.deferFailure(m.injected(e, hit.Kind), op)
		return nil
	}
	var stale []staleFragment
	if hit.Kind == btl.FaultStale { // copied now: the operation may be complete when post returns
		stale = []staleFragment{{e.Path(), e.Epoch(), op.Tag, slices.Concat(op.Header(), op.Payload)}}
	}
	e.struck[op] = s
	op.Done = e.completed
	if err := post(op); err != nil {
		op.Done = s.done
		delete(e.struck, op)
		m.rules = before
		return err
	}
	m.stale = append(m.stale, stale...)
	if hit.Kind != btl.FaultStale { // that one fires once the copy is sent
		m.fired++
	}
	return nil
}

// completed replaces the Done of operations whose completion is intercepted.
func (e *endpoint) completed(op *btl.Op, err error) {
	s := e.struck[op]
	delete(e.struck, op)
	op.Done = s.done
	switch {
	case err != nil || s.kind == btl.FaultStale:
		op.Done(op, err)
		return
	case s.kind == btl.FaultErrorDelivered:
		e.deferFailure(e.m.injected(e, s.kind), op)
	}
	e.kept = append(e.kept, s)
}

// deferFailure makes the next progress call fail the endpoint, at operation op.
func (e *endpoint) deferFailure(err *btl.Error, op *btl.Op) {
	if e.deferred == nil && e.inner.State() == btl.Up {
		e.deferred, e.culprit = err, op
	}
}

// settle does the work that is due at a progress call, and returns the number of events.
func (e *endpoint) settle() int {
	if e.inner.State() != btl.Up {
		return 0 // drain calls back what is kept
	}
	n := 0
	for _, s := range slices.Clone(e.kept) {
		if e.inner.State() != btl.Up {
			return n
		}
		switch {
		case s.kind == btl.FaultLate && s.turns > 0:
			s.turns--
		case s.kind == btl.FaultLate:
			e.end(s, nil)
			n++
		case s.kind == btl.FaultWrong:
			e.end(s, e.m.newError(e, btl.ClassUsage, btl.SideBoth, s.kind.String(), btl.ErrInjected))
			n++
		case s.until != 0 && e.m.cfg.Clock.Now() >= s.until:
			e.deferFailure(e.m.newError(e, btl.ClassTimeout, btl.SideBoth, "", errSilence), s.op)
		}
	}
	if e.deferred != nil && e.inner.State() == btl.Up {
		e.inner.Fail(e.deferred)
		n++
	}
	return n
}

// end calls back an operation that is kept.
func (e *endpoint) end(s *struck, err error) {
	e.kept = slices.DeleteFunc(e.kept, func(other *struck) bool { return other == s })
	s.done(s.op, err)
}

// drain calls back all kept operations: the endpoint is Drained.
func (e *endpoint) drain() {
	for len(e.kept) > 0 {
		s := e.kept[0]
		err := e.m.newError(e, btl.ClassFlushed, btl.SideNone, "", nil)
		switch {
		case s.op == e.culprit:
			err = e.deferred
		case e.cause != nil:
			err.Err = e.cause
		}
		e.end(s, err)
	}
	e.drained = true
}

func (e *endpoint) isBusy() bool {
	return e.deferred != nil || slices.ContainsFunc(e.kept, func(s *struck) bool { return s.kind != btl.FaultSilence || s.until != 0 })
}

// Rebind implements btl.Endpoint. The decorator does not read the payload of operations that it
// keeps.
func (e *endpoint) Rebind(op *btl.Op, payload []byte) bool {
	if slices.ContainsFunc(e.kept, func(s *struck) bool { return s.op == op }) {
		op.Payload = payload
		return true
	}
	return e.inner.Rebind(op, payload)
}
