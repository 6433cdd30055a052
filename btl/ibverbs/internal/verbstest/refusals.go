package verbstest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// refusalCases returns the cases for requests that an RC responder refuses.
func refusalCases() (all []testCase) {
	for _, row := range verbs.Refusals() {
		name := strings.ReplaceAll(row.Op.String()+"/"+row.Mistake.String(), " ", "-")
		all = append(all, testCase{name, func(c *caseRun) { provokeRefusal(c, row) }},
			testCase{name + "/injected", func(c *caseRun) { c.injectMistake(row, 64) }},
			testCase{name + "/injected/long", func(c *caseRun) { c.injectMistake(row, 1000) }})
		if row.Mistake == verbs.BadKey && row.Op != verbs.OpSend {
			for _, bad := range wrongRemotes() {
				all = append(all, testCase{name + "/" + bad.name, func(c *caseRun) { c.checkRefusal(row, 1, nil, bad.change) }})
			}
		}
	}
	return all
}

// provokeRefusal runs the case of a row.
func provokeRefusal(c *caseRun, row verbs.Refusal) {
	switch send := row.Op == verbs.OpSend; {
	case send && row.Mistake == verbs.BadKey:
		c.checkRefusal(row, 1, badRecvLKey, unchanged)
	case row.Mistake == verbs.BadKey:
		c.checkRefusal(row, 1, nil, badRKey)
	case send && row.Mistake == verbs.TooLong:
		c.checkRefusal(row, 1, recvLength(32), unchanged)
	case row.Mistake == verbs.TooMany:
		// The responder accepts one outstanding request, the requester sends many.
		c.checkRefusal(row, 8, nil, unchanged)
	case row.Mistake == verbs.Misaligned:
		c.checkRefusal(row, 1, nil, func(_ *qp, wr *verbs.SendWR) { wr.RemoteAddr += 4 })
	default: // includes TooLong: the requester does not send messages over the maximum
		c.injectMistake(row, 64)
	}
}

// injectMistake makes the responder refuse a request of n bytes with the row's mistake.
func (c *caseRun) injectMistake(row verbs.Refusal, n int) {
	c.skipIf(c.Injector.Mistake == nil, "the provider cannot inject a refusal")
	c.skipIf(row.Op == verbs.OpAtomic && n > 64, "atomics have 8 bytes")
	c.checkRefusal(row, 1, nil, func(q *qp, wr *verbs.SendWR) {
		if row.Op != verbs.OpAtomic {
			length(n)(q, wr)
		}
		c.injected = true
		c.Injector.Mistake(c.b.dev, q.peer.QP, row.Mistake)
	})
}

var opcodeOf = [...]verbs.Opcode{
	verbs.OpSend: verbs.WRSend, verbs.OpWrite: verbs.WRRDMAWrite, verbs.OpRead: verbs.WRRDMARead,
	verbs.OpWriteImm: verbs.WRRDMAWriteWithImm, verbs.OpAtomic: verbs.WRAtomicFetchAndAdd,
}

// checkRefusal posts a receive and n wrong requests, and compares the errors of both ends with the
// row. recv may be nil.
func (c *caseRun) checkRefusal(row verbs.Refusal, n int, recv func(*qp, *verbs.RecvWR), send func(*qp, *verbs.SendWR)) {
	if row.Op == verbs.OpAtomic {
		c.needs(verbs.WRAtomicFetchAndAdd)
	}
	b := opts{mtu: verbs.MTU256}
	if n > 1 {
		b.destRd = 1
	}
	w := c.wireOf(opts{mtu: b.mtu, rd: uint8(min(n, max(1, c.a.attr.MaxQPInitRdAtom)))}, b)
	before := string(w.b.mem.buf)
	got := w.b.recvWR()
	if recv != nil {
		recv(w.b, &got)
	}
	w.b.postRecv(got)
	var wrs []verbs.SendWR
	for range n {
		wrs = append(wrs, w.a.sendWR(remote(opcodeOf[row.Op]), send))
	}
	posted, err := w.a.PostSend(wrs)
	require.NoError(c, err, "post")
	require.Equal(c, n, posted)
	wcs := w.a.scq.await(n)
	first := 0
	for n > 1 && first < n-1 && wcs[first].Status == verbs.StatusSuccess {
		first++ // requests within the limit
	}
	require.Equal(c, row.Requester.Native(), wcs[first].Status.Native(), "status at the requester")
	require.Equal(c, wrs[first].ID, wcs[first].ID)
	for _, wc := range wcs[first+1:] {
		require.Equal(c, verbs.StatusWRFlushErr.Native(), wc.Status.Native(), "after the refused request")
	}
	w.a.awaitState(verbs.StateErr)
	w.b.awaitState(verbs.StateErr)
	c.a.takeEvents()
	require.Empty(c, c.a.eventNames())

	// The memory comes before the responder's event, which some devices do not raise.
	wc := w.b.rcq.await(1)[0]
	if n == 1 && row.Op != verbs.OpSend && wrs[0].SGE[0].Length <= 256 {
		require.True(c, before == string(w.b.mem.buf), "the memory of the responder has changed")
	}
	require.Equal(c, got.ID, wc.ID)
	if wc.Status != verbs.StatusWRFlushErr {
		require.Equal(c, row.Completion.Native(), wc.Status.Native(), "status at the responder")
	} else {
		require.True(c, row.HasEvent, "the responder must get %s", row.Completion.Native())
		c.b.await(row.Event, w.b.QP)
	}
}

// accessFor has the access to a region that each operation needs.
var accessFor = map[verbs.Opcode]verbs.Access{
	verbs.WRRDMAWrite: verbs.AccessRemoteWrite, verbs.WRRDMAWriteWithImm: verbs.AccessRemoteWrite,
	verbs.WRRDMARead: verbs.AccessRemoteRead, verbs.WRAtomicFetchAndAdd: verbs.AccessRemoteAtomic,
}

// wrongRemote makes a request name remote memory that it must not access.
type wrongRemote struct {
	name   string
	change func(q *qp, wr *verbs.SendWR)
}

// wrongRemotes returns the mistakes with R_Keys (InfiniBand error model, 5.1): out of range, not
// registered, other domain, wrong access.
func wrongRemotes() []wrongRemote {
	at := func(r *region, wr *verbs.SendWR, off int) { wr.RemoteAddr, wr.RKey = r.Addr()+uint64(off), r.RKey() }
	return []wrongRemote{
		{"beyond-the-end", func(q *qp, wr *verbs.SendWR) { at(q.peer.e.region(4096, everyAccess), wr, 4096) }},
		{"before-the-beginning", func(q *qp, wr *verbs.SendWR) { at(q.peer.e.region(4096, everyAccess), wr, -64) }},
		{"no-longer-registered", func(q *qp, wr *verbs.SendWR) {
			r := q.peer.e.region(4096, everyAccess)
			at(r, wr, 0)
			require.NoError(q.c, r.Dereg())
		}},
		{"other-domain", func(q *qp, wr *verbs.SendWR) { at(q.peer.e.regionIn(q.peer.e.newPD(), 4096, everyAccess), wr, 0) }},
		{"without-access", func(q *qp, wr *verbs.SendWR) {
			at(q.peer.e.region(4096, everyAccess&^accessFor[wr.Opcode]), wr, 0)
		}},
	}
}
