package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// eventCases returns the cases for each event: provoked by a program where that is possible, and
// injected. The context that made a queue pair, CQ or SRQ gets its events; every context gets the
// events of ports and the device.
func eventCases() (all []testCase) {
	provoked := provokedEvents()
	for _, in := range verbs.EventTypes() {
		all = append(all, provoked[in.Type]...)
		switch in.Affiliation {
		case verbs.AffiliationQP, verbs.AffiliationPort, verbs.AffiliationDevice:
			all = append(all, testCase{in.Name + "/raised", func(c *caseRun) { raised(c, in) }})
		case verbs.AffiliationCQ:
			all = append(all, testCase{in.Name + "/failed-send-CQ", failedSendCQ}, testCase{in.Name + "/failed-receive-CQ", failedRecvCQ})
		case verbs.AffiliationSRQ:
			if in.Type == verbs.EventSRQErr {
				all = append(all, testCase{in.Name + "/failed", failedSRQ})
			}
		}
	}
	return all
}

// reopen opens the end's device again. The new end records the events of the new context.
func (e *end) reopen() *end {
	dev, err := e.c.Provider.Open(e.dev.Name())
	require.NoError(e.c, err)
	e.c.cleanup = append(e.c.cleanup, dev.Close)
	return newEnd(e.c, e.name+"'", dev, e.port, e.index)
}

// raised injects an event.
func raised(c *caseRun, in verbs.EventInfo) {
	if c.Injector.Raise == nil {
		c.skip("no injection of events")
	}
	c.injected = true
	other := c.a.reopen()
	ev := verbs.AsyncEvent{Type: in.Type}
	var about any
	var w *wire
	switch in.Affiliation {
	case verbs.AffiliationQP:
		w = c.wire(opts{service: verbs.ServiceRC})
		ev.QP, about = w.a.QP, w.a.QP
	case verbs.AffiliationPort:
		ev.Port, about = c.a.port, c.a.port
	}
	c.Injector.Raise(c.a.dev, ev)
	c.a.await(in.Type, about)
	if in.Affiliation == verbs.AffiliationPort || in.Affiliation == verbs.AffiliationDevice {
		other.await(in.Type, about)
	} else {
		require.Zero(c, other.count(in.Type, nil), "event in a context that did not make the queue pair")
	}
	require.Equal(c, 1, c.a.count(in.Type, nil), "number of events")
	require.Zero(c, c.b.count(in.Type, nil), "event at another device")
	if w != nil && in.Type == verbs.EventQPFatal {
		w.a.awaitState(verbs.StateErr)
	}
}

