package simhca

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// bring returns a queue pair of the service in the state, and its peer in RTS.
func bring(t *testing.T, service verbs.Services, state verbs.QPState) (a, b *end) {
	a, b = pair(t, setup{service: service, idle: true})
	b.toInit()
	b.toRTR(a)
	b.toRTS()
	if state == verbs.StateReset {
		return a, b
	}
	a.toInit()
	if state == verbs.StateInit {
		return a, b
	}
	a.toRTR(b)
	if state == verbs.StateRTR {
		return a, b
	}
	a.toRTS()
	if service == verbs.ServiceUD {
		ah, err := a.pd.CreateAH(a.pathTo(b))
		require.NoError(t, err)
		a.ah = ah
	}
	switch state {
	case verbs.StateSQD, verbs.StateErr:
		a.modify(state)
		a.events()
	case verbs.StateSQE:
		a.hca.Inject(Fault{Kind: FaultSendStatus, QPN: a.qp.Num(), Status: verbs.StatusLocProtErr})
		a.post(a.wr(1, verbs.WRSend, b, 0, 8))
		require.Equal(t, []string{"1 LOC_PROT_ERR"}, a.results())
	}
	require.Equal(t, state, a.state())
	return a, b
}

// valid returns attributes that every transition accepts.
func valid(a, b *end, state verbs.QPState) *verbs.QPAttr {
	return &verbs.QPAttr{
		State: state, Port: 1, PathMTU: verbs.MTU1024, DestQPN: b.qp.Num(), AH: a.pathTo(b), MaxRdAtomic: 1, MaxDestRdAtomic: 1, Timeout: 8,
		RetryCnt: 1, RNRRetry: 1, QKey: 1,
	}
}

// TestModifyMatchesTransitionTable tries every pair of states of every service with the required
// attributes, without each of them, and with each attribute that the transition does not allow.
func TestModifyMatchesTransitionTable(t *testing.T) {
	for _, service := range services {
		for from := range verbs.QPState(verbs.StateCount) {
			if service == verbs.ServiceRC && from == verbs.StateSQE {
				continue
			}
			for to := range verbs.QPState(verbs.StateCount) {
				t.Run(fmt.Sprintf("%v/%v to %v", service, from, to), func(t *testing.T) {
					row, ok := verbs.FindTransition(service, from, to)
					a, b := bring(t, service, from)
					attr := valid(a, b, to)
					if !ok {
						require.Error(t, a.qp.Modify(attr, verbs.AttrState))
						require.Equal(t, from, a.state())
						return
					}
					for bit := verbs.AttrMask(1); bit < 1<<21; bit <<= 1 {
						switch {
						case row.Required&bit != 0:
							require.ErrorIs(t, a.qp.Modify(attr, verbs.AttrState|row.Required&^bit), verbs.ErrInvalid, "without %v", bit)
						case (row.Optional|verbs.AttrState)&bit == 0:
							require.ErrorIs(t, a.qp.Modify(attr, verbs.AttrState|row.Required|bit), verbs.ErrInvalid, "with %v", bit)
						}
						require.Equal(t, from, a.state())
					}
					require.NoError(t, a.qp.Modify(attr, verbs.AttrState|row.Required))
					require.Equal(t, to, a.state())
				})
			}
		}
	}
}

// TestPostMatchesPostingTable posts requests in each state.
func TestPostMatchesPostingTable(t *testing.T) {
	for _, service := range services {
		for state := range verbs.QPState(verbs.StateCount) {
			if service == verbs.ServiceRC && state == verbs.StateSQE {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", service, state), func(t *testing.T) {
				a, b := bring(t, service, state)
				if a.ah == nil && service == verbs.ServiceUD {
					ah, err := a.pd.CreateAH(a.pathTo(b))
					require.NoError(t, err)
					a.ah = ah
				}
				b.recv(9, 0, 100)
				n, err := a.qp.PostSend([]verbs.SendWR{a.wr(1, verbs.WRSend, b, 0, 8)})
				a.run()
				switch state.SendPosting() {
				case verbs.PostRefused:
					require.ErrorIs(t, err, verbs.ErrInvalid)
					require.Zero(t, n)
				case verbs.PostAccepted:
					require.NoError(t, err)
					require.Equal(t, []string{"1 SUCCESS"}, a.results())
				case verbs.PostPending:
					require.NoError(t, err)
					require.Empty(t, a.poll())
					require.Empty(t, b.poll())
					a.modify(verbs.StateRTS)
					a.run()
					require.Equal(t, []string{"1 SUCCESS"}, a.results())
					a.modify(verbs.StateSQD)
				case verbs.PostFlushed:
					require.NoError(t, err)
					require.Equal(t, []string{"1 WR_FLUSH_ERR"}, a.results())
				}
				n, err = a.qp.PostRecv([]verbs.RecvWR{{ID: 2, NumSGE: 1, SGE: [verbs.MaxSGE]verbs.SGE{a.sge(0, 100)}}})
				switch state.RecvPosting() {
				case verbs.PostRefused:
					require.ErrorIs(t, err, verbs.ErrInvalid)
					require.Zero(t, n)
				case verbs.PostFlushed:
					require.Equal(t, []string{"2 WR_FLUSH_ERR"}, a.results())
				default:
					require.NoError(t, err)
					require.Empty(t, a.poll())
				}
				require.Equal(t, state, a.state(), "state after the posts")
			})
		}
	}
}

