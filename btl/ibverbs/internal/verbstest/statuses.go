package verbstest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// statusCases: each status, in the ways that a program can provoke it, and injected at each side of each service that can
// have it.
func statusCases() (all []kase) {
	natural := naturalStatuses()
	for _, in := range verbs.Statuses() {
		for _, k := range natural[in.Status] {
			all = append(all, kase{in.Name + "/" + k.name, k.run})
		}
		if in.Class == verbs.ClassUnused {
			all = append(all, kase{in.Name, func(c *c) { c.skip("only the Reliable Datagram service has it, which verbs do not have") }})
			continue
		}
		if in.Status == verbs.StatusSuccess || in.Status == verbs.StatusWRFlushErr {
			continue // what is a status of success or of a consequence is not injected
		}
		for _, service := range eachService {
			if in.Services&service == 0 {
				continue
			}
			if in.Sides&verbs.Requester != 0 {
				all = append(all, kase{fmt.Sprintf("%s/injected/requester/%v", in.Name, service), func(c *c) { injectSend(c, service, in, false) }},
					kase{fmt.Sprintf("%s/injected/requester/%v/executed", in.Name, service), func(c *c) { injectSend(c, service, in, true) }})
			}
			if in.Sides&verbs.Responder != 0 {
				all = append(all, kase{fmt.Sprintf("%s/injected/responder/%v", in.Name, service), func(c *c) { injectRecv(c, service, in) }})
			}
		}
	}
	return all
}

// sendFailed checks what a failed send request does to its queue pair, and that the requests behind it are flushed.
func (q *qp) sendFailed(s verbs.Status, behind ...uint64) {
	switch s.Info().After {
	case verbs.AfterError:
		q.becomes(verbs.StateErr)
	case verbs.AfterErrorOrSQE:
		if q.Service() == verbs.ServiceRC {
			q.becomes(verbs.StateErr)
		} else {
			q.becomes(verbs.StateSQE)
		}
	}
	q.scq.flushed(behind...)
}

// recvFailed checks what a failed receive does to its queue pair.
func (q *qp) recvFailed(s verbs.Status, behind ...uint64) {
	if s.Info().After == verbs.AfterNone {
		require.NotEqual(q.c, verbs.StateErr, q.state())
		return
	}
	q.becomes(verbs.StateErr)
	q.rcq.flushed(behind...)
}

func injectSend(c *c, service verbs.Services, in verbs.StatusInfo, executed bool) {
	if c.Injector.SendStatus == nil {
		c.skip("no injection of send statuses")
	}
	w := c.wire(opts{service: service})
	got := []uint64{w.b.recv(), w.b.recv(), w.b.recv()}
	c.injected = true
	c.Injector.SendStatus(w.a.e.dev, w.a.QP, in.Status, executed)
	first, second, third := w.a.send(), w.a.send(), w.a.send()
	wc := w.a.scq.one(first, in.Status)
	require.Equal(c, w.a.Num(), wc.QPNum)
	if executed {
		w.a.arrived(got[0], 64)
	}
	if in.After == verbs.AfterNone {
		w.a.scq.one(second, verbs.StatusSuccess)
		w.a.scq.one(third, verbs.StatusSuccess)
		require.Equal(c, verbs.StateRTS, w.a.state())
		return
	}
	w.a.sendFailed(in.Status, second, third)
	if !executed {
		w.b.rcq.none("nothing of it was sent")
	}
}

// whatRequesterSees of a responder's failed receive, with RC.
func whatRequesterSees(s verbs.Status) (verbs.Status, bool) {
	for _, row := range verbs.Refusals() {
		if row.Completion == s && s != verbs.StatusSuccess {
			return row.Requester, true
		}
	}
	return 0, false
}

