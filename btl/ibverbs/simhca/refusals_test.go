package simhca

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var opcodeOf = map[verbs.Operation]verbs.Opcode{
	verbs.OpSend: verbs.WRSend, verbs.OpWrite: verbs.WRRDMAWrite, verbs.OpWriteImm: verbs.WRRDMAWriteWithImm,
	verbs.OpRead: verbs.WRRDMARead, verbs.OpAtomic: verbs.WRAtomicFetchAndAdd,
}

// TestRefusalsMatchTable checks each row of the table of refusals with a wrong request, if a
// request can have the mistake, and with an injected mistake.
func TestRefusalsMatchTable(t *testing.T) {
	for _, s := range verbs.Refusals() {
		for _, injected := range []bool{false, true} {
			for _, n := range []int{8, 3000} {
				if s.Op == verbs.OpAtomic && n != 8 || !injected && s.Mistake == verbs.OtherMistake || !injected && s.Op == verbs.OpAtomic && s.Mistake == verbs.TooLong {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v/injected=%v/%d", s.Op, s.Mistake, injected, n), func(t *testing.T) { checkRefusal(t, s, injected, n) })
			}
		}
	}
}

func checkRefusal(t *testing.T, s verbs.Refusal, injected bool, n int) {
	const room = 8000
	first := true
	a, b := pair(t, setup{change: func(e *end) {
		if !first { // the responder
			e.hca.cfg.MaxMsgBytes = 4000
			e.destRdAtomic = 1
		}
		first = false
	}})
	key := b.mr.LKey()
	if s.Op == verbs.OpSend && s.Mistake == verbs.BadKey && !injected {
		key++
	}
	length := room
	if s.Op == verbs.OpSend && s.Mistake == verbs.TooLong && !injected {
		length = n - 1
	}
	_, err := b.qp.PostRecv([]verbs.RecvWR{
		{ID: 10, NumSGE: 1, SGE: [verbs.MaxSGE]verbs.SGE{{Addr: b.mr.Addr(), Length: uint32(length), LKey: key}}}, {ID: 11},
	})
	require.NoError(t, err)
	wr := a.wr(1, opcodeOf[s.Op], b, 0, n)
	wrs := []verbs.SendWR{wr}
	switch {
	case injected:
		b.hca.Inject(Fault{Kind: FaultMistake, QPN: b.qp.Num(), Mistake: s.Mistake})
	case s.Mistake == verbs.BadKey:
		wrs[0].RKey += 2
	case s.Mistake == verbs.TooLong && s.Op != verbs.OpSend:
		wrs[0].SGE[0].Length = 4001
	case s.Mistake == verbs.TooMany:
		wrs = append(wrs, wr)
		wrs[0].ID = 0
	case s.Mistake == verbs.Misaligned:
		wrs[0].RemoteAddr += 4
	}
	b.fill(0, 9000, 77)
	a.post(append(wrs, a.wr(2, verbs.WRSend, b, 0, 8))...)
	a.run()
	results := a.results()
	if s.Mistake == verbs.TooMany && !injected {
		require.Equal(t, "0 SUCCESS", results[0])
		results = results[1:]
	}
	require.Equal(t, []string{"1 " + s.Requester.String(), "2 WR_FLUSH_ERR"}, results)
	require.Equal(t, verbs.StateErr, a.state())
	require.Equal(t, verbs.StateErr, b.state())
	require.Empty(t, a.events())
	// Only the last packet shows that a write has immediate data. In a long write, the responder
	// finds most mistakes before that.
	completes := s.Completion != verbs.StatusSuccess && (s.Op != verbs.OpWriteImm || n == 8 && (injected || s.Mistake != verbs.TooLong))
	if completes {
		require.Equal(t, []string{"10 " + s.Completion.String(), "11 WR_FLUSH_ERR"}, b.results())
		require.Empty(t, b.events())
		return
	}
	require.Equal(t, []string{"10 WR_FLUSH_ERR", "11 WR_FLUSH_ERR"}, b.results())
	require.True(t, s.HasEvent)
	require.Equal(t, []verbs.EventType{s.Event}, b.events())
}

// An operation that the queue pair does not permit is an invalid request, even if the region
// permits it.
func TestOperationWithoutQueuePairAccessIsRefused(t *testing.T) {
	for op, code := range opcodeOf {
		if op == verbs.OpSend {
			continue
		}
		t.Run(op.String(), func(t *testing.T) {
			a, b := pair(t, setup{change: func(e *end) { e.access = verbs.AccessLocalWrite }})
			a.post(a.wr(1, code, b, 0, 8))
			a.run()
			require.Equal(t, []string{"1 REM_INV_REQ_ERR"}, a.results())
			require.Equal(t, []verbs.EventType{verbs.EventQPReqErr}, b.events())
			require.Equal(t, verbs.StateErr, b.state())
		})
	}
}

// Each operation requires its access right to the region.
func TestOperationWithoutRegionAccessIsRefused(t *testing.T) {
	for op, right := range map[verbs.Operation]verbs.Access{
		verbs.OpWrite: verbs.AccessRemoteWrite, verbs.OpRead: verbs.AccessRemoteRead, verbs.OpAtomic: verbs.AccessRemoteAtomic,
	} {
		for _, access := range []verbs.Access{allAccess, allAccess &^ right} {
			t.Run(fmt.Sprintf("%v/%v", op, access == allAccess), func(t *testing.T) {
				a, b := pair(t, setup{})
				mem := make([]byte, 64)
				mr, err := b.pd.RegMR(mem, access)
				require.NoError(t, err)
				wr := a.wr(1, opcodeOf[op], b, 0, 8)
				wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey()
				a.post(wr)
				a.run()
				want := "1 SUCCESS"
				if access != allAccess {
					want = "1 REM_ACCESS_ERR"
				}
				require.Equal(t, []string{want}, a.results())
			})
		}
	}
}

// The requester of UC is not notified of refused requests.
func TestUCRefusalsAreSilent(t *testing.T) {
	for _, c := range []struct {
		name    string
		op      verbs.Opcode
		n       int
		badKey  bool
		results []string
		state   verbs.QPState
	}{
		{"send too long", verbs.WRSend, 300, false, []string{"10 LOC_LEN_ERR"}, verbs.StateErr},
		{"write", verbs.WRRDMAWrite, 100, true, nil, verbs.StateRTS},
		{"write with immediate data", verbs.WRRDMAWriteWithImm, 100, true, []string{"10 LOC_ACCESS_ERR"}, verbs.StateErr},
		{"long write with immediate data", verbs.WRRDMAWriteWithImm, 3000, true, nil, verbs.StateRTS},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, setup{service: verbs.ServiceUC})
			b.recv(10, 0, 200)
			wr := a.wr(1, c.op, b, 0, c.n)
			if c.badKey {
				wr.RKey += 2
			}
			a.post(wr)
			a.run()
			require.Equal(t, []string{"1 SUCCESS"}, a.results())
			require.Equal(t, c.results, b.results())
			require.Equal(t, c.state, b.state())
			require.Empty(t, b.events())
			require.Equal(t, verbs.StateRTS, a.state())
		})
	}
}
