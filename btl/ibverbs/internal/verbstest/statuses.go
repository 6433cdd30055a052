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
	switch s.Info().After {
	case verbs.AfterError:
		q.awaitState(verbs.StateErr)
	case verbs.AfterErrorOrSQE:
		if q.Service() == verbs.ServiceRC {
			q.awaitState(verbs.StateErr)
		} else {
			q.awaitState(verbs.StateSQE)
		}
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
	if c.Injector.SendStatus == nil {
		c.skip("no injection of send statuses")
	}
	w := c.wire(opts{service: service})
	got := []uint64{w.b.recv(), w.b.recv(), w.b.recv()}
	c.injected = true
	c.Injector.SendStatus(w.a.e.dev, w.a.QP, in.Status, executed)
	first, second, third := w.a.send(), w.a.send(), w.a.send()
	wc := w.a.scq.awaitOne(first, in.Status)
	require.Equal(c, w.a.Num(), wc.QPNum)
	if executed {
		w.a.awaitMessage(got[0], 64)
	}
	if in.After == verbs.AfterNone {
		w.a.scq.awaitOne(second, verbs.StatusSuccess)
		w.a.scq.awaitOne(third, verbs.StatusSuccess)
		require.Equal(c, verbs.StateRTS, w.a.state())
		return
	}
	w.a.requireSendFailed(in.Status, second, third)
	if !executed {
		w.b.rcq.requireNone("the failed request was not sent")
	}
}

// requesterStatus returns the status of the RC requester after the responder's receive failed.
func requesterStatus(s verbs.Status) (verbs.Status, bool) {
	for _, row := range verbs.Refusals() {
		if row.Completion == s && s != verbs.StatusSuccess {
			return row.Requester, true
		}
	}
	return 0, false
}

// injectRecv injects a status into a receive.
func injectRecv(c *caseRun, service verbs.Services, in verbs.StatusInfo) {
	if c.Injector.RecvStatus == nil {
		c.skip("no injection of receive statuses")
	}
	o := opts{service: service, quick: true}
	if in.Status == verbs.StatusRemAbortErr {
		o.srq = c.b.srq(16, 0) // only receives from an SRQ are aborted
	}
	w := c.wireOf(opts{service: service, quick: true}, o)
	first, second := w.b.recv(), w.b.recv()
	c.injected = true
	c.Injector.RecvStatus(w.b.e.dev, w.b.QP, in.Status)
	var sent uint64
	if in.Status == verbs.StatusLocAccessErr {
		sent = w.a.send(remote(verbs.WRRDMAWriteWithImm))
	} else {
		sent = w.a.send()
	}
	wc := w.b.rcq.awaitOne(first, in.Status)
	require.Equal(c, w.b.Num(), wc.QPNum)
	if in.After == verbs.AfterNone {
		w.a.scq.awaitOne(sent, verbs.StatusSuccess)
		again := w.a.send()
		w.a.scq.awaitOne(again, verbs.StatusSuccess)
		w.a.awaitMessage(second, 64)
		return
	}
	w.b.requireRecvFailed(in.Status, second)
	if service != verbs.ServiceRC {
		w.a.scq.awaitOne(sent, verbs.StatusSuccess)
		return
	}
	seen := w.a.scq.await(1)[0]
	require.Equal(c, sent, seen.ID)
	if want, known := requesterStatus(in.Status); known {
		require.Equal(c, want.Native(), seen.Status.Native(), "status at the requester")
	} else {
		require.NotEqual(c, verbs.StatusSuccess.Native(), seen.Status.Native(), "status at the requester")
	}
	w.a.awaitState(verbs.StateErr)
}

// failing returns a case with a send that fails with the status.
func failing(o opts, status verbs.Status, change ...func(*qp, *verbs.SendWR)) func(*caseRun) {
	return func(c *caseRun) {
		w := c.wire(o)
		w.b.recv()
		first := w.a.send(change...)
		second := w.a.send()
		wc := w.a.scq.awaitOne(first, status)
		require.Equal(c, w.a.Num(), wc.QPNum)
		w.a.requireSendFailed(status, second)
	}
}

