package verbstest

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// srq returns a new shared receive queue.
func (e *end) srq(n, limit int) verbs.SRQ {
	inner, err := e.pd.CreateSRQ(verbs.SRQInit{MaxWR: n, MaxSGE: 2, Limit: limit})
	require.NoError(e.c, err)
	e.c.cleanup = append(e.c.cleanup, inner.Destroy)
	return inner
}

// srqCases returns the cases for shared receive queues.
func srqCases() []testCase {
	rc := verbs.ServiceRC
	two := func(c *caseRun, srq verbs.SRQ) (w1, w2 *wire) {
		w1, w2 = c.pairOf(opts{service: rc}, opts{service: rc, srq: srq}), c.pairOf(opts{service: rc}, opts{service: rc, srq: srq})
		for _, w := range []*wire{w1, w2} {
			w.a.moveTo(verbs.StateRTS)
			w.b.moveTo(verbs.StateRTS)
		}
		return w1, w2
	}
	return []testCase{
		{"shared-in-order", func(c *caseRun) {
			w1, w2 := two(c, c.b.srq(16, 0))
			first, second, third := w1.b.recv(), w1.b.recv(), w1.b.recv()
			for _, step := range []struct {
				w  *wire
				id uint64
			}{{w2, first}, {w1, second}, {w2, third}} {
				step.w.a.scq.awaitOne(step.w.a.send(), verbs.StatusSuccess)
				wc := step.w.b.rcq.awaitOne(step.id, verbs.StatusSuccess)
				require.Equal(c, step.w.b.Num(), wc.QPNum, "number of the receiving queue pair")
			}
		}},
		{"entries-stay", func(c *caseRun) {
			w1, w2 := two(c, c.b.srq(16, 0))
			got := w1.b.recv()
			require.NoError(c, w1.b.move(verbs.StateErr))
			w2.a.scq.awaitOne(w2.a.send(), verbs.StatusSuccess)
			w2.b.rcq.awaitOne(got, verbs.StatusSuccess)
			w1.b.rcq.requireNone("receives of a shared queue are not flushed")
			got = w1.b.recv()
			require.NoError(c, w1.b.Destroy())
			w2.a.scq.awaitOne(w2.a.send(), verbs.StatusSuccess)
			w2.b.rcq.awaitOne(got, verbs.StatusSuccess)
		}},
		{"no-receive", func(c *caseRun) {
			srq := c.b.srq(16, 0)
			w := c.wireOf(opts{service: rc, quick: true}, opts{service: rc, quick: true, srq: srq})
			w.a.scq.awaitOne(w.a.send(), verbs.StatusRNRRetryExcErr)
		}},
		{"short-receive", func(c *caseRun) {
			w1, w2 := two(c, c.b.srq(16, 0))
			bad := w1.b.recv(recvLength(32))
			good := w1.b.recv()
			w1.a.scq.awaitOne(w1.a.send(), verbs.StatusRemInvReqErr)
			w1.b.rcq.awaitOne(bad, verbs.StatusLocLenErr)
			w1.b.awaitState(verbs.StateErr)
			w2.a.scq.awaitOne(w2.a.send(), verbs.StatusSuccess)
			w2.b.rcq.awaitOne(good, verbs.StatusSuccess)
		}},
		{"full", func(c *caseRun) {
			srq := c.b.srq(6, 0)
			w, _ := two(c, srq)
			ids := fillQueue(c, 6, func(n int) (int, []uint64, error) { return w.b.postRecvs(srq.PostRecv, n) })
			w.a.scq.awaitOne(w.a.send(), verbs.StatusSuccess)
			w.b.rcq.awaitOne(ids[0], verbs.StatusSuccess)
			w.b.recv() // uses the freed entry
		}},
		{"no-receives-of-its-own", func(c *caseRun) {
			w, _ := two(c, c.b.srq(6, 0))
			n, err := w.b.PostRecv([]verbs.RecvWR{w.b.recvWR()})
			w.b.requireRefused(n, err, "a receive for a queue pair with an SRQ")
		}},
		{"UD", func(c *caseRun) {
			srq := c.b.srq(16, 0)
			w := c.wireOf(opts{service: verbs.ServiceUD}, opts{service: verbs.ServiceUD, srq: srq})
			w.a.ping()
		}},
	}
}

