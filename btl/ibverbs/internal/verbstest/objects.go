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

// wireWithSRQ returns a wire whose end B has a shared receive queue.
func (c *caseRun) wireWithSRQ(n, limit int) *wire {
	return c.wireOf(rc, opts{srq: c.b.srq(n, limit)})
}

// sendTo sends a message from A to B, which must complete the receive, and returns its completion.
func (w *wire) sendTo(recv uint64) verbs.WC {
	w.a.awaitSent(w.a.send())
	return w.b.rcq.awaitOne(recv, verbs.StatusSuccess)
}

// srqCases returns the cases for shared receive queues.
func srqCases() []testCase {
	// two returns a case with two wires that share a receive queue at B.
	two := func(name string, size int, run func(c *caseRun, w1, w2 *wire)) testCase {
		return testCase{name, func(c *caseRun) {
			w1 := c.wireWithSRQ(size, 0)
			run(c, w1, c.wireOf(rc, opts{srq: w1.b.o.srq}))
		}}
	}
	return []testCase{
		two("shared-in-order", 16, func(c *caseRun, w1, w2 *wire) {
			first, second, third := w1.b.recv(), w1.b.recv(), w1.b.recv()
			for _, step := range []struct {
				w  *wire
				id uint64
			}{{w2, first}, {w1, second}, {w2, third}} {
				require.Equal(c, step.w.b.Num(), step.w.sendTo(step.id).QPNum, "receiver")
			}
		}),
		two("entries-stay", 16, func(c *caseRun, w1, w2 *wire) {
			got := w1.b.recv()
			require.NoError(c, w1.b.move(verbs.StateErr))
			w2.sendTo(got)
			w1.b.rcq.requireNone("receives of a shared queue are not flushed")
			got = w1.b.recv()
			require.NoError(c, w1.b.Destroy())
			w2.sendTo(got)
		}),
		{"no-receive", func(c *caseRun) {
			w := c.wireOf(quickRC, opts{quick: true, srq: c.b.srq(16, 0)})
			w.a.scq.awaitOne(w.a.send(), verbs.StatusRNRRetryExcErr)
		}},
		two("short-receive", 16, func(c *caseRun, w1, w2 *wire) {
			bad := w1.b.recv(recvLength(32))
			good := w1.b.recv()
			w1.a.scq.awaitOne(w1.a.send(), verbs.StatusRemInvReqErr)
			w1.b.rcq.awaitOne(bad, verbs.StatusLocLenErr)
			w1.b.awaitState(verbs.StateErr)
			w2.sendTo(good)
		}),
		two("full", 6, func(c *caseRun, w, _ *wire) {
			ids := fillQueue(c, 6, w.b.recvsTo(w.b.o.srq.PostRecv))
			w.sendTo(ids[0])
			w.b.recv() // uses the freed entry
		}),
		two("no-receives-of-its-own", 6, func(c *caseRun, w, _ *wire) {
			n, err := w.b.PostRecv([]verbs.RecvWR{w.b.recvWR()})
			w.b.requireRefused(n, err, "a receive for a queue pair with an SRQ")
		}),
		{"query", func(c *caseRun) {
			attr, err := c.a.srq(10, 4).Query()
			require.NoError(c, err)
			require.GreaterOrEqual(c, attr.MaxWR, 10)
			require.GreaterOrEqual(c, attr.MaxSGE, 2)
			require.Equal(c, 4, attr.Limit)
		}},
		// Peers that find no receive wait until one is posted, however long that takes.
		{"waits-for-receive", func(c *caseRun) {
			w := c.wireWithSRQ(16, 0)
			sent := w.a.send()
			w.a.scq.requireNone("there is no receive")
			w.b.rcq.awaitOne(w.b.recv(), verbs.StatusSuccess)
			w.a.awaitSent(sent)
		}},
		// The receives that a queue pair has not taken outlive it, and their completions name the
		// queue pair that took them, not the one that was first.
		{"many-queue-pairs", func(c *caseRun) {
			const wires = 5
			all := []*wire{c.wireWithSRQ(16, 0)}
			for len(all) < wires {
				all = append(all, c.wireOf(rc, opts{srq: all[0].b.o.srq}))
			}
			for round := range 3 {
				for i, w := range all {
					w = all[(i*2+round)%len(all)]
					require.Equal(c, w.b.Num(), w.sendTo(w.b.recv()).QPNum)
				}
			}
			last := all[wires-1].b.recv()
			for _, w := range all[:wires-2] {
				require.NoError(c, w.b.move(verbs.StateErr))
				require.NoError(c, w.b.Destroy())
			}
			require.Equal(c, all[wires-1].b.Num(), all[wires-1].sendTo(last).QPNum)
		}},
		{"UD", func(c *caseRun) {
			c.wireOf(ud, opts{service: verbs.ServiceUD, srq: c.b.srq(16, 0)}).a.ping()
		}},
	}
}