func injectRecv(c *c, service verbs.Services, in verbs.StatusInfo) {
	if c.Injector.RecvStatus == nil {
		c.skip("no injection of receive statuses")
	}
	o := opts{service: service, quick: true}
	if in.Status == verbs.StatusRemAbortErr {
		o.srq = c.b.srq(16, 0) // only what is taken from one is aborted
	}
	w := c.pairOf(opts{service: service, quick: true}, o)
	w.a.bring(verbs.StateRTS)
	w.b.bring(verbs.StateRTS)
	first, second := w.b.recv(), w.b.recv()
	c.injected = true
	c.Injector.RecvStatus(w.b.e.dev, w.b.QP, in.Status)
	var sent uint64
	if in.Status == verbs.StatusLocAccessErr {
		sent = w.a.send(remote(verbs.WRRDMAWriteWithImm))
	} else {
		sent = w.a.send()
	}
	wc := w.b.rcq.one(first, in.Status)
	require.Equal(c, w.b.Num(), wc.QPNum)
	if in.After == verbs.AfterNone {
		w.a.scq.one(sent, verbs.StatusSuccess)
		again := w.a.send()
		w.a.scq.one(again, verbs.StatusSuccess)
		w.a.arrived(second, 64)
		return
	}
	w.b.recvFailed(in.Status, second)
	if service != verbs.ServiceRC {
		w.a.scq.one(sent, verbs.StatusSuccess)
		return
	}
	seen := w.a.scq.await(1)[0]
	require.Equal(c, sent, seen.ID)
	if want, known := whatRequesterSees(in.Status); known {
		require.Equal(c, want.Native(), seen.Status.Native(), "what the requester sees")
	} else {
		require.NotEqual(c, verbs.StatusSuccess.Native(), seen.Status.Native(), "what the requester sees")
	}
	w.a.becomes(verbs.StateErr)
}

// pairOf makes two queue pairs that differ.
func (c *c) pairOf(a, b opts) *wire {
	w := &wire{c, c.a.qp(a), c.b.qp(b)}
	w.a.peer, w.b.peer = w.b, w.a
	return w
}

// failing is a send that fails at the requester alone, or at both sides.
func failing(o opts, status verbs.Status, change ...func(*qp, *verbs.SendWR)) func(*c) {
	return func(c *c) {
		w := c.wire(o)
		w.b.recv()
		first := w.a.send(change...)
		second := w.a.send()
		wc := w.a.scq.one(first, status)
		require.Equal(c, w.a.Num(), wc.QPNum)
		w.a.sendFailed(status, second)
	}
}