// memoryCases returns the cases for memory regions that the status cases do not cover.
func memoryCases() []testCase {
	return []testCase{
		{"remote-write-needs-local-write", func(c *caseRun) { refuseAccess(c, verbs.AccessRemoteWrite) }},
		{"remote-atomic-needs-local-write", func(c *caseRun) { refuseAccess(c, verbs.AccessRemoteAtomic) }},
		{"empty", func(c *caseRun) {
			mr, err := c.a.pd.RegMR(nil, everyAccess)
			require.ErrorIs(c, err, verbs.ErrInvalid)
			require.Nil(c, mr)
		}},
		{"source-may-be-read-only", func(c *caseRun) {
			w := c.wire(opts{service: verbs.ServiceRC})
			from := c.a.region(256, 0)
			w.b.recv()
			w.a.scq.awaitOne(w.a.send(func(_ *qp, wr *verbs.SendWR) { wr.SGE[0] = from.sge(0, 64) }), verbs.StatusSuccess)
		}},
		{"read-into-read-only", func(c *caseRun) {
			w := c.wire(opts{service: verbs.ServiceRC})
			into := c.a.region(256, 0)
			id := w.a.send(remote(verbs.WRRDMARead), func(_ *qp, wr *verbs.SendWR) { wr.SGE[0] = into.sge(0, 64) })
			w.a.scq.awaitOne(id, verbs.StatusLocProtErr)
			w.a.awaitState(verbs.StateErr)
		}},
		{"two-regions-of-one-memory", func(c *caseRun) {
			w := c.wire(opts{service: verbs.ServiceRC})
			first := c.b.region(4096, everyAccess)
			second, err := c.b.pd.RegMR(first.buf, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			require.NoError(c, err)
			c.cleanup = append(c.cleanup, second.Dereg)
			require.NotEqual(c, first.RKey(), second.RKey())
			to := func(key uint32) func(*qp, *verbs.SendWR) {
				return func(_ *qp, wr *verbs.SendWR) { wr.RemoteAddr, wr.RKey = first.Addr(), key }
			}
			w.a.scq.awaitOne(w.a.send(remote(verbs.WRRDMAWrite), to(first.RKey())), verbs.StatusSuccess)
			w.a.scq.awaitOne(w.a.send(remote(verbs.WRRDMARead), to(second.RKey())), verbs.StatusSuccess)
			w.a.scq.awaitOne(w.a.send(remote(verbs.WRRDMAWrite), to(second.RKey())), verbs.StatusRemAccessErr)
		}},
		{"key-invalid-after-dereg", func(c *caseRun) {
			w := c.wire(opts{service: verbs.ServiceRC})
			old := c.b.region(4096, everyAccess)
			key, addr := old.RKey(), old.Addr()
			require.NoError(c, old.Dereg())
			old.gone = true
			again, err := c.b.pd.RegMR(old.buf, everyAccess) // the same memory with another key
			require.NoError(c, err)
			c.cleanup = append(c.cleanup, again.Dereg)
			require.NotEqual(c, key, again.RKey(), "the key was reused at once")
			before := string(old.buf)
			id := w.a.send(remote(verbs.WRRDMAWrite), func(_ *qp, wr *verbs.SendWR) { wr.RemoteAddr, wr.RKey = addr, key })
			w.a.scq.awaitOne(id, verbs.StatusRemAccessErr)
			require.Equal(c, before, string(old.buf))
		}},
		{"up-to-the-last-byte", func(c *caseRun) {
			w := c.wire(opts{service: verbs.ServiceRC})
			r := c.b.region(4096, everyAccess)
			for _, op := range []verbs.Opcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
				id := w.a.send(remote(op), func(_ *qp, wr *verbs.SendWR) { wr.RemoteAddr, wr.RKey = r.Addr()+4096-64, r.RKey() })
				w.a.scq.awaitOne(id, verbs.StatusSuccess)
			}
		}},
		{"empty-write-needs-no-key", func(c *caseRun) { // keep-alive probes rely on this
			w := c.wire(opts{service: verbs.ServiceRC})
			for _, key := range []uint32{0, 0xdeadbeef} {
				w.a.scq.awaitOne(w.a.send(func(_ *qp, wr *verbs.SendWR) {
					wr.Opcode, wr.RemoteAddr, wr.RKey, wr.NumSGE = verbs.WRRDMAWrite, 0, key, 0
				}), verbs.StatusSuccess)
			}
			w.a.ping()
			w.b.ping()
		}},
		{"address-wraps", func(c *caseRun) {
			w := c.wire(opts{service: verbs.ServiceRC})
			id := w.a.send(remote(verbs.WRRDMAWrite), func(_ *qp, wr *verbs.SendWR) { wr.RemoteAddr = ^uint64(0) - 31 })
			w.a.scq.awaitOne(id, verbs.StatusRemAccessErr)
		}},
	}
}

