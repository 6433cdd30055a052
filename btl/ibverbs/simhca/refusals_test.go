package simhca

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// An operation that the responder does not permit is an invalid request: because it is longer than
// the responder's maximum, or because the queue pair does not permit it, even if the region does.
func TestForbiddenOperationRaisesQPReqErr(t *testing.T) {
	for _, op := range []verbs.Opcode{
		verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd,
	} {
		for _, length := range []int{8, 4001} {
			a, b := pair(t, setup{change: func(e *end) {
				if length == 8 {
					e.access = verbs.AccessLocalWrite
				}
			}})
			if op == verbs.WRAtomicFetchAndAdd && length != 8 {
				continue
			}
			b.hca.cfg.MaxMsgBytes = 4000
			a.exec(a.wr(1, op, b, 0, length))
			require.Equal(t, []string{"1 REM_INV_REQ_ERR"}, a.results())
			require.Equal(t, []verbs.EventType{verbs.EventQPReqErr}, b.events())
			require.Equal(t, verbs.StateErr, b.state())
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
			a.exec(wr)
			require.Equal(t, []string{"1 SUCCESS"}, a.results())
			require.Equal(t, c.results, b.results())
			require.Equal(t, c.state, b.state())
			require.Empty(t, b.events())
			require.Equal(t, verbs.StateRTS, a.state())
		})
	}
}

// The invalid members of a failed completion are random, so that no program relies on them.
func TestFailedCompletionHasRandomMembers(t *testing.T) {
	seen := map[verbs.WC]bool{}
	for seed := range uint64(4) {
		a, b := pair(t, setup{cfg: Config{Seed: seed}})
		a.hca.Inject(Fault{Kind: FaultSendStatus, Status: verbs.StatusRetryExcErr})
		a.post(a.wr(77, verbs.WRSend, b, 0, 40))
		wcs := a.poll()
		require.Len(t, wcs, 1)
		wc := wcs[0]
		require.Equal(t, uint64(77), wc.ID)
		require.Equal(t, verbs.StatusRetryExcErr, wc.Status)
		require.Equal(t, a.qp.Num(), wc.QPNum)
		require.NotZero(t, wc.VendorErr)
		seen[wc] = true
	}
	require.Len(t, seen, 4)
}

// Wrong requests fail at the requester (InfiniBand error model, 4.2 and 2.2).
func TestWrongRequestFailsLocally(t *testing.T) {
	for _, service := range services {
		for want, change := range map[string]func(wr *verbs.SendWR){
			"R_Key as L_Key: LOC_PROT_ERR":   func(wr *verbs.SendWR) { wr.SGE[0].LKey |= remoteKey },
			"address overflow: LOC_PROT_ERR": func(wr *verbs.SendWR) { wr.SGE[0].Addr = ^uint64(0) },
			"write with UD: LOC_QP_OP_ERR":   func(wr *verbs.SendWR) { wr.Opcode = verbs.WRRDMAWrite },
		} {
			name, status, _ := strings.Cut(want, ": ")
			if name == "write with UD" && service != verbs.ServiceUD {
				continue
			}
			a, b := pair(t, setup{service: service})
			b.recv(9, 0, 1000)
			wr := a.wr(2, verbs.WRSend, b, 0, 40)
			change(&wr)
			a.exec(a.wr(1, verbs.WRSend, b, 0, 40), wr)
			require.Equal(t, []string{"1 SUCCESS", "2 " + status}, a.results(), "%v %s", service, name)
			require.Equal(t, []string{"9 SUCCESS"}, b.results())
		}
	}
}

// A read fails if the path MTUs of the two ends differ and the response takes several packets.
func TestReadWithDifferentPathMTUsFails(t *testing.T) {
	a, b := pair(t, setup{idle: true})
	b.mtu = verbs.MTU256
	connect(t, a, b)
	a.exec(a.wr(1, verbs.WRRDMARead, b, 0, 200), a.wr(2, verbs.WRRDMARead, b, 0, 3000))
	require.Equal(t, []string{"1 SUCCESS", "2 BAD_RESP_ERR"}, a.results())
}
