package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// eventCases: each event, as a program can bring it about, and injected. One of a queue pair, CQ or SRQ is told to the
// context that made it, one of a port or device to every context.
func eventCases() (all []kase) {
	natural := naturalEvents()
	for _, in := range verbs.EventTypes() {
		all = append(all, natural[in.Type]...)
		switch in.Affiliation {
		case verbs.AffiliationQP, verbs.AffiliationPort, verbs.AffiliationDevice:
			all = append(all, kase{in.Name + "/raised", func(c *c) { raised(c, in) }})
		case verbs.AffiliationCQ:
			all = append(all, kase{in.Name + "/broken-of-sends", brokenCQ}, kase{in.Name + "/broken-of-receives", brokenRecvCQ})
		case verbs.AffiliationSRQ:
			if in.Type == verbs.EventSRQErr {
				all = append(all, kase{in.Name + "/broken", brokenSRQ})
			}
		}
	}
	return all
}

// again opens the end's device once more. What is told there is in the new end's events.
func (e *end) again() *end {
	dev, err := e.c.Provider.Open(e.dev.Name())
	require.NoError(e.c, err)
	e.c.cleanup = append(e.c.cleanup, dev.Close)
	return newEnd(e.c, e.name+"'", dev, e.port, e.index)
}

func raised(c *c, in verbs.EventInfo) {
	if c.Injector.Raise == nil {
		c.skip("no injection of events")
	}
	c.injected = true
	other := c.a.again()
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
		require.Zero(c, other.has(in.Type, nil), "told to a context that did not make the queue pair")
	}
	require.Equal(c, 1, c.a.has(in.Type, nil), "how often it was told")
	require.Zero(c, c.b.has(in.Type, nil), "told to another device")
	if w != nil && in.Type == verbs.EventQPFatal {
		w.a.becomes(verbs.StateErr)
	}
}