func refuseAccess(c *caseRun, access verbs.Access) {
	mr, err := c.a.pd.RegMR(aligned(64), access)
	require.ErrorIs(c, err, verbs.ErrInvalid)
	require.Nil(c, mr)
}

// droppedCases returns the cases for packets that a queue pair drops silently. Later packets
// arrive.
func droppedCases() []testCase {
	ud := verbs.ServiceUD
	dropped := func(o opts, change func(q *qp, wr *verbs.SendWR)) func(c *caseRun) {
		return func(c *caseRun) {
			w := c.wire(o)
			got := w.b.recv()
			w.a.scq.awaitOne(w.a.send(change), verbs.StatusSuccess)
			w.b.rcq.requireNone("the packet must be dropped")
			w.a.mem.buf[0]++
			w.a.scq.awaitOne(w.a.send(), verbs.StatusSuccess)
			w.a.awaitMessage(got, 64)
			w.b.rcq.requireNone("the packet must be dropped")
			require.Equal(c, verbs.StateRTS, w.b.state())
			require.Equal(c, verbs.StateRTS, w.a.state())
			c.b.takeEvents()
			require.Empty(c, c.b.eventNames())
		}
	}
	return []testCase{
		{"UD/Q_Key", dropped(opts{service: ud}, func(_ *qp, wr *verbs.SendWR) { wr.RemoteQKey ^= 1 })},
		{"UD/QP-number", dropped(opts{service: ud}, func(_ *qp, wr *verbs.SendWR) { wr.RemoteQPN ^= 0x800000 })},
		{"UD/longer-than-the-receive", func(c *caseRun) {
			w := c.wire(opts{service: ud})
			got := w.b.recv(recvLength(verbs.GRHBytes + 64))
			w.a.scq.awaitOne(w.a.send(length(65)), verbs.StatusSuccess)
			w.a.scq.awaitOne(w.a.send(length(64)), verbs.StatusSuccess)
			w.a.awaitMessage(got, 64)
			require.Equal(c, verbs.StateRTS, w.b.state())
		}},
		{"UD/no-receive", func(c *caseRun) {
			w := c.wire(opts{service: ud})
			w.a.scq.awaitOne(w.a.send(), verbs.StatusSuccess)
			for range 50 {
				c.step()
			}
			w.a.ping()
			w.b.rcq.requireNone("there was no receive for the first message")
		}},
		{"UC/no-receive", func(c *caseRun) {
			w := c.wire(opts{service: verbs.ServiceUC})
			w.a.scq.awaitOne(w.a.send(), verbs.StatusSuccess)
			for range 50 {
				c.step()
			}
			w.a.ping()
			w.b.rcq.requireNone("there was no receive for the first message")
			require.Equal(c, verbs.StateRTS, w.b.state())
		}},
		{"UC/lost-packet-ends-its-message", func(c *caseRun) {
			if c.Injector.LosePackets == nil {
				c.skip("the provider cannot drop packets")
			}
			w := c.wire(opts{service: verbs.ServiceUC, mtu: verbs.MTU256})
			got := w.b.recv()
			c.injected = true
			c.Injector.LosePackets(c.a.dev, w.a.QP, 1)
			w.a.scq.awaitOne(w.a.send(length(700)), verbs.StatusSuccess)
			w.a.scq.awaitOne(w.a.send(length(300)), verbs.StatusSuccess)
			w.a.awaitMessage(got, 300) // the next message uses the receive
			require.Equal(c, verbs.StateRTS, w.b.state())
		}},
		{"service/UD-to-RC", func(c *caseRun) {
			w := c.wire(opts{service: ud})
			other := c.wire(opts{service: verbs.ServiceRC})
			other.b.recv()
			w.a.scq.awaitOne(w.a.send(func(_ *qp, wr *verbs.SendWR) { wr.RemoteQPN = other.b.Num() }), verbs.StatusSuccess)
			w.a.ping()
			other.b.rcq.requireNone("the packet belongs to another service")
			require.Equal(c, verbs.StateRTS, other.b.state())
		}},
		{"service/RC-to-UC", func(c *caseRun) {
			victim := c.wire(opts{service: verbs.ServiceUC})
			victim.b.recv()
			w := c.pair(opts{service: verbs.ServiceRC, quick: true})
			w.a.destQPN = victim.b.Num()
			w.a.moveTo(verbs.StateRTS)
			w.a.scq.awaitOne(w.a.send(), verbs.StatusRetryExcErr)
			victim.b.rcq.requireNone("the packet belongs to another service")
			require.Equal(c, verbs.StateRTS, victim.b.state())
		}},
		{"RC/QP-number", func(c *caseRun) {
			w := c.pair(opts{service: verbs.ServiceRC, quick: true})
			w.b.moveTo(verbs.StateRTS)
			w.a.destQPN = w.b.Num() ^ 0x800000
			w.a.moveTo(verbs.StateRTS)
			w.a.scq.awaitOne(w.a.send(), verbs.StatusRetryExcErr)
			require.Equal(c, verbs.StateRTS, w.b.state())
		}},
		{"P_Key", func(c *caseRun) {
			index := -1
			base, err := c.a.dev.PKey(c.a.port, 0)
			require.NoError(c, err)
			for i := 1; i < c.a.pattr.PKeys; i++ {
				if key, err := c.a.dev.PKey(c.a.port, i); err == nil && key&0x7fff != base&0x7fff && key&0x7fff != 0 {
					index = i
				}
			}
			if index < 0 {
				c.skip("the port has only one partition key")
			}
			w := c.wireOf(opts{service: verbs.ServiceRC, quick: true, pkey: uint16(index)}, opts{service: verbs.ServiceRC, quick: true})
			w.b.recv()
			w.a.scq.awaitOne(w.a.send(), verbs.StatusRetryExcErr)
			w.b.rcq.requireNone("the packet belongs to another partition")
		}},
	}
}

