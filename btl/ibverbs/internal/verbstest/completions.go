package verbstest

import (
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// completionCases: the completion queue and the channel of its events.
func completionCases() []kase {
	rc := verbs.ServiceRC
	solicited := func(_ *qp, wr *verbs.SendWR) { wr.Flags |= verbs.SendSolicited }
	return []kase{
		{"poll/fewer-and-none", func(c *c) {
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
		{"poll/one-queue-for-all", func(c *c) {
			shared := c.a.cq(64, nil)
			w := c.pairOf(opts{service: rc, scq: shared, rcq: shared}, opts{service: rc})
			w.a.bring(verbs.StateRTS)
			w.b.bring(verbs.StateRTS)
			w.b.recv()
			got := w.a.recv()
			sent := w.a.send()
			first := shared.one(sent, verbs.StatusSuccess)
			require.Equal(c, verbs.WCSend, first.Opcode)
			w.b.scq.one(w.b.send(), verbs.StatusSuccess)
			second := shared.one(got, verbs.StatusSuccess)
			require.Equal(c, verbs.WCRecv, second.Opcode)
		}},
		{"overrun/not-when-just-full", func(c *c) {
			small := c.a.cq(4, nil)
			n := small.Entries()
			w := c.pairOf(opts{service: rc, depth: n + 1, scq: small}, opts{service: rc})
			w.a.bring(verbs.StateRTS)
			w.b.bring(verbs.StateRTS)
			var ids []uint64
			for i := range n {
				w.a.mem.setWord(8*i, uint64(1000+i))
				ids = append(ids, w.a.send(remote(verbs.WRRDMAWrite), func(q *qp, wr *verbs.SendWR) { wr.SGE[0] = q.mem.sge(8*i, 8) }))
			}
			c.wait("the last of them", func() bool { return w.b.mem.poll(1024) == uint64(1000+n-1) })
			for range 50 {
				c.step()
			}
			for _, id := range ids {
				small.one(id, verbs.StatusSuccess)
			}
			require.Zero(c, c.a.has(verbs.EventCQErr, nil))
		}},
		{"channel/armed", func(c *c) {
			w, ch := c.channelled()
			ch.none("nothing was armed")
			w.b.recv()
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.a.sends(1)
			ch.await(w.b.rcq)
			ch.none("one event for one arming")
			// Not armed: no event.
			w.b.recv()
			w.a.sends(1)
			// Armed again: one, for what comes next.
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.b.recv()
			ch.none("what is there already does not count")
			w.a.sends(1)
			ch.await(w.b.rcq)
			ch.none("one event for one arming")
		}},
		{"channel/not-for-what-is-there", func(c *c) {
			w, ch := c.channelled()
			got := w.b.recv()
			w.a.scq.one(w.a.send(), verbs.StatusSuccess) // so the receive's completion is in the queue
			require.NoError(c, w.b.rcq.ReqNotify(false))
			ch.none("what is there already does not count")
			w.b.rcq.one(got, verbs.StatusSuccess) // "arm, then poll once more" finds it
			w.b.recv()
			w.a.sends(1)
			ch.await(w.b.rcq)
			ch.none("one event for one arming")
		}},
		{"channel/solicited-only", func(c *c) {
			w, ch := c.channelled()
			require.NoError(c, w.b.rcq.ReqNotify(true))
			w.b.recvs(3)
			w.a.sends(2)
			ch.none("these were not solicited")
			w.a.scq.one(w.a.send(solicited), verbs.StatusSuccess)
			w.b.rcq.await(1)
			ch.await(w.b.rcq)
			ch.none("one event for one arming")
		}},
		{"channel/solicited-only-and-a-failure", func(c *c) {
			w, ch := c.channelled()
			require.NoError(c, w.b.rcq.ReqNotify(true))
			got := w.b.recv()
			require.NoError(c, w.b.move(verbs.StateErr))
			w.b.rcq.flushed(got)
			ch.await(w.b.rcq)
		}},
		{"channel/armed-for-all-covers-solicited", func(c *c) {
			w, ch := c.channelled()
			require.NoError(c, w.b.rcq.ReqNotify(true))
			require.NoError(c, w.b.rcq.ReqNotify(false))
			w.b.recv()
			w.a.sends(1)
			ch.await(w.b.rcq)
			ch.none("one event, however often it was armed")
		}},
		{"channel/names-its-queue", func(c *c) {
			inner, err := c.b.dev.CreateCompChannel()
			require.NoError(c, err)
			c.cleanup = append(c.cleanup, inner.Destroy)
			ch := &channel{inner, c}
			one, two := c.b.cq(16, inner), c.b.cq(16, inner)
			w1, w2 := c.pairOf(opts{service: rc}, opts{service: rc, rcq: one}), c.pairOf(opts{service: rc}, opts{service: rc, rcq: two})
			for _, w := range []*wire{w1, w2} {
				w.a.bring(verbs.StateRTS)
				w.b.bring(verbs.StateRTS)
				require.NoError(c, w.b.rcq.ReqNotify(false))
				w.b.recv()
			}
			w2.a.sends(1)
			ch.await(two)
			w1.a.sends(1)
			ch.await(one)
		}},
		{"channel/notify", func(c *c) {
			w, ch := c.channelled()
			var told atomic.Int32
			ch.Notify(func() { told.Add(1) })
			for i := range 3 {
				ch.none("nothing came")
				before := told.Load()
				require.NoError(c, w.b.rcq.ReqNotify(false))
				w.b.recv()
				w.a.sends(1)
				c.wait("a call of Notify's function", func() bool { return told.Load() > before })
				ch.await(w.b.rcq)
				_ = i
			}
			ch.Notify(nil)
		}},
		{"channel/acknowledge-before-destroy", func(c *c) {
			w, ch := c.channelled()
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
			require.ErrorIs(c, w.b.rcq.CQ.Destroy(), verbs.ErrBusy, "an event is not acknowledged")
			w.b.rcq.AckEvents(1)
			require.NoError(c, w.b.rcq.Destroy())
		}},
	}
}

// channel is a completion channel.
type channel struct {
	verbs.CompChannel
	c *c
}

// channelled makes a wire whose end B has its receives' completions on a queue with a channel.
func (c *c) channelled() (*wire, *channel) {
	inner, err := c.b.dev.CreateCompChannel()
	require.NoError(c, err)
	c.cleanup = append(c.cleanup, inner.Destroy)
	w := c.pairOf(opts{service: verbs.ServiceRC}, opts{service: verbs.ServiceRC, rcq: c.b.cq(32, inner)})
	w.a.bring(verbs.StateRTS)
	w.b.bring(verbs.StateRTS)
	return w, &channel{inner, c}
}

// await waits for an event of a queue, and acknowledges it.
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

// none checks that there is no event now.
func (ch *channel) none(why string) {
	_, ok, err := ch.NextEvent()
	require.NoError(ch.c, err)
	require.False(ch.c, ok, "an event, but %s", why)
}
