package verbstest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// statusCases returns the cases for each status: provoked by a program where that is possible, and
// injected at each side of each service that can have it.
func statusCases() (all []testCase) {
	provoked := provokedStatuses()
	for _, in := range verbs.Statuses() {
		for _, k := range provoked[in.Status] {
			all = append(all, testCase{in.Name + "/" + k.name, k.run})
		}
		if in.Services == 0 {
			all = append(all, testCase{in.Name, func(c *caseRun) { c.skip("only Reliable Datagram has it, and verbs lack that service") }})
			continue
		}
		if in.Status == verbs.StatusSuccess || in.Status == verbs.StatusWRFlushErr {
			continue // success and the consequence of a failure are not injected
		}
		for _, service := range eachService {
			if in.Services&service == 0 {
				continue
			}
			if in.Sides&verbs.Requester != 0 {
				all = append(all, testCase{fmt.Sprintf("%s/injected/requester/%v", in.Name, service), func(c *caseRun) { injectSend(c, service, in, false) }},
					testCase{fmt.Sprintf("%s/injected/requester/%v/executed", in.Name, service), func(c *caseRun) { injectSend(c, service, in, true) }})
			}
			if in.Sides&verbs.Responder != 0 {
				all = append(all, testCase{fmt.Sprintf("%s/injected/responder/%v", in.Name, service), func(c *caseRun) { injectRecv(c, service, in) }})
			}
		}
	}
	return all
}

// requireSendFailed checks the state of the queue pair after a failed send request, and that the
// later requests are flushed.
func (q *qp) requireSendFailed(s verbs.Status, later ...uint64) {
	switch after := s.Info().After; {
	case after == verbs.AfterErrorOrSQE && q.Service() != verbs.ServiceRC:
		q.awaitState(verbs.StateSQE)
	case after != verbs.AfterNone:
		q.awaitState(verbs.StateErr)
	}
	q.scq.awaitFlushed(later...)
}

// requireRecvFailed checks the state of the queue pair after a failed receive, and that the later
// receives are flushed.
func (q *qp) requireRecvFailed(s verbs.Status, later ...uint64) {
	if s.Info().After == verbs.AfterNone {
		require.NotEqual(q.c, verbs.StateErr, q.state())
		return
	}
	q.awaitState(verbs.StateErr)
	q.rcq.awaitFlushed(later...)
}

// injectSend injects a status into a send request.
func injectSend(c *caseRun, service verbs.Services, in verbs.StatusInfo, executed bool) {
	c.skipIf(c.Injector.SendStatus == nil, "no injection of send statuses")
	w := c.wire(opts{service: service})
	got := []uint64{w.b.recv(), w.b.recv(), w.b.recv()}
	c.injected = true
	c.Injector.SendStatus(w.a.e.dev, w.a.QP, in.Status, executed)
	first, second, third := w.a.send(), w.a.send(), w.a.send()
	require.Equal(c, w.a.Num(), w.a.scq.awaitOne(first, in.Status).QPNum)
	if executed {
		w.a.awaitMessage(got[0], 64)
	}
	w.a.requireSendFailed(in.Status, second, third)
	if !executed {
		w.b.rcq.requireNone("the failed request was not sent")
	}
	require.Equal(c, verbs.StateRTS, w.b.state())
	for _, e := range []*end{c.a, c.b} {
		e.takeEvents()
		require.Empty(c, e.eventNames())
	}
}

// requesterStatus returns the status of the RC requester after the responder's receive failed.
func requesterStatus(s verbs.Status) verbs.Status {
	for _, row := range verbs.Refusals() {
		if row.Completion == s && s != verbs.StatusSuccess {
			return row.Requester
		}
	}
	return verbs.StatusRemOpErr
}

