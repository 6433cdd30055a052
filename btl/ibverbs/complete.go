package ibverbs

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var (
	errFlushed = errors.New("the queue pair has failed, and nothing says why")
)

// complete deals with one completion of an endpoint. rest came with it and are dealt with next.
func (m *module) complete(wc *verbs.WC, rest []verbs.WC) {
	id := wrID(wc.ID)
	e := m.owner(id, wc.QPNum)
	if e == nil {
		m.Stale++
		return
	}
	kind, entry := id.kind(), id.entry()
	if kind == wrRecv {
		e.posted--
		m.Unsettled = m.Unsettled || e.State() != btl.Up
	}
	if wc.Status == verbs.StatusSuccess {
		switch kind {
		case wrSend:
			e.awaited--
			e.finish(entry)
			if e.early.Len() > 0 {
				e.catchUp()
			}
		case wrRecv:
			if wc.Opcode == verbs.WCRecvRDMAWithImm {
				e.written(entry, wc)
			} else {
				e.received(entry, int(wc.ByteLen))
			}
		}
		return
	}
	v := judge(wc.Status, m.portUp)
	if v.goesOn {
		if kind == wrRecv {
			if e.ahead > 0 {
				e.ahead--
			} else {
				e.turnOver()
			}
			e.again(entry, wireFrag)
			return
		}
		v = nonsense // only a receive can be given up
	}
	if e.State() == btl.Up && !e.certain() {
		e.failed(wc, v, rest)
	}
	if e.certain() {
		e.fail(e.Deferred()) // before any operation ends in an error
	}
	switch kind {
	case wrSend:
		e.spoil(entry, wc, v)
	case wrMarker:
		e.enter(phaseFlushed)
		e.drainUntil = min(e.drainUntil, m.cfg.Clock.Now()+flushNanos)
		m.Unsettled = true
	}
}

// owner is the endpoint that a completion is of; nil if that is over, or the completion is nonsense.
func (m *module) owner(id wrID, qpn uint32) *endpoint {
	n := id.endpoint()
	if n >= uint32(len(m.eps)) {
		return nil
	}
	e := m.eps[n]
	if e == nil || uint16(e.made) != id.made() || e.qpn != qpn {
		return nil
	}
	switch id.kind() {
	case wrSend:
		if (id.entry()-e.sqTail)&e.sqMask >= e.sqHead-e.sqTail {
			return nil
		}
	case wrRecv:
		if id.entry() >= uint32(e.m.receives()) {
			return nil
		}
	case wrMarker:
		if e.phase != phaseFlushing {
			return nil
		}
	default:
		return nil
	}
	return e
}

// failed fails the endpoint for its first failed completion. What is a flush, or is said of requests while the port is down, is a
// symptom: if the device has an event that says why, or one of rest does, that is the cause. A receive may be flushed long before
// either is here, and ends no operation, so it waits for them a while.
func (e *endpoint) failed(wc *verbs.WC, v verdict, rest []verbs.WC) {
	m := e.m
	if v.class == btl.ClassFlushed || wc.Status == verbs.StatusLocQPOpErr {
		m.readEvents()
		if e.State() != btl.Up || e.certain() {
			return
		}
		if !m.portUp {
			e.fail(m.portIsDown(e.p.rank, wc.Status.Native()))
			return
		}
	}
	if v.class == btl.ClassFlushed {
		if other := e.evidence(rest); other != nil {
			wc, v = other, judge(other.Status, true)
		} else if wrID(wc.ID).kind() == wrRecv {
			e.doubt(m.NewError(e.p.rank, v.class, v.side, wc.Status.Native(), vendorError(wc)))
			return
		}
	}
	e.fail(m.NewError(e.p.rank, v.class, v.side, wc.Status.Native(), vendorError(wc)))
}

// evidence is the first of these completions that says why the endpoint failed; nil if none does.
func (e *endpoint) evidence(wcs []verbs.WC) *verbs.WC {
	for i := range wcs {
		wc := &wcs[i]
		if v := judge(wc.Status, true); !v.goesOn && v.class != btl.ClassFlushed && e.m.owner(wrID(wc.ID), wc.QPNum) == e {
			return wc
		}
	}
	return nil
}

// doubtNanos is how long the cause of a flushed receive is waited for, or of the peer's failure while requests are under way. The peer's failed send, the
// event, or the refusal of one of the requests, is under way then.
const doubtNanos = 10e6

// doubt fails the endpoint in a while, unless something better comes first. Nothing is posted meanwhile.
func (e *endpoint) doubt(err *btl.Error) {
	if e.Deferred() != nil {
		return
	}
	e.failDeferred(err)
	e.doubtUntil = e.m.cfg.Clock.Now() + doubtNanos
}

// certain reports whether the endpoint is doomed for a reason that is no symptom.
func (e *endpoint) certain() bool { return e.Deferred() != nil && e.doubtUntil == 0 }

// failDoomed fails those that are doomed, as far as nothing better is waited for.
func (m *module) failDoomed() int {
	n := 0
	for _, e := range m.TakeFailing() {
		if m.now < e.doubtUntil {
			m.KeepFailing(e)
			continue
		}
		if e.doubtUntil != 0 && !m.portUp {
			m.ReplaceDeferred(e, m.portIsDown(e.p.rank, e.Deferred().Native))
		}
		e.fail(e.Deferred())
		n++
	}
	return n
}

// portIsDown is the error of what fails for that.
func (m *module) portIsDown(peer int, native string) *btl.Error {
	return m.NewError(peer, btl.ClassPath, btl.SideLocal, native, fmt.Errorf("port %d of %s is down", m.cfg.Port, m.cfg.Device))
}

// pop takes the oldest work request out of the ring, and gives its buffer back.
func (e *endpoint) pop() sqEntry {
	i := e.sqTail & e.sqMask
	entry := e.sq[i]
	e.sq[i] = sqEntry{}
	e.sqTail++
	e.giveBack(&entry)
	return entry
}

// finish completes the work request in entry, and all before it, which were not signaled: requests complete in order.
func (e *endpoint) finish(entry uint32) {
	for more := true; more; {
		more = e.sqTail&e.sqMask != entry
		done := e.pop()
		if done.said {
			e.heard++
		}
		if done.op == nil {
			continue
		}
		done.op.Done(done.op, nil)
	}
}

// spoil ends the work request in entry with the error of its completion. What was before it and not signaled may have been done or
// not.
func (e *endpoint) spoil(entry uint32, wc *verbs.WC, v verdict) {
	for more := true; more; {
		more = e.sqTail&e.sqMask != entry
		done := e.pop()
		if done.op == nil {
			continue
		}
		err := e.flushed()
		if !more && v.class != btl.ClassFlushed {
			err = e.m.NewError(e.p.rank, v.class, v.side, wc.Status.Native(), vendorError(wc))
		}
		done.op.Done(done.op, err)
	}
}

// flushed is the error of an operation that ends because its endpoint has failed.
func (e *endpoint) flushed() *btl.Error {
	err := e.m.FlushError(e, nil)
	if err.Err == nil {
		err.Err = errFlushed
	}
	return err
}
