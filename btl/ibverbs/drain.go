package ibverbs

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

const (
	// drainNanos bounds the wait for what a queue pair in Error flushes. A working device flushes
	// at once; a broken one promises no completion.
	drainNanos = 100e6
	// flushNanos bounds the wait for receives, once all sends have come back: soft-RoCE may keep
	// receives. They are in buffers of this package.
	flushNanos = 10e6
	// checkNanos is how often deadlines are checked.
	checkNanos = 10e6
)

// vendorError is a completion's status, and the code that only the maker of the device understands.
func vendorError(wc *verbs.WC) error {
	if wc.VendorErr == 0 {
		return errors.New(wc.Status.Info().Text)
	}
	return fmt.Errorf("%s (vendor's error %#x)", wc.Status.Info().Text, wc.VendorErr)
}

// fail takes the endpoint to Failed and reports it; drain does the rest.
func (e *endpoint) fail(err *btl.Error) { e.m.FailEndpoint(e, err) }

// Stop implements base.Incarnation: the queue pair goes to Error. A marker follows all sends, not
// all of which are signaled. Receives are counted, because some devices never report that a receive
// which was posted in Error was flushed.
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
		e.giveUp() // the device is broken: no completion comes any more
		return
	}
	m.sendWR[0] = verbs.SendWR{ID: uint64(makeID(wrMarker, e.made, e.number, 0)), Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
	if _, err := e.qp.PostSend(m.sendWR[:]); err != nil {
		e.giveUp() // nothing will report that the sends have come back
	}
}

// giveUp notes that the device promises no completion of this queue pair any more.
func (e *endpoint) giveUp() {
	if e.phase != phaseBroken {
		e.enter(phaseBroken)
	}
}

// flushedOut reports whether there is nothing more to wait for: everything that was posted has come
// back, or nothing is promised.
func (e *endpoint) flushedOut() bool {
	return e.phase == phaseBroken || e.phase == phaseFlushed && e.posted == 0
}

// A queue pair that cannot be destroyed may still write into the buffer of a Get. So its endpoint
// is not Drained. The module tries again after destroyFirst, and each time after twice as long.
// After destroyTries the device is taken for broken.
const (
	destroyFirst = int64(1e6)
	destroyTries = 8
)

// restNanos is how long a queue pair whose sends have all come back after its path failed is left
// in Error: on soft-RoCE a packet that waits for the address of a peer which is gone keeps the
// queue pair for three seconds, and destroying it blocks for so long.
const restNanos = 3.5e9

// destroyDue destroys the queue pairs that are at rest, if they have been for long enough, or all
// of them.
func (m *module) destroyDue(all bool) {
	m.toDestroy = slices.DeleteFunc(m.toDestroy, func(e *endpoint) bool {
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

// rests reports whether the endpoint need not wait until its queue pair is destroyed: the queue
// pair is in Error, and all sends have come back, so it reaches no memory any more except the
// buffers of receives; or its time is up, and it could be taken to RESET.
func (e *endpoint) rests() bool {
	mayKeep := e.Cause().Class == btl.ClassPath || e.Cause().Class == btl.ClassTimeout || e.Cause().Class == btl.ClassFlushed
	return mayKeep && !e.group.broken && (e.phase == phaseFlushed || e.phase == phaseFlushing && e.reset())
}

// reset takes a queue pair whose sends have not all come back to RESET, where it reaches no memory
// at all and forgets what was posted. Destroying it would do the same, and may block for seconds
// (restNanos). Mostly the completions are there and were not polled: a rank may be busy for longer
// than a drain takes, and a progress call polls only a batch, in which receives come first.
func (e *endpoint) reset() bool {
	e.m.pollOut(e.group) // also because some devices drop the completions that are there
	if e.phase != phaseFlushing {
		return e.phase == phaseFlushed
	}
	attr := verbs.QPAttr{State: verbs.StateReset}
	return e.qp.Modify(&attr, verbs.AttrState) == nil
}

// drain continues with all endpoints that are on their way to Drained, and reports those that are
// there.
func (m *module) drain() int {
	n, stuck, tried := 0, 0, false
	if len(m.toDestroy) > 0 && m.h != nil {
		m.destroyDue(m.reopen) // a device that is to be opened anew waits for none
	}
	for _, e := range m.TakeDraining() {
		m.Report(e) // Connect may have returned it after its failure
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
	if m.reopen && len(m.toDestroy) == 0 && m.Draining() == stuck && (tried || stuck == 0) {
		n += m.giveUpDevice()
	}
	if m.DrainRail() {
		n++
	}
	return n
}

// drained calls back what is left, and reports the endpoint Drained.
func (e *endpoint) drained() int {
	e.callBack()
	e.m.ReportDrained(e)
	return 1
}

// giveUpDevice gives the device up; the next Connect opens it anew. Endpoints that are left have
// queue pairs that cannot be destroyed. These reach no memory once it is not registered any more,
// and are then left to themselves. Until then the endpoints wait.
func (m *module) giveUpDevice() int {
	if m.h.revoke() != nil && m.Draining() > 0 {
		return 0
	}
	m.reopen = false
	m.reopenAt, m.reopenWait = m.now+reopenFirst, 2*reopenFirst
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

// destroy destroys the queue pair, after which nothing of this incarnation reaches memory. After an
// error the queue pair is as before.
func (e *endpoint) destroy() error {
	m := e.m
	if e.phase != phaseOver && !m.Closed { // a module that closes hands nothing up
		if e.phase == phaseBroken || !e.flushedOut() {
			// not all completions came in time, but those that are there are of use
			m.pollOut(e.group)
		}
		e.takeRest()
	}
	if err := e.qp.Destroy(); err != nil {
		return err
	}
	// What cannot be released now stays; that costs nothing but room.
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

// pollOut takes all completions that a queue can have.
func (m *module) pollOut(g *group) {
	for left := g.cq.Entries(); left > 0 && !g.broken; {
		n := m.poll(g)
		if n == 0 {
			return
		}
		m.giveCredits() // other endpoints on the queue go on
		left -= n
	}
}

// pollQuietly takes completions of sends while the module closes. Nothing is handed up any more.
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
			e.leave = receivedGoodbye // there is no peer to wait for
		case wrID(wc.ID).kind() == wrSend:
			e.awaited--
			e.finish(wrID(wc.ID).entry())
		case wrID(wc.ID).kind() == wrRecv && wc.Opcode == verbs.WCRecv && wireType(e.bufs.buffer(int(wrID(wc.ID).entry()))[0]) == wireGoodbye:
			e.leave = receivedGoodbye
		}
	}
}

// breakGroup handles a queue that cannot be polled any more: all completions in it are lost.
func (m *module) breakGroup(g *group, cause error) {
	m.readEvents() // which may say why
	if g.broken || m.reopen {
		return
	}
	g.broken = true
	m.FailRail(m.NewError(btl.AllPeers, btl.ClassDevice, btl.SideLocal, verbs.EventCQErr.Native(), cause))
}

// checkDeadlines fails endpoints on which nothing has completed for too long: a device may lose a
// request and never say so. Time in which this rank did not look is no evidence: however long, it
// counts for at most a quarter of the deadline.
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
