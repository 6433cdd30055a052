package verbstest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// sightCases: who sees what of a request that the responder refuses, with RC.
func sightCases() (all []kase) {
	for _, row := range verbs.Refusals() {
		name := strings.ReplaceAll(row.Op.String()+"/"+row.Mistake.String(), " ", "-")
		all = append(all, kase{name, func(c *c) { sight(c, row) }}, kase{name + "/injected", func(c *c) { c.mistaken(row) }})
		if row.Mistake == verbs.BadKey && row.Op != verbs.OpSend {
			for _, bad := range badRemote() {
				all = append(all, kase{name + "/" + bad.name, func(c *c) { c.sightOf(row, 1, nil, bad.change) }})
			}
		}
	}
	return all
}

// sight brings about a row.
func sight(c *c, row verbs.Refusal) {
	switch row.Mistake {
	case verbs.BadKey:
		if row.Op == verbs.OpSend {
			c.sightOf(row, 1, badRecvLKey, unchanged)
			return
		}
		c.sightOf(row, 1, nil, badRKey)
	case verbs.TooLong:
		if row.Op == verbs.OpSend {
			c.sightOf(row, 1, recvLength(32), unchanged)
			return
		}
		c.mistaken(row) // the requester does not send what is over the maximum
	case verbs.TooMany:
		// The responder is made to keep one, the requester sends many.
		c.sightOf(row, 8, nil, unchanged)
	case verbs.Misaligned:
		c.sightOf(row, 1, nil, func(_ *qp, wr *verbs.SendWR) { wr.RemoteAddr += 4 })
	case verbs.OtherMistake:
		c.mistaken(row)
	}
}

// mistaken has the responder make the mistake.
func (c *c) mistaken(row verbs.Refusal) {
	if c.Injector.Mistake == nil {
		c.skip("nothing makes a responder refuse it")
	}
	c.sightOf(row, 1, nil, func(q *qp, _ *verbs.SendWR) {
		c.injected = true
		c.Injector.Mistake(c.b.dev, q.peer.QP, row.Mistake)
	})
}

func opcodeOf(op verbs.Operation) func(*qp, *verbs.SendWR) {
	switch op {
	case verbs.OpWrite:
		return remote(verbs.WRRDMAWrite)
	case verbs.OpWriteImm:
		return remote(verbs.WRRDMAWriteWithImm)
	case verbs.OpRead:
		return remote(verbs.WRRDMARead)
	case verbs.OpAtomic:
		return remote(verbs.WRAtomicFetchAndAdd)
	}
	return unchanged
}

// sightOf posts a receive and n requests that are wrong, and holds what both sides see to the row.
func (c *c) sightOf(row verbs.Refusal, n int, recv func(*qp, *verbs.RecvWR), send func(*qp, *verbs.SendWR)) {
	if row.Op == verbs.OpAtomic {
		c.needs(verbs.WRAtomicFetchAndAdd)
	}
	b := opts{service: verbs.ServiceRC}
	if n > 1 {
		b.destRd = 1
	}
	w := c.pairOf(opts{service: verbs.ServiceRC, rd: uint8(min(n, max(1, c.a.attr.MaxQPInitRdAtom)))}, b)
	w.a.bring(verbs.StateRTS)
	w.b.bring(verbs.StateRTS)
	before := string(w.b.mem.buf)
	var got uint64
	if recv != nil {
		got = w.b.recv(recv)
	} else {
		got = w.b.recv()
	}
	var wrs []verbs.SendWR
	for range n {
		wrs = append(wrs, w.a.sendWR(opcodeOf(row.Op), send))
	}
	posted, err := w.a.PostSend(wrs)
	require.NoError(c, err, "post")
	require.Equal(c, n, posted)

	wcs := w.a.scq.await(n)
	first := 0
	for n > 1 && first < n-1 && wcs[first].Status == verbs.StatusSuccess {
		first++ // those that were not too many
	}
	require.Equal(c, row.Requester.Native(), wcs[first].Status.Native(), "what the requester sees")
	require.Equal(c, wrs[first].ID, wcs[first].ID)
	for _, wc := range wcs[first+1:] {
		require.Equal(c, verbs.StatusWRFlushErr.Native(), wc.Status.Native(), "behind it")
	}
	w.a.becomes(verbs.StateErr)
	w.b.becomes(verbs.StateErr)

	wc := w.b.rcq.await(1)[0]
	require.Equal(c, got, wc.ID)
	completion := wc.Status != verbs.StatusWRFlushErr
	if completion {
		require.Equal(c, row.Completion.Native(), wc.Status.Native(), "what the responder sees")
	} else {
		require.True(c, row.HasEvent, "the responder has to see %s", row.Completion.Native())
	}
	if row.HasEvent && !completion {
		c.b.await(row.Event, w.b.QP)
	}
	if n == 1 && row.Op != verbs.OpSend {
		require.Equal(c, before, string(w.b.mem.buf), "memory of the responder")
	}
}

// wrongRemote is what a request must not name at the other end.
type wrongRemote struct {
	name   string
	change func(q *qp, wr *verbs.SendWR)
}

// badRemote is the error model's 5.1 for R_Keys: out of range, not registered, other domain, wrong access.
func badRemote() []wrongRemote {
	at := func(r *region, wr *verbs.SendWR, off int) { wr.RemoteAddr, wr.RKey = r.Addr()+uint64(off), r.RKey() }
	return []wrongRemote{
		{"beyond-the-end", func(q *qp, wr *verbs.SendWR) { at(q.peer.e.region(4096, everyAccess), wr, 4096) }},
		{"before-the-beginning", func(q *qp, wr *verbs.SendWR) { at(q.peer.e.region(4096, everyAccess), wr, -64) }},
		{"no-longer-registered", func(q *qp, wr *verbs.SendWR) {
			r := q.peer.e.region(4096, everyAccess)
			at(r, wr, 0)
			require.NoError(q.c, r.Dereg())
			r.gone = true
		}},
		{"other-domain", func(q *qp, wr *verbs.SendWR) { at(q.peer.e.regionIn(q.peer.e.newPD(), 4096, everyAccess), wr, 0) }},
		{"without-access", func(q *qp, wr *verbs.SendWR) { at(q.peer.e.region(4096, verbs.AccessLocalWrite), wr, 0) }},
	}
}
