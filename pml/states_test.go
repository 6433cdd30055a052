package pml

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/request"
)

// reconfigure changes the configuration of a PML that has no peers yet.
func reconfigure(p *PML, change func(cfg *Config)) {
	change(&p.cfg)
	p.bml = p.newBML()
}

// useProtocol sets the protocol for long messages at all ranks, before anything is sent.
func useProtocol(w *wire, protocol Protocol) {
	for _, p := range w.pmls {
		reconfigure(p, func(cfg *Config) { cfg.Protocol = protocol })
	}
}

// closeWindow sends from rank 0 to rank 1 until a window is used up. Then it sends n bytes with tag
// 2.
func closeWindow(w *wire, c []*Context, n int, window int64) {
	for _, p := range w.pmls {
		for _, pr := range []*peer{p.peer(0), p.peer(1)} {
			pr.credit.init(max(window, 1))
		}
	}
	for range max(window/fragmentCostBytes, 1) {
		w.pmls[0].Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send")
	}
	w.settle()
	w.pmls[0].Isend(c[0], pattern(n, 0), 1, 2, Standard, "send")
}

// For each legal transition the shortest way to it. Long messages go in fragments unless the way
// chooses another protocol.
var (
	sendWays = map[[2]sendState]func(w *wire, c []*Context){
		{sendIdle, sendEager}: func(w *wire, c []*Context) {
			w.pmls[0].Isend(c[0], pattern(90, 0), 1, 1, Standard, "send")
		},
		{sendIdle, sendPending}: func(w *wire, c []*Context) {
			closeWindow(w, c, 90, 0)
		},
		{sendPending, sendEager}: func(w *wire, c []*Context) {
			closeWindow(w, c, 1000, 500)
			w.pmls[0].Isend(c[0], pattern(90, 0), 1, 3, Standard, "send") // is pending behind it
			w.pmls[1].Irecv(c[1], nil, 1, 0, 3, "recv")                   // opens the window
			w.settle()
		},
		{sendPending, sendRTS}: func(w *wire, c []*Context) {
			closeWindow(w, c, 1000, 0)
			w.pmls[1].Irecv(c[1], nil, 1, 0, 2, "recv")
			w.settle()
		},
		{sendPending, sendIdle}: func(w *wire, c []*Context) {
			closeWindow(w, c, 90, 0)
			w.modules[0].lose(1, gone)
		},
		{sendEager, sendIdle}: func(w *wire, c []*Context) {
			w.pmls[0].Isend(c[0], pattern(90, 0), 1, 1, Standard, "send")
			w.settle()
		},
		{sendIdle, sendRTS}: func(w *wire, c []*Context) {
			w.pmls[0].Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send")
		},
		{sendRTS, sendStreaming}: func(w *wire, c []*Context) {
			w.pmls[0].Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send")
			w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 1, "recv")
			w.step(0)
			w.step(0)
		},
		{sendRTS, sendIdle}: func(w *wire, c []*Context) {
			w.pmls[0].Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send")
			w.settle()
			w.modules[0].lose(1, gone)
		},
		{sendStreaming, sendIdle}: func(w *wire, c []*Context) {
			w.pmls[0].Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send")
			w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 1, "recv")
			w.settle()
		},
		{sendRTS, sendPutting}: func(w *wire, c []*Context) {
			useProtocol(w, Put)
			w.pmls[0].Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send")
			w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 1, "recv")
			w.step(0)
			w.step(0)
		},
		{sendPutting, sendIdle}: func(w *wire, c []*Context) {
			useProtocol(w, Put)
			w.pmls[0].Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send")
			w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 1, "recv")
			w.settle()
		},
		{sendPutting, sendStreaming}: func(w *wire, c []*Context) {
			useProtocol(w, Put)
			w.mishap = func(*flight) error { return usage("no") }
			w.pmls[0].Isend(c[0], pattern(1000, 0), 1, 1, Standard, "send")
			w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 1, "recv")
			for range 3 {
				w.step(0)
			}
		},
		{sendStreaming, sendRestarting}: func(w *wire, c []*Context) { breakStreaming(w, c, 0) },
		{sendPutting, sendRestarting}: func(w *wire, c []*Context) {
			useProtocol(w, Put)
			breakStreaming(w, c, 0)
		},
		{sendRestarting, sendStreaming}: func(w *wire, c []*Context) {
			breakStreaming(w, c, 0)
			w.settle()
		},
		{sendRestarting, sendIdle}: func(w *wire, c []*Context) {
			breakStreaming(w, c, 0)
			w.modules[0].lose(1, gone)
		},
	}
	recvWays = map[[2]recvState]func(w *wire, c []*Context){
		{recvIdle, recvPosted}: func(w *wire, c []*Context) {
			w.pmls[0].Irecv(c[0], nil, 1, 1, 1, "recv")
		},
		{recvIdle, recvMatched}: func(w *wire, c []*Context) {
			w.pmls[1].Isend(c[1], nil, 0, 1, Standard, "send")
			w.settle()
			w.pmls[0].Irecv(c[0], nil, 1, 1, 1, "recv")
		},
		{recvIdle, recvIdle}: func(w *wire, c []*Context) {
			w.modules[0].lose(1, gone)
			w.pmls[0].Irecv(c[0], nil, 1, 1, 1, "recv")
		},
		{recvPosted, recvMatched}: func(w *wire, c []*Context) {
			w.pmls[0].Irecv(c[0], nil, 1, 1, 1, "recv")
			w.pmls[1].Isend(c[1], nil, 0, 1, Standard, "send")
			w.settle()
		},
		{recvPosted, recvIdle}: func(w *wire, c []*Context) {
			w.pmls[0].Irecv(c[0], nil, 1, 1, 1, "recv").Cancel()
		},
		{recvMatched, recvStreaming}: func(w *wire, c []*Context) {
			w.pmls[0].Irecv(c[0], make([]byte, 1000), 1, 1, 1, "recv")
			w.pmls[1].Isend(c[1], pattern(1000, 0), 0, 1, Standard, "send")
			w.step(0)
		},
		{recvMatched, recvIdle}: func(w *wire, c []*Context) {
			w.pmls[0].Irecv(c[0], nil, 1, 1, 1, "recv")
			w.pmls[1].Isend(c[1], pattern(1000, 0), 0, 1, Standard, "send") // nothing of it fits
			w.step(0)
		},
		{recvStreaming, recvIdle}: func(w *wire, c []*Context) {
			w.pmls[0].Irecv(c[0], make([]byte, 1000), 1, 1, 1, "recv")
			w.pmls[1].Isend(c[1], pattern(1000, 0), 0, 1, Standard, "send")
			w.settle()
		},
		{recvMatched, recvGetting}: func(w *wire, c []*Context) {
			useProtocol(w, Get)
			w.pmls[0].Irecv(c[0], make([]byte, 1000), 1, 1, 1, "recv")
			w.pmls[1].Isend(c[1], pattern(1000, 0), 0, 1, Standard, "send")
			w.step(0)
		},
		{recvGetting, recvIdle}: func(w *wire, c []*Context) {
			useProtocol(w, Get)
			w.pmls[0].Irecv(c[0], make([]byte, 1000), 1, 1, 1, "recv")
			w.pmls[1].Isend(c[1], pattern(1000, 0), 0, 1, Standard, "send")
			w.settle()
		},
		{recvGetting, recvStreaming}: func(w *wire, c []*Context) {
			useProtocol(w, Get)
			w.pmls[0].Irecv(c[0], make([]byte, 1000), 1, 1, 1, "recv")
			s := w.pmls[1].Isend(c[1], pattern(1000, 0), 0, 1, Standard, "send")
			w.step(0)
			s.Detach()
			w.step(0)
		},
	}
)

