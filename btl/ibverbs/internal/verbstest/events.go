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
			all = append(all,
				testCase{in.Name + "/failed-send-CQ", func(c *caseRun) { failCQ(c, false) }},
				testCase{in.Name + "/failed-receive-CQ", func(c *caseRun) { failCQ(c, true) }})
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
	c.skipIf(c.Injector.Raise == nil, "no injection of events")
	c.injected = true
	other := c.a.reopen()
	ev := verbs.AsyncEvent{Type: in.Type}
	var about any
	w := c.wire(rc)
	switch in.Affiliation {
	case verbs.AffiliationQP:
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
	switch in.Type {
	case verbs.EventDeviceFatal:
		_, err := w.a.Query()
		require.ErrorIs(c, err, verbs.ErrGone)
	case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr:
		w.a.awaitState(verbs.StateErr)
	default:
		require.Equal(c, verbs.StateRTS, w.a.state())
	}
}

func provokedEvents() map[verbs.EventType][]testCase {
	all := map[verbs.EventType][]testCase{}
	add := func(e verbs.EventType, name string, run func(c *caseRun)) {
		all[e] = append(all[e], testCase{e.String() + "/" + name, run})
	}
	addWired := func(e verbs.EventType, name string, run func(c *caseRun, w *wire)) {
		all[e] = append(all[e], wired(e.String()+"/"+name, rc, run))
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
	addWired(verbs.EventQPAccessErr, "WRITE", func(c *caseRun, w *wire) {
		other := c.b.reopen()
		w.a.scq.awaitOne(w.a.send(remote(verbs.WRRDMAWrite), badRKey), verbs.StatusRemAccessErr)
		c.b.await(verbs.EventQPAccessErr, w.b.QP)
		require.Zero(c, c.a.count(verbs.EventQPAccessErr, nil))
		require.Zero(c, other.count(verbs.EventQPAccessErr, nil), "event in a context that did not make the queue pair")
	})
	for _, o := range []opts{rc, uc} {
		add(verbs.EventCommEst, o.service.String(), func(c *caseRun) {
			w := c.pair(o)
			other := c.b.reopen()
			for n := 1; n <= 2; n++ { // also after RESET
				w.b.moveTo(verbs.StateRTR)
				w.a.moveTo(verbs.StateRTS)
				w.a.ping()
				c.b.await(verbs.EventCommEst, w.b.QP)
				w.a.ping()
				require.NoError(c, w.b.move(verbs.StateRTS))
				w.pings()
				require.Equal(c, n, c.b.count(verbs.EventCommEst, nil), "number of events")
				require.Zero(c, other.count(verbs.EventCommEst, nil), "event in another context")
				w.reset()
			}
		})
	}
	add(verbs.EventCommEst, "not-UD", func(c *caseRun) {
		w := c.pair(ud)
		w.b.moveTo(verbs.StateRTR)
		w.a.moveTo(verbs.StateRTS)
		w.a.ping()
		w.a.ping()
		require.Zero(c, c.b.count(verbs.EventCommEst, nil))
	})
	addWired(verbs.EventSQDrained, "idle", func(c *caseRun, w *wire) {
		w.a.startDrain()
		c.a.await(verbs.EventSQDrained, w.a.QP)
		require.NoError(c, w.a.move(verbs.StateRTS))
		w.a.ping()
	})
	add(verbs.EventSQDrained, "outstanding-send", func(c *caseRun) {
		// The peer has no receive yet, so the send stays outstanding.
		w := c.wire(opts{rnrRetry: 7})
		sent := w.a.send()
		c.steps(20)
		w.a.startDrain()
		for range 100 { // meanwhile the peer refuses the send repeatedly
			w.b.ping()
		}
		pending := w.a.send()
		w.a.scq.requireNone("the peer has no receive")
		have := w.a.query()
		drained := c.a.count(verbs.EventSQDrained, nil)
		require.True(c, have.SQDraining && drained == 0, "a send is outstanding, but draining is %v, events %d", have.SQDraining, drained)
		for _, to := range []verbs.QPState{verbs.StateRTS, verbs.StateSQD} {
			require.ErrorIs(c, w.a.move(to), verbs.ErrInvalid, "to %v before the queue is drained", to)
			require.Equal(c, verbs.StateSQD.String(), w.a.state().String(), "state after a refusal")
		}
		got := w.b.recv()
		w.a.awaitSent(sent)
		w.a.awaitMessage(got, 64)
		c.a.await(verbs.EventSQDrained, w.a.QP)
		require.False(c, w.a.query().SQDraining, "returned by Query")
		got = w.b.recv()
		w.b.ping()
		w.a.scq.requireNone("a send posted in SQD stays pending")
		require.NoError(c, w.a.move(verbs.StateRTS))
		w.a.awaitSent(pending)
		w.a.awaitMessage(got, 64)
	})
	add(verbs.EventGIDChange, "address", func(c *caseRun) {
		c.skipIf(c.Injector.Address == nil, "the provider cannot change addresses")
		other := c.a.reopen()
		w := c.wire(rc)
		c.Injector.Address(c.a.dev, c.a.port)
		c.a.await(verbs.EventGIDChange, c.a.port)
		other.await(verbs.EventGIDChange, c.a.port)
		w.pings()
	})
	add(verbs.EventLIDChange, "subnet-manager", func(c *caseRun) {
		c.skipIf(c.Injector.ChangeLID == nil, "the provider cannot change LIDs")
		other := c.a.reopen()
		there, back := c.wire(quickRC), c.wire(quickRC)
		there.pings()
		back.pings()
		before := c.a.pattr.LID
		c.Injector.ChangeLID(c.a.dev, c.a.port)
		c.a.await(verbs.EventLIDChange, c.a.port)
		other.await(verbs.EventLIDChange, c.a.port)
		there.b.recv()
		there.a.scq.awaitOne(there.a.send(), verbs.StatusRetryExcErr)
		there.b.rcq.requireNone("the packet is from another LID than the peer's")
		back.a.recv()
		back.b.scq.awaitOne(back.b.send(), verbs.StatusRetryExcErr)
		back.a.rcq.requireNone("the packet is to the old LID")
		var err error
		c.a.pattr, err = c.a.dev.QueryPort(c.a.port)
		require.NoError(c, err)
		require.NotEqual(c, before, c.a.pattr.LID)
		c.wire(quickRC).pings()
	})
	add(verbs.EventPKeyChange, "subnet-manager", func(c *caseRun) {
		c.skipIf(c.Injector.SetPKeys == nil, "the provider cannot change partition keys")
		other := c.b.reopen()
		key, err := c.b.dev.PKey(c.b.port, 0)
		require.NoError(c, err)
		set := func(keys ...uint16) { c.Injector.SetPKeys(c.b.dev, c.b.port, keys...) }
		lost := func(what string) {
			there, back := c.wire(quickRC), c.wire(quickRC)
			there.b.recv()
			there.a.scq.awaitOne(there.a.send(), verbs.StatusRetryExcErr)
			there.b.rcq.requireNone(what)
			back.a.recv()
			back.b.scq.awaitOne(back.b.send(), verbs.StatusRetryExcErr)
			back.a.rcq.requireNone(what)
		}
		moved := c.wireOf(quickRC, opts{service: verbs.ServiceRC, quick: true, pkey: 2})
		set(0x8321, 0, key)
		c.b.await(verbs.EventPKeyChange, c.b.port)
		other.await(verbs.EventPKeyChange, c.b.port)
		moved.pings()
		lost("the key is at another index")
		set(0)
		lost("the table lacks the key")
		set(key &^ 0x8000)
		c.wire(quickRC).pings() // a limited and a full member
		c.Injector.SetPKeys(c.a.dev, c.a.port, key&^0x8000)
		lost("both are limited members")
		set(key)
		c.wire(quickRC).pings()
	})
	add(verbs.EventPortErr, "link", func(c *caseRun) { linkDown(c) })
	add(verbs.EventPortActive, "link", func(c *caseRun) {
		w := linkDown(c)
		c.Injector.Link(c.a.dev, c.a.port, true)
		c.a.await(verbs.EventPortActive, c.a.port)
		c.wait("the port to be up", c.a.up)
		w.pings()
	})
	add(verbs.EventSRQLimitReached, "limit", func(c *caseRun) {
		w := c.wireWithSRQ(16, 3)
		srq := w.b.o.srq
		w.b.recvs(4)
		w.a.sends(1) // leaves three receives, the limit
		require.Zero(c, c.b.count(verbs.EventSRQLimitReached, nil), "the queue is not below its limit")
		w.a.sends(1)
		c.b.await(verbs.EventSRQLimitReached, srq)
		w.a.sends(1)
		w.deliver(4)
		require.Equal(c, 1, c.b.count(verbs.EventSRQLimitReached, nil), "the event is raised once")
		w.b.recvs(3)
		require.NoError(c, srq.SetLimit(3))
		w.a.sends(2)
		c.wait("a second SRQ_LIMIT_REACHED", func() bool { return c.b.count(verbs.EventSRQLimitReached, srq) == 2 })
		require.Zero(c, limitOf(c, srq), "the limit was reached")
		require.NoError(c, srq.SetLimit(2))
		require.Equal(c, 2, limitOf(c, srq))
		require.NoError(c, srq.SetLimit(0))
		w.a.sends(2)
		require.Equal(c, 2, c.b.count(verbs.EventSRQLimitReached, nil), "event of a disarmed queue")
	})
	add(verbs.EventQPLastWQEReached, "after-a-receive", func(c *caseRun) {
		w := c.wireWithSRQ(16, 0)
		w.b.recvs(3)
		w.a.sends(1)
		require.NoError(c, w.b.move(verbs.StateErr))
		c.b.await(verbs.EventQPLastWQEReached, w.b.QP)
		w.b.rcq.requireNone("receives of an SRQ stay there")
	})
	add(verbs.EventQPLastWQEReached, "empty-queue", func(c *caseRun) {
		w := c.wireWithSRQ(16, 0)
		w.deliver(1)
		require.NoError(c, w.b.move(verbs.StateErr))
		c.b.await(verbs.EventQPLastWQEReached, w.b.QP)
	})
	return all
}

// limitOf is the limit that an SRQ reports.
func limitOf(c *caseRun, srq verbs.SRQ) int {
	attr, err := srq.Query()
	require.NoError(c, err)
	return attr.Limit
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
		q.awaitSent(q.send())
		wc := q.peer.rcq.await(1)[0]
		require.Equal(q.c, verbs.StatusSuccess.Native(), wc.Status.Native())
	}
}