// requireModifyFails checks that Modify refuses a wrong attribute and changes nothing.
func (q *qp) requireModifyFails(to verbs.QPState, what string, change func(attr *verbs.QPAttr)) {
	from := q.state()
	row, _ := verbs.FindTransition(q.Service(), from, to)
	attr := q.attr(to)
	change(attr)
	require.Error(q.c, q.Modify(attr, verbs.AttrState|row.Required), "%s", what)
	require.Equal(q.c, from.String(), q.state().String(), "state after a refusal")
}

// objectCases returns the cases for creating, finding and destroying objects.
func objectCases() []testCase {
	rc := verbs.ServiceRC
	busy := func(what string, make func(c *caseRun) (destroy func() error)) testCase {
		return testCase{"busy/" + what, func(c *caseRun) {
			destroy := make(c)
			require.ErrorIs(c, destroy(), verbs.ErrBusy, "%s", what)
		}}
	}
	return []testCase{
		{"provider/names", func(c *caseRun) {
			names, err := c.Provider.Devices()
			require.NoError(c, err)
			require.True(c, slices.Contains(names, c.a.dev.Name()) || slices.Contains(names, c.b.dev.Name()), "%v", names)
			dev, err := c.Provider.Open("no-such-device")
			require.ErrorIs(c, err, verbs.ErrNoDevice)
			require.Nil(c, dev)
		}},
		{"device/attributes", func(c *caseRun) {
			for _, e := range []*end{c.a, c.b} {
				for name, n := range map[string]int{"ports": e.attr.Ports, "QP": e.attr.MaxQP, "QP WR": e.attr.MaxQPWR, "SGE": e.attr.MaxSGE,
					"CQ": e.attr.MaxCQ, "CQE": e.attr.MaxCQE, "MR": e.attr.MaxMR, "PD": e.attr.MaxPD, "reads": e.attr.MaxQPRdAtom} {
					require.Positive(c, n, name)
				}
				require.True(c, e.pattr.State.Up(), "port is %v", e.pattr.State)
				require.Positive(c, e.pattr.ActiveMTU.Bytes())
				require.LessOrEqual(c, e.pattr.ActiveMTU, e.pattr.MaxMTU)
				require.Positive(c, e.pattr.GIDs)
				require.Positive(c, e.pattr.PKeys)
				require.Positive(c, e.pattr.MaxMsg)
				key, err := e.dev.PKey(e.port, 0)
				require.NoError(c, err)
				require.NotZero(c, key)
			}
		}},
		{"device/no-such-port", func(c *caseRun) {
			for _, port := range []int{0, -1, c.a.attr.Ports + 1} {
				_, err := c.a.dev.QueryPort(port)
				require.ErrorIs(c, err, verbs.ErrInvalid, "port %d", port)
				_, err = c.a.dev.GIDs(port)
				require.ErrorIs(c, err, verbs.ErrInvalid, "port %d", port)
			}
			for _, index := range []int{-1, c.a.pattr.PKeys} {
				_, err := c.a.dev.PKey(c.a.port, index)
				require.Error(c, err, "partition key %d", index)
			}
		}},
		{"device/twice", func(c *caseRun) {
			other := c.a.reopen()
			require.Equal(c, c.a.dev.Name(), other.dev.Name())
			require.Equal(c, c.a.gid, other.gid)
			q1, q2 := c.a.qp(opts{service: rc}), other.qp(opts{service: rc})
			require.NotEqual(c, q1.Num(), q2.Num())
			require.Less(c, max(q1.Num(), q2.Num()), uint32(1<<24))
		}},
		{"device/notify", func(c *caseRun) {
			var calls atomic.Int32
			c.b.dev.Notify(func() { calls.Add(1) })
			for i := range 3 {
				c.b.takeEvents()
				before := calls.Load()
				c.wire(opts{service: rc}).b.startDrain()
				c.wait("a call of Notify's function", func() bool { return calls.Load() > before })
				c.wait("SQ_DRAINED", func() bool { return c.b.count(verbs.EventSQDrained, nil) == i+1 })
			}
			c.b.dev.Notify(nil)
		}},
		{"QP/granted", func(c *caseRun) {
			q := c.a.qp(opts{service: rc, depth: 5, sge: 2, inline: 10})
			have := q.Cap()
			require.GreaterOrEqual(c, have.MaxSendWR, 5)
			require.GreaterOrEqual(c, have.MaxRecvWR, 5)
			require.GreaterOrEqual(c, have.MaxSendSGE, 2)
			require.GreaterOrEqual(c, have.MaxRecvSGE, 2)
			require.GreaterOrEqual(c, have.MaxInlineData, 10)
			require.Equal(c, verbs.StateReset, q.state())
			attr, err := q.Query()
			require.NoError(c, err)
			require.GreaterOrEqual(c, attr.Cap.MaxSendWR, have.MaxSendWR, "returned by Query")
			require.GreaterOrEqual(c, attr.Cap.MaxRecvWR, have.MaxRecvWR, "returned by Query")
			require.GreaterOrEqual(c, attr.Cap.MaxSendSGE, have.MaxSendSGE, "returned by Query")
			require.GreaterOrEqual(c, attr.Cap.MaxRecvSGE, have.MaxRecvSGE, "returned by Query")
			require.GreaterOrEqual(c, attr.Cap.MaxInlineData, have.MaxInlineData, "returned by Query")
		}},
		{"QP/values-out-of-range", func(c *caseRun) {
			w := c.pair(opts{service: rc})
			w.a.requireModifyFails(verbs.StateInit, "no such port", func(attr *verbs.QPAttr) { attr.Port = c.a.attr.Ports + 1 })
			w.a.requireModifyFails(verbs.StateInit, "port 0", func(attr *verbs.QPAttr) { attr.Port = 0 })
			w.a.moveTo(verbs.StateInit)
			w.a.requireModifyFails(verbs.StateRTR, "no such MTU", func(attr *verbs.QPAttr) { attr.PathMTU = 6 })
			w.a.requireModifyFails(verbs.StateRTR, "no such GID", func(attr *verbs.QPAttr) { attr.AH.SGIDIndex = 255 })
			require.NoError(c, w.a.move(verbs.StateRTR))
			require.NoError(c, w.a.move(verbs.StateRTS))
			w.b.moveTo(verbs.StateRTS)
			w.a.ping()
			w.b.ping()
		}},
		{"QP/more-reads-than-the-device-has", func(c *caseRun) {
			w := c.pair(opts{service: rc})
			w.a.moveTo(verbs.StateInit)
			w.a.requireModifyFails(verbs.StateRTR, "as responder", func(attr *verbs.QPAttr) { attr.MaxDestRdAtomic = 255 })
			require.NoError(c, w.a.move(verbs.StateRTR))
			w.a.requireModifyFails(verbs.StateRTS, "as requester", func(attr *verbs.QPAttr) { attr.MaxRdAtomic = 255 })
		}},
		{"AH/no-such-port", func(c *caseRun) {
			path := c.a.path()
			path.Port = c.a.attr.Ports + 1
			ah, err := c.a.pd.CreateAH(path)
			require.ErrorIs(c, err, verbs.ErrInvalid)
			require.Nil(c, ah)
		}},
		{"SRQ/limit-over-its-size", func(c *caseRun) {
			srq := c.a.srq(8, 0)
			require.ErrorIs(c, srq.SetLimit(1<<20), verbs.ErrInvalid)
			require.Error(c, srq.SetLimit(-1))
		}},
		{"QP/too-large", func(c *caseRun) {
			cq := c.a.cq(8, nil)
			for _, size := range []verbs.QPCap{{MaxSendWR: c.a.attr.MaxQPWR + 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
				{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: c.a.attr.MaxSGE + 1, MaxRecvSGE: 1}} {
				q, err := c.a.pd.CreateQP(verbs.QPInit{Service: rc, SendCQ: cq.CQ, RecvCQ: cq.CQ, Cap: size})
				require.Error(c, err)
				require.Nil(c, q)
			}
		}},
		{"CQ/too-large", func(c *caseRun) {
			for _, n := range []int{0, -1, c.a.attr.MaxCQE + 1} {
				q, err := c.a.dev.CreateCQ(n, nil)
				require.Error(c, err, "%d entries", n)
				require.Nil(c, q)
			}
		}},
		busy("CQ-of-sends", func(c *caseRun) func() error { return c.a.qp(opts{service: rc}).scq.CQ.Destroy }),
		busy("CQ-of-receives", func(c *caseRun) func() error { return c.a.qp(opts{service: rc}).rcq.CQ.Destroy }),
		busy("PD-with-QP", func(c *caseRun) func() error {
			pd := c.a.newPD()
			c.a.qp(opts{service: rc, pd: pd})
			return pd.Dealloc
		}),
		busy("PD-with-MR", func(c *caseRun) func() error {
			pd := c.a.newPD()
			c.a.regionIn(pd, 64, everyAccess)
			return pd.Dealloc
		}),
		busy("PD-with-AH", func(c *caseRun) func() error {
			pd := c.a.newPD()
			ah, err := pd.CreateAH(c.a.path())
			require.NoError(c, err)
			c.cleanup = append(c.cleanup, ah.Destroy)
			return pd.Dealloc
		}),
		busy("PD-with-SRQ", func(c *caseRun) func() error { c.a.srq(8, 0); return c.a.pd.Dealloc }),
		busy("SRQ-with-QP", func(c *caseRun) func() error {
			srq := c.a.srq(8, 0)
			c.a.qp(opts{service: rc, srq: srq})
			return srq.Destroy
		}),
		busy("channel-with-CQ", func(c *caseRun) func() error {
			ch, err := c.a.dev.CreateCompChannel()
			require.NoError(c, err)
			c.cleanup = append(c.cleanup, ch.Destroy)
			c.a.cq(8, ch)
			return ch.Destroy
		}),
		busy("device-with-PD", func(c *caseRun) func() error { return c.a.dev.Close }),
		{"busy/object-still-works", func(c *caseRun) {
			w := c.wire(opts{service: rc})
			require.ErrorIs(c, w.a.scq.CQ.Destroy(), verbs.ErrBusy)
			require.ErrorIs(c, c.a.pd.Dealloc(), verbs.ErrBusy)
			require.ErrorIs(c, c.a.dev.Close(), verbs.ErrBusy)
			w.a.ping()
			w.b.ping()
		}},
		{"event/acknowledge-before-destroy", func(c *caseRun) {
			w := c.wire(opts{service: rc})
			w.b.startDrain()
			var ev verbs.AsyncEvent
			c.wait("SQ_DRAINED", func() (ok bool) {
				var err error
				ev, ok, err = c.b.dev.NextEvent()
				require.NoError(c, err)
				if ok && ev.Type != verbs.EventSQDrained {
					c.b.dev.AckEvent(ev)
					ok = false
				}
				return ok
			})
			require.True(c, ev.QP == w.b.QP)
			require.ErrorIs(c, w.b.QP.Destroy(), verbs.ErrBusy, "an event is unacknowledged")
			c.b.dev.AckEvent(ev)
			require.NoError(c, w.b.Destroy())
		}},
		{"event/dropped-with-its-object", func(c *caseRun) {
			w, later := c.wire(opts{service: rc}), c.wire(opts{service: rc})
			w.b.startDrain()
			for range 50 {
				c.step()
			}
			require.NoError(c, w.b.Destroy())
			later.b.startDrain()
			c.b.await(verbs.EventSQDrained, later.b.QP)
			require.Equal(c, 1, c.b.count(verbs.EventSQDrained, nil), "event of a destroyed object")
		}},
		{"destroyed/QP", func(c *caseRun) {
			w := c.wire(opts{service: rc})
			send, recv := w.a.sendWR(), w.a.recvWR()
			require.NoError(c, w.a.Destroy())
			_, err := w.a.QP.Query()
			require.ErrorIs(c, err, verbs.ErrGone)
			_, err = w.a.QP.PostSend([]verbs.SendWR{send})
			require.ErrorIs(c, err, verbs.ErrGone)
			_, err = w.a.QP.PostRecv([]verbs.RecvWR{recv})
			require.ErrorIs(c, err, verbs.ErrGone)
			require.ErrorIs(c, w.a.QP.Modify(&verbs.QPAttr{}, verbs.AttrState), verbs.ErrGone)
			require.ErrorIs(c, w.a.QP.Destroy(), verbs.ErrGone)
		}},
		{"many", func(c *caseRun) {
			seen := map[uint32]bool{}
			for i := range 20 {
				w := c.wire(opts{service: rc, depth: 4})
				require.False(c, seen[w.a.Num()], "number %d is used twice", w.a.Num())
				seen[w.a.Num()] = true
				w.a.ping()
				if i%2 == 0 {
					require.NoError(c, w.b.Destroy(), fmt.Sprint(i))
				}
			}
		}},
	}
}
