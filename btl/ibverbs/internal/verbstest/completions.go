package verbstest

import (
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// completionCases returns the cases for completion queues and their channels.
func completionCases() []testCase {
	solicited := func(_ *qp, wr *verbs.SendWR) { wr.Flags |= verbs.SendSolicited }
	// armable returns a case in which end B has a receive CQ with a channel.
	armable := func(name string, run func(c *caseRun, w *wire, ch *channel)) testCase {
		return testCase{name, func(c *caseRun) {
			ch := c.b.channel()
			run(c, c.wireOf(rc, opts{rcq: c.b.cq(32, ch.CompChannel)}), ch)
		}}
	}
	return []testCase{
		wired("poll/some-and-none", rc, func(c *caseRun, w *wire) {
			var wcs [8]verbs.WC
			for _, space := range [][]verbs.WC{wcs[:], nil} {
				n, err := w.a.scq.Poll(space)
				require.NoError(c, err)
				require.Zero(c, n)
			}
			w.deliver(3)
			write := remote(verbs.WRRDMAWrite)
			ids := []uint64{w.a.send(write), w.a.send(write), w.a.send(write)}
			var have []uint64
			c.wait("three completions, one at a time", func() bool {
				n, err := w.a.scq.Poll(wcs[:1])
				require.NoError(c, err)
				if n == 1 {
					have = append(have, wcs[0].ID)
				}
				return len(have) == 3
			})
			require.Equal(c, ids, have)
		}),
		{"poll/one-queue-for-all", func(c *caseRun) {
			shared := c.a.cq(64, nil)
			w := c.wireOf(opts{scq: shared, rcq: shared}, rc)
			w.b.recv()
			got := w.a.recv()
			require.Equal(c, verbs.WCSend, shared.awaitOne(w.a.send(), verbs.StatusSuccess).Opcode)
			w.b.awaitSent(w.b.send())
			require.Equal(c, verbs.WCRecv, shared.awaitOne(got, verbs.StatusSuccess).Opcode)
		}},
		{"overrun/not-when-just-full", func(c *caseRun) {
			small := c.a.cq(4, nil)
			n := small.Entries()
			w := c.wireOf(opts{depth: n + 1, scq: small}, rc)
			var ids []uint64
			for i := range n {
				w.a.mem.setWord(8*i, uint64(1000+i))
				ids = append(ids, w.a.send(remote(verbs.WRRDMAWrite), func(q *qp, wr *verbs.SendWR) { wr.SGE[0] = q.mem.sge(8*i, 8) }))
			}
			c.wait("the last write", func() bool { return w.b.mem.poll(1024) == uint64(1000+n-1) })
			c.steps(50)
			for _, id := range ids {
				small.awaitOne(id, verbs.StatusSuccess)
			}
			require.Zero(c, c.a.count(verbs.EventCQErr, nil))
		}},
		armable("channel/armed", func(c *caseRun, w *wire, ch *channel) {
			ch.requireNone("the queue is not armed")
			w.b.recv()
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.a.sends(1)
			ch.await(w.b.rcq)
			ch.requireNone("arming raises one event")
			w.deliver(1) // an unarmed queue raises no event
			// An armed queue raises one event for the next completion.
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.b.recv()
			ch.requireNone("old completions raise no event")
			w.a.sends(1)
			ch.await(w.b.rcq)
			ch.requireNone("arming raises one event")
		}),
		armable("channel/ignores-old-completions", func(c *caseRun, w *wire, ch *channel) {
			got := w.b.recv()
			// Ensures that the receive's completion is in the queue.
			w.a.awaitSent(w.a.send())
			require.NoError(c, w.b.rcq.ReqNotify(false))
			ch.requireNone("old completions raise no event")
			w.b.rcq.awaitOne(got, verbs.StatusSuccess) // polling after arming finds it
			w.deliver(1)
			ch.await(w.b.rcq)
			ch.requireNone("arming raises one event")
		}),
		armable("channel/solicited-only", func(c *caseRun, w *wire, ch *channel) {
			require.NoError(c, w.b.rcq.ReqNotify(true))
			w.b.recvs(3)
			w.a.sends(2)
			ch.requireNone("the sends are not solicited")
			w.a.awaitSent(w.a.send(solicited))
			w.b.rcq.await(1)
			ch.await(w.b.rcq)
			ch.requireNone("arming raises one event")
		}),
		armable("channel/solicited-only-and-a-failure", func(c *caseRun, w *wire, ch *channel) {
			require.NoError(c, w.b.rcq.ReqNotify(true))
			got := w.b.recv()
			require.NoError(c, w.b.move(verbs.StateErr))
			w.b.rcq.awaitFlushed(got)
			ch.await(w.b.rcq)
		}),
		armable("channel/armed-for-all-covers-solicited", func(c *caseRun, w *wire, ch *channel) {
			require.NoError(c, w.b.rcq.ReqNotify(true))
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.deliver(1)
			ch.await(w.b.rcq)
			ch.requireNone("arming twice raises one event")
		}),
		{"channel/names-its-queue", func(c *caseRun) {
			ch := c.b.channel()
			one, two := c.b.cq(16, ch.CompChannel), c.b.cq(16, ch.CompChannel)
			w1, w2 := c.pairOf(rc, opts{rcq: one}), c.pairOf(rc, opts{rcq: two})
			for _, w := range []*wire{w1, w2} {
				w.connect()
				require.NoError(c, w.b.rcq.ReqNotify(false))
				w.b.recv()
			}
			w2.a.sends(1)
			ch.await(two)
			w1.a.sends(1)
			ch.await(one)
		}},
		armable("channel/notify", func(c *caseRun, w *wire, ch *channel) {
			var calls atomic.Int32
			ch.Notify(func() { calls.Add(1) })
			for range 3 {
				ch.requireNone("there was no completion")
				before := calls.Load()
				require.NoError(c, w.b.rcq.ReqNotify(false))
				w.deliver(1)
				c.wait("a call of Notify's function", func() bool { return calls.Load() > before })
				ch.await(w.b.rcq)
			}
			ch.Notify(nil)
		}),
		armable("channel/acknowledge-before-destroy", func(c *caseRun, w *wire, ch *channel) {
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.deliver(1)
			c.wait("an event", func() bool {
				q, ok, err := ch.NextEvent()
				require.NoError(c, err)
				require.True(c, !ok || q == w.b.rcq.CQ)
				return ok
			})
			require.NoError(c, w.b.Destroy())
			require.ErrorIs(c, w.b.rcq.CQ.Destroy(), verbs.ErrBusy, "an event is unacknowledged")
			w.b.rcq.AckEvents(1)
			require.NoError(c, w.b.rcq.Destroy())
		}),
	}
}

// channel is a completion channel.
type channel struct {
	verbs.CompChannel
	c *caseRun
}

func (e *end) channel() *channel {
	inner, err := e.dev.CreateCompChannel()
	require.NoError(e.c, err)
	e.c.cleanup = append(e.c.cleanup, inner.Destroy)
	return &channel{inner, e.c}
}

// await waits for an event of a queue and acknowledges it.
func (ch *channel) await(q *cq) {
	ch.c.wait("an event of the completion queue", func() bool {
		of, ok, err := ch.NextEvent()
		require.NoError(ch.c, err)
		if ok {
			require.True(ch.c, of == q.CQ, "an event of another completion queue")
			of.AckEvents(1)
		}
		return ok
	})
}

// requireNone checks that there is no event now.
func (ch *channel) requireNone(why string) {
	_, ok, err := ch.NextEvent()
	require.NoError(ch.c, err)
	require.False(ch.c, ok, "an event, but %s", why)
}
