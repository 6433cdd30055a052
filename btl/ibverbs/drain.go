package ibverbs

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

const (
	// drainNanos bounds the wait for what a queue pair in Error flushes. A device that is well flushes at once; of one that is
	// not, no completion is promised.
	drainNanos = 100e6
	// flushNanos bounds the wait for receives, once all sends have come back: soft-RoCE may keep them. They are of this package's own buffers.
	flushNanos = 10e6
	// checkNanos is how often deadlines are looked at.
	checkNanos = 10e6
)

// vendorError tells what only the maker of the device understands.
func vendorError(wc *verbs.WC) error {
	if wc.VendorErr == 0 {
		return errors.New(wc.Status.Info().Text)
	}
	return fmt.Errorf("%s (vendor's error %#x)", wc.Status.Info().Text, wc.VendorErr)
}

// fail takes the endpoint to Failed and reports it; drain does the rest.
func (e *endpoint) fail(err *btl.Error) { e.m.FailEndpoint(e, err) }

// Stop implements base.Incarnation: the queue pair goes to Error. Behind all sends, of which not all are signaled, comes a marker; the receives
// are counted, for of one that is posted in Error some devices never say that it was flushed.
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
		m.announce(e)
	}
	if e.phase == phaseBroken {
		return
	}
	e.enter(phaseFlushing)
	e.drainUntil = m.cfg.Clock.Now() + drainNanos
	attr := verbs.QPAttr{State: verbs.StateErr}
	if e.qp.Modify(&attr, verbs.AttrState) != nil {
		e.giveUp() // the device is broken: nothing comes any more
		return
	}
	m.sendWR[0] = verbs.SendWR{ID: uint64(makeID(wrMarker, e.made, e.number, 0)), Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
	if _, err := e.qp.PostSend(m.sendWR[:]); err != nil {
		e.giveUp() // nothing will say that its sends have come back
	}
}

// giveUp notes that no completion of this queue pair is promised any more.
func (e *endpoint) giveUp() {
	if e.phase != phaseBroken {
		e.enter(phaseBroken)
	}
}

// flushedOut reports whether nothing more is worth waiting for: everything that was posted has come
// back, or nothing is promised.
func (e *endpoint) flushedOut() bool {
	return e.phase == phaseBroken || e.phase == phaseFlushed && e.posted == 0
}

// A queue pair that cannot be destroyed may still write where a Get was to read to. So its endpoint is not Drained; it is tried again, after
// destroyFirst, and each time after twice as long. After destroyTries the device is taken for broken.
const (
	destroyFirst = int64(1e6)
	destroyTries = 8
)

// restNanos is how long a queue pair whose sends have all come back after its path failed is left as it is, in Error: on soft-RoCE a packet
// that waits for the address of a peer which is gone keeps it for three seconds, and so keeps who destroys it.
const restNanos = 3.5e9

// bury destroys the queue pairs that are at rest, if they have been long enough, or all.
func (m *module) bury(all bool) {
	m.buried = slices.DeleteFunc(m.buried, func(e *endpoint) bool {
		if !all && m.now < e.destroyAt {
			return false
		}
		if e.destroy() != nil && !m.Closed && !m.reopen {
			e.destroyAt = m.now + restNanos
			return false
		}
		return true
	})
}

// rests reports whether the endpoint needs not wait for the end of its queue pair: that is in Error, and all that was sent has come back, so
// it reaches no memory any more but the buffers of receives; or its time is up, and it could be taken to RESET.
func (e *endpoint) rests() bool {
	mayKeep := e.Cause().Class == btl.ClassPath || e.Cause().Class == btl.ClassTimeout || e.Cause().Class == btl.ClassFlushed
	return mayKeep && !e.group.broken && (e.phase == phaseFlushed || e.phase == phaseFlushing && e.reset())
}

// reset takes a queue pair whose sends have not all come back to RESET, where it reaches no memory at all and forgets what was posted. To destroy it
// would do the same, and may keep who does it for seconds (restNanos). Mostly they have come back, and it is nobody who has looked: a rank
// may be busy for longer than a drain takes, and a turn polls no more than a batch, in which receives come first.
func (e *endpoint) reset() bool {
	e.m.pollOut(e.group) // also because some devices take along what is there
	if e.phase != phaseFlushing {
		return e.phase == phaseFlushed
	}
	attr := verbs.QPAttr{State: verbs.StateReset}
	return e.qp.Modify(&attr, verbs.AttrState) == nil
}

