package bml

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// lagging makes a peer with two rails, measured as fast, and an alternate, and a long message that
// goes on for ever.
func lagging(t *testing.T) (w *wire, r *testRank, pr *Peer, m *longMessage) {
	w = newWire(t, 2, withGrace(10*sec), mended, func(w *wire) {
		withAlternate(w)
		for i := range w.attrs {
			w.attrs[i].MaxSendBytes = 1 << 20
		}
	})
	resolve(w)
	r, pr = w.ranks[0], w.ranks[0].Peer(1)
	w.ranks[1].message = make([]byte, 64<<20)
	for i := range 2 {
		w.measure(pr, i, msec/100, 1)
	}
	w.pass(25 * msec)
	m = r.newLong(1, pattern(64<<20, 1))
	m.advance()
	w.pass(2 * msec)
	require.Zero(t, pr.lagging)
	return w, r, pr, m
}

// The peer takes nothing for three seconds, because its program computes. No rail lags then: no
// other pair of ports would do better.
func TestPeerThatStandsStillIsNoLaggingRail(t *testing.T) {
	w, _, pr, _ := lagging(t)
	for range 3000 {
		w.pass(msec)
	}
	require.Zero(t, pr.lagging)
	require.Equal(t, railDown, pr.rails[2].state, "an alternate is opened")
}

// Both rails deliver a tenth of what one did, because nine others send to the peer, too. No pair of
// ports does better.
func TestRailsThatSlowDownTogetherDoNotLag(t *testing.T) {
	w, r, pr, m := lagging(t)
	credit := [2]float64{}
	for range 6000 {
		w.pass(msec)
		for i := range 2 {
			credit[i] += 0.08e6 // bytes each ms: 0.08 of 1 byte/ns
			fl := w.rails[i][0].take(1)
			for len(fl) > 0 && credit[i] >= float64(len(fl[0].frag)) {
				credit[i] -= float64(len(fl[0].frag))
				w.end(fl[0], nil)
				fl = fl[1:]
			}
			w.flying = append(w.flying, fl...)
		}
		if m.t.left == 0 {
			m = r.sendLong(1, m.data)
		}
	}
	require.Zero(t, pr.lagging)
}

// An alternate that was opened for a lagging rail is closed when there is nothing to send.
func TestAlternateOfLaggingRailIsClosedWhenIdle(t *testing.T) {
	w, r, pr, m := lagging(t)
	all := []*longMessage{m}
	for n := 0; pr.lagging == 0; n++ {
		require.Less(t, n, 20_000)
		w.pass(msec)
		slow := w.rails[0][0].take(1)
		w.acknowledge()
		if n%200 == 0 && len(slow) > 0 {
			w.end(slow[0], nil)
			slow = slow[1:]
		}
		w.flying = append(w.flying, slow...)
		if m.t.left == 0 {
			m = r.sendLong(1, m.data)
			all = append(all, m)
		}
	}
	answers(w, 2)
	require.EqualValues(t, 0b111, pr.up)
	for range 20_000 {
		w.pass(msec)
		w.acknowledge()
		m.advance()
	}
	for _, m := range all {
		require.True(t, m.t.IsDone())
		r.EndTransfer(m.t, false, false)
	}
	for range 20 * 1000 { // nothing to send; what the library sends is delivered at once
		w.pass(msec / 10)
		w.acknowledge()
	}
	w.passDelivering(60 * sec)
	require.Nil(t, pr.timer, "ticks go on")
	require.Zero(t, pr.lagging)
	require.True(t, pr.rails[2].recovery.isClosing)
}
