package verbstest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// postingCases returns the cases for posts in each state of each service.
func postingCases() (all []testCase) {
	for _, service := range eachService {
		for s := range verbs.QPState(verbs.StateCount) {
			if service == verbs.ServiceRC && s == verbs.StateSQE {
				continue
			}
			name := fmt.Sprintf("%v/%v/", service, s)
			all = append(all,
				testCase{name + "send", func(c *caseRun) { postSendIn(c, service, s) }},
				testCase{name + "recv", func(c *caseRun) { postRecvIn(c, service, s) }},
				testCase{name + "receives", func(c *caseRun) { receivesIn(c, service, s) }})
		}
	}
	return all
}

// postSendIn posts a send in state s.
func postSendIn(c *caseRun, service verbs.Services, s verbs.QPState) {
	w := c.at(service, s)
	got := w.b.recv()
	wr := w.a.sendWR()
	n, err := w.a.PostSend([]verbs.SendWR{wr})
	if s.SendPosting() == verbs.PostRefused {
		w.a.requireRefused(n, err, "send in "+s.String())
		require.Equal(c, s.String(), w.a.state().String())
		return
	}
	require.NoError(c, err)
	require.Equal(c, 1, n)
	switch s.SendPosting() {
	case verbs.PostAccepted:
		w.a.awaitSent(wr.ID)
		w.a.awaitMessage(got, 64)
	case verbs.PostPending:
		w.b.ping() // takes some time
		w.a.scq.requireNone("the send must stay pending")
		require.Equal(c, s.String(), w.a.state().String())
		require.NoError(c, w.a.move(verbs.StateRTS))
		w.a.awaitSent(wr.ID)
		w.a.awaitMessage(got, 64)
	case verbs.PostFlushed:
		require.Equal(c, w.a.Num(), w.a.scq.awaitOne(wr.ID, verbs.StatusWRFlushErr).QPNum)
		require.Equal(c, s.String(), w.a.state().String())
		w.b.rcq.requireNone("the send was flushed")
	}
}

// postRecvIn posts a receive in state s.
func postRecvIn(c *caseRun, service verbs.Services, s verbs.QPState) {
	w := c.at(service, s)
	wr := w.a.recvWR()
	n, err := w.a.PostRecv([]verbs.RecvWR{wr})
	if s.RecvPosting() == verbs.PostRefused {
		w.a.requireRefused(n, err, "receive in "+s.String())
		require.Equal(c, s.String(), w.a.state().String())
		return
	}
	require.NoError(c, err)
	require.Equal(c, 1, n)
	if s.RecvPosting() == verbs.PostFlushed {
		require.Equal(c, w.a.Num(), w.a.rcq.awaitOne(wr.ID, verbs.StatusWRFlushErr).QPNum)
		require.Equal(c, s.String(), w.a.state().String())
		return
	}
	if s == verbs.StateInit {
		require.NoError(c, w.a.move(verbs.StateRTR))
	}
	w.b.awaitSent(w.b.send())
	w.b.awaitMessage(wr.ID, 64)
}

// receivesIn checks whether a packet is accepted or dropped in state s.
func receivesIn(c *caseRun, service verbs.Services, s verbs.QPState) {
	w := c.pair(opts{service: service, quick: true})
	w.b.moveTo(verbs.StateRTS)
	w.a.moveTo(s)
	var got uint64
	if s.RecvPosting() == verbs.PostAccepted {
		got = w.a.recv()
	}
	sent := w.b.send()
	switch {
	case s.Receives():
		w.b.awaitSent(sent)
		w.b.awaitMessage(got, 64)
	case service == verbs.ServiceRC:
		w.b.scq.awaitOne(sent, verbs.StatusRetryExcErr)
	default:
		w.b.awaitSent(sent) // sent, and dropped
	}
	require.Equal(c, s.String(), w.a.state().String())
	if !s.Receives() {
		w.a.rcq.requireNone("the packet must be dropped")
	}
}