func TestSQDDrainsAndResumes(t *testing.T) {
	for _, service := range services {
		t.Run(service.String(), func(t *testing.T) {
			a, b := pair(t, setup{service: service})
			for i := range 4 {
				b.recv(uint64(10+i), 0, 4000)
			}
			a.post(a.wr(1, verbs.WRSend, b, 0, 3000))
			a.modify(verbs.StateSQD)
			a.post(a.wr(2, verbs.WRSend, b, 0, 100))
			if service == verbs.ServiceRC {
				require.Empty(t, a.events(), "the first send is outstanding")
				have, err := a.qp.Query()
				require.NoError(t, err)
				require.True(t, have.SQDraining)
				require.ErrorIs(t, a.qp.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState), verbs.ErrInvalid)
			}
			a.run()
			require.Equal(t, []verbs.EventType{verbs.EventSQDrained}, a.events())
			have, err := a.qp.Query()
			require.NoError(t, err)
			require.False(t, have.SQDraining)
			require.Equal(t, []string{"1 SUCCESS"}, a.results())
			require.Len(t, b.poll(), 1)
			// The queue pair still receives.
			a.recv(3, 0, 100)
			b.post(b.wr(4, verbs.WRSend, a, 0, 10))
			a.run()
			require.Equal(t, []string{"3 SUCCESS"}, a.results())
			a.modify(verbs.StateRTS)
			a.run()
			require.Equal(t, []string{"2 SUCCESS"}, a.results())
			require.Empty(t, a.events())
			// Without EN_SQD_ASYNC_NOTIFY there is no event.
			require.NoError(t, a.qp.Modify(&verbs.QPAttr{State: verbs.StateSQD}, verbs.AttrState))
			require.Empty(t, a.events())
		})
	}
}

func TestErrorFlushesInOrder(t *testing.T) {
	a, b := pair(t, setup{})
	for i := range 3 {
		a.recv(uint64(10+i), 0, 100)
	}
	quiet := a.wr(2, verbs.WRSend, b, 0, 5000)
	quiet.Flags = 0
	a.post(a.wr(1, verbs.WRSend, b, 0, 100), quiet, a.wr(3, verbs.WRRDMARead, b, 0, 100))
	a.modify(verbs.StateErr)
	require.Equal(t, []string{"1 WR_FLUSH_ERR", "2 WR_FLUSH_ERR", "3 WR_FLUSH_ERR", "10 WR_FLUSH_ERR", "11 WR_FLUSH_ERR", "12 WR_FLUSH_ERR"}, a.results())
	a.run()
	require.Empty(t, a.poll())
	a.recv(13, 0, 1)
	a.post(a.wr(4, verbs.WRSend, b, 0, 1))
	require.Equal(t, []string{"13 WR_FLUSH_ERR", "4 WR_FLUSH_ERR"}, a.results())
}

// The receive of an arriving message is the first to be flushed.
func TestErrorDuringMessageFlushesItsReceive(t *testing.T) {
	for _, srq := range []bool{false, true} {
		a, b := pair(t, setup{srq: srq})
		b.recv(10, 0, 40_000)
		b.recv(11, 0, 100)
		a.post(a.wr(1, verbs.WRSend, b, 0, 40_000))
		for range 5 {
			a.f.Advance()
		}
		b.modify(verbs.StateErr)
		if srq {
			require.Equal(t, []string{"10 WR_FLUSH_ERR"}, b.results())
			require.Equal(t, []verbs.EventType{verbs.EventQPLastWQEReached}, b.events())
		} else {
			require.Equal(t, []string{"10 WR_FLUSH_ERR", "11 WR_FLUSH_ERR"}, b.results())
			require.Empty(t, b.events())
		}
		a.run()
		require.Equal(t, []string{"1 RETRY_EXC_ERR"}, a.results())
	}
}