func provokedStatuses() map[verbs.Status][]testCase {
	rc, uc := verbs.ServiceRC, verbs.ServiceUC
	all := map[verbs.Status][]testCase{}
	add := func(s verbs.Status, name string, run func(c *caseRun)) { all[s] = append(all[s], testCase{name, run}) }

	for _, service := range eachService {
		name := service.String()
		o := opts{service: service}
		add(verbs.StatusSuccess, name, func(c *caseRun) { w := c.wire(o); w.a.ping(); w.b.ping() })
		add(verbs.StatusWRFlushErr, "by-modify/"+name, func(c *caseRun) {
			w := c.wire(o)
			ids := []uint64{w.a.recv(), w.a.recv(), w.a.recv()}
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.rcq.awaitFlushed(ids...)
		})
		for _, bad := range wrongMemories() {
			add(verbs.StatusLocProtErr, "send/"+name+"/"+bad.name, func(c *caseRun) {
				failing(o, verbs.StatusLocProtErr, func(q *qp, wr *verbs.SendWR) { wr.SGE[0] = bad.sge(q) })(c)
			})
			add(verbs.StatusLocProtErr, "receive/"+name+"/"+bad.name, func(c *caseRun) { badReceive(c, o, bad.sge) })
		}
		add(verbs.StatusLocProtErr, "receive/"+name+"/without-local-write", func(c *caseRun) {
			badReceive(c, o, func(q *qp) verbs.SGE { return q.e.region(256, 0).sge(0, 256) })
		})
		add(verbs.StatusLocQPOpErr, "opcode/"+name, func(c *caseRun) { badOpcode(c, service) })
	}

	for _, service := range []verbs.Services{rc, uc} {
		add(verbs.StatusLocLenErr, "short-receive/"+service.String(), func(c *caseRun) {
			w := c.wire(opts{service: service})
			first, second := w.b.recv(recvLength(32)), w.b.recv()
			sent := w.a.send()
			w.b.rcq.awaitOne(first, verbs.StatusLocLenErr)
			w.b.requireRecvFailed(verbs.StatusLocLenErr, second)
			if service == rc {
				w.a.scq.awaitOne(sent, verbs.StatusRemInvReqErr)
				w.a.requireSendFailed(verbs.StatusRemInvReqErr)
			} else {
				w.a.scq.awaitOne(sent, verbs.StatusSuccess)
			}
		})
		add(verbs.StatusLocLenErr, "over-the-maximum/"+service.String(), func(c *caseRun) { overMaximum(c, service) })
	}
	add(verbs.StatusLocLenErr, "length-of-atomic/RC", func(c *caseRun) {
		if !c.a.attr.Atomics {
			c.skip("the device has no atomic operations")
		}
		w := c.wire(opts{service: rc})
		wr := w.a.sendWR(remote(verbs.WRAtomicFetchAndAdd), length(4))
		if n, err := w.a.PostSend([]verbs.SendWR{wr}); err != nil {
			w.a.requireRefused(n, err, "an atomic operation on 4 bytes")
			w.a.ping()
			c.skip("the device refuses the post, which is allowed")
		}
		w.a.scq.awaitOne(wr.ID, verbs.StatusLocLenErr)
		w.a.requireSendFailed(verbs.StatusLocLenErr)
	})
	add(verbs.StatusLocQPOpErr, "foreign-address/UD", func(c *caseRun) {
		w := c.wire(opts{service: verbs.ServiceUD})
		pd := c.a.newPD()
		ah, err := pd.CreateAH(c.a.path())
		require.NoError(c, err)
		c.cleanup = append(c.cleanup, ah.Destroy)
		wr := w.a.sendWR(func(_ *qp, wr *verbs.SendWR) { wr.AH = ah.Handle() })
		if n, err := w.a.PostSend([]verbs.SendWR{wr}); err != nil {
			w.a.requireRefused(n, err, "an address of another domain")
			w.a.ping()
			c.skip("the device refuses the post, which is allowed")
		}
		w.a.scq.awaitOne(wr.ID, verbs.StatusLocQPOpErr)
		w.a.requireSendFailed(verbs.StatusLocQPOpErr)
	})
	add(verbs.StatusWRFlushErr, "after-a-failure/RC", func(c *caseRun) {
		w := c.wire(opts{service: rc})
		receives := []uint64{w.a.recv(), w.a.recv()}
		first := w.a.send(remote(verbs.WRRDMAWrite), badRKey)
		second, third := w.a.send(unsignaled), w.a.send()
		w.a.scq.awaitOne(first, verbs.StatusRemAccessErr)
		w.a.scq.awaitFlushed(second, third)
		w.a.rcq.awaitFlushed(receives...)
		w.a.awaitState(verbs.StateErr)
	})
	add(verbs.StatusRemInvReqErr, "short-receive", func(c *caseRun) {
		w := c.wire(opts{service: rc})
		w.b.recv(recvLength(32))
		w.a.scq.awaitOne(w.a.send(), verbs.StatusRemInvReqErr)
		w.a.requireSendFailed(verbs.StatusRemInvReqErr)
	})
	for _, op := range []verbs.Opcode{verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp,
		verbs.WRAtomicFetchAndAdd} {
		add(verbs.StatusRemInvReqErr, "access-of-the-queue-pair/"+opName(op), func(c *caseRun) {
			c.needs(op)
			w := c.wireOf(opts{service: rc}, opts{service: rc, noAccess: true})
			w.b.recv()
			w.a.scq.awaitOne(w.a.send(remote(op)), verbs.StatusRemInvReqErr)
			w.a.requireSendFailed(verbs.StatusRemInvReqErr)
			w.b.awaitState(verbs.StateErr)
		})
		add(verbs.StatusRemAccessErr, "key/"+opName(op), func(c *caseRun) {
			c.needs(op)
			failing(opts{service: rc}, verbs.StatusRemAccessErr, remote(op), badRKey)(c)
		})
	}
	add(verbs.StatusRemOpErr, "key-of-receive", func(c *caseRun) {
		w := c.wire(opts{service: rc})
		w.b.recv(badRecvLKey)
		first, second := w.a.send(), w.a.send()
		w.a.scq.awaitOne(first, verbs.StatusRemOpErr)
		w.a.requireSendFailed(verbs.StatusRemOpErr, second)
	})
	add(verbs.StatusLocAccessErr, "write-with-immediate", func(c *caseRun) {
		w := c.wire(opts{service: rc})
		got := w.b.recv()
		w.a.scq.awaitOne(w.a.send(remote(verbs.WRRDMAWriteWithImm), badRKey), verbs.StatusRemAccessErr)
		wc := w.b.rcq.await(1)[0]
		require.Equal(c, got, wc.ID)
		if wc.Status == verbs.StatusWRFlushErr {
			c.b.await(verbs.EventQPAccessErr, w.b.QP)
			c.skip("the device raises QP_ACCESS_ERR instead, which is allowed")
		}
		require.Equal(c, verbs.StatusLocAccessErr.Native(), wc.Status.Native())
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
			add(verbs.StatusRetryExcErr, absent.name+"/"+opName(op), func(c *caseRun) {
				w := c.wire(opts{service: rc, quick: true})
				absent.do(w)
				change := remote(op)
				if op == verbs.WRSend {
					change = unchanged
				}
				first, second := w.a.send(change), w.a.send()
				w.a.scq.awaitOne(first, verbs.StatusRetryExcErr)
				w.a.requireSendFailed(verbs.StatusRetryExcErr, second)
			})
		}
	}
	add(verbs.StatusRetryExcErr, "packets-lost", func(c *caseRun) {
		if c.Injector.LosePackets == nil {
			c.skip("the provider cannot drop packets")
		}
		w := c.wire(opts{service: rc, quick: true})
		w.b.recv()
		c.injected = true
		c.Injector.LosePackets(c.a.dev, w.a.QP, 1000)
		w.a.scq.awaitOne(w.a.send(), verbs.StatusRetryExcErr)
		w.a.requireSendFailed(verbs.StatusRetryExcErr)
		require.Equal(c, verbs.StateRTS, w.b.state(), "the responder's state")
	})
	add(verbs.StatusRetryExcErr, "acks-lost", func(c *caseRun) {
		if c.Injector.LoseAcks == nil {
			c.skip("the provider cannot drop responses")
		}
		w := c.wire(opts{service: rc, quick: true})
		got := w.b.recv()
		w.b.recv()
		c.injected = true
		c.Injector.LoseAcks(c.a.dev, w.a.QP)
		w.a.scq.awaitOne(w.a.send(), verbs.StatusRetryExcErr)
		w.a.awaitMessage(got, 64) // exactly once
		w.b.rcq.requireNone("a repeated packet is not a new message")
	})
	add(verbs.StatusRNRRetryExcErr, "no-receive", func(c *caseRun) {
		w := c.wire(opts{service: rc, quick: true})
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
	if (op == verbs.WRAtomicCmpAndSwp || op == verbs.WRAtomicFetchAndAdd) && !(c.a.attr.Atomics && c.b.attr.Atomics) {
		c.skip("the device has no atomic operations")
	}
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
			r.gone = true
			return s
		}},
		{"other-domain", func(q *qp) verbs.SGE { return q.e.regionIn(q.e.newPD(), 4096, everyAccess).sge(0, 128) }},
	}
}