func naturalStatuses() map[verbs.Status][]kase {
	rc, uc := verbs.ServiceRC, verbs.ServiceUC
	all := map[verbs.Status][]kase{}
	add := func(s verbs.Status, name string, run func(c *c)) { all[s] = append(all[s], kase{name, run}) }

	for _, service := range eachService {
		name := service.String()
		o := opts{service: service}
		add(verbs.StatusSuccess, name, func(c *c) { w := c.wire(o); w.a.carry(); w.b.carry() })
		add(verbs.StatusWRFlushErr, "by-modify/"+name, func(c *c) {
			w := c.wire(o)
			ids := []uint64{w.a.recv(), w.a.recv(), w.a.recv()}
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.rcq.flushed(ids...)
		})
		for _, bad := range badMemory() {
			add(verbs.StatusLocProtErr, "send/"+name+"/"+bad.name, func(c *c) {
				failing(o, verbs.StatusLocProtErr, func(q *qp, wr *verbs.SendWR) { wr.SGE[0] = bad.sge(q) })(c)
			})
			add(verbs.StatusLocProtErr, "receive/"+name+"/"+bad.name, func(c *c) { badReceive(c, o, bad.sge) })
		}
		add(verbs.StatusLocProtErr, "receive/"+name+"/without-local-write", func(c *c) {
			badReceive(c, o, func(q *qp) verbs.SGE { return q.e.region(256, 0).sge(0, 256) })
		})
		add(verbs.StatusLocQPOpErr, "opcode/"+name, func(c *c) { badOpcode(c, service) })
	}

	for _, service := range []verbs.Services{rc, uc} {
		add(verbs.StatusLocLenErr, "short-receive/"+service.String(), func(c *c) {
			w := c.wire(opts{service: service})
			first, second := w.b.recv(recvLength(32)), w.b.recv()
			sent := w.a.send()
			w.b.rcq.one(first, verbs.StatusLocLenErr)
			w.b.recvFailed(verbs.StatusLocLenErr, second)
			if service == rc {
				w.a.scq.one(sent, verbs.StatusRemInvReqErr)
				w.a.sendFailed(verbs.StatusRemInvReqErr)
			} else {
				w.a.scq.one(sent, verbs.StatusSuccess)
			}
		})
		add(verbs.StatusLocLenErr, "over-the-maximum/"+service.String(), func(c *c) { overMaximum(c, service) })
	}
	add(verbs.StatusLocLenErr, "length-of-atomic/RC", func(c *c) {
		if !c.a.attr.Atomics {
			c.skip("the device has no atomic operations")
		}
		w := c.wire(opts{service: rc})
		wr := w.a.sendWR(remote(verbs.WRAtomicFetchAndAdd), length(4))
		if n, err := w.a.PostSend([]verbs.SendWR{wr}); err != nil {
			w.a.refused(n, err, "an atomic operation on 4 bytes")
			w.a.carry()
			c.skip("such a post is refused, as it may be")
		}
		w.a.scq.one(wr.ID, verbs.StatusLocLenErr)
		w.a.sendFailed(verbs.StatusLocLenErr)
	})
	add(verbs.StatusLocQPOpErr, "foreign-address/UD", func(c *c) {
		w := c.wire(opts{service: verbs.ServiceUD})
		pd := c.a.newPD()
		ah, err := pd.CreateAH(c.a.way())
		require.NoError(c, err)
		c.cleanup = append(c.cleanup, ah.Destroy)
		wr := w.a.sendWR(func(_ *qp, wr *verbs.SendWR) { wr.AH = ah.Handle() })
		if n, err := w.a.PostSend([]verbs.SendWR{wr}); err != nil {
			w.a.refused(n, err, "an address of another domain")
			w.a.carry()
			c.skip("such a post is refused, as it may be")
		}
		w.a.scq.one(wr.ID, verbs.StatusLocQPOpErr)
		w.a.sendFailed(verbs.StatusLocQPOpErr)
	})
	add(verbs.StatusWRFlushErr, "behind-a-failure/RC", func(c *c) {
		w := c.wire(opts{service: rc})
		held := []uint64{w.a.recv(), w.a.recv()}
		first := w.a.send(remote(verbs.WRRDMAWrite), badRKey)
		second, third := w.a.send(unsignaled), w.a.send()
		w.a.scq.one(first, verbs.StatusRemAccessErr)
		w.a.scq.flushed(second, third)
		w.a.rcq.flushed(held...)
		w.a.becomes(verbs.StateErr)
	})
	add(verbs.StatusRemInvReqErr, "short-receive", func(c *c) {
		w := c.wire(opts{service: rc})
		w.b.recv(recvLength(32))
		w.a.scq.one(w.a.send(), verbs.StatusRemInvReqErr)
		w.a.sendFailed(verbs.StatusRemInvReqErr)
	})
	for _, op := range []verbs.Opcode{verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp,
		verbs.WRAtomicFetchAndAdd} {
		add(verbs.StatusRemInvReqErr, "access-of-the-queue-pair/"+opName(op), func(c *c) {
			c.needs(op)
			w := c.pairOf(opts{service: rc}, opts{service: rc, noAccess: true})
			w.a.bring(verbs.StateRTS)
			w.b.bring(verbs.StateRTS)
			w.b.recv()
			w.a.scq.one(w.a.send(remote(op)), verbs.StatusRemInvReqErr)
			w.a.sendFailed(verbs.StatusRemInvReqErr)
			w.b.becomes(verbs.StateErr)
		})
		add(verbs.StatusRemAccessErr, "key/"+opName(op), func(c *c) {
			c.needs(op)
			failing(opts{service: rc}, verbs.StatusRemAccessErr, remote(op), badRKey)(c)
		})
	}
	add(verbs.StatusRemOpErr, "key-of-receive", func(c *c) {
		w := c.wire(opts{service: rc})
		w.b.recv(badRecvLKey)
		first, second := w.a.send(), w.a.send()
		w.a.scq.one(first, verbs.StatusRemOpErr)
		w.a.sendFailed(verbs.StatusRemOpErr, second)
	})
	add(verbs.StatusLocAccessErr, "write-with-immediate", func(c *c) {
		w := c.wire(opts{service: rc})
		got := w.b.recv()
		w.a.scq.one(w.a.send(remote(verbs.WRRDMAWriteWithImm), badRKey), verbs.StatusRemAccessErr)
		wc := w.b.rcq.await(1)[0]
		require.Equal(c, got, wc.ID)
		if wc.Status == verbs.StatusWRFlushErr {
			c.b.await(verbs.EventQPAccessErr, w.b.QP)
			c.skip("such a write is told of by QP_ACCESS_ERR, as it may")
		}
		require.Equal(c, verbs.StatusLocAccessErr.Native(), wc.Status.Native())
	})
	for _, gone := range []struct {
		name string
		do   func(w *wire)
	}{
		{"peer-in-RESET", func(w *wire) { require.NoError(w.c, w.b.move(verbs.StateReset)) }},
		{"peer-in-ERR", func(w *wire) { require.NoError(w.c, w.b.move(verbs.StateErr)) }},
		{"peer-destroyed", func(w *wire) { require.NoError(w.c, w.b.Destroy()) }},
	} {
		for _, op := range []verbs.Opcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead} {
			add(verbs.StatusRetryExcErr, gone.name+"/"+opName(op), func(c *c) {
				w := c.wire(opts{service: rc, quick: true})
				gone.do(w)
				change := remote(op)
				if op == verbs.WRSend {
					change = unchanged
				}
				first, second := w.a.send(change), w.a.send()
				w.a.scq.one(first, verbs.StatusRetryExcErr)
				w.a.sendFailed(verbs.StatusRetryExcErr, second)
			})
		}
	}
	add(verbs.StatusRetryExcErr, "silence-of-the-wire", func(c *c) {
		if c.Injector.LosePackets == nil {
			c.skip("no packets can be lost")
		}
		w := c.wire(opts{service: rc, quick: true})
		w.b.recv()
		c.injected = true
		c.Injector.LosePackets(c.a.dev, w.a.QP, 1000)
		w.a.scq.one(w.a.send(), verbs.StatusRetryExcErr)
		w.a.sendFailed(verbs.StatusRetryExcErr)
		require.Equal(c, verbs.StateRTS, w.b.state(), "the responder's state")
	})
	add(verbs.StatusRetryExcErr, "acks-lost", func(c *c) {
		if c.Injector.LoseAcks == nil {
			c.skip("no answers can be lost")
		}
		w := c.wire(opts{service: rc, quick: true})
		got := w.b.recv()
		w.b.recv()
		c.injected = true
		c.Injector.LoseAcks(c.a.dev, w.a.QP)
		w.a.scq.one(w.a.send(), verbs.StatusRetryExcErr)
		w.a.arrived(got, 64) // once
		w.b.rcq.none("a repeated packet is no new message")
	})
	add(verbs.StatusRNRRetryExcErr, "no-receive", func(c *c) {
		w := c.wire(opts{service: rc, quick: true})
		first, second := w.a.send(), w.a.send()
		w.a.scq.one(first, verbs.StatusRNRRetryExcErr)
		w.a.sendFailed(verbs.StatusRNRRetryExcErr, second)
		require.Equal(c, verbs.StateRTS.String(), w.b.state().String(), "the responder's state")
	})
	return all
}

