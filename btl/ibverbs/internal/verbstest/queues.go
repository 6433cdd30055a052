package verbstest

import (
	"bytes"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// queueCases returns the cases for send and receive queues with several requests.
func queueCases() []testCase {
	return []testCase{
		wired("flush/in-SQD", rc, func(c *caseRun, w *wire) {
			w.a.moveToDrainedSQD()
			// Unsignaled requests complete when flushed, too.
			sends := []uint64{w.a.send(unsignaled), w.a.send(), w.a.send(unsignaled), w.a.send()}
			recvs := []uint64{w.a.recv(), w.a.recv(), w.a.recv()}
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.scq.awaitFlushed(sends...)
			w.a.rcq.awaitFlushed(recvs...)
			w.b.rcq.requireNone("nothing was sent")
		}),
		// A marker posted last completes last, after all other requests.
		wired("flush/marker/send", rc, func(c *caseRun, w *wire) {
			w.a.moveToDrainedSQD()
			ids := []uint64{w.a.send(), w.a.send()}
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.scq.awaitFlushed(append(ids, w.a.send())...)
			w.a.scq.requireNone("the marker was the last")
		}),
		wired("flush/marker/receive", rc, func(c *caseRun, w *wire) {
			ids := []uint64{w.a.recv(), w.a.recv()}
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.rcq.awaitFlushed(append(ids, w.a.recv())...)
			w.a.rcq.requireNone("the marker was the last")
		}),
		wired("flush/successes-stay", rc, func(c *caseRun, w *wire) {
			got := w.a.recv()
			w.b.awaitSent(w.b.send())
			left := w.a.recv()
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.rcq.awaitOne(got, verbs.StatusSuccess)
			w.a.rcq.awaitFlushed(left)
		}),
		wired("reset/drops-requests", rc, func(c *caseRun, w *wire) {
			w.a.recvs(3)
			w.a.moveToDrainedSQD()
			w.a.send()
			require.NoError(c, w.a.move(verbs.StateReset))
			w.a.moveTo(verbs.StateSQD)
			sent, received := w.a.send(), w.a.recv()
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.scq.awaitFlushed(sent)
			w.a.rcq.awaitFlushed(received)
			w.a.scq.requireNone("the other requests were dropped")
			w.a.rcq.requireNone("the other requests were dropped")
		}),
		{"reset/drops-own-completions", resetDropsCompletions},
		wired("reset/reconnect", rc, func(c *caseRun, w *wire) {
			for range 3 {
				w.pings()
				w.reset()
				w.a.psn, w.b.psn = (w.a.psn+12345)&0xffffff, (w.b.psn+12345)&0xffffff
				w.connect()
			}
			w.a.ping()
		}),
		wired("SQE/receives-and-recovers/UC", uc, sendQueueError),
		wired("SQE/receives-and-recovers/UD", ud, sendQueueError),
		wired("signal/unsignaled", rc, func(c *caseRun, w *wire) {
			w.b.recvs(4)
			for range 3 {
				w.a.send(unsignaled)
			}
			w.a.awaitSent(w.a.send()) // all earlier requests are complete, too
			require.Len(c, w.b.rcq.await(4), 4)
			w.a.scq.requireNone("the sends are unsignaled")
		}),
		wired("signal/all", opts{signalAll: true}, func(c *caseRun, w *wire) {
			w.b.recvs(3)
			w.a.awaitSent(w.a.send(unsignaled), w.a.send(unsignaled), w.a.send())
		}),
		wired("signal/failure-of-unsignaled", rc, func(c *caseRun, w *wire) {
			w.b.recvs(2)
			w.a.send(unsignaled)
			bad := w.a.send(unsignaled, remote(verbs.WRRDMAWrite), badRKey)
			after := w.a.send(unsignaled)
			w.a.scq.awaitOne(bad, verbs.StatusRemAccessErr)
			w.a.scq.awaitFlushed(after)
		}),
		wired("signal/unsignaled-slots-return", opts{depth: 8}, func(c *caseRun, w *wire) {
			n := w.a.Cap().MaxSendWR
			for range 5 {
				for range n - 1 {
					w.a.send(remote(verbs.WRRDMAWrite), unsignaled)
				}
				w.a.awaitSent(w.a.send(remote(verbs.WRRDMAWrite)))
			}
		}),
		wired("order/mixed", rc, func(c *caseRun, w *wire) {
			w.b.recvs(4)
			var ids []uint64
			for range 4 {
				ids = append(ids, w.a.send(remote(verbs.WRRDMARead), length(1000)), w.a.send(remote(verbs.WRRDMAWrite)), w.a.send())
			}
			w.a.awaitSent(ids...)
		}),
		wired("order/many", rc, many),
		wired("full/send", opts{depth: 6, cqEntries: 64}, func(c *caseRun, w *wire) {
			w.a.moveToDrainedSQD() // keeps the requests pending
			ids := fillQueue(c, w.a.Cap().MaxSendWR, func(n int) (int, []uint64, error) {
				var wrs []verbs.SendWR
				var ids []uint64
				for range n {
					wrs = append(wrs, w.a.sendWR(remote(verbs.WRRDMAWrite)))
					ids = append(ids, wrs[len(wrs)-1].ID)
				}
				accepted, err := w.a.PostSend(wrs)
				return accepted, ids, err
			})
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.scq.awaitFlushed(ids...)
			w.a.scq.requireNone("the other requests were refused")
		}),
		{"full/receive", func(c *caseRun) {
			w := c.pair(opts{depth: 6, cqEntries: 64})
			w.a.moveTo(verbs.StateInit)
			ids := fillQueue(c, w.a.Cap().MaxRecvWR, w.a.recvsTo(w.a.PostRecv))
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.rcq.awaitFlushed(ids...)
		}},
		wired("batch/empty", rc, func(c *caseRun, w *wire) {
			w.a.post()
			w.a.postRecv()
		}),
		wired("batch/in-order", rc, func(c *caseRun, w *wire) {
			var wrs []verbs.SendWR
			var recvs []verbs.RecvWR
			for range 8 {
				wrs, recvs = append(wrs, w.a.sendWR()), append(recvs, w.b.recvWR())
			}
			w.b.postRecv(recvs...)
			w.a.post(wrs...)
			for i := range wrs {
				w.a.awaitSent(wrs[i].ID)
				w.b.rcq.awaitOne(recvs[i].ID, verbs.StatusSuccess)
			}
		}),
		wired("batch/malformed-send", rc, func(c *caseRun, w *wire) {
			w.b.recvs(4)
			wrs := []verbs.SendWR{w.a.sendWR(), w.a.sendWR(), w.a.sendWR(), w.a.sendWR()}
			wrs[2].NumSGE = 200
			n, err := w.a.PostSend(wrs)
			require.ErrorIs(c, err, verbs.ErrInvalid)
			require.Equal(c, 2, n, "number of accepted requests")
			w.a.awaitSent(wrs[0].ID, wrs[1].ID, w.a.send())
			w.b.rcq.await(3)
			w.a.scq.requireNone("the other requests were refused")
			w.b.rcq.requireNone("the other requests were refused")
		}),
		wired("batch/malformed-receive", rc, func(c *caseRun, w *wire) {
			wrs := []verbs.RecvWR{w.b.recvWR(), w.b.recvWR(), w.b.recvWR()}
			wrs[1].NumSGE = 200
			n, err := w.b.PostRecv(wrs)
			require.ErrorIs(c, err, verbs.ErrInvalid)
			require.Equal(c, 1, n, "number of accepted requests")
			next := w.b.recv()
			w.a.awaitSent(w.a.send(), w.a.send())
			w.b.rcq.awaitAll(verbs.StatusSuccess, wrs[0].ID, next)
		}),
		wired("RNR/waits", opts{rnrRetry: 7}, func(c *caseRun, w *wire) {
			first, second := w.a.send(), w.a.send()
			c.steps(50)
			w.a.scq.requireNone("there is no receive")
			a, b := w.b.recv(), w.b.recv()
			w.a.awaitSent(first, second)
			w.b.rcq.awaitAll(verbs.StatusSuccess, a, b)
		}),
		wired("RNR/write-needs-no-receive", quickRC, func(c *caseRun, w *wire) {
			w.a.awaitSent(w.a.send(remote(verbs.WRRDMAWrite)))
			w.a.scq.awaitOne(w.a.send(remote(verbs.WRRDMAWriteWithImm)), verbs.StatusRNRRetryExcErr)
		}),
		{"loss/of-a-packet", func(c *caseRun) {
			c.skipIf(c.Injector.LosePackets == nil, "the provider cannot drop packets")
			w := c.wire(opts{mtu: verbs.MTU256})
			got := w.b.recv()
			c.injected = true
			c.Injector.LosePackets(c.a.dev, w.a.QP, 1)
			w.a.awaitSent(w.a.send(length(1000)))
			w.a.awaitMessage(got, 1000)
			w.a.ping()
		}},
		{"loss/atomic-is-done-once", func(c *caseRun) {
			c.skipIf(c.Injector.LoseAcks == nil, "the provider cannot drop responses")
			c.needs(verbs.WRAtomicFetchAndAdd)
			w := c.wire(quickRC)
			w.b.mem.setWord(1024, 100)
			c.injected = true
			c.Injector.LoseAcks(c.a.dev, w.a.QP)
			id := w.a.send(remote(verbs.WRAtomicFetchAndAdd), func(_ *qp, wr *verbs.SendWR) { wr.CompareAdd = 5 })
			w.a.scq.awaitOne(id, verbs.StatusRetryExcErr)
			require.EqualValues(c, 105, w.b.mem.word(1024), "a repeated atomic is executed once")
		}},
		{"loss/silence", func(c *caseRun) {
			c.skipIf(c.Injector.Silence == nil, "the provider cannot hang requests")
			w := c.wire(quickRC)
			w.b.recvs(2)
			c.injected = true
			c.Injector.Silence(c.a.dev, w.a.QP)
			hangs := w.a.send()
			w.b.ping()
			c.steps(200)
			w.a.scq.requireNone("the request must hang")
			require.Equal(c, verbs.StateRTS.String(), w.a.state().String())
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.scq.awaitFlushed(hangs)
		}},
		{"loss/stale-packet", func(c *caseRun) {
			c.skipIf(c.Injector.Stale == nil, "the provider cannot repeat packets")
			w := c.wire(rc)
			c.injected = true
			c.Injector.Stale(c.a.dev, w.a.QP)
			w.a.ping()
			w.reset()
			w.a.psn, w.b.psn = (w.a.psn+0x400000)&0xffffff, (w.b.psn+0x400000)&0xffffff
			w.b.moveTo(verbs.StateInit)
			first := w.b.recv()
			require.NoError(c, w.b.move(verbs.StateRTR))
			require.NoError(c, w.b.move(verbs.StateRTS))
			c.steps(50)
			w.b.rcq.requireNone("a packet of the previous connection is not a message")
			w.a.moveTo(verbs.StateRTS)
			w.a.awaitSent(w.a.send())
			w.a.awaitMessage(first, 64)
			w.b.rcq.requireNone("there was one message")
		}},
	}
}

// fillQueue posts in batches of three until the queue is full. The queue must accept as many
// requests as were granted, but not infinitely many.
func fillQueue(c *caseRun, granted int, post func(n int) (accepted int, ids []uint64, err error)) (all []uint64) {
	for {
		accepted, ids, err := post(3)
		all = append(all, ids[:accepted]...)
		if err != nil {
			require.ErrorIs(c, err, verbs.ErrQueueFull)
			require.Less(c, accepted, 3, "an error, although all requests were accepted")
			require.GreaterOrEqual(c, len(all), granted, "the queue is full before its granted capacity")
			return all
		}
		require.Equal(c, 3, accepted, "no error, although not all requests were accepted")
		require.Less(c, len(all), 4*granted+64, "the queue is never full")
	}
}

// recvsTo returns a function that posts n receives in one call.
func (q *qp) recvsTo(post func([]verbs.RecvWR) (int, error)) func(n int) (int, []uint64, error) {
	return func(n int) (int, []uint64, error) {
		var wrs []verbs.RecvWR
		var ids []uint64
		for range n {
			wrs = append(wrs, q.recvWR())
			ids = append(ids, wrs[len(wrs)-1].ID)
		}
		accepted, err := post(wrs)
		return accepted, ids, err
	}
}

// resetDropsCompletions checks that RESET removes only the queue pair's own completions from a
// shared completion queue, even from its middle.
func resetDropsCompletions(c *caseRun) {
	shared := c.a.cq(64, nil)
	oa := opts{rcq: shared}
	w1, w2 := c.wireOf(oa, rc), c.wireOf(oa, rc)
	var stay []uint64
	for range 3 {
		w1.a.recv()
		stay = append(stay, w2.a.recv())
		for _, w := range []*wire{w1, w2} {
			// Ensures that the receive's completion is in the queue.
			w.b.awaitSent(w.b.send())
		}
	}
	require.NoError(c, w1.a.move(verbs.StateReset))
	for _, id := range stay {
		wc := shared.awaitOne(id, verbs.StatusSuccess)
		require.Equal(c, w2.a.Num(), wc.QPNum)
	}
	shared.requireNone("RESET drops the other completions")
}

// sendQueueError checks that a queue pair in SQE receives, and sends again after Modify to RTS.
func sendQueueError(c *caseRun, w *wire) {
	got := w.a.recv()
	bad := w.a.send(badLKey)
	later := []uint64{w.a.send(), w.a.send(unsignaled)}
	wc := w.a.scq.await(1)[0]
	require.Equal(c, bad, wc.ID)
	require.NotEqual(c, verbs.StatusSuccess.Native(), wc.Status.Native())
	w.a.scq.awaitFlushed(later...)
	w.a.awaitState(verbs.StateSQE)
	w.b.awaitSent(w.b.send())
	w.b.awaitMessage(got, 64)
	w.b.rcq.requireNone("nothing was sent")
	require.NoError(c, w.a.move(verbs.StateRTS))
	w.pings()
}

// many sends more messages than the queues hold and checks their order and content.
func many(c *caseRun, w *wire) {
	const n, window = 500, 8
	from, to := c.a.region(window*256, everyAccess), c.b.region(window*256, everyAccess)
	recv := func(i int) {
		sges := [4]verbs.SGE{to.sge(i%window*256, 256)}
		w.b.postRecv(verbs.RecvWR{ID: uint64(i), NumSGE: 1, SGE: sges})
	}
	for i := range window {
		recv(i)
	}
	sent, done, got := 0, 0, 0
	c.wait(fmt.Sprintf("%d messages", n), func() bool {
		for sent < n && sent-done < window && sent-got < window {
			piece := from.buf[sent%window*256:][:256]
			for j := range piece {
				piece[j] = byte(sent*31 + j)
			}
			w.a.send(func(_ *qp, wr *verbs.SendWR) {
				wr.ID, wr.Opcode, wr.Imm = uint64(sent), verbs.WRSendWithImm, uint32(sent)
				wr.SGE[0] = from.sge(sent%window*256, 1+sent%256)
			})
			sent++
		}
		w.a.scq.poll()
		for _, wc := range w.a.scq.got {
			require.Equal(c, verbs.StatusSuccess.Native(), wc.Status.Native())
			require.EqualValues(c, done, wc.ID, "order of sends")
			done++
		}
		w.b.rcq.poll()
		for _, wc := range w.b.rcq.got {
			require.Equal(c, verbs.StatusSuccess.Native(), wc.Status.Native())
			require.EqualValues(c, got, wc.ID, "order of receives")
			require.EqualValues(c, got, wc.Imm)
			require.EqualValues(c, 1+got%256, wc.ByteLen)
			want := make([]byte, wc.ByteLen)
			for j := range want {
				want[j] = byte(got*31 + j)
			}
			require.True(c, bytes.Equal(want, to.buf[got%window*256:][:wc.ByteLen]), "message %d", got)
			got++
			if got+window-1 < n {
				recv(got + window - 1)
			}
		}
		w.a.scq.got, w.b.rcq.got = nil, nil
		return done == n && got == n
	})
}