func naturalEvents() map[verbs.EventType][]kase {
	rc := verbs.ServiceRC
	all := map[verbs.EventType][]kase{}
	add := func(e verbs.EventType, name string, run func(c *c)) {
		all[e] = append(all[e], kase{e.String() + "/" + name, run})
	}
	add(verbs.EventCQErr, "overrun", func(c *c) {
		_, q := overrun(c)
		require.Equal(c, 1, c.a.has(verbs.EventCQErr, q.CQ))
		var wcs [1]verbs.WC
		n, _ := q.Poll(wcs[:]) // with an error or without one
		require.Zero(c, n, "completions of a broken queue")
		require.Zero(c, c.b.has(verbs.EventCQErr, nil))
	})
	add(verbs.EventQPFatal, "by-CQ_ERR", func(c *c) {
		w, _ := overrun(c)
		c.a.await(verbs.EventQPFatal, w.a.QP)
		w.a.becomes(verbs.StateErr)
	})
	add(verbs.EventQPAccessErr, "WRITE", func(c *c) {
		w := c.wire(opts{service: rc})
		other := c.b.again()
		w.a.scq.one(w.a.send(remote(verbs.WRRDMAWrite), badRKey), verbs.StatusRemAccessErr)
		c.b.await(verbs.EventQPAccessErr, w.b.QP)
		require.Zero(c, c.a.has(verbs.EventQPAccessErr, nil))
		require.Zero(c, other.has(verbs.EventQPAccessErr, nil), "told to a context that did not make the queue pair")
	})
	for _, service := range []verbs.Services{rc, verbs.ServiceUC} {
		add(verbs.EventCommEst, service.String(), func(c *c) {
			w := c.pair(opts{service: service})
			other := c.b.again()
			w.b.bring(verbs.StateRTR)
			w.a.bring(verbs.StateRTS)
			w.a.carry()
			c.b.await(verbs.EventCommEst, w.b.QP)
			w.a.carry()
			require.NoError(c, w.b.move(verbs.StateRTS))
			w.a.carry()
			w.b.carry()
			require.Equal(c, 1, c.b.has(verbs.EventCommEst, nil), "how often it was told")
			require.Zero(c, other.has(verbs.EventCommEst, nil), "told to a context that did not make the queue pair")
		})
	}
	add(verbs.EventCommEst, "not-UD", func(c *c) {
		w := c.pair(opts{service: verbs.ServiceUD})
		w.b.bring(verbs.StateRTR)
		w.a.bring(verbs.StateRTS)
		w.a.carry()
		w.a.carry()
		require.Zero(c, c.b.has(verbs.EventCommEst, nil))
	})
	add(verbs.EventSQDrained, "idle", func(c *c) {
		w := c.wire(opts{service: rc})
		w.a.drain()
		c.a.await(verbs.EventSQDrained, w.a.QP)
		require.NoError(c, w.a.move(verbs.StateRTS))
		w.a.carry()
	})
	add(verbs.EventSQDrained, "behind-a-send", func(c *c) {
		// The peer has no receive yet, so that the send stays under way.
		w := c.pair(opts{service: rc})
		w.b.bring(verbs.StateRTS)
		w.a.bring(verbs.StateRTR)
		row, _ := verbs.FindTransition(rc, verbs.StateRTR, verbs.StateRTS)
		attr := w.a.attr(verbs.StateRTS)
		attr.RNRRetry = 7
		require.NoError(c, w.a.Modify(attr, verbs.AttrState|row.Required))
		sent := w.a.send()
		for range 20 {
			c.step()
		}
		w.a.drain()
		for range 100 { // the peer refuses the send again and again meanwhile
			w.b.carry()
		}
		held := w.a.send()
		w.a.scq.none("the peer has no receive")
		have, err := w.a.Query()
		require.NoError(c, err)
		drained := c.a.has(verbs.EventSQDrained, nil)
		require.True(c, have.SQDraining && drained == 0, "a send is under way, but draining is %v, events %d", have.SQDraining, drained)
		for _, to := range []verbs.QPState{verbs.StateRTS, verbs.StateSQD} {
			require.ErrorIs(c, w.a.move(to), verbs.ErrInvalid, "to %v, not drained yet", to)
			require.Equal(c, verbs.StateSQD.String(), w.a.state().String(), "state after a refusal")
		}
		got := w.b.recv()
		w.a.scq.one(sent, verbs.StatusSuccess)
		w.a.arrived(got, 64)
		c.a.await(verbs.EventSQDrained, w.a.QP)
		have, err = w.a.Query()
		require.NoError(c, err)
		require.False(c, have.SQDraining, "as Query tells it")
		got = w.b.recv()
		w.b.carry()
		w.a.scq.none("what was posted in SQD is held")
		require.NoError(c, w.a.move(verbs.StateRTS))
		w.a.scq.one(held, verbs.StatusSuccess)
		w.a.arrived(got, 64)
	})
	add(verbs.EventGIDChange, "address", func(c *c) {
		if c.Injector.Address == nil {
			c.skip("the addresses stay as they are")
		}
		other := c.a.again()
		w := c.wire(opts{service: rc})
		c.Injector.Address(c.a.dev, c.a.port)
		c.a.await(verbs.EventGIDChange, c.a.port)
		other.await(verbs.EventGIDChange, c.a.port)
		w.a.carry()
		w.b.carry()
	})
	add(verbs.EventPortErr, "link", func(c *c) { linkDown(c) })
	add(verbs.EventPortActive, "link", func(c *c) {
		w := linkDown(c)
		c.Injector.Link(c.a.dev, c.a.port, true)
		c.a.await(verbs.EventPortActive, c.a.port)
		c.wait("the port to be up", c.a.up)
		w.a.carry()
		w.b.carry()
	})
	add(verbs.EventSRQLimitReached, "limit", func(c *c) {
		srq := c.b.srq(16, 3)
		w := c.pairOf(opts{service: rc}, opts{service: rc, srq: srq})
		w.a.bring(verbs.StateRTS)
		w.b.bring(verbs.StateRTS)
		w.b.recvs(4)
		w.a.sends(1) // three are left, which is the limit
		require.Zero(c, c.b.has(verbs.EventSRQLimitReached, nil), "not below the limit yet")
		w.a.sends(1)
		c.b.await(verbs.EventSRQLimitReached, srq)
		w.a.sends(1)
		w.b.recvs(4)
		w.a.sends(4)
		require.Equal(c, 1, c.b.has(verbs.EventSRQLimitReached, nil), "it is told once")
		w.b.recvs(3)
		require.NoError(c, srq.SetLimit(3))
		w.a.sends(2)
		c.wait("a second SRQ_LIMIT_REACHED", func() bool { return c.b.has(verbs.EventSRQLimitReached, srq) == 2 })
		require.NoError(c, srq.SetLimit(2))
		require.NoError(c, srq.SetLimit(0))
		w.a.sends(2)
		require.Equal(c, 2, c.b.has(verbs.EventSRQLimitReached, nil), "told after it was disarmed")
	})
	add(verbs.EventQPLastWQEReached, "after-a-receive", func(c *c) {
		srq := c.b.srq(16, 0)
		w := c.pairOf(opts{service: rc}, opts{service: rc, srq: srq})
		w.a.bring(verbs.StateRTS)
		w.b.bring(verbs.StateRTS)
		w.b.recvs(3)
		w.a.sends(1)
		require.NoError(c, w.b.move(verbs.StateErr))
		c.b.await(verbs.EventQPLastWQEReached, w.b.QP)
		w.b.rcq.none("entries of an SRQ stay there")
	})
	add(verbs.EventQPLastWQEReached, "empty-queue", func(c *c) {
		srq := c.b.srq(16, 0)
		w := c.pairOf(opts{service: rc}, opts{service: rc, srq: srq})
		w.a.bring(verbs.StateRTS)
		w.b.bring(verbs.StateRTS)
		w.b.recvs(1)
		w.a.sends(1)
		require.NoError(c, w.b.move(verbs.StateErr))
		c.b.await(verbs.EventQPLastWQEReached, w.b.QP)
	})
	return all
}

