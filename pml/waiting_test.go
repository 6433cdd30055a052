package pml

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/request"
)

// TestTellFinalizedResolvesNoPeer: a finalized rank tells only the ranks that it has resolved.
func TestTellFinalizedResolvesNoPeer(t *testing.T) {
	w, c := newWire(t, 4)
	p := w.pmls[0]
	p.Isend(c[0], nil, 1, 1, Standard, "send")
	w.pmls[2].Isend(c[2], nil, 0, 1, Standard, "send")
	w.settle()
	p.TellFinalized()
	w.settle()
	w.pass(time.Second)
	require.Nil(t, p.peers[3])
	require.Nil(t, w.pmls[3].peers[0])
	for _, told := range []int{1, 2} {
		require.ErrorIs(t, w.pmls[told].Lost(c[told], 0), request.ErrProcFailed)
	}
}

func TestTellFinalizedSkipsLostPeers(t *testing.T) {
	w, c := newWire(t, 2)
	w.pmls[1].Isend(c[1], nil, 0, 1, Standard, "send")
	w.settle()
	w.modules[1].lose(0, gone)
	w.pmls[1].TellFinalized()
	require.Empty(t, w.flying)
	require.False(t, w.pmls[1].peers[0].wasToldFinalized)
}

// finalizedWaits are the ways to wait for rank 1. Each returns a request, or nil for a poll.
var finalizedWaits = map[string]func(p *PML, c *Context) ended{
	"receive": func(p *PML, c *Context) ended { return p.Irecv(c, make([]byte, 1), 1, 1, 2, "recv") },
	"receive of any tag": func(p *PML, c *Context) ended {
		return p.Irecv(c, make([]byte, 1), 1, 1, request.AnyTag, "recv")
	},
	"probe":         func(p *PML, c *Context) ended { return p.Probe(c, 1, 2, false, "probe") },
	"matched probe": func(p *PML, c *Context) ended { return p.Probe(c, 1, 2, true, "mprobe") },
	"iprobe":        func(*PML, *Context) ended { return nil },
	"synchronous send": func(p *PML, c *Context) ended {
		return p.Isend(c, nil, 1, 2, Synchronous, "ssend")
	},
	"long send": func(p *PML, c *Context) ended {
		return p.Isend(c, pattern(1000, 1), 1, 2, Standard, "send")
	},
}

// TestWaitForUnmetFinalizedPeerFails: a rank waits for a finalized peer to which it has never sent
// anything. It gets an error, whether the peer finalizes before or after the wait begins, and even
// if it makes turns seldom and never sleeps.
func TestWaitForUnmetFinalizedPeerFails(t *testing.T) {
	for name, wait := range finalizedWaits {
		for _, first := range []bool{false, true} {
			w, c := newWire(t, 2)
			if first {
				w.pmls[1].TellFinalized()
			}
			p := w.pmls[0]
			r := wait(p, c[0])
			failed := func() error {
				if r == nil {
					p.Iprobe(c[0], 1, 2)
					return p.Lost(c[0], 1)
				}
				if r.State() != request.Complete {
					return nil
				}
				_, err := r.Take()
				return err
			}
			w.settle()
			if !first {
				w.pmls[1].TellFinalized()
				w.settle()
			}
			for turns := 0; ; turns++ {
				if err := failed(); err != nil {
					require.ErrorIs(t, err, request.ErrProcFailed, name)
					break
				}
				require.Less(t, turns, 4, "%s, told first: %v", name, first)
				w.pass(100 * time.Millisecond)
			}
			w.pass(time.Second)
			require.Empty(t, w.flying)
			require.Equal(t, 0, p.Turn(1, 1), "FINALIZED came twice")
		}
	}
}

// TestWaitForUnmetPeerSendsWaitingOnce: a rank sends WAITING once, and only to peers with which it
// has exchanged nothing. A peer that is not finalized does not answer.
func TestWaitForUnmetPeerSendsWaitingOnce(t *testing.T) {
	w, c := newWire(t, 4)
	p := w.pmls[0]
	sent := map[int]int{}
	w.log = func(what string, f *flight) {
		if what == "posted" && f.tag == tagWaiting {
			require.Zero(t, f.from)
			sent[f.to]++
		}
	}
	for source := range 4 {
		p.Irecv(c[0], nil, 1, source, 1, "recv")
	}
	p.Isend(c[0], nil, 2, 1, Standard, "send")
	w.pmls[3].Isend(c[3], nil, 0, 2, Standard, "send")
	w.settle()
	require.Empty(t, sent)
	w.pass(waitingPeriod - 1)
	require.Empty(t, sent)
	for range 10 {
		w.pass(time.Second)
	}
	require.Equal(t, map[int]int{1: 1}, sent)
	require.Empty(t, p.newContacts)
	require.Empty(t, p.silentContacts)
	require.NoError(t, p.Lost(c[0], 1))
}

// TestWaitForFinalizedPeerOverReturningRailFails: WAITING and FINALIZED arrive although the only
// rail fails in between and comes back.
func TestWaitForFinalizedPeerOverReturningRailFails(t *testing.T) {
	for name, cutWhen := range map[string]func(w *pair) bool{
		"before WAITING":   func(*pair) bool { return true },
		"before FINALIZED": func(w *pair) bool { return w.pmls[1].peers[0] != nil && w.pmls[1].peers[0].wasToldFinalized },
	} {
		t.Run(name, func(t *testing.T) {
			w := newPair(t, 1, 10*sec)
			w.pmls[1].TellFinalized()
			r := w.pmls[0].Irecv(w.ctxs[0], make([]byte, 1), 1, 1, 7, "recv")
			for n := 0; !cutWhen(w); n++ {
				require.Less(t, n, 1000)
				w.engines[n%2].Turn()
				if n%16 == 0 {
					w.fabric.AdvanceTo(w.fabric.Now() + int64(waitingPeriod)/8)
				}
			}
			require.NoError(t, w.fabric.FailLane(0, 1, 0, loop.Cut{}))
			w.run(sec, 0, 1)
			require.Equal(t, request.Active, r.State())
			require.NoError(t, w.fabric.ReviveLane(0, 1, 0))
			w.run(2*sec, 0, 1)
			requireFailure(t, errFinalized, r)
		})
	}
}

// TestWaitForLostUnmetPeerSendsNothing: no WAITING goes to a peer that was lost before.
func TestWaitForLostUnmetPeerSendsNothing(t *testing.T) {
	w, c := newWire(t, 2)
	r := w.pmls[0].Irecv(c[0], nil, 1, 1, 1, "recv")
	w.modules[0].lose(1, gone)
	requireFailure(t, request.ErrProcFailed, r)
	w.pass(time.Second)
	require.Empty(t, w.flying)
	require.Zero(t, w.pmls[0].Busy())
}
