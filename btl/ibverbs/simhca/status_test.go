package simhca

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

var services = []verbs.Services{verbs.ServiceRC, verbs.ServiceUC, verbs.ServiceUD}

// stateAfter returns the state that a queue pair in RTS enters, according to the status table.
func stateAfter(s verbs.StatusInfo, service verbs.Services, side verbs.Side) verbs.QPState {
	switch {
	case s.After == verbs.AfterNone:
		return verbs.StateRTS
	case s.After == verbs.AfterErrorOrSQE && side == verbs.Requester && service != verbs.ServiceRC:
		return verbs.StateSQE
	}
	return verbs.StateErr
}

// TestSendStatusChangesState injects each status into a send request of each service, executed and
// not executed by the peer.
func TestSendStatusChangesState(t *testing.T) {
	for _, info := range verbs.Statuses() {
		t.Run(info.Status.String(), func(t *testing.T) {
			for _, service := range services {
				for _, kind := range []FaultKind{FaultSendStatus, FaultSendStatusExecuted} {
					t.Run(service.String()+"/"+kind.String(), func(t *testing.T) { checkSendStatus(t, info, service, kind) })
				}
			}
		})
	}
}

func checkSendStatus(t *testing.T, info verbs.StatusInfo, service verbs.Services, kind FaultKind) {
	a, b := pair(t, setup{service: service})
	for i := range 4 {
		b.recv(uint64(100+i), 200*i, 200)
	}
	a.recv(50, 0, 100)
	a.hca.Inject(Fault{Kind: kind, QPN: a.qp.Num(), After: 1, Status: info.Status})
	quiet := a.wr(1, verbs.WRSend, b, 0, 40)
	quiet.Flags = 0 // unsignaled, but its failure completes
	first := a.wr(0, verbs.WRSend, b, 0, 40)
	first.Flags = 0
	a.post(first, quiet, a.wr(2, verbs.WRSend, b, 0, 40))
	a.run()
	require.Equal(t, 1, a.hca.Fired())
	state := stateAfter(info, service, verbs.Requester)
	require.Equal(t, state, a.state())
	var want []string
	if info.Status != verbs.StatusSuccess {
		want = append(want, "1 "+info.Status.String())
	}
	executed := 1
	if kind == FaultSendStatusExecuted || info.Status == verbs.StatusSuccess {
		executed++
	}
	if state == verbs.StateRTS {
		want = append(want, "2 SUCCESS")
		executed++
	} else {
		want = append(want, "2 WR_FLUSH_ERR")
		if kind == FaultSendStatusExecuted && service == verbs.ServiceRC {
			executed++ // it was outstanding; a flushed request may have been executed
		}
	}
	if state == verbs.StateErr {
		want = append(want, "50 WR_FLUSH_ERR")
	}
	require.Equal(t, want, a.results())
	require.Len(t, b.results(), executed)
	require.Equal(t, verbs.StateRTS, b.state(), "state of the peer")
	require.Empty(t, a.events())
	require.Empty(t, b.events())
}

// TestRecvStatusChangesState injects each status into a receive of each service.
func TestRecvStatusChangesState(t *testing.T) {
	for _, info := range verbs.Statuses() {
		t.Run(info.Status.String(), func(t *testing.T) {
			for _, service := range services {
				t.Run(service.String(), func(t *testing.T) { checkRecvStatus(t, info, service) })
			}
		})
	}
}