// drain goes to SQD and asks for SQ_DRAINED.
func (q *qp) drain() {
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

// sends sends n messages and takes all their completions on both sides.
func (q *qp) sends(n int) {
	for range n {
		q.scq.one(q.send(), verbs.StatusSuccess)
		wc := q.peer.rcq.await(1)[0]
		require.Equal(q.c, verbs.StatusSuccess.Native(), wc.Status.Native())
	}
}

// overrun puts one completion too many into a queue of A's.
func overrun(c *c) (*wire, *cq) {
	small := c.a.cq(4, nil)
	n := small.Entries() + 1
	o := opts{service: verbs.ServiceRC, depth: n + 1}
	oa := o
	oa.scq = small
	w := c.pairOf(oa, o)
	w.a.bring(verbs.StateRTS)
	w.b.bring(verbs.StateRTS)
	for range n {
		w.a.send(remote(verbs.WRRDMAWrite), length(8))
	}
	c.a.await(verbs.EventCQErr, small.CQ)
	return w, small
}

func brokenCQ(c *c) {
	breakCQ(c, func(sender, _ *qp) { c.Injector.BreakSendCQ(c.a.dev, sender.QP) })
}

func brokenRecvCQ(c *c) {
	breakCQ(c, func(_, receiver *qp) { c.Injector.BreakRecvCQ(c.a.dev, receiver.QP) })
}

// breakCQ: all queue pairs on a broken queue break, whether they send or receive by it, and no others.
func breakCQ(c *c, breakIt func(sender, receiver *qp)) {
	if c.Injector.BreakSendCQ == nil || c.Injector.BreakRecvCQ == nil {
		c.skip("no CQ can be broken")
	}
	c.injected = true
	other := c.a.again()
	shared := c.a.cq(64, nil)
	o := opts{service: verbs.ServiceRC}
	send, recv := o, o
	send.scq, recv.rcq = shared, shared
	w1, w2, w3 := c.pairOf(send, o), c.pairOf(recv, o), c.wire(o)
	for _, w := range []*wire{w1, w2} {
		w.a.bring(verbs.StateRTS)
		w.b.bring(verbs.StateRTS)
	}
	w1.a.carry()
	w2.b.carry()
	breakIt(w1.a, w2.a)
	c.a.await(verbs.EventCQErr, shared.CQ)
	c.a.await(verbs.EventQPFatal, w1.a.QP)
	c.a.await(verbs.EventQPFatal, w2.a.QP)
	w1.a.becomes(verbs.StateErr)
	w2.a.becomes(verbs.StateErr)
	require.Zero(c, c.a.has(verbs.EventQPFatal, w3.a.QP), "a queue pair of other queues")
	require.Zero(c, other.has(verbs.EventCQErr, nil)+other.has(verbs.EventQPFatal, nil), "told to another context")
	w3.a.carry()
	w3.b.carry()
}

func brokenSRQ(c *c) {
	if c.Injector.BreakSRQ == nil {
		c.skip("no SRQ can be broken")
	}
	c.injected = true
	other := c.b.again()
	srq := c.b.srq(16, 0)
	o := opts{service: verbs.ServiceRC}
	ob := o
	ob.srq = srq
	w1, w2 := c.pairOf(o, ob), c.wire(o)
	w1.a.bring(verbs.StateRTS)
	w1.b.bring(verbs.StateRTS)
	w1.b.recvs(2)
	w1.a.sends(1)
	c.Injector.BreakSRQ(c.b.dev, w1.b.QP)
	c.b.await(verbs.EventSRQErr, srq)
	c.b.await(verbs.EventQPFatal, w1.b.QP)
	w1.b.becomes(verbs.StateErr)
	require.Zero(c, c.b.has(verbs.EventQPFatal, w2.b.QP), "a queue pair without it")
	require.Zero(c, other.has(verbs.EventSRQErr, nil)+other.has(verbs.EventQPFatal, nil), "told to another context")
	n, err := srq.PostRecv([]verbs.RecvWR{w1.b.recvWR()})
	w1.b.refused(n, err, "receive to a broken SRQ")
	w2.a.carry()
}

func (e *end) up() bool {
	p, err := e.dev.QueryPort(e.port)
	require.NoError(e.c, err)
	return p.State.Up()
}

// linkDown takes A's port down. The queue pairs' states stay.
func linkDown(c *c) *wire {
	if c.Injector.Link == nil {
		c.skip("the link stays as it is")
	}
	other := c.a.again()
	w := c.wire(opts{service: verbs.ServiceRC})
	w.a.carry()
	c.cleanup = append(c.cleanup, func() error { // the network is there for the next case
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