func provokedEvents() map[verbs.EventType][]testCase {
	rc := verbs.ServiceRC
	all := map[verbs.EventType][]testCase{}
	add := func(e verbs.EventType, name string, run func(c *caseRun)) {
		all[e] = append(all[e], testCase{e.String() + "/" + name, run})
	}
	add(verbs.EventCQErr, "overrun", func(c *caseRun) {
		_, q := overrun(c)
		require.Equal(c, 1, c.a.count(verbs.EventCQErr, q.CQ))
		var wcs [1]verbs.WC
		n, _ := q.Poll(wcs[:]) // with or without an error
		require.Zero(c, n, "completions of a failed queue")
		require.Zero(c, c.b.count(verbs.EventCQErr, nil))
	})
	add(verbs.EventQPFatal, "by-CQ_ERR", func(c *caseRun) {
		w, _ := overrun(c)
		c.a.await(verbs.EventQPFatal, w.a.QP)
		w.a.awaitState(verbs.StateErr)
	})
	add(verbs.EventQPAccessErr, "WRITE", func(c *caseRun) {
		w := c.wire(opts{service: rc})
		other := c.b.reopen()
		w.a.scq.awaitOne(w.a.send(remote(verbs.WRRDMAWrite), badRKey), verbs.StatusRemAccessErr)
		c.b.await(verbs.EventQPAccessErr, w.b.QP)
		require.Zero(c, c.a.count(verbs.EventQPAccessErr, nil))
		require.Zero(c, other.count(verbs.EventQPAccessErr, nil), "event in a context that did not make the queue pair")
	})
	for _, service := range []verbs.Services{rc, verbs.ServiceUC} {
		add(verbs.EventCommEst, service.String(), func(c *caseRun) {
			w := c.pair(opts{service: service})
			other := c.b.reopen()
			w.b.moveTo(verbs.StateRTR)
			w.a.moveTo(verbs.StateRTS)
			w.a.ping()
			c.b.await(verbs.EventCommEst, w.b.QP)
			w.a.ping()
			require.NoError(c, w.b.move(verbs.StateRTS))
			w.a.ping()
			w.b.ping()
			require.Equal(c, 1, c.b.count(verbs.EventCommEst, nil), "number of events")
			require.Zero(c, other.count(verbs.EventCommEst, nil), "event in a context that did not make the queue pair")
		})
	}
	add(verbs.EventCommEst, "not-UD", func(c *caseRun) {
		w := c.pair(opts{service: verbs.ServiceUD})
		w.b.moveTo(verbs.StateRTR)
		w.a.moveTo(verbs.StateRTS)
		w.a.ping()
		w.a.ping()
		require.Zero(c, c.b.count(verbs.EventCommEst, nil))
	})
	add(verbs.EventSQDrained, "idle", func(c *caseRun) {
		w := c.wire(opts{service: rc})
		w.a.startDrain()
		c.a.await(verbs.EventSQDrained, w.a.QP)
		require.NoError(c, w.a.move(verbs.StateRTS))
		w.a.ping()
	})
	add(verbs.EventSQDrained, "outstanding-send", func(c *caseRun) {
		// The peer has no receive yet, so the send stays outstanding.
		w := c.pair(opts{service: rc})
		w.b.moveTo(verbs.StateRTS)
		w.a.moveTo(verbs.StateRTR)
		row, _ := verbs.FindTransition(rc, verbs.StateRTR, verbs.StateRTS)
		attr := w.a.attr(verbs.StateRTS)
		attr.RNRRetry = 7
		require.NoError(c, w.a.Modify(attr, verbs.AttrState|row.Required))
		sent := w.a.send()
		for range 20 {
			c.step()
		}
		w.a.startDrain()
		for range 100 { // meanwhile the peer refuses the send repeatedly
			w.b.ping()
		}
		pending := w.a.send()
		w.a.scq.requireNone("the peer has no receive")
		have, err := w.a.Query()
		require.NoError(c, err)
		drained := c.a.count(verbs.EventSQDrained, nil)
		require.True(c, have.SQDraining && drained == 0, "a send is outstanding, but draining is %v, events %d", have.SQDraining, drained)
		for _, to := range []verbs.QPState{verbs.StateRTS, verbs.StateSQD} {
			require.ErrorIs(c, w.a.move(to), verbs.ErrInvalid, "to %v before the queue is drained", to)
			require.Equal(c, verbs.StateSQD.String(), w.a.state().String(), "state after a refusal")
		}
		got := w.b.recv()
		w.a.scq.awaitOne(sent, verbs.StatusSuccess)
		w.a.awaitMessage(got, 64)
		c.a.await(verbs.EventSQDrained, w.a.QP)
		have, err = w.a.Query()
		require.NoError(c, err)
		require.False(c, have.SQDraining, "returned by Query")
		got = w.b.recv()
		w.b.ping()
		w.a.scq.requireNone("a send posted in SQD stays pending")
		require.NoError(c, w.a.move(verbs.StateRTS))
		w.a.scq.awaitOne(pending, verbs.StatusSuccess)
		w.a.awaitMessage(got, 64)
	})
	add(verbs.EventGIDChange, "address", func(c *caseRun) {
		if c.Injector.Address == nil {
			c.skip("the provider cannot change addresses")
		}
		other := c.a.reopen()
		w := c.wire(opts{service: rc})
		c.Injector.Address(c.a.dev, c.a.port)
		c.a.await(verbs.EventGIDChange, c.a.port)
		other.await(verbs.EventGIDChange, c.a.port)
		w.a.ping()
		w.b.ping()
	})
	add(verbs.EventPortErr, "link", func(c *caseRun) { linkDown(c) })
	add(verbs.EventPortActive, "link", func(c *caseRun) {
		w := linkDown(c)
		c.Injector.Link(c.a.dev, c.a.port, true)
		c.a.await(verbs.EventPortActive, c.a.port)
		c.wait("the port to be up", c.a.up)
		w.a.ping()
		w.b.ping()
	})
	add(verbs.EventSRQLimitReached, "limit", func(c *caseRun) {
		srq := c.b.srq(16, 3)
		w := c.wireOf(opts{service: rc}, opts{service: rc, srq: srq})
		w.b.recvs(4)
		w.a.sends(1) // leaves three receives, the limit
		require.Zero(c, c.b.count(verbs.EventSRQLimitReached, nil), "the queue is not below its limit")
		w.a.sends(1)
		c.b.await(verbs.EventSRQLimitReached, srq)
		w.a.sends(1)
		w.b.recvs(4)
		w.a.sends(4)
		require.Equal(c, 1, c.b.count(verbs.EventSRQLimitReached, nil), "the event is raised once")
		w.b.recvs(3)
		require.NoError(c, srq.SetLimit(3))
		w.a.sends(2)
		c.wait("a second SRQ_LIMIT_REACHED", func() bool { return c.b.count(verbs.EventSRQLimitReached, srq) == 2 })
		require.NoError(c, srq.SetLimit(2))
		require.NoError(c, srq.SetLimit(0))
		w.a.sends(2)
		require.Equal(c, 2, c.b.count(verbs.EventSRQLimitReached, nil), "event of a disarmed queue")
	})
	add(verbs.EventQPLastWQEReached, "after-a-receive", func(c *caseRun) {
		srq := c.b.srq(16, 0)
		w := c.wireOf(opts{service: rc}, opts{service: rc, srq: srq})
		w.b.recvs(3)
		w.a.sends(1)
		require.NoError(c, w.b.move(verbs.StateErr))
		c.b.await(verbs.EventQPLastWQEReached, w.b.QP)
		w.b.rcq.requireNone("receives of an SRQ stay there")
	})
	add(verbs.EventQPLastWQEReached, "empty-queue", func(c *caseRun) {
		srq := c.b.srq(16, 0)
		w := c.wireOf(opts{service: rc}, opts{service: rc, srq: srq})
		w.b.recvs(1)
		w.a.sends(1)
		require.NoError(c, w.b.move(verbs.StateErr))
		c.b.await(verbs.EventQPLastWQEReached, w.b.QP)
	})
	return all
}