// memoryCases returns the cases for memory regions that the status cases do not cover.
func memoryCases() []testCase {
	return []testCase{
		{"remote-write-needs-local-write", refuseRegion(aligned(64), verbs.AccessRemoteWrite)},
		{"remote-atomic-needs-local-write", refuseRegion(aligned(64), verbs.AccessRemoteAtomic)},
		{"empty", refuseRegion(nil, everyAccess)},
		wired("source-may-be-read-only", rc, func(c *caseRun, w *wire) {
			w.b.recv()
			w.a.awaitSent(w.a.send(withRegion(c.a.region(256, 0))))
		}),
		wired("read-into-read-only", rc, func(c *caseRun, w *wire) {
			id := w.a.send(remote(verbs.WRRDMARead), withRegion(c.a.region(256, 0)))
			w.a.scq.awaitOne(id, verbs.StatusLocProtErr)
			w.a.awaitState(verbs.StateErr)
		}),
		wired("two-regions-of-one-memory", rc, func(c *caseRun, w *wire) {
			first := c.b.region(4096, everyAccess)
			second, err := c.b.pd.RegMR(first.buf, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			require.NoError(c, err)
			c.cleanup = append(c.cleanup, second.Dereg)
			require.NotEqual(c, first.RKey(), second.RKey())
			byFirst, bySecond := at(first.Addr(), first.RKey()), at(first.Addr(), second.RKey())
			write, read := remote(verbs.WRRDMAWrite), remote(verbs.WRRDMARead)
			w.a.awaitSent(w.a.send(write, byFirst), w.a.send(read, bySecond))
			w.a.scq.awaitOne(w.a.send(write, bySecond), verbs.StatusRemAccessErr)
		}),
		wired("key-invalid-after-dereg", rc, func(c *caseRun, w *wire) {
			old := c.b.region(4096, everyAccess)
			key, addr := old.RKey(), old.Addr()
			require.NoError(c, old.Dereg())
			again, err := c.b.pd.RegMR(old.buf, everyAccess) // the same memory with another key
			require.NoError(c, err)
			c.cleanup = append(c.cleanup, again.Dereg)
			require.NotEqual(c, key, again.RKey(), "the key was reused at once")
			before := string(old.buf)
			write := w.a.send(remote(verbs.WRRDMAWrite), at(addr, key))
			w.a.scq.awaitOne(write, verbs.StatusRemAccessErr)
			require.Equal(c, before, string(old.buf))
		}),
		wired("up-to-the-last-byte", rc, func(c *caseRun, w *wire) {
			r := c.b.region(4096, everyAccess)
			for _, op := range []verbs.Opcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
				w.a.awaitSent(w.a.send(remote(op), at(r.Addr()+4096-64, r.RKey())))
			}
		}),
		// Keep-alive probes rely on this.
		wired("empty-write-needs-no-key", rc, func(_ *caseRun, w *wire) {
			for _, key := range []uint32{0, 0xdeadbeef} {
				empty := func(_ *qp, wr *verbs.SendWR) { wr.NumSGE = 0 }
				w.a.awaitSent(w.a.send(remote(verbs.WRRDMAWrite), at(0, key), empty))
			}
			w.pings()
		}),
		wired("address-wraps", rc, func(c *caseRun, w *wire) {
			write := w.a.send(remote(verbs.WRRDMAWrite), at(^uint64(0)-31, w.b.mem.RKey()))
			w.a.scq.awaitOne(write, verbs.StatusRemAccessErr)
		}),
	}
}

func refuseRegion(mem []byte, access verbs.Access) func(*caseRun) {
	return func(c *caseRun) {
		mr, err := c.a.pd.RegMR(mem, access)
		require.ErrorIs(c, err, verbs.ErrInvalid)
		require.Nil(c, mr)
	}
}