// injectRecv injects a status into a receive.
func injectRecv(c *caseRun, service verbs.Services, in verbs.StatusInfo) {
	c.skipIf(c.Injector.RecvStatus == nil, "no injection of receive statuses")
	o := opts{service: service, quick: true}
	if in.Status == verbs.StatusRemAbortErr {
		o.srq = c.b.srq(16, 0) // only receives from an SRQ are aborted
	}
	w := c.wireOf(opts{service: service, quick: true}, o)
	first, second := w.b.recv(), w.b.recv()
	c.injected = true
	c.Injector.RecvStatus(w.b.e.dev, w.b.QP, in.Status)
	op := verbs.WRSend
	if in.Status == verbs.StatusLocAccessErr {
		op = verbs.WRRDMAWriteWithImm
	}
	sent := w.a.send(remote(op))
	require.Equal(c, w.b.Num(), w.b.rcq.awaitOne(first, in.Status).QPNum)
	if in.After == verbs.AfterNone {
		w.a.awaitSent(sent, w.a.send())
		w.a.awaitMessage(second, 64)
		return
	}
	w.b.requireRecvFailed(in.Status, second)
	if service != verbs.ServiceRC {
		w.a.awaitSent(sent)
		return
	}
	w.a.scq.awaitOne(sent, requesterStatus(in.Status))
	w.a.awaitState(verbs.StateErr)
}

// failing returns a case with a send that fails with the status.
func failing(o opts, status verbs.Status, change ...func(*qp, *verbs.SendWR)) func(*caseRun) {
	return func(c *caseRun) {
		w := c.wire(o)
		w.b.recv()
		first, second := w.a.send(change...), w.a.send()
		require.Equal(c, w.a.Num(), w.a.scq.awaitOne(first, status).QPNum)
		w.a.requireSendFailed(status, second)
	}
}