// startDrain moves the queue pair to SQD and requests SQ_DRAINED.
func (q *qp) startDrain() {
	attr := q.attr(verbs.StateSQD)
	attr.EnSQDAsyncNotify = true
	require.NoError(q.c, q.Modify(attr, verbs.AttrState|verbs.AttrEnSQDAsyncNotify))
}

// recvs posts n receives.
func (q *qp) recvs(n int) {
	for range n {
		q.recv()
	}
}

// sends sends n messages and takes their completions at both ends.
func (q *qp) sends(n int) {
	for range n {
		q.scq.awaitOne(q.send(), verbs.StatusSuccess)
		wc := q.peer.rcq.await(1)[0]
		require.Equal(q.c, verbs.StatusSuccess.Native(), wc.Status.Native())
	}
}

// overrun overruns a completion queue of A.
func overrun(c *caseRun) (*wire, *cq) {
	small := c.a.cq(4, nil)
	n := small.Entries() + 1
	o := opts{service: verbs.ServiceRC, depth: n + 1}
	oa := o
	oa.scq = small
	w := c.wireOf(oa, o)
	for range n {
		w.a.send(remote(verbs.WRRDMAWrite), length(8))
	}
	c.a.await(verbs.EventCQErr, small.CQ)
	return w, small
}

func failedSendCQ(c *caseRun) {
	failCQ(c, func(sender, _ *qp) { c.Injector.BreakSendCQ(c.a.dev, sender.QP) })
}

func failedRecvCQ(c *caseRun) {
	failCQ(c, func(_, receiver *qp) { c.Injector.BreakRecvCQ(c.a.dev, receiver.QP) })
}