func checkRecvStatus(t *testing.T, info verbs.StatusInfo, service verbs.Services) {
	a, b := pair(t, setup{service: service})
	for i := range 3 {
		b.recv(uint64(100+i), 200*i, 200)
	}
	b.hca.Inject(Fault{Kind: FaultRecvStatus, QPN: b.qp.Num(), Status: info.Status})
	a.post(a.wr(1, verbs.WRSend, b, 0, 40))
	a.run()
	require.Equal(t, 1, b.hca.Fired())
	state := stateAfter(info, service, verbs.Responder)
	require.Equal(t, state, b.state())
	want := []string{"100 " + info.Status.String()}
	if state == verbs.StateErr {
		want = append(want, "101 WR_FLUSH_ERR", "102 WR_FLUSH_ERR")
	}
	require.Equal(t, want, b.results())
	peer := verbs.StatusSuccess
	if service == verbs.ServiceRC && state == verbs.StateErr {
		switch info.Status {
		case verbs.StatusLocLenErr:
			peer = verbs.StatusRemInvReqErr
		case verbs.StatusLocAccessErr:
			peer = verbs.StatusRemAccessErr
		default:
			peer = verbs.StatusRemOpErr
		}
	}
	require.Equal(t, []string{"1 " + peer.String()}, a.results())
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
	for _, c := range []struct {
		name     string
		status   verbs.Status
		services verbs.Services
		change   func(wr *verbs.SendWR)
	}{
		{"wrong key", verbs.StatusLocProtErr, verbs.AllServices, func(wr *verbs.SendWR) { wr.SGE[0].LKey ^= 1 << 20 }},
		{"R_Key as L_Key", verbs.StatusLocProtErr, verbs.AllServices, func(wr *verbs.SendWR) { wr.SGE[0].LKey |= 1 }},
		{"before the region", verbs.StatusLocProtErr, verbs.AllServices, func(wr *verbs.SendWR) { wr.SGE[0].Addr -= 1 }},
		{"after the region", verbs.StatusLocProtErr, verbs.AllServices, func(wr *verbs.SendWR) { wr.SGE[0].Addr += 64 << 10 }},
		{"address overflow", verbs.StatusLocProtErr, verbs.AllServices, func(wr *verbs.SendWR) { wr.SGE[0].Addr = ^uint64(0) }},
		{"read with UC and UD", verbs.StatusLocQPOpErr, verbs.ServiceUC | verbs.ServiceUD, func(wr *verbs.SendWR) { wr.Opcode = verbs.WRRDMARead }},
		{"write with UD", verbs.StatusLocQPOpErr, verbs.ServiceUD, func(wr *verbs.SendWR) { wr.Opcode = verbs.WRRDMAWrite }},
		{"atomic of other than 8 bytes", verbs.StatusLocLenErr, verbs.ServiceRC, func(wr *verbs.SendWR) { wr.Opcode = verbs.WRAtomicCmpAndSwp }},
		{"too long", verbs.StatusLocLenErr, verbs.ServiceRC | verbs.ServiceUC, func(wr *verbs.SendWR) { wr.SGE[0].Length = 20_001 }},
	} {
		for _, service := range services {
			if c.services&service == 0 {
				continue
			}
			t.Run(c.name+"/"+service.String(), func(t *testing.T) {
				a, b := pair(t, setup{service: service, cfg: Config{MaxMsgBytes: 20_000}})
				b.recv(9, 0, 1000)
				wr := a.wr(2, verbs.WRSend, b, 0, 40)
				wr.Flags = 0
				c.change(&wr)
				a.post(a.wr(1, verbs.WRSend, b, 0, 40), wr, a.wr(3, verbs.WRSend, b, 0, 40))
				a.run()
				require.Equal(t, []string{"1 SUCCESS", "2 " + c.status.String(), "3 WR_FLUSH_ERR"}, a.results())
				require.Equal(t, stateAfter(c.status.Info(), service, verbs.Requester), a.state())
				require.Equal(t, []string{"9 SUCCESS"}, b.results())
			})
		}
	}
}

// A read into a region without local write access fails.
func TestReadWithoutLocalWriteFails(t *testing.T) {
	a, b := pair(t, setup{})
	mem := make([]byte, 64)
	mr, err := a.pd.RegMR(mem, 0)
	require.NoError(t, err)
	wr := a.wr(1, verbs.WRRDMARead, b, 0, 64)
	wr.SGE[0] = verbs.SGE{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}
	a.post(wr)
	a.run()
	require.Equal(t, []string{"1 LOC_PROT_ERR"}, a.results())
	require.Equal(t, verbs.StateRTS, b.state())
}

// A read fails if the path MTUs of the two ends differ and the response takes several packets.
func TestReadWithDifferentPathMTUsFails(t *testing.T) {
	differ := setup{change: func() func(e *end) {
		n := 0
		return func(e *end) {
			if n++; n == 2 {
				e.mtu = verbs.MTU256
			}
		}
	}()}
	a, b := pair(t, differ)
	b.recv(9, 0, 4000)
	a.post(a.wr(1, verbs.WRRDMARead, b, 0, 200), a.wr(2, verbs.WRRDMARead, b, 0, 3000))
	a.run()
	require.Equal(t, []string{"1 SUCCESS", "2 BAD_RESP_ERR"}, a.results())
}
