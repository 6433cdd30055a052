package verbstest

import (
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// completionCases returns the cases for completion queues and their channels.
func completionCases() []testCase {
	rc := verbs.ServiceRC
	solicited := func(_ *qp, wr *verbs.SendWR) { wr.Flags |= verbs.SendSolicited }
	return []testCase{
		{"poll/some-and-none", func(c *caseRun) {
			w := c.wire(opts{service: rc})
			var wcs [8]verbs.WC
			n, err := w.a.scq.Poll(wcs[:])
			require.NoError(c, err)
			require.Zero(c, n)
			n, err = w.a.scq.Poll(nil)
			require.NoError(c, err)
			require.Zero(c, n)
			w.b.recvs(3)
			w.a.sends(3)
			var ids []uint64
			for range 3 {
				ids = append(ids, w.a.send(remote(verbs.WRRDMAWrite)))
			}
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
		}},
		{"poll/one-queue-for-all", func(c *caseRun) {
			shared := c.a.cq(64, nil)
			w := c.wireOf(opts{service: rc, scq: shared, rcq: shared}, opts{service: rc})
			w.b.recv()
			got := w.a.recv()
			sent := w.a.send()
			first := shared.awaitOne(sent, verbs.StatusSuccess)
			require.Equal(c, verbs.WCSend, first.Opcode)
			w.b.scq.awaitOne(w.b.send(), verbs.StatusSuccess)
			second := shared.awaitOne(got, verbs.StatusSuccess)
			require.Equal(c, verbs.WCRecv, second.Opcode)
		}},
		{"overrun/not-when-just-full", func(c *caseRun) {
			small := c.a.cq(4, nil)
			n := small.Entries()
			w := c.wireOf(opts{service: rc, depth: n + 1, scq: small}, opts{service: rc})
			var ids []uint64
			for i := range n {
				w.a.mem.setWord(8*i, uint64(1000+i))
				ids = append(ids, w.a.send(remote(verbs.WRRDMAWrite), func(q *qp, wr *verbs.SendWR) { wr.SGE[0] = q.mem.sge(8*i, 8) }))
			}
			c.wait("the last write", func() bool { return w.b.mem.poll(1024) == uint64(1000+n-1) })
			for range 50 {
				c.step()
			}
			for _, id := range ids {
				small.awaitOne(id, verbs.StatusSuccess)
			}
			require.Zero(c, c.a.count(verbs.EventCQErr, nil))
		}},
		{"channel/armed", func(c *caseRun) {
			w, ch := c.wireWithChannel()
			ch.requireNone("the queue is not armed")
			w.b.recv()
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.a.sends(1)
			ch.await(w.b.rcq)
			ch.requireNone("arming raises one event")
			// An unarmed queue raises no event.
			w.b.recv()
			w.a.sends(1)
			// An armed queue raises one event for the next completion.
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.b.recv()
			ch.requireNone("old completions raise no event")
			w.a.sends(1)
			ch.await(w.b.rcq)
			ch.requireNone("arming raises one event")
		}},
		{"channel/ignores-old-completions", func(c *caseRun) {
			w, ch := c.wireWithChannel()
			got := w.b.recv()
			// Ensures that the receive's completion is in the queue.
			w.a.scq.awaitOne(w.a.send(), verbs.StatusSuccess)
			require.NoError(c, w.b.rcq.ReqNotify(false))
			ch.requireNone("old completions raise no event")
			w.b.rcq.awaitOne(got, verbs.StatusSuccess) // polling after arming finds it
			w.b.recv()
			w.a.sends(1)
			ch.await(w.b.rcq)
			ch.requireNone("arming raises one event")
		}},
		{"channel/solicited-only", func(c *caseRun) {
			w, ch := c.wireWithChannel()
			require.NoError(c, w.b.rcq.ReqNotify(true))
			w.b.recvs(3)
			w.a.sends(2)
			ch.requireNone("the sends are not solicited")
			w.a.scq.awaitOne(w.a.send(solicited), verbs.StatusSuccess)
			w.b.rcq.await(1)
			ch.await(w.b.rcq)
			ch.requireNone("arming raises one event")
		}},
		{"channel/solicited-only-and-a-failure", func(c *caseRun) {
			w, ch := c.wireWithChannel()
			require.NoError(c, w.b.rcq.ReqNotify(true))
			got := w.b.recv()
			require.NoError(c, w.b.move(verbs.StateErr))
			w.b.rcq.awaitFlushed(got)
			ch.await(w.b.rcq)
		}},
		{"channel/armed-for-all-covers-solicited", func(c *caseRun) {
			w, ch := c.wireWithChannel()
			require.NoError(c, w.b.rcq.ReqNotify(true))
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.b.recv()
			w.a.sends(1)
			ch.await(w.b.rcq)
			ch.requireNone("arming twice raises one event")
		}},
		{"channel/names-its-queue", func(c *caseRun) {
			inner, err := c.b.dev.CreateCompChannel()
			require.NoError(c, err)
			c.cleanup = append(c.cleanup, inner.Destroy)
			ch := &channel{inner, c}
			one, two := c.b.cq(16, inner), c.b.cq(16, inner)
			w1, w2 := c.pairOf(opts{service: rc}, opts{service: rc, rcq: one}), c.pairOf(opts{service: rc}, opts{service: rc, rcq: two})
			for _, w := range []*wire{w1, w2} {
				w.a.moveTo(verbs.StateRTS)
				w.b.moveTo(verbs.StateRTS)
				require.NoError(c, w.b.rcq.ReqNotify(false))
				w.b.recv()
			}
			w2.a.sends(1)
			ch.await(two)
			w1.a.sends(1)
			ch.await(one)
		}},
		{"channel/notify", func(c *caseRun) {
			w, ch := c.wireWithChannel()
			var calls atomic.Int32
			ch.Notify(func() { calls.Add(1) })
			for range 3 {
				ch.requireNone("there was no completion")
				before := calls.Load()
				require.NoError(c, w.b.rcq.ReqNotify(false))
				w.b.recv()
				w.a.sends(1)
				c.wait("a call of Notify's function", func() bool { return calls.Load() > before })
				ch.await(w.b.rcq)
			}
			ch.Notify(nil)
		}},
		{"channel/acknowledge-before-destroy", func(c *caseRun) {
			w, ch := c.wireWithChannel()
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.b.recv()
			w.a.sends(1)
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
		}},
	}
}

// channel is a completion channel.
type channel struct {
	verbs.CompChannel
	c *caseRun
}

// wireWithChannel returns a wire whose end B has a receive CQ with a channel.
func (c *caseRun) wireWithChannel() (*wire, *channel) {
	inner, err := c.b.dev.CreateCompChannel()
	require.NoError(c, err)
	c.cleanup = append(c.cleanup, inner.Destroy)
	w := c.wireOf(opts{service: verbs.ServiceRC}, opts{service: verbs.ServiceRC, rcq: c.b.cq(32, inner)})
	return w, &channel{inner, c}
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