// failCQ fails a completion queue. All queue pairs that send or receive with the queue fail, and no
// others.
func failCQ(c *caseRun, inject func(sender, receiver *qp)) {
	if c.Injector.BreakSendCQ == nil || c.Injector.BreakRecvCQ == nil {
		c.skip("the provider cannot fail a CQ")
	}
	c.injected = true
	other := c.a.reopen()
	shared := c.a.cq(64, nil)
	o := opts{service: verbs.ServiceRC}
	send, recv := o, o
	send.scq, recv.rcq = shared, shared
	w1, w2, w3 := c.pairOf(send, o), c.pairOf(recv, o), c.wire(o)
	for _, w := range []*wire{w1, w2} {
		w.a.moveTo(verbs.StateRTS)
		w.b.moveTo(verbs.StateRTS)
	}
	w1.a.ping()
	w2.b.ping()
	inject(w1.a, w2.a)
	c.a.await(verbs.EventCQErr, shared.CQ)
	c.a.await(verbs.EventQPFatal, w1.a.QP)
	c.a.await(verbs.EventQPFatal, w2.a.QP)
	w1.a.awaitState(verbs.StateErr)
	w2.a.awaitState(verbs.StateErr)
	require.Zero(c, c.a.count(verbs.EventQPFatal, w3.a.QP), "event of a queue pair with other queues")
	require.Zero(c, other.count(verbs.EventCQErr, nil)+other.count(verbs.EventQPFatal, nil), "event in another context")
	w3.a.ping()
	w3.b.ping()
}

// failedSRQ fails a shared receive queue. Its queue pairs fail, and no others.
func failedSRQ(c *caseRun) {
	if c.Injector.BreakSRQ == nil {
		c.skip("the provider cannot fail an SRQ")
	}
	c.injected = true
	other := c.b.reopen()
	srq := c.b.srq(16, 0)
	o := opts{service: verbs.ServiceRC}
	ob := o
	ob.srq = srq
	w1, w2 := c.pairOf(o, ob), c.wire(o)
	w1.a.moveTo(verbs.StateRTS)
	w1.b.moveTo(verbs.StateRTS)
	w1.b.recvs(2)
	w1.a.sends(1)
	c.Injector.BreakSRQ(c.b.dev, w1.b.QP)
	c.b.await(verbs.EventSRQErr, srq)
	c.b.await(verbs.EventQPFatal, w1.b.QP)
	w1.b.awaitState(verbs.StateErr)
	require.Zero(c, c.b.count(verbs.EventQPFatal, w2.b.QP), "event of a queue pair without the SRQ")
	require.Zero(c, other.count(verbs.EventSRQErr, nil)+other.count(verbs.EventQPFatal, nil), "event in another context")
	n, err := srq.PostRecv([]verbs.RecvWR{w1.b.recvWR()})
	w1.b.requireRefused(n, err, "receive to a failed SRQ")
	w2.a.ping()
}

func (e *end) up() bool {
	p, err := e.dev.QueryPort(e.port)
	require.NoError(e.c, err)
	return p.State.Up()
}

// linkDown takes A's port down. The queue pairs keep their states.
func linkDown(c *caseRun) *wire {
	if c.Injector.Link == nil {
		c.skip("the provider cannot take links down")
	}
	other := c.a.reopen()
	w := c.wire(opts{service: verbs.ServiceRC})
	w.a.ping()
	c.cleanup = append(c.cleanup, func() error { // restores the network for the next case
		c.Injector.Link(c.a.dev, c.a.port, true)
		for _, e := range []*end{c.a, c.b} {
			c.wait("the port to be up again", e.up)
		}
		return nil
	})
	c.Injector.Link(c.a.dev, c.a.port, false)
	c.a.await(verbs.EventPortErr, c.a.port)
	other.await(verbs.EventPortErr, c.a.port)
	require.False(c, c.a.up(), "the port is up")
	require.Equal(c, verbs.StateRTS.String(), w.a.state().String())
	require.Equal(c, verbs.StateRTS.String(), w.b.state().String())
	return w
}
