package ibverbs

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

const (
	// drainNanos bounds the wait for the flushes of a queue pair in Error. A working device flushes
	// at once; a broken one may never flush.
	drainNanos = 100e6
	// flushNanos bounds the wait for receives, once all sends have come back: soft-RoCE may never
	// complete receives. Their buffers belong to this package.
	flushNanos = 10e6
	// checkNanos is the time between two checks of deadlines.
	checkNanos = 10e6
)

// vendorError is a completion's status, with the vendor's error code if there is one.
func vendorError(wc *verbs.WC) error {
	if wc.VendorErr == 0 {
		return errors.New(wc.Status.Info().Text)
	}
	return fmt.Errorf("%s (vendor's error %#x)", wc.Status.Info().Text, wc.VendorErr)
}

// fail moves the endpoint to Failed and reports it; drain does the rest.
func (e *endpoint) fail(err *btl.Error) { e.m.FailEndpoint(e, err) }

// Stop implements base.Incarnation: it moves the queue pair to Error. It posts a marker behind all
// sends, because not all of them are signaled. It posts no marker behind the receives, because some
// devices never flush a receive that was posted in Error. Receives are counted instead.
func (e *endpoint) Stop() {
	m := e.m
	if m.Closed {
		return // Close destroys the queue pair
	}
	e.update()
	if i := slices.Index(m.rings, e); i >= 0 {
		m.rings = slices.Delete(m.rings, i, i+1)
	}
	cause := e.Cause()
	if cause.Class != btl.ClassClosed || cause.Side != btl.SideRemote {
		m.tellFailure(e)
	}
	if e.phase == phaseBroken {
		return
	}
	e.enter(phaseFlushing)
	e.drainUntil = m.cfg.Clock.Now() + drainNanos
	attr := verbs.QPAttr{State: verbs.StateErr}
	if e.qp.Modify(&attr, verbs.AttrState) != nil {
		e.giveUp() // the device is broken: completions may never come
		return
	}
	m.sendWR[0] = verbs.SendWR{ID: uint64(makeID(wrMarker, e.made, e.number, 0)), Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
	if _, err := e.qp.PostSend(m.sendWR[:]); err != nil {
		e.giveUp() // nothing will report that the sends have come back
	}
}

// giveUp records that completions of this queue pair may never come.
func (e *endpoint) giveUp() {
	if e.phase != phaseBroken {
		e.enter(phaseBroken)
	}
}

// flushedOut reports whether all requests have completed, or may never complete.
func (e *endpoint) flushedOut() bool {
	return e.phase == phaseBroken || e.phase == phaseFlushed && e.receivesEnded()
}

// receivesEnded reports whether no receive of this queue pair completes any more.
func (e *endpoint) receivesEnded() bool {
	if e.shared != nil {
		return e.lastReceive
	}
	return e.posted == 0
}

// A queue pair that cannot be destroyed may still write into the buffer of a Get, so its endpoint
// is not Drained. The module tries again after destroyFirst (ns), and doubles the delay each time.
// After destroyTries attempts, the device counts as broken.
const (
	destroyFirst = int64(1e6)
	destroyTries = 8
)

// destroyDelayNanos is how long a queue pair stays in Error after its path has failed and its sends
// have completed. On soft-RoCE, a packet that waits for the address of a lost peer keeps the queue
// pair for three seconds, and destroying it would block until then.
const destroyDelayNanos = 3.5e9

// destroyDue destroys the queue pairs in m.toDestroy that are due, or all of them.
func (m *module) destroyDue(all bool) {
	m.toDestroy = slices.DeleteFunc(m.toDestroy, func(e *endpoint) bool {
		if !all && m.now < e.destroyAt {
			return false
		}
		if e.destroy() != nil && !m.Closed && !m.reopen {
			e.destroyAt = m.now + destroyDelayNanos
			return false
		}
		return true
	})
}

// drainsEarly reports whether the endpoint is Drained before its queue pair is destroyed. Either
// the queue pair is in Error and all sends have completed, so it accesses no memory except the
// buffers of receives; or its deadline has passed and it was moved to RESET.
func (e *endpoint) drainsEarly() bool {
	mayKeep := e.Cause().Class == btl.ClassPath || e.Cause().Class == btl.ClassTimeout || e.Cause().Class == btl.ClassFlushed
	return mayKeep && !e.group.broken && (e.phase == phaseFlushed || e.phase == phaseFlushing && e.reset())
}

// reset moves a queue pair with uncompleted sends to RESET, where it accesses no memory and forgets
// its requests. Destroying it would do the same, but may block for seconds (destroyDelayNanos).
// Usually the completions exist but were not polled: a rank may be busy for longer than a drain
// takes, and a progress call polls only a batch, in which receives come first.
func (e *endpoint) reset() bool {
	e.m.pollOut(e.group) // before some devices drop the completions in it
	if e.phase != phaseFlushing {
		return e.phase == phaseFlushed
	}
	attr := verbs.QPAttr{State: verbs.StateReset}
	return e.qp.Modify(&attr, verbs.AttrState) == nil
}

// drain continues with all Failed endpoints, and reports those that are Drained.
func (m *module) drain() int {
	n, stuck, tried := 0, 0, false
	if len(m.toDestroy) > 0 && m.h != nil {
		m.destroyDue(m.reopen) // all of them if the device will be closed
	}
	for _, e := range m.TakeDraining() {
		m.Report(e) // Connect may have returned it after its failure
		if !e.flushedOut() && m.now < e.drainUntil && !e.group.broken {
			m.KeepDraining(e)
			continue
		}
		if e.drainsEarly() {
			if e.shared != nil || e.posted > 0 {
				m.pollOut(e.group)
			}
			e.deliverRest()
			e.destroyAt = m.now + destroyDelayNanos
			n += e.drained()
			m.toDestroy = append(m.toDestroy, e)
			continue
		}
		if m.now >= e.destroyAt {
			tried = true
			if err := e.destroy(); err == nil {
				n += e.drained()
				continue
			} else if e.destroyTries++; e.destroyTries == destroyTries {
				m.loseDevice("", fmt.Errorf("the connection to rank %d cannot be destroyed: %w", e.p.rank, err))
			}
			e.destroyAt = m.now + destroyFirst<<min(e.destroyTries, destroyTries)
		}
		if e.destroyTries >= destroyTries {
			stuck++
		}
		m.KeepDraining(e)
	}
	// Closing the device would wait for lookups. They request a progress call when they end.
	if m.reopen && len(m.toDestroy) == 0 && len(m.lookups) == 0 && m.Draining() == stuck && (tried || stuck == 0) {
		n += m.giveUpDevice()
	}
	if m.DrainModule() {
		n++
	}
	return n
}

// drained ends the remaining operations, and reports the endpoint Drained.
func (e *endpoint) drained() int {
	e.callBack()
	e.m.ReportDrained(e)
	return 1
}

// giveUpDevice closes the device; the next Connect opens it again. The remaining endpoints have
// queue pairs that cannot be destroyed. They cannot access memory that is not registered any more,
// and the endpoints wait for that.
func (m *module) giveUpDevice() int {
	if m.h.revoke() != nil && m.Draining() > 0 {
		return 0
	}
	m.reopen = false
	m.reopenAt, m.reopenWait = m.now+reopenFirst, 2*reopenFirst
	m.dropHandles()
	_ = m.h.close()
	n := 0
	for _, e := range m.TakeDraining() {
		n += e.drained()
	}
	m.h = nil
	return n
}

// destroy destroys the queue pair. After that, this incarnation accesses no memory. After an error
// the queue pair is as before.
func (e *endpoint) destroy() error {
	m := e.m
	if e.phase != phaseOver && !m.Closed { // a closing module hands nothing up
		if e.phase == phaseBroken || e.shared != nil || !e.flushedOut() {
			m.pollOut(e.group) // some completions are missing, but others may be there
		}
		e.deliverRest()
	}
	if err := e.qp.Destroy(); err != nil {
		return err
	}
	// If memory or entries cannot be released, they are lost, which does no other harm.
	if e.shared == nil {
		_ = e.bufs.close()
	} else if !m.Closed {
		e.shared.leave(m, e.lostReceives())
	}
	_ = errors.Join(e.closeRing(), m.h.release(e.group, m.queueEntries()))
	return nil
}

// lostReceives returns the maximum number of shared receives that this destroyed queue pair may
// have taken without a completion.
func (e *endpoint) lostReceives() int {
	switch {
	case e.remote.qpn == 0: // it was never connected
		return 0
	case e.phase == phaseBroken || e.group.broken:
		return max(e.given, 0) + max(e.givenControl, 0)
	case e.lastReceive:
		return 0
	}
	return 1 // of a message that was arriving
}

// callBack ends the remaining operations, once this incarnation accesses no memory.
func (e *endpoint) callBack() {
	e.m.forget(e)
	for e.sqTail != e.sqHead {
		if done := e.pop(); done.op != nil {
			done.op.Done(done.op, e.m.FlushError(e, nil))
		}
	}
	e.m.Flush(e, &e.early)
	e.m.Flush(e, &e.Pending)
	e.enter(phaseOver)
	e.m.Drained(e)
}

// pollOut handles all completions of a queue.
func (m *module) pollOut(g *group) {
	for left := g.cq.Entries(); left > 0 && !g.broken; {
		n := m.poll(g)
		if n == 0 {
			return
		}
		m.giveCredits() // other endpoints on the queue continue
		left -= n
	}
}

// pollQuietly handles completions of sends while the module closes. It delivers nothing.
func (m *module) pollQuietly(g *group) {
	if g.broken {
		return
	}
	n, err := g.cq.Poll(m.wcs[:])
	if err != nil {
		g.broken = true
	}
	for i := range n {
		wc := &m.wcs[i]
		id := wrID(wc.ID)
		e := m.owner(id, wc.QPNum)
		switch {
		case e == nil:
		case wc.Status != verbs.StatusSuccess:
			e.leave = receivedGoodbye // there is no peer to wait for
		case id.kind() == wrSend:
			e.awaited--
			e.finish(id.entry())
		case id.kind().isRecv() && wc.Opcode == verbs.WCRecv && wireType(e.receive(id.entry())[0]) == wireGoodbye:
			e.leave = receivedGoodbye
		}
	}
}

// breakGroup handles a queue that cannot be polled any more: all completions in it are lost.
func (m *module) breakGroup(g *group, cause error) {
	m.readEvents() // an event may be the cause
	if g.broken || m.reopen {
		return
	}
	g.broken = true
	m.FailModule(m.NewError(btl.AllPeers, btl.ClassDevice, btl.SideLocal, verbs.EventCQErr.Native(), cause))
}

// checkDeadlines fails endpoints on which nothing has completed for too long: a device may lose a
// request without an error. A gap without progress calls counts as at most a quarter of the
// deadline, however long it was.
func (m *module) checkDeadlines() int {
	if m.now < m.checkAt {
		return 0
	}
	gap := min(m.now-m.checked, int64(m.cfg.Deadline)/4)
	m.checkAt, m.checked = m.now+checkNanos, m.now
	n := 0
	for _, e := range m.eps {
		if e == nil || e.State() != btl.Up || e.phase != phaseReady {
			continue
		}
		e.keepAlive()
		if e.awaited == 0 || !e.watched || e.sqTail != e.seenTail {
			e.watched, e.seenTail, e.waited = e.awaited > 0, e.sqTail, 0
			continue
		}
		if e.waited += gap; e.waited > int64(m.cfg.Deadline) {
			e.fail(m.NewError(e.p.rank, btl.ClassTimeout, btl.SideBoth, "", fmt.Errorf("no completion for %v", m.cfg.Deadline)))
			n++
		}
	}
	return n
}
