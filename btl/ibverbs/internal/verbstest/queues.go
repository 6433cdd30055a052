package verbstest

import (
	"bytes"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// queueCases: what the send and receive queues do with more than one request.
func queueCases() []kase {
	rc := verbs.ServiceRC
	all := []kase{
		{"flush/behind-SQD", func(c *c) {
			w := c.wire(opts{service: rc})
			w.a.hold()
			var sends, recvs []uint64
			for i := range 5 {
				if i%2 == 0 {
					sends = append(sends, w.a.send(unsignaled)) // also these complete when flushed
				} else {
					sends = append(sends, w.a.send())
				}
				recvs = append(recvs, w.a.recv())
			}
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.scq.flushed(sends...)
			w.a.rcq.flushed(recvs...)
			w.b.rcq.none("nothing was sent")
		}},
		// What is posted last comes last: then all are there.
		{"flush/marker/send", func(c *c) {
			w := c.wire(opts{service: rc})
			w.a.hold()
			ids := []uint64{w.a.send(), w.a.send()}
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.scq.flushed(append(ids, w.a.send())...)
			w.a.scq.none("the marker was the last")
		}},
		{"flush/marker/receive", func(c *c) {
			w := c.wire(opts{service: rc})
			ids := []uint64{w.a.recv(), w.a.recv()}
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.rcq.flushed(append(ids, w.a.recv())...)
			w.a.rcq.none("the marker was the last")
		}},
		{"flush/successes-stay", func(c *c) {
			w := c.wire(opts{service: rc})
			got := w.a.recv()
			sent := w.b.send()
			w.b.scq.one(sent, verbs.StatusSuccess)
			left := w.a.recv()
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.rcq.one(got, verbs.StatusSuccess)
			w.a.rcq.flushed(left)
		}},
		{"reset/drops-requests", func(c *c) {
			w := c.wire(opts{service: rc})
			w.a.recvs(3)
			w.a.hold()
			w.a.send()
			require.NoError(c, w.a.move(verbs.StateReset))
			w.a.bring(verbs.StateSQD)
			sent, received := w.a.send(), w.a.recv()
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.scq.flushed(sent)
			w.a.rcq.flushed(received)
			w.a.scq.none("the others were dropped")
			w.a.rcq.none("the others were dropped")
		}},
		{"reset/drops-own-completions", resetDropsCompletions},
		{"reset/and-again", func(c *c) {
			w := c.wire(opts{service: rc})
			for range 3 {
				w.a.carry()
				w.b.carry()
				for _, q := range []*qp{w.a, w.b} {
					require.NoError(c, q.move(verbs.StateErr))
					require.NoError(c, q.move(verbs.StateReset))
					q.psn = (q.psn + 12345) & 0xffffff
				}
				w.a.bring(verbs.StateRTS)
				w.b.bring(verbs.StateRTS)
			}
			w.a.carry()
		}},
		{"SQE/receives-and-recovers/UC", func(c *c) { sendQueueError(c, verbs.ServiceUC) }},
		{"SQE/receives-and-recovers/UD", func(c *c) { sendQueueError(c, verbs.ServiceUD) }},
		{"signal/unsignaled", func(c *c) {
			w := c.wire(opts{service: rc})
			w.b.recvs(4)
			for range 3 {
				w.a.send(unsignaled)
			}
			last := w.a.send()
			w.a.scq.one(last, verbs.StatusSuccess) // and all before it are done
			require.Len(c, w.b.rcq.await(4), 4)
			w.a.scq.none("they were unsignaled")
		}},
		{"signal/all", func(c *c) {
			w := c.wire(opts{service: rc, signalAll: true})
			w.b.recvs(3)
			ids := []uint64{w.a.send(unsignaled), w.a.send(unsignaled), w.a.send()}
			for _, id := range ids {
				w.a.scq.one(id, verbs.StatusSuccess)
			}
		}},
		{"signal/failure-of-unsignaled", func(c *c) {
			w := c.wire(opts{service: rc})
			w.b.recvs(2)
			w.a.send(unsignaled)
			bad := w.a.send(unsignaled, remote(verbs.WRRDMAWrite), badRKey)
			after := w.a.send(unsignaled)
			w.a.scq.one(bad, verbs.StatusRemAccessErr)
			w.a.scq.flushed(after)
		}},
		{"signal/unsignaled-slots-return", func(c *c) {
			w := c.wire(opts{service: rc, depth: 8})
			n := w.a.Cap().MaxSendWR
			for range 5 {
				for range n - 1 {
					w.a.send(remote(verbs.WRRDMAWrite), unsignaled)
				}
				w.a.scq.one(w.a.send(remote(verbs.WRRDMAWrite)), verbs.StatusSuccess)
			}
		}},
		{"order/mixed", func(c *c) {
			w := c.wire(opts{service: rc})
			w.b.recvs(4)
			var ids []uint64
			for range 4 {
				ids = append(ids, w.a.send(remote(verbs.WRRDMARead), length(1000)), w.a.send(remote(verbs.WRRDMAWrite)), w.a.send())
			}
			for _, id := range ids {
				w.a.scq.one(id, verbs.StatusSuccess)
			}
		}},
		{"order/many", func(c *c) { many(c, rc, 500) }},
		{"full/send", func(c *c) {
			w := c.wire(opts{service: rc, depth: 6, cqEntries: 64})
			w.a.hold() // so that they stay
			ids := fill(c, w.a.Cap().MaxSendWR, func(n int) (int, []uint64, error) {
				wrs := make([]verbs.SendWR, n)
				ids := make([]uint64, n)
				for i := range wrs {
					wrs[i] = w.a.sendWR(remote(verbs.WRRDMAWrite))
					ids[i] = wrs[i].ID
				}
				taken, err := w.a.PostSend(wrs)
				return taken, ids, err
			})
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.scq.flushed(ids...)
			w.a.scq.none("the others were not taken")
		}},
		{"full/receive", func(c *c) {
			w := c.pair(opts{service: rc, depth: 6, cqEntries: 64})
			w.a.bring(verbs.StateInit)
			ids := fill(c, w.a.Cap().MaxRecvWR, func(n int) (int, []uint64, error) { return w.a.postRecvs(w.a.PostRecv, n) })
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.rcq.flushed(ids...)
		}},
		{"batch/empty", func(c *c) {
			w := c.wire(opts{service: rc})
			n, err := w.a.PostSend(nil)
			require.NoError(c, err)
			require.Zero(c, n)
			n, err = w.a.PostRecv(nil)
			require.NoError(c, err)
			require.Zero(c, n)
		}},
		{"batch/in-order", func(c *c) {
			w := c.wire(opts{service: rc})
			n, got, err := w.b.postRecvs(w.b.PostRecv, 8)
			require.NoError(c, err)
			require.Equal(c, 8, n)
			var wrs []verbs.SendWR
			for range 8 {
				wrs = append(wrs, w.a.sendWR())
			}
			n, err = w.a.PostSend(wrs)
			require.NoError(c, err)
			require.Equal(c, 8, n)
			for i := range wrs {
				w.a.scq.one(wrs[i].ID, verbs.StatusSuccess)
				w.b.rcq.one(got[i], verbs.StatusSuccess)
			}
		}},
		{"batch/malformed-send", func(c *c) {
			w := c.wire(opts{service: rc})
			w.b.recvs(4)
			wrs := []verbs.SendWR{w.a.sendWR(), w.a.sendWR(), w.a.sendWR(), w.a.sendWR()}
			wrs[2].NumSGE = 200
			n, err := w.a.PostSend(wrs)
			require.ErrorIs(c, err, verbs.ErrInvalid)
			require.Equal(c, 2, n, "those before it are taken")
			w.a.scq.one(wrs[0].ID, verbs.StatusSuccess)
			w.a.scq.one(wrs[1].ID, verbs.StatusSuccess)
			require.Len(c, w.b.rcq.await(2), 2)
			w.a.scq.one(w.a.send(), verbs.StatusSuccess)
			w.b.rcq.await(1)
			w.a.scq.none("the others were not taken")
			w.b.rcq.none("the others were not taken")
		}},
		{"batch/malformed-receive", func(c *c) {
			w := c.wire(opts{service: rc})
			wrs := []verbs.RecvWR{w.b.recvWR(), w.b.recvWR(), w.b.recvWR()}
			wrs[1].NumSGE = 200
			n, err := w.b.PostRecv(wrs)
			require.ErrorIs(c, err, verbs.ErrInvalid)
			require.Equal(c, 1, n, "that before it is taken")
			next := w.b.recv()
			w.a.scq.one(w.a.send(), verbs.StatusSuccess)
			w.a.scq.one(w.a.send(), verbs.StatusSuccess)
			w.b.rcq.one(wrs[0].ID, verbs.StatusSuccess)
			w.b.rcq.one(next, verbs.StatusSuccess)
		}},
		{"RNR/waits", func(c *c) {
			w := c.pair(opts{service: rc})
			w.b.bring(verbs.StateRTS)
			w.a.bring(verbs.StateRTR)
			row, _ := verbs.FindTransition(rc, verbs.StateRTR, verbs.StateRTS)
			attr := w.a.attr(verbs.StateRTS)
			attr.RNRRetry, attr.RetryCnt = 7, 1 // for ever
			require.NoError(c, w.a.Modify(attr, verbs.AttrState|row.Required))
			first, second := w.a.send(), w.a.send()
			for range 50 {
				c.step()
			}
			w.a.scq.none("there is no receive")
			a, b := w.b.recv(), w.b.recv()
			w.a.scq.one(first, verbs.StatusSuccess)
			w.a.scq.one(second, verbs.StatusSuccess)
			w.b.rcq.one(a, verbs.StatusSuccess)
			w.b.rcq.one(b, verbs.StatusSuccess)
		}},
		{"RNR/write-needs-no-receive", func(c *c) {
			w := c.wire(opts{service: rc, quick: true})
			w.a.scq.one(w.a.send(remote(verbs.WRRDMAWrite)), verbs.StatusSuccess)
			w.a.scq.one(w.a.send(remote(verbs.WRRDMAWriteWithImm)), verbs.StatusRNRRetryExcErr)
		}},
		{"loss/of-a-packet", func(c *c) {
			if c.Injector.LosePackets == nil {
				c.skip("no packets can be lost")
			}
			w := c.wire(opts{service: rc, mtu: verbs.MTU256})
			got := w.b.recv()
			c.injected = true
			c.Injector.LosePackets(c.a.dev, w.a.QP, 1)
			sent := w.a.send(length(1000))
			w.a.scq.one(sent, verbs.StatusSuccess)
			w.a.arrived(got, 1000)
			w.a.carry()
		}},
		{"loss/atomic-is-done-once", func(c *c) {
			if c.Injector.LoseAcks == nil {
				c.skip("no answers can be lost")
			}
			c.needs(verbs.WRAtomicFetchAndAdd)
			w := c.wire(opts{service: rc, quick: true})
			w.b.mem.setWord(1024, 100)
			c.injected = true
			c.Injector.LoseAcks(c.a.dev, w.a.QP)
			id := w.a.send(remote(verbs.WRAtomicFetchAndAdd), func(_ *qp, wr *verbs.SendWR) { wr.CompareAdd = 5 })
			w.a.scq.one(id, verbs.StatusRetryExcErr)
			require.EqualValues(c, 105, w.b.mem.word(1024), "it was repeated, and is done once")
		}},
		{"loss/silence", func(c *c) {
			if c.Injector.Silence == nil {
				c.skip("requests cannot be made to hang")
			}
			w := c.wire(opts{service: rc, quick: true})
			w.b.recvs(2)
			c.injected = true
			c.Injector.Silence(c.a.dev, w.a.QP)
			hangs := w.a.send()
			w.b.carry()
			for range 200 {
				c.step()
			}
			w.a.scq.none("it is to hang")
			require.Equal(c, verbs.StateRTS.String(), w.a.state().String())
			require.NoError(c, w.a.move(verbs.StateErr))
			w.a.scq.flushed(hangs)
		}},
		{"loss/stale-packet", func(c *c) {
			if c.Injector.Stale == nil {
				c.skip("packets do not come twice")
			}
			w := c.wire(opts{service: rc})
			c.injected = true
			c.Injector.Stale(c.a.dev, w.a.QP)
			w.a.carry()
			for _, q := range []*qp{w.a, w.b} {
				require.NoError(c, q.move(verbs.StateErr))
				require.NoError(c, q.move(verbs.StateReset))
				q.psn = (q.psn + 0x400000) & 0xffffff
			}
			w.b.bring(verbs.StateInit)
			first := w.b.recv()
			require.NoError(c, w.b.move(verbs.StateRTR))
			require.NoError(c, w.b.move(verbs.StateRTS))
			for range 50 {
				c.step()
			}
			w.b.rcq.none("what belongs to the predecessor is no message")
			w.a.bring(verbs.StateRTS)
			w.a.scq.one(w.a.send(), verbs.StatusSuccess)
			w.a.arrived(first, 64)
			w.b.rcq.none("there was one message")
		}},
	}
	return all
}

// fill posts in batches of three until the queue is full, which must take as many as was granted, and not for ever.
func fill(c *c, granted int, post func(n int) (taken int, ids []uint64, err error)) (all []uint64) {
	for {
		taken, ids, err := post(3)
		all = append(all, ids[:taken]...)
		if err != nil {
			require.ErrorIs(c, err, verbs.ErrQueueFull)
			require.Less(c, taken, 3, "an error, though all was taken")
			require.GreaterOrEqual(c, len(all), granted, "full before what was granted")
			return all
		}
		require.Equal(c, 3, taken, "no error, though not all was taken")
		require.Less(c, len(all), 4*granted+64, "never full")
	}
}

// postRecvs posts n receives in one call.
func (q *qp) postRecvs(post func([]verbs.RecvWR) (int, error), n int) (int, []uint64, error) {
	wrs := make([]verbs.RecvWR, n)
	ids := make([]uint64, n)
	for i := range wrs {
		wrs[i] = q.recvWR()
		ids[i] = wrs[i].ID
	}
	taken, err := post(wrs)
	return taken, ids, err
}

// resetDropsCompletions: of a shared queue RESET takes the completions of its own queue pair alone, also from the middle.
func resetDropsCompletions(c *c) {
	shared := c.a.cq(64, nil)
	oa, ob := opts{service: verbs.ServiceRC, rcq: shared}, opts{service: verbs.ServiceRC}
	w1, w2 := c.pairOf(oa, ob), c.pairOf(oa, ob)
	var stay []uint64
	for _, w := range []*wire{w1, w2} {
		w.a.bring(verbs.StateRTS)
		w.b.bring(verbs.StateRTS)
	}
	for range 3 {
		w1.a.recv()
		stay = append(stay, w2.a.recv())
		for _, w := range []*wire{w1, w2} {
			w.b.scq.one(w.b.send(), verbs.StatusSuccess) // so its completion is in the queue
		}
	}
	require.NoError(c, w1.a.move(verbs.StateReset))
	for _, id := range stay {
		wc := shared.one(id, verbs.StatusSuccess)
		require.Equal(c, w2.a.Num(), wc.QPNum)
	}
	shared.none("the others were of the queue pair that was reset")
}

// sendQueueError: in SQE the queue pair still receives, and RTS lets it send again.
func sendQueueError(c *c, service verbs.Services) {
	w := c.wire(opts{service: service})
	got := w.a.recv()
	bad := w.a.send(badLKey)
	behind := []uint64{w.a.send(), w.a.send(unsignaled)}
	wc := w.a.scq.await(1)[0]
	require.Equal(c, bad, wc.ID)
	require.NotEqual(c, verbs.StatusSuccess.Native(), wc.Status.Native())
	w.a.scq.flushed(behind...)
	w.a.becomes(verbs.StateSQE)
	w.b.scq.one(w.b.send(), verbs.StatusSuccess)
	w.b.arrived(got, 64)
	w.b.rcq.none("nothing was sent")
	require.NoError(c, w.a.move(verbs.StateRTS))
	w.a.carry()
	w.b.carry()
}

// many sends more messages than the queues hold, and checks order and content.
func many(c *c, service verbs.Services, n int) {
	w := c.wire(opts{service: service})
	const window = 8
	from, to := c.a.region(window*256, everyAccess), c.b.region(window*256, everyAccess)
	recv := func(i int) {
		n, err := w.b.PostRecv([]verbs.RecvWR{w.b.recvWR(func(_ *qp, wr *verbs.RecvWR) {
			wr.ID, wr.SGE[0] = uint64(i), to.sge(i%window*256, 256)
		})})
		require.NoError(c, err)
		require.Equal(c, 1, n)
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