// deliver sends n messages from A to B.
func (w *wire) deliver(n int) {
	w.b.recvs(n)
	w.a.sends(n)
}

// overrun overruns a completion queue of A.
func overrun(c *caseRun) (*wire, *cq) {
	small := c.a.cq(4, nil)
	n := small.Entries() + 1
	w := c.wireOf(opts{depth: n + 1, scq: small}, rc)
	for range n {
		w.a.send(remote(verbs.WRRDMAWrite), length(8))
	}
	c.a.await(verbs.EventCQErr, small.CQ)
	return w, small
}

// failCQ fails a completion queue, named by a queue pair that sends with it or one that receives
// with it. All queue pairs of the queue fail, and no others.
func failCQ(c *caseRun, byReceiver bool) {
	inject := c.Injector
	c.skipIf(inject.BreakSendCQ == nil || inject.BreakRecvCQ == nil, "the provider cannot fail CQs")
	c.injected = true
	other := c.a.reopen()
	shared := c.a.cq(64, nil)
	w1, w2 := c.wireOf(opts{scq: shared}, rc), c.wireOf(opts{rcq: shared}, rc)
	w3 := c.wire(rc)
	w1.a.ping()
	w2.b.ping()
	if byReceiver {
		inject.BreakRecvCQ(c.a.dev, w2.a.QP)
	} else {
		inject.BreakSendCQ(c.a.dev, w1.a.QP)
	}
	c.a.await(verbs.EventCQErr, shared.CQ)
	for _, w := range []*wire{w1, w2} {
		c.a.await(verbs.EventQPFatal, w.a.QP)
		w.a.awaitState(verbs.StateErr)
	}
	require.Zero(c, c.a.count(verbs.EventQPFatal, w3.a.QP), "event of a queue pair with other queues")
	require.Zero(c, other.count(verbs.EventCQErr, nil)+other.count(verbs.EventQPFatal, nil), "event in another context")
	w3.pings()
}

// failedSRQ fails a shared receive queue. Its queue pairs fail, and no others.
func failedSRQ(c *caseRun) {
	c.skipIf(c.Injector.BreakSRQ == nil, "the provider cannot fail an SRQ")
	c.injected = true
	other := c.b.reopen()
	w1, w2 := c.wireWithSRQ(16, 0), c.wire(rc)
	srq := w1.b.o.srq
	w1.b.recvs(2)
	w1.a.sends(1)
	c.Injector.BreakSRQ(c.b.dev, w1.b.QP)
	c.b.await(verbs.EventSRQErr, srq)
	c.b.await(verbs.EventQPFatal, w1.b.QP)
	w1.b.awaitState(verbs.StateErr)
	require.Zero(c, c.b.count(verbs.EventQPFatal, w2.b.QP), "event of a queue pair without the SRQ")
	require.Zero(c, c.b.count(verbs.EventQPLastWQEReached, nil), "event after QP_FATAL")
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
	c.skipIf(c.Injector.Link == nil, "the provider cannot take links down")
	other := c.a.reopen()
	w := c.wire(rc)
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