// drain goes on with all endpoints that are on their way to Drained, and tells of those that are there.
func (m *module) drain() int {
	n, stuck, tried := 0, 0, false
	if len(m.buried) > 0 && m.h != nil {
		m.bury(m.reopen) // a device that is to be opened anew waits for no one
	}
	for _, e := range m.TakeDraining() {
		m.Report(e) // if Connect gave it out only after it had failed
		if !e.flushedOut() && m.now < e.drainUntil && !e.group.broken {
			m.KeepDraining(e)
			continue
		}
		if e.rests() {
			if e.posted > 0 {
				m.pollOut(e.group)
			}
			e.takeRest()
			e.destroyAt = m.now + restNanos
			n += e.drained()
			m.buried = append(m.buried, e)
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
	if m.reopen && len(m.buried) == 0 && m.Draining() == stuck && (tried || stuck == 0) {
		n += m.abandon()
	}
	if m.DrainRail() {
		n++
	}
	return n
}

// drained calls back what is left, and tells that this is all.
func (e *endpoint) drained() int {
	e.callBack()
	e.m.ReportDrained(e)
	return 1
}

// abandon gives the device up; the next Connect opens it anew. Endpoints that are left have queue pairs that cannot be destroyed: these reach no memory
// once it is registered no more, and are left to themselves then. Till then the endpoints wait.
func (m *module) abandon() int {
	if m.h.revoke() != nil && m.Draining() > 0 {
		return 0
	}
	m.reopen = false
	m.reviveAt, m.reviveWait = m.now+reviveFirst, 2*reviveFirst
	for _, p := range m.peers {
		if p != nil && p.ah != nil {
			_ = p.ah.Destroy()
			p.ah = nil
		}
	}
	_ = m.h.close()
	n := 0
	for _, e := range m.TakeDraining() {
		n += e.drained()
	}
	m.h = nil
	return n
}

// destroy destroys the queue pair, after which nothing of this incarnation reaches memory. After an error it is there as before.
func (e *endpoint) destroy() error {
	m := e.m
	if e.phase != phaseOver && !m.Closed { // a module that closes hands nothing up
		if e.phase == phaseBroken || !e.flushedOut() {
			m.pollOut(e.group) // not all has come in time, but what is there is of use
		}
		e.takeRest()
	}
	if err := e.qp.Destroy(); err != nil {
		return err
	}
	// What cannot be given back now stays as it is: there is no harm in it but the loss of room.
	_ = errors.Join(e.bufs.close(), e.closeRing(), m.h.release(e.group, m.queueEntries()))
	return nil
}

// callBack ends what is left, once nothing of this incarnation reaches memory.
func (e *endpoint) callBack() {
	e.m.forget(e)
	for e.sqTail != e.sqHead {
		if done := e.pop(); done.op != nil {
			done.op.Done(done.op, e.flushed())
		}
	}
	e.m.Flush(e, &e.early)
	e.m.Flush(e, &e.Pending)
	e.enter(phaseOver)
	e.m.Drained(e)
}

// pollOut takes what one queue has, all of it that can be there.
func (m *module) pollOut(g *group) {
	for left := g.cq.Entries(); left > 0 && !g.broken; {
		n := m.poll(g)
		if n == 0 {
			return
		}
		m.settleDebts() // other endpoints on the queue go on
		left -= n
	}
}

// pollQuietly takes completions of sends while the module closes: nothing is handed up any more.
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
		e := m.owner(wrID(wc.ID), wc.QPNum)
		switch {
		case e == nil:
		case wc.Status != verbs.StatusSuccess:
			e.leave = heardGoodbye // there is nobody to wait for
		case wrID(wc.ID).kind() == wrSend:
			e.awaited--
			e.finish(wrID(wc.ID).entry())
		case wrID(wc.ID).kind() == wrRecv && wc.Opcode == verbs.WCRecv && wireType(e.bufs.buffer(int(wrID(wc.ID).entry()))[0]) == wireGoodbye:
			e.leave = heardGoodbye
		}
	}
}

// breakGroup deals with a queue that cannot be polled any more: all that was in it is lost.
func (m *module) breakGroup(g *group, cause error) {
	m.readEvents() // which may say why
	if g.broken || m.reopen {
		return
	}
	g.broken = true
	m.FailRail(m.NewError(btl.AllPeers, btl.ClassDevice, btl.SideLocal, verbs.EventCQErr.Native(), cause))
}

// checkDeadlines fails endpoints of which nothing has completed for too long: a device may never say that it lost a request. Time in which
// nobody looked is no evidence: however long, it counts for a quarter of the deadline at most.
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
		awaited := e.awaited > 0
		if !awaited || !e.watched || e.sqTail != e.seenTail {
			e.watched, e.seenTail, e.waited = awaited, e.sqTail, 0
			continue
		}
		if e.waited += gap; e.waited > int64(m.cfg.Deadline) {
			e.fail(m.NewError(e.p.rank, btl.ClassTimeout, btl.SideBoth, "", fmt.Errorf("no completion for %v", m.cfg.Deadline)))
			n++
		}
	}
	return n
}