func provokedStatuses() map[verbs.Status][]testCase {
	all := map[verbs.Status][]testCase{}
	add := func(s verbs.Status, name string, run func(c *caseRun)) { all[s] = append(all[s], testCase{name, run}) }
	addWired := func(s verbs.Status, name string, o opts, run func(c *caseRun, w *wire)) {
		all[s] = append(all[s], wired(name, o, run))
	}
	const prot, lenErr = verbs.StatusLocProtErr, verbs.StatusLocLenErr
	for _, service := range eachService {
		name := service.String()
		o := opts{service: service}
		addWired(verbs.StatusSuccess, name, o, func(_ *caseRun, w *wire) { w.pings() })
		addWired(verbs.StatusWRFlushErr, "by-modify/"+name, o, func(c *caseRun, w *wire) {
			ids := []uint64{w.a.recv(), w.a.recv(), w.a.recv()}
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.rcq.awaitFlushed(ids...)
		})
		for _, bad := range wrongMemories() {
			send := func(q *qp, wr *verbs.SendWR) { wr.SGE[0] = bad.sge(q) }
			recv := func(q *qp, wr *verbs.RecvWR) { wr.SGE[0] = bad.sge(q) }
			add(prot, "send/"+name+"/"+bad.name, failing(o, prot, send))
			add(prot, "receive/"+name+"/"+bad.name, badReceive(o, prot, recv))
		}
		add(prot, "receive/"+name+"/without-local-write", badReceive(o, prot,
			func(q *qp, wr *verbs.RecvWR) { wr.SGE[0] = q.e.region(256, 0).sge(0, 256) }))
		// An operation that the service lacks, or an unknown operation.
		addWired(verbs.StatusLocQPOpErr, "opcode/"+name, o, func(_ *caseRun, w *wire) {
			op := remote(verbs.WRRDMARead)
			if service == verbs.ServiceRC {
				op = remote(200)
			}
			w.a.postWrong(verbs.StatusLocQPOpErr, op)
		})
	}
	for _, o := range []opts{rc, uc} {
		add(lenErr, "short-receive/"+o.service.String(), badReceive(o, lenErr, recvLength(32)))
		add(lenErr, "over-the-maximum/"+o.service.String(), func(c *caseRun) { overMaximum(c, o) })
	}
	add(lenErr, "length-of-atomic/RC", func(c *caseRun) {
		c.needs(verbs.WRAtomicFetchAndAdd)
		c.wire(rc).a.postWrong(lenErr, remote(verbs.WRAtomicFetchAndAdd), length(4))
	})
	addWired(verbs.StatusLocQPOpErr, "foreign-address/UD", ud, func(c *caseRun, w *wire) {
		ah := c.a.ah(c.a.newPD())
		w.a.postWrong(verbs.StatusLocQPOpErr, func(_ *qp, wr *verbs.SendWR) { wr.AH = ah.Handle() })
	})
	addWired(verbs.StatusWRFlushErr, "after-a-failure/RC", rc, func(_ *caseRun, w *wire) {
		receives := []uint64{w.a.recv(), w.a.recv()}
		first := w.a.send(remote(verbs.WRRDMAWrite), badRKey)
		second, third := w.a.send(unsignaled), w.a.send()
		w.a.scq.awaitOne(first, verbs.StatusRemAccessErr)
		w.a.scq.awaitFlushed(second, third)
		w.a.rcq.awaitFlushed(receives...)
		w.a.awaitState(verbs.StateErr)
	})
	for _, op := range []verbs.Opcode{verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp,
		verbs.WRAtomicFetchAndAdd} {
		add(verbs.StatusRemInvReqErr, "access-of-the-queue-pair/"+opName(op), func(c *caseRun) {
			c.needs(op)
			w := c.wireOf(rc, opts{noAccess: true})
			w.b.recv()
			w.a.scq.awaitOne(w.a.send(remote(op)), verbs.StatusRemInvReqErr)
			w.a.requireSendFailed(verbs.StatusRemInvReqErr)
			w.b.awaitState(verbs.StateErr)
		})
		add(verbs.StatusRemAccessErr, "key/"+opName(op), func(c *caseRun) {
			c.needs(op)
			failing(rc, verbs.StatusRemAccessErr, remote(op), badRKey)(c)
		})
	}
	addWired(verbs.StatusRemOpErr, "key-of-receive", rc, func(_ *caseRun, w *wire) {
		w.b.recv(badRecvLKey)
		first, second := w.a.send(), w.a.send()
		w.a.scq.awaitOne(first, verbs.StatusRemOpErr)
		w.a.requireSendFailed(verbs.StatusRemOpErr, second)
	})
	for _, absent := range []struct {
		name string
		do   func(w *wire)
	}{
		{"peer-in-RESET", func(w *wire) { require.NoError(w.c, w.b.move(verbs.StateReset)) }},
		{"peer-in-ERR", func(w *wire) { require.NoError(w.c, w.b.move(verbs.StateErr)) }},
		{"peer-destroyed", func(w *wire) { require.NoError(w.c, w.b.Destroy()) }},
	} {
		for _, op := range []verbs.Opcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead} {
			name := absent.name + "/" + opName(op)
			addWired(verbs.StatusRetryExcErr, name, quickRC, func(_ *caseRun, w *wire) {
				absent.do(w)
				first, second := w.a.send(remote(op)), w.a.send()
				w.a.scq.awaitOne(first, verbs.StatusRetryExcErr)
				w.a.requireSendFailed(verbs.StatusRetryExcErr, second)
			})
		}
	}
	addWired(verbs.StatusRetryExcErr, "packets-lost", quickRC, func(c *caseRun, w *wire) {
		c.skipIf(c.Injector.LosePackets == nil, "the provider cannot drop packets")
		w.b.recv()
		c.injected = true
		c.Injector.LosePackets(c.a.dev, w.a.QP, 1000)
		w.a.scq.awaitOne(w.a.send(), verbs.StatusRetryExcErr)
		w.a.requireSendFailed(verbs.StatusRetryExcErr)
		require.Equal(c, verbs.StateRTS, w.b.state(), "the responder's state")
	})
	addWired(verbs.StatusRetryExcErr, "acks-lost", quickRC, func(c *caseRun, w *wire) {
		c.skipIf(c.Injector.LoseAcks == nil, "the provider cannot drop responses")
		got := w.b.recv()
		w.b.recv()
		c.injected = true
		c.Injector.LoseAcks(c.a.dev, w.a.QP)
		w.a.scq.awaitOne(w.a.send(), verbs.StatusRetryExcErr)
		w.a.awaitMessage(got, 64) // exactly once
		w.b.rcq.requireNone("a repeated packet is not a new message")
	})
	addWired(verbs.StatusRNRRetryExcErr, "no-receive", quickRC, func(c *caseRun, w *wire) {
		first, second := w.a.send(), w.a.send()
		w.a.scq.awaitOne(first, verbs.StatusRNRRetryExcErr)
		w.a.requireSendFailed(verbs.StatusRNRRetryExcErr, second)
		require.Equal(c, verbs.StateRTS.String(), w.b.state().String(), "the responder's state")
	})
	return all
}