// droppedCases returns the cases for packets that a queue pair drops silently. Later packets
// arrive.
func droppedCases() []testCase {
	dropped := func(name string, change func(q *qp, wr *verbs.SendWR)) testCase {
		return wired(name, ud, func(c *caseRun, w *wire) {
			got := w.b.recv()
			w.a.awaitSent(w.a.send(change))
			w.b.rcq.requireNone("the packet must be dropped")
			w.a.mem.buf[0]++
			w.a.awaitSent(w.a.send())
			w.a.awaitMessage(got, 64)
			w.b.rcq.requireNone("the packet must be dropped")
			require.Equal(c, verbs.StateRTS, w.b.state())
			require.Equal(c, verbs.StateRTS, w.a.state())
			c.b.takeEvents()
			require.Empty(c, c.b.eventNames())
		})
	}
	noReceive := func(c *caseRun, w *wire) {
		w.a.awaitSent(w.a.send())
		c.steps(50)
		w.a.ping()
		w.b.rcq.requireNone("there was no receive for the first message")
		require.Equal(c, verbs.StateRTS, w.b.state())
	}
	return []testCase{
		dropped("UD/Q_Key", func(_ *qp, wr *verbs.SendWR) { wr.RemoteQKey ^= 1 }),
		dropped("UD/QP-number", func(_ *qp, wr *verbs.SendWR) { wr.RemoteQPN ^= 0x800000 }),
		wired("UD/longer-than-the-receive", ud, func(c *caseRun, w *wire) {
			got := w.b.recv(recvLength(verbs.GRHBytes + 64))
			w.a.awaitSent(w.a.send(length(65)), w.a.send(length(64)))
			w.a.awaitMessage(got, 64)
			require.Equal(c, verbs.StateRTS, w.b.state())
		}),
		wired("UD/no-receive", ud, noReceive),
		wired("UC/no-receive", uc, noReceive),
		{"UC/lost-packet-ends-its-message", func(c *caseRun) {
			w := c.wire(opts{service: verbs.ServiceUC, mtu: verbs.MTU256})
			c.skipIf(c.Injector.LosePackets == nil, "the provider cannot drop packets")
			got := w.b.recv()
			c.injected = true
			c.Injector.LosePackets(c.a.dev, w.a.QP, 1)
			w.a.awaitSent(w.a.send(length(700)), w.a.send(length(300)))
			w.a.awaitMessage(got, 300) // the next message uses the receive
			require.Equal(c, verbs.StateRTS, w.b.state())
		}},
		wired("service/UD-to-RC", ud, func(c *caseRun, w *wire) {
			other := c.wire(rc)
			other.b.recv()
			w.a.awaitSent(w.a.send(func(_ *qp, wr *verbs.SendWR) { wr.RemoteQPN = other.b.Num() }))
			w.a.ping()
			other.b.rcq.requireNone("the packet belongs to another service")
			require.Equal(c, verbs.StateRTS, other.b.state())
		}),
		wired("service/RC-to-UC", uc, func(_ *caseRun, w *wire) { w.dropsFromRC(w.b.Num()) }),
		wired("RC/QP-number", rc, func(_ *caseRun, w *wire) { w.dropsFromRC(w.b.Num() ^ 1<<23) }),
		{"P_Key", func(c *caseRun) {
			index := -1
			base, err := c.a.dev.PKey(c.a.port, 0)
			require.NoError(c, err)
			for i := 1; i < c.a.pattr.PKeys; i++ {
				if key, err := c.a.dev.PKey(c.a.port, i); err == nil && key&0x7fff != base&0x7fff && key&0x7fff != 0 {
					index = i
				}
			}
			c.skipIf(index < 0, "the port has only one partition key")
			w := c.wireOf(opts{quick: true, pkey: uint16(index)}, quickRC)
			w.b.recv()
			w.a.scq.awaitOne(w.a.send(), verbs.StatusRetryExcErr)
			w.b.rcq.requireNone("the packet belongs to another partition")
		}},
	}
}

// dropsFromRC sends a message from an RC queue pair to a number. B must drop it.
func (w *wire) dropsFromRC(num uint32) {
	w.b.recv()
	from := w.c.pair(quickRC)
	from.a.destQPN = num
	from.a.moveTo(verbs.StateRTS)
	from.a.scq.awaitOne(from.a.send(), verbs.StatusRetryExcErr)
	w.b.rcq.requireNone("the packet is for another queue pair")
	require.Equal(w.c, verbs.StateRTS, w.b.state())
}

// requireModifyFails checks that Modify refuses a wrong attribute and changes nothing.
func (q *qp) requireModifyFails(to verbs.QPState, what string, change func(attr *verbs.QPAttr)) {
	from := q.state()
	require.Error(q.c, q.moveWith(to, change), "%s", what)
	require.Equal(q.c, from.String(), q.state().String(), "state after a refusal")
}