func unchanged(*qp, *verbs.SendWR) {}

var opNames = [...]string{"WRITE", "WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "READ", "CMP_AND_SWP", "FETCH_AND_ADD"}

func opName(op verbs.Opcode) string { return opNames[op] }

// needs skips the case if the devices cannot do an operation.
func (c *c) needs(op verbs.Opcode) {
	if (op == verbs.WRAtomicCmpAndSwp || op == verbs.WRAtomicFetchAndAdd) && !(c.a.attr.Atomics && c.b.attr.Atomics) {
		c.skip("the device has no atomic operations")
	}
}

// mistaken is a piece of memory that a request must not name.
type mistaken struct {
	name string
	sge  func(q *qp) verbs.SGE
}

// badMemory is the error model's 5.1: not registered, out of range, wrong key. (Wrong access is for receives alone.)
func badMemory() []mistaken {
	return []mistaken{
		{"wrong-key", func(q *qp) verbs.SGE { s := q.mem.sge(0, 128); s.LKey ^= 0x00ffff00; return s }},
		{"beyond-the-end", func(q *qp) verbs.SGE { return q.e.region(4096, everyAccess).sge(4096-32, 128) }},
		{"before-the-beginning", func(q *qp) verbs.SGE { s := q.e.region(4096, everyAccess).sge(0, 128); s.Addr -= 64; return s }},
		{"no-longer-registered", func(q *qp) verbs.SGE {
			r := q.e.region(4096, everyAccess)
			s := r.sge(0, 128)
			require.NoError(q.c, r.Dereg())
			r.gone = true
			return s
		}},
		{"other-domain", func(q *qp) verbs.SGE { return q.e.regionIn(q.e.newPD(), 4096, everyAccess).sge(0, 128) }},
	}
}

// badReceive: a receive whose memory is wrong, when a message comes for it.
func badReceive(c *c, o opts, sge func(q *qp) verbs.SGE) {
	w := c.wire(o)
	bad := sge(w.b)
	first := w.b.recv(func(_ *qp, wr *verbs.RecvWR) { wr.SGE[0] = bad })
	second := w.b.recv()
	sent := w.a.send()
	w.b.rcq.one(first, verbs.StatusLocProtErr)
	w.b.recvFailed(verbs.StatusLocProtErr, second)
	if o.service == verbs.ServiceRC {
		w.a.scq.one(sent, verbs.StatusRemOpErr)
		w.a.sendFailed(verbs.StatusRemOpErr)
	} else {
		w.a.scq.one(sent, verbs.StatusSuccess)
		require.Equal(c, verbs.StateRTS, w.a.state())
	}
}

// badOpcode: an operation that the service does not have, or for RC one that nobody has. A device may refuse the post.
func badOpcode(c *c, service verbs.Services) {
	w := c.wire(opts{service: service})
	wr := w.a.sendWR(remote(verbs.WRRDMARead))
	if service == verbs.ServiceRC {
		wr.Opcode = 200
	}
	n, err := w.a.PostSend([]verbs.SendWR{wr})
	if err != nil {
		w.a.refused(n, err, "an operation that is not there")
		require.Equal(c, verbs.StateRTS, w.a.state())
		w.a.carry()
		c.skip("such a post is refused, as it may be")
	}
	w.a.scq.one(wr.ID, verbs.StatusLocQPOpErr)
	w.a.sendFailed(verbs.StatusLocQPOpErr)
}

// overMaximum: a message longer than the port takes.
func overMaximum(c *c, service verbs.Services) {
	const most = 64 << 20
	if c.a.pattr.MaxMsg > most {
		c.skip(fmt.Sprintf("a message may be longer than the %d MiB that the suite sends", most>>20))
	}
	w := c.wire(opts{service: service})
	n := int(c.a.pattr.MaxMsg) + 1
	from, to := c.a.region(n, everyAccess), c.b.region(n, everyAccess)
	wr := w.a.sendWR(remote(verbs.WRRDMAWrite))
	wr.SGE[0] = from.sge(0, n)
	wr.RemoteAddr, wr.RKey = to.Addr(), to.RKey()
	posted, err := w.a.PostSend([]verbs.SendWR{wr})
	if err != nil {
		w.a.refused(posted, err, "a message over the maximum")
		c.skip("such a post is refused, as it may be")
	}
	w.a.scq.one(wr.ID, verbs.StatusLocLenErr)
	w.a.sendFailed(verbs.StatusLocLenErr)
}