// badReceive posts a receive with wrong memory, and sends a message to it.
func badReceive(c *caseRun, o opts, sge func(q *qp) verbs.SGE) {
	w := c.wire(o)
	bad := sge(w.b)
	first := w.b.recv(func(_ *qp, wr *verbs.RecvWR) { wr.SGE[0] = bad })
	second := w.b.recv()
	sent := w.a.send()
	w.b.rcq.awaitOne(first, verbs.StatusLocProtErr)
	w.b.requireRecvFailed(verbs.StatusLocProtErr, second)
	if o.service == verbs.ServiceRC {
		w.a.scq.awaitOne(sent, verbs.StatusRemOpErr)
		w.a.requireSendFailed(verbs.StatusRemOpErr)
	} else {
		w.a.scq.awaitOne(sent, verbs.StatusSuccess)
		require.Equal(c, verbs.StateRTS, w.a.state())
	}
}

// badOpcode posts an operation that the service lacks, or for RC an unknown operation. A device may
// refuse the post.
func badOpcode(c *caseRun, service verbs.Services) {
	w := c.wire(opts{service: service})
	wr := w.a.sendWR(remote(verbs.WRRDMARead))
	if service == verbs.ServiceRC {
		wr.Opcode = 200
	}
	n, err := w.a.PostSend([]verbs.SendWR{wr})
	if err != nil {
		w.a.requireRefused(n, err, "an invalid operation")
		require.Equal(c, verbs.StateRTS, w.a.state())
		w.a.ping()
		c.skip("the device refuses the post, which is allowed")
	}
	w.a.scq.awaitOne(wr.ID, verbs.StatusLocQPOpErr)
	w.a.requireSendFailed(verbs.StatusLocQPOpErr)
}

// overMaximum sends a message that exceeds the port's maximum.
func overMaximum(c *caseRun, service verbs.Services) {
	const most = 64 << 20
	if c.a.pattr.MaxMsg > most {
		c.skip(fmt.Sprintf("the maximum exceeds the %d MiB that the suite sends", most>>20))
	}
	w := c.wire(opts{service: service})
	n := int(c.a.pattr.MaxMsg) + 1
	from, to := c.a.region(n, everyAccess), c.b.region(n, everyAccess)
	wr := w.a.sendWR(remote(verbs.WRRDMAWrite))
	wr.SGE[0] = from.sge(0, n)
	wr.RemoteAddr, wr.RKey = to.Addr(), to.RKey()
	posted, err := w.a.PostSend([]verbs.SendWR{wr})
	if err != nil {
		w.a.requireRefused(posted, err, "a message over the maximum")
		c.skip("the device refuses the post, which is allowed")
	}
	w.a.scq.awaitOne(wr.ID, verbs.StatusLocLenErr)
	w.a.requireSendFailed(verbs.StatusLocLenErr)
}