func TestResetDropsRequestsAndCompletions(t *testing.T) {
	a, b := pair(t, setup{})
	other, err := a.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: a.cq, RecvCQ: a.cq, Cap: a.qp.Cap()})
	require.NoError(t, err)
	mine := a.qp
	for i := range 3 {
		a.post(a.wr(uint64(i), verbs.WRRDMAWrite, b, 0, 8))
		a.run()
		a.qp = other
		a.toInit()
		a.recv(uint64(10+i), 0, 8)
		a.modify(verbs.StateErr) // completes it
		a.modify(verbs.StateReset)
		a.toInit()
		a.recv(uint64(20+i), 0, 8)
		a.modify(verbs.StateErr)
		a.qp = mine
		if i < 2 {
			a.qp = other
			a.modify(verbs.StateReset)
			a.qp = mine
		}
	}
	require.Equal(t, []string{"0 SUCCESS", "1 SUCCESS", "2 SUCCESS", "22 WR_FLUSH_ERR"}, a.results())
	a.recv(1, 0, 8)
	a.post(a.wr(5, verbs.WRRDMAWrite, b, 0, 8))
	a.modify(verbs.StateReset)
	a.run()
	require.Empty(t, a.poll())
	// The queue pair works again.
	b.modify(verbs.StateErr)
	b.modify(verbs.StateReset)
	connect(t, a, b)
	a.post(a.wr(6, verbs.WRRDMAWrite, b, 0, 8))
	a.run()
	require.Equal(t, []string{"6 SUCCESS"}, a.results())
}

// A queue pair of UC or UD receives in SQE, and sends again after Modify to RTS.
func TestSQEReceivesAndResumes(t *testing.T) {
	for _, service := range []verbs.Services{verbs.ServiceUC, verbs.ServiceUD} {
		t.Run(service.String(), func(t *testing.T) {
			a, b := bring(t, service, verbs.StateSQE)
			ah, err := b.pd.CreateAH(b.pathTo(a))
			require.NoError(t, err)
			b.ah = ah
			a.recv(5, 0, 100)
			b.post(b.wr(6, verbs.WRSend, a, 0, 8))
			a.run()
			require.Equal(t, []string{"5 SUCCESS"}, a.results())
			a.modify(verbs.StateRTS)
			b.poll()
			b.recv(7, 0, 100)
			a.post(a.wr(8, verbs.WRSend, b, 0, 8))
			a.run()
			require.Equal(t, []string{"8 SUCCESS"}, a.results())
			require.Equal(t, []string{"7 SUCCESS"}, b.results())
		})
	}
}

// A queue pair in RTR raises COMM_EST once for the first packet.
func TestFirstPacketInRTRRaisesCommEst(t *testing.T) {
	for _, service := range services {
		t.Run(service.String(), func(t *testing.T) {
			a, b := pair(t, setup{service: service, idle: true})
			for range 2 {
				for _, e := range []*end{a, b} {
					e.toInit()
				}
				a.toRTR(b)
				b.toRTR(a)
				a.toRTS()
				if service == verbs.ServiceUD {
					ah, err := a.pd.CreateAH(a.pathTo(b))
					require.NoError(t, err)
					a.ah = ah
				}
				b.recv(1, 0, 100)
				b.recv(2, 0, 100)
				a.post(a.wr(1, verbs.WRSend, b, 0, 8), a.wr(2, verbs.WRSend, b, 0, 8))
				a.run()
				require.Len(t, b.poll(), 2)
				if service == verbs.ServiceUD {
					require.Empty(t, b.events())
				} else {
					require.Equal(t, []verbs.EventType{verbs.EventCommEst}, b.events())
				}
				b.toRTS()
				a.modify(verbs.StateReset)
				b.modify(verbs.StateReset)
			}
		})
	}
}

// A queue pair receives nothing before RTR; the requester retries until then.
func TestSendBeforePeerIsInRTRIsRetried(t *testing.T) {
	a, b := pair(t, setup{idle: true})
	a.toInit()
	b.toInit()
	b.recv(9, 0, 100)
	a.toRTR(b)
	a.toRTS()
	a.post(a.wr(1, verbs.WRSend, b, 0, 8))
	a.runFor(verbs.AckTimeout(8) * 2)
	require.Empty(t, a.poll())
	b.toRTR(a)
	a.run()
	require.Equal(t, []string{"1 SUCCESS"}, a.results())
	require.Equal(t, []string{"9 SUCCESS"}, b.results())
	require.Less(t, a.f.Now(), time.Second)
}