// breakStreaming sends a message from a rank to the other, and has its FRAGs or writes fail.
func breakStreaming(w *wire, c []*Context, from int) {
	w.pmls[from].Isend(c[from], pattern(1000, 0), 1-from, 1, Standard, "send")
	w.pmls[1-from].Irecv(c[1-from], make([]byte, 1000), 1, from, 1, "recv")
	for !isBound(w.flying[0].tag) {
		w.step(0)
	}
	w.failPieces()
}

func TestLegalTransitionsAreReachable(t *testing.T) {
	check := func(t *testing.T, way func(w *wire, c []*Context), from, to fmt.Stringer) {
		require.NotNil(t, way, "%v → %v", from, to)
		w, c := newWire(t, 2, withAsync(true), withRemote(getPut))
		useProtocol(w, Copy)
		seen := false
		w.pmls[0].onMove = func(_ request.Operation, f, t fmt.Stringer) { seen = seen || f == from && t == to }
		way(w, c)
		require.True(t, seen, "%v → %v", from, to)
	}
	for from := range sendLegal {
		for to, legal := range sendLegal[from] {
			pair := [2]sendState{sendState(from), sendState(to)}
			require.Equal(t, legal, sendWays[pair] != nil, "send %v", pair)
			if legal {
				check(t, sendWays[pair], pair[0], pair[1])
			}
		}
	}
	for from := range recvLegal {
		for to, legal := range recvLegal[from] {
			pair := [2]recvState{recvState(from), recvState(to)}
			require.Equal(t, legal, recvWays[pair] != nil, "receive %v", pair)
			if legal {
				check(t, recvWays[pair], pair[0], pair[1])
			}
		}
	}
}

// TestIllegalTransitionsAreReported covers each transition that is not in the tables.
func TestIllegalTransitionsAreReported(t *testing.T) {
	var told []string
	p := New(Config{Rank: 0, Size: 1, OnIllegal: func(what string) { told = append(told, what) }})
	want := []string{}
	for from := range sendLegal {
		for to, legal := range sendLegal[from] {
			s := &SendRequest{p: p, state: sendState(from)}
			s.move(sendState(to))
			require.Equal(t, sendState(to), s.state)
			if !legal {
				want = append(want, fmt.Sprintf("send: %v → %v", sendState(from), sendState(to)))
			}
		}
	}
	for from := range recvLegal {
		for to, legal := range recvLegal[from] {
			r := &RecvRequest{p: p, state: recvState(from)}
			r.move(recvState(to))
			require.Equal(t, recvState(to), r.state)
			if !legal {
				want = append(want, fmt.Sprintf("receive: %v → %v", recvState(from), recvState(to)))
			}
		}
	}
	require.Equal(t, want, told)
	require.EqualValues(t, len(want), p.Stats().Illegal)
	require.Greater(t, len(want), 10)

	p = New(Config{Rank: 0, Size: 1})
	(&SendRequest{p: p}).move(sendStreaming)
	require.EqualValues(t, 1, p.Stats().Illegal, "without OnIllegal")
}
