package ibverbs

import (
	"fmt"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// complete handles a completion of an endpoint. rest was polled with it and is handled next.
func (m *module) complete(wc *verbs.WC, rest []verbs.WC) {
	id := wrID(wc.ID)
	if id.kind() == wrSharedRecv {
		m.completeShared(wc, rest)
		return
	}
	e := m.owner(id, wc.QPNum)
	if e == nil {
		m.Stale++
		return
	}
	if id.kind() == wrRecv {
		e.posted--
		m.Unsettled = m.Unsettled || e.State() != btl.Up
	}
	m.completeOf(e, wc, rest)
}

// completeOf handles a completion of this endpoint.
func (m *module) completeOf(e *endpoint, wc *verbs.WC, rest []verbs.WC) {
	id := wrID(wc.ID)
	kind, entry := id.kind(), id.entry()
	if wc.Status == verbs.StatusSuccess {
		switch kind {
		case wrSend:
			e.awaited--
			e.finish(entry)
			if e.early.Len() > 0 {
				e.catchUp()
			}
		case wrRecv, wrSharedRecv:
			if wc.Opcode == verbs.WCRecvRDMAWithImm {
				e.written(entry, wc)
			} else {
				e.received(entry, int(wc.ByteLen))
			}
		}
		return
	}
	v := resultOf(wc.Status, m.portUp)
	if v.staysUp {
		if kind.isRecv() {
			if e.ahead > 0 {
				e.ahead--
			} else {
				e.nextMessage()
				e.given--
			}
			e.again(entry, wireFrag)
			return
		}
		v = impossible // devices give up receives only
	}
	if e.State() == btl.Up && !e.isCertain() {
		e.failed(wc, v, rest)
	}
	if e.isCertain() {
		e.fail(e.Deferred()) // before any operation ends in an error
	}
	switch kind {
	case wrSend:
		e.errorCompletion(entry, wc, v)
	case wrMarker:
		e.enter(phaseFlushed)
		e.drainUntil = min(e.drainUntil, m.cfg.Clock.Now()+flushNanos)
		m.Unsettled = true
	}
}

// owner returns the endpoint of a completion. It returns nil if the endpoint does not exist any
// more, or the completion is invalid.
func (m *module) owner(id wrID, qpn uint32) *endpoint {
	if id.kind() == wrSharedRecv {
		if !m.h.shared.has(id) {
			return nil
		}
		return m.byQPN[qpn]
	}
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

// failed fails the endpoint because of its first error completion. A flush, and some errors while
// the port is down, are only symptoms. The cause may be an event of the device or a completion in
// rest. A receive may be flushed long before its cause is reported. It ends no operation, so the
// failure is deferred for a while.
func (e *endpoint) failed(wc *verbs.WC, v result, rest []verbs.WC) {
	m := e.m
	if v.class == btl.ClassFlushed || wc.Status == verbs.StatusLocQPOpErr {
		m.readEvents()
		m.lookAtPort()
		if e.State() != btl.Up || e.isCertain() {
			return
		}
		if !m.portUp {
			e.fail(m.portIsDown(e.p.rank, wc.Status.Native()))
			return
		}
	}
	if v.class == btl.ClassFlushed {
		if other := e.evidence(rest); other != nil {
			wc, v = other, resultOf(other.Status, true)
		} else if wrID(wc.ID).kind().isRecv() {
			e.deferSymptom(m.NewError(e.p.rank, v.class, v.side, wc.Status.Native(), vendorError(wc)))
			return
		}
	}
	e.fail(m.NewError(e.p.rank, v.class, v.side, wc.Status.Native(), vendorError(wc)))
}

// evidence returns the first of these completions that shows why the endpoint failed, or nil if
// none does.
func (e *endpoint) evidence(wcs []verbs.WC) *verbs.WC {
	for i := range wcs {
		wc := &wcs[i]
		if v := resultOf(wc.Status, true); !v.staysUp && v.class != btl.ClassFlushed && e.m.owner(wrID(wc.ID), wc.QPNum) == e {
			return wc
		}
	}
	return nil
}

// symptomNanos is how long the endpoint waits for the cause of a flushed receive, or of the peer's
// failure while requests are in flight. The cause may be the peer's failed send, an event, or the
// refusal of one of the requests.
const symptomNanos = 10e6

// deferSymptom fails the endpoint after symptomNanos, or earlier if the cause is found. Nothing is
// posted meanwhile.
func (e *endpoint) deferSymptom(err *btl.Error) {
	if e.Deferred() != nil {
		return
	}
	e.failDeferred(err)
	e.symptomUntil = e.m.cfg.Clock.Now() + symptomNanos
}

// isCertain reports whether a failure with a known cause is deferred.
func (e *endpoint) isCertain() bool { return e.Deferred() != nil && e.symptomUntil == 0 }

// failDeferredEndpoints fails the endpoints whose failure was deferred, except those that wait for
// the cause of a symptom.
func (m *module) failDeferredEndpoints() int {
	n := 0
	for _, e := range m.TakeFailing() {
		if m.now < e.symptomUntil {
			m.KeepFailing(e)
			continue
		}
		if e.symptomUntil != 0 {
			m.lookAtPort()
		}
		if e.symptomUntil != 0 && !m.portUp {
			m.ReplaceDeferred(e, m.portIsDown(e.p.rank, e.Deferred().Native))
		}
		e.fail(e.Deferred())
		n++
	}
	return n
}

// portIsDown makes the error of an endpoint, or of the rail, that fails because the port is down.
func (m *module) portIsDown(peer int, native string) *btl.Error {
	return m.NewError(peer, btl.ClassPath, btl.SideLocal, native, fmt.Errorf("port %d of %s is down", m.cfg.Port, m.cfg.Device))
}

// pop takes the oldest work request out of the ring, and frees its buffer.
func (e *endpoint) pop() sqEntry {
	i := e.sqTail & e.sqMask
	entry := e.sq[i]
	e.sq[i] = sqEntry{}
	e.sqTail++
	e.giveBack(&entry)
	return entry
}

// finish ends the work request in entry with success, and also all unsignaled requests before it,
// because requests complete in order.
func (e *endpoint) finish(entry uint32) {
	for more := true; more; {
		more = e.sqTail&e.sqMask != entry
		done := e.pop()
		if done.isMessage {
			e.acked++
		}
		if done.op != nil {
			done.op.Done(done.op, nil)
		}
	}
}

// errorCompletion ends the work request in entry with the error of its completion. Unsignaled
// requests before it may or may not have been executed.
func (e *endpoint) errorCompletion(entry uint32, wc *verbs.WC, v result) {
	for more := true; more; {
		more = e.sqTail&e.sqMask != entry
		done := e.pop()
		if done.op == nil {
			continue
		}
		err := e.m.FlushError(e, nil)
		if !more && v.class != btl.ClassFlushed {
			err = e.m.NewError(e.p.rank, v.class, v.side, wc.Status.Native(), vendorError(wc))
		}
		done.op.Done(done.op, err)
	}
}