// objectCases returns the cases for creating, finding and destroying objects.
func objectCases() []testCase {
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
				a, p := e.attr, e.pattr
				for _, n := range []int{
					a.Ports, a.MaxQP, a.MaxQPWR, a.MaxSGE, a.MaxCQ, a.MaxCQE, a.MaxMR, a.MaxPD, a.MaxQPRdAtom,
					p.ActiveMTU.Bytes(), p.GIDs, p.PKeys, int(p.MaxMsg),
				} {
					require.Positive(c, n, "%+v %+v", a, p)
				}
				require.True(c, p.State.Up(), "port is %v", p.State)
				require.LessOrEqual(c, p.ActiveMTU, p.MaxMTU)
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
			q1, q2 := c.a.qp(rc), other.qp(rc)
			require.NotEqual(c, q1.Num(), q2.Num())
			require.Less(c, max(q1.Num(), q2.Num()), uint32(1<<24))
		}},
		{"device/notify", func(c *caseRun) {
			var calls atomic.Int32
			c.b.dev.Notify(func() { calls.Add(1) })
			for i := range 3 {
				c.b.takeEvents()
				before := calls.Load()
				c.wire(rc).b.startDrain()
				c.wait("a call of Notify's function", func() bool { return calls.Load() > before })
				c.wait("SQ_DRAINED", func() bool { return c.b.count(verbs.EventSQDrained, nil) == i+1 })
			}
			c.b.dev.Notify(nil)
		}},
		{"QP/granted", func(c *caseRun) {
			q := c.a.qp(opts{depth: 5, sge: 2, inline: 10})
			numbers := func(n verbs.QPCap) []int {
				return []int{n.MaxSendWR, n.MaxRecvWR, n.MaxSendSGE, n.MaxRecvSGE, n.MaxInlineData}
			}
			granted, returned := numbers(q.Cap()), numbers(q.query().Cap)
			for i, asked := range []int{5, 5, 2, 2, 10} {
				require.GreaterOrEqual(c, granted[i], asked)
				require.GreaterOrEqual(c, returned[i], granted[i], "returned by Query")
			}
			require.Equal(c, verbs.StateReset, q.state())
		}},
		{"QP/values-out-of-range", func(c *caseRun) {
			w := c.pair(rc)
			w.a.requireModifyFails(verbs.StateInit, "no such port", func(attr *verbs.QPAttr) { attr.Port = c.a.attr.Ports + 1 })
			w.a.requireModifyFails(verbs.StateInit, "port 0", func(attr *verbs.QPAttr) { attr.Port = 0 })
			w.a.moveTo(verbs.StateInit)
			w.a.requireModifyFails(verbs.StateRTR, "no such MTU", func(attr *verbs.QPAttr) { attr.PathMTU = 6 })
			w.a.requireModifyFails(verbs.StateRTR, "no such GID", func(attr *verbs.QPAttr) { attr.AH.IsGlobal, attr.AH.SGIDIndex = true, 255 })
			require.NoError(c, w.a.move(verbs.StateRTR))
			require.NoError(c, w.a.move(verbs.StateRTS))
			w.b.moveTo(verbs.StateRTS)
			w.pings()
		}},
		{"QP/more-reads-than-the-device-has", func(c *caseRun) {
			w := c.pair(rc)
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
		{"AH/resolved", func(c *caseRun) {
			resolve := func(path verbs.AHAttr) error {
				results := make(chan error, 1)
				c.a.pd.Resolve(path, func(err error) { results <- err })
				return <-results
			}
			require.NoError(c, resolve(c.a.path()))
			c.a.ah(c.a.pd)
			path := c.a.path()
			path.Port = c.a.attr.Ports + 1
			require.ErrorIs(c, resolve(path), verbs.ErrInvalid)
		}},
		{"SRQ/limit-over-its-size", func(c *caseRun) {
			srq := c.a.srq(8, 0)
			require.ErrorIs(c, srq.SetLimit(1<<20), verbs.ErrInvalid)
			require.Error(c, srq.SetLimit(-1))
		}},
		{"QP/too-large", func(c *caseRun) {
			cq := c.a.cq(8, nil).CQ
			for _, size := range []verbs.QPCap{{MaxSendWR: c.a.attr.MaxQPWR + 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
				{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: c.a.attr.MaxSGE + 1, MaxRecvSGE: 1}} {
				init := verbs.QPInit{Service: verbs.ServiceRC, SendCQ: cq, RecvCQ: cq, Cap: size}
				q, err := c.a.pd.CreateQP(init)
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
		busy("CQ-of-sends", func(c *caseRun) func() error { return c.a.qp(rc).scq.CQ.Destroy }),
		busy("CQ-of-receives", func(c *caseRun) func() error { return c.a.qp(rc).rcq.CQ.Destroy }),
		busy("PD-with-QP", func(c *caseRun) func() error {
			pd := c.a.newPD()
			c.a.qp(opts{pd: pd})
			return pd.Dealloc
		}),
		busy("PD-with-MR", func(c *caseRun) func() error {
			pd := c.a.newPD()
			c.a.regionIn(pd, 64, everyAccess)
			return pd.Dealloc
		}),
		busy("PD-with-AH", func(c *caseRun) func() error {
			pd := c.a.newPD()
			c.a.ah(pd)
			return pd.Dealloc
		}),
		busy("PD-with-SRQ", func(c *caseRun) func() error { c.a.srq(8, 0); return c.a.pd.Dealloc }),
		busy("SRQ-with-QP", func(c *caseRun) func() error {
			srq := c.a.srq(8, 0)
			c.a.qp(opts{srq: srq})
			return srq.Destroy
		}),
		busy("channel-with-CQ", func(c *caseRun) func() error {
			ch := c.a.channel()
			c.a.cq(8, ch.CompChannel)
			return ch.Destroy
		}),
		busy("device-with-PD", func(c *caseRun) func() error { return c.a.dev.Close }),
		wired("busy/object-still-works", rc, func(c *caseRun, w *wire) {
			require.ErrorIs(c, w.a.scq.CQ.Destroy(), verbs.ErrBusy)
			require.ErrorIs(c, c.a.pd.Dealloc(), verbs.ErrBusy)
			require.ErrorIs(c, c.a.dev.Close(), verbs.ErrBusy)
			w.pings()
		}),
		wired("event/acknowledge-before-destroy", rc, func(c *caseRun, w *wire) {
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
		}),
		{"event/dropped-with-its-object", func(c *caseRun) {
			w, later := c.wire(rc), c.wire(rc)
			w.b.startDrain()
			c.steps(50)
			require.NoError(c, w.b.Destroy())
			later.b.startDrain()
			c.b.await(verbs.EventSQDrained, later.b.QP)
			require.Equal(c, 1, c.b.count(verbs.EventSQDrained, nil), "event of a destroyed object")
		}},
		wired("destroyed/QP", rc, func(c *caseRun, w *wire) {
			send, recv := w.a.sendWR(), w.a.recvWR()
			require.NoError(c, w.a.Destroy())
			gone := func(_ any, err error) { require.ErrorIs(c, err, verbs.ErrGone) }
			gone(w.a.QP.Query())
			gone(w.a.QP.PostSend([]verbs.SendWR{send}))
			gone(w.a.QP.PostRecv([]verbs.RecvWR{recv}))
			gone(nil, w.a.QP.Modify(&verbs.QPAttr{}, verbs.AttrState))
			gone(nil, w.a.QP.Destroy())
		}),
		{"destroyed/others", func(c *caseRun) {
			before := c.cleanup
			ch, pd := c.a.channel(), c.a.newPD()
			cq, srq := c.a.cq(8, ch.CompChannel), c.a.srq(8, 0)
			ah, mr := c.a.ah(pd), c.a.regionIn(pd, 64, everyAccess)
			dev, err := c.Provider.Open(c.a.dev.Name())
			require.NoError(c, err)
			c.cleanup = before
			for _, destroy := range []func() error{
				cq.CQ.Destroy, ch.Destroy, srq.Destroy, ah.Destroy, mr.MR.Dereg, pd.Dealloc, dev.Close,
			} {
				require.NoError(c, destroy())
				require.ErrorIs(c, destroy(), verbs.ErrGone)
			}
			gone := func(_ any, err error) { require.ErrorIs(c, err, verbs.ErrGone) }
			gone(cq.CQ.Poll(make([]verbs.WC, 1)))
			gone(nil, cq.CQ.ReqNotify(false))
			gone(srq.PostRecv(make([]verbs.RecvWR, 1)))
			gone(nil, srq.SetLimit(1))
			gone(srq.Query())
			gone(pd.CreateAH(c.a.path()))
			gone(pd.CreateSRQ(verbs.SRQInit{MaxWR: 1}))
			gone(pd.RegMR(make([]byte, 1), 0))
			gone(dev.Query())
			gone(dev.QueryPort(c.a.port))
			gone(dev.GIDs(c.a.port))
			gone(dev.PKey(c.a.port, 0))
			gone(dev.AllocPD())
			gone(dev.CreateCompChannel())
			gone(dev.CreateCQ(1, nil))
		}},
		{"many", func(c *caseRun) {
			seen := map[uint32]bool{}
			for i := range 20 {
				w := c.wire(opts{depth: 4})
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
