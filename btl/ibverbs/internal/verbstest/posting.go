package verbstest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// postingCases: what becomes of a post in each state of each service.
func postingCases() (all []kase) {
	for _, service := range eachService {
		for s := range verbs.QPState(verbs.StateCount) {
			if service == verbs.ServiceRC && s == verbs.StateSQE {
				continue
			}
			all = append(all,
				kase{fmt.Sprintf("%v/%v/send", service, s), func(c *c) { postSendIn(c, service, s) }},
				kase{fmt.Sprintf("%v/%v/recv", service, s), func(c *c) { postRecvIn(c, service, s) }},
				kase{fmt.Sprintf("%v/%v/receives", service, s), func(c *c) { receivesIn(c, service, s) }})
		}
	}
	return all
}

func postSendIn(c *c, service verbs.Services, s verbs.QPState) {
	w := c.at(service, s)
	got := w.b.recv()
	wr := w.a.sendWR()
	n, err := w.a.PostSend([]verbs.SendWR{wr})
	if s.SendPosting() == verbs.PostRefused {
		w.a.refused(n, err, "send in "+s.String())
		require.Equal(c, s.String(), w.a.state().String())
		return
	}
	require.NoError(c, err)
	require.Equal(c, 1, n)
	switch s.SendPosting() {
	case verbs.PostAccepted:
		w.a.scq.one(wr.ID, verbs.StatusSuccess)
		w.a.arrived(got, 64)
	case verbs.PostPending:
		w.b.carry() // what is done meanwhile
		w.a.scq.none("the send is to be held")
		require.Equal(c, s.String(), w.a.state().String())
		require.NoError(c, w.a.move(verbs.StateRTS))
		w.a.scq.one(wr.ID, verbs.StatusSuccess)
		w.a.arrived(got, 64)
	case verbs.PostFlushed:
		wc := w.a.scq.one(wr.ID, verbs.StatusWRFlushErr)
		require.Equal(c, w.a.Num(), wc.QPNum)
		require.Equal(c, s.String(), w.a.state().String())
		w.b.rcq.none("the send was flushed")
	}
}

func postRecvIn(c *c, service verbs.Services, s verbs.QPState) {
	w := c.at(service, s)
	wr := w.a.recvWR()
	n, err := w.a.PostRecv([]verbs.RecvWR{wr})
	switch s.RecvPosting() {
	case verbs.PostRefused:
		w.a.refused(n, err, "receive in "+s.String())
		require.Equal(c, s.String(), w.a.state().String())
	case verbs.PostAccepted:
		require.NoError(c, err)
		require.Equal(c, 1, n)
		if s == verbs.StateInit {
			require.NoError(c, w.a.move(verbs.StateRTR))
		}
		sent := w.b.send()
		w.b.scq.one(sent, verbs.StatusSuccess)
		w.b.arrived(wr.ID, 64)
	case verbs.PostFlushed:
		require.NoError(c, err)
		require.Equal(c, 1, n)
		wc := w.a.rcq.one(wr.ID, verbs.StatusWRFlushErr)
		require.Equal(c, w.a.Num(), wc.QPNum)
		require.Equal(c, s.String(), w.a.state().String())
	}
}

// receivesIn: a packet that comes in is taken or dropped.
func receivesIn(c *c, service verbs.Services, s verbs.QPState) {
	w := c.pair(opts{service: service, quick: true})
	w.b.bring(verbs.StateRTS)
	w.a.bring(s)
	var got uint64
	if s.RecvPosting() == verbs.PostAccepted {
		got = w.a.recv()
	}
	sent := w.b.send()
	switch {
	case s.Receives():
		w.b.scq.one(sent, verbs.StatusSuccess)
		w.b.arrived(got, 64)
	case service == verbs.ServiceRC:
		w.b.scq.one(sent, verbs.StatusRetryExcErr)
	default:
		w.b.scq.one(sent, verbs.StatusSuccess) // sent, and dropped
	}
	require.Equal(c, s.String(), w.a.state().String())
	if !s.Receives() {
		w.a.rcq.none("the packet is to be dropped")
	}
}