// unchanged is a change that does nothing.
func unchanged(*qp, *verbs.SendWR) {}

var opNames = [...]string{"WRITE", "WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "READ", "CMP_AND_SWP", "FETCH_AND_ADD"}

func opName(op verbs.Opcode) string { return opNames[op] }

// needs skips the case if the devices lack an operation.
func (c *caseRun) needs(op verbs.Opcode) {
	atomic, can := op >= verbs.WRAtomicCmpAndSwp, c.a.attr.Atomics && c.b.attr.Atomics
	c.skipIf(atomic && !can, "the device has no atomic operations")
}

// wrongMemory is a piece of local memory that a request must not use.
type wrongMemory struct {
	name string
	sge  func(q *qp) verbs.SGE
}

// wrongMemories returns the mistakes with L_Keys (InfiniBand error model, 5.1): wrong key, out of
// range, not registered, other domain. Wrong access applies only to receives.
func wrongMemories() []wrongMemory {
	return []wrongMemory{
		{"wrong-key", func(q *qp) verbs.SGE { s := q.mem.sge(0, 128); s.LKey ^= 0x00ffff00; return s }},
		{"beyond-the-end", func(q *qp) verbs.SGE { return q.e.region(4096, everyAccess).sge(4096-32, 128) }},
		{"before-the-beginning", func(q *qp) verbs.SGE { s := q.e.region(4096, everyAccess).sge(0, 128); s.Addr -= 64; return s }},
		{"no-longer-registered", func(q *qp) verbs.SGE {
			r := q.e.region(4096, everyAccess)
			s := r.sge(0, 128)
			require.NoError(q.c, r.Dereg())
			return s
		}},
		{"other-domain", func(q *qp) verbs.SGE { return q.e.regionIn(q.e.newPD(), 4096, everyAccess).sge(0, 128) }},
	}
}

// badReceive returns a case with a wrong receive that fails with the status when a message arrives.
func badReceive(o opts, status verbs.Status, change func(*qp, *verbs.RecvWR)) func(*caseRun) {
	return func(c *caseRun) {
		w := c.wire(o)
		first, second := w.b.recv(change), w.b.recv()
		sent := w.a.send()
		w.b.rcq.awaitOne(first, status)
		w.b.requireRecvFailed(status, second)
		if o.service == verbs.ServiceRC {
			w.a.scq.awaitOne(sent, requesterStatus(status))
			w.a.requireSendFailed(requesterStatus(status))
		} else {
			w.a.awaitSent(sent)
			require.Equal(c, verbs.StateRTS, w.a.state())
		}
	}
}

// postWrong posts a wrong request, which must complete with the status. A device may refuse the
// post; the case is then skipped.
func (q *qp) postWrong(status verbs.Status, changes ...func(*qp, *verbs.SendWR)) {
	wr := q.sendWR(changes...)
	if n, err := q.PostSend([]verbs.SendWR{wr}); err != nil {
		q.requireRefused(n, err, "a wrong request")
		q.ping()
		q.c.skip("the device refuses the post, which is allowed")
	}
	q.scq.awaitOne(wr.ID, status)
	q.requireSendFailed(status)
}

// overMaximum sends a message that exceeds the port's maximum.
func overMaximum(c *caseRun, o opts) {
	c.skipIf(c.a.pattr.MaxMsg > 64<<20, "the maximum exceeds the 64 MiB that the suite sends")
	n := int(c.a.pattr.MaxMsg) + 1
	from, to := c.a.region(n, everyAccess), c.b.region(n, everyAccess)
	tooLong := func(_ *qp, wr *verbs.SendWR) { wr.SGE[0] = from.sge(0, n) }
	write, there := remote(verbs.WRRDMAWrite), at(to.Addr(), to.RKey())
	c.wire(o).a.postWrong(verbs.StatusLocLenErr, write, there, tooLong)
}
