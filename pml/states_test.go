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

// way is a sequence of calls and events at two ranks.
type way func(w *wire, c []*Context)

// seq makes a way of several steps.
func seq(steps ...way) way {
	return func(w *wire, c []*Context) {
		for _, step := range steps {
			step(w, c)
		}
	}
}

// sends has a rank send n bytes to the other.
func sends(from, n int) way {
	return func(w *wire, c []*Context) {
		w.pmls[from].Isend(c[from], pattern(n, 0), 1-from, 1, Standard, "send")
	}
}

// receives has a rank post a receive of n bytes with a tag.
func receives(rank, n, tag int) way {
	return func(w *wire, c []*Context) {
		w.pmls[rank].Irecv(c[rank], make([]byte, n), 1, 1-rank, tag, "recv")
	}
}

// closed sends from rank 0 to rank 1 until a window is used up, and then n bytes with tag 2.
func closed(n int, window int64) way {
	return func(w *wire, c []*Context) {
		for _, p := range w.pmls {
			for _, pr := range []*peer{p.peer(0), p.peer(1)} {
				pr.credit.init(max(window, 1))
			}
		}
		for range max(window/fragmentCostBytes, 1) {
			sends(0, 1000)(w, c)
		}
		w.settle()
		w.pmls[0].Isend(c[0], pattern(n, 0), 1, 2, Standard, "send")
	}
}

// refused has rank 0 send a message whose writes are refused.
func refused(w *wire, c []*Context) {
	w.mishap = func(*flight) error { return usage("no") }
	seq(usesPut, sends(0, 1000), receives(1, 1000, 1), step, step, step)(w, c)
}

func step(w *wire, _ []*Context)    { w.step(0) }
func settle(w *wire, _ []*Context)  { w.settle() }
func lose(w *wire, _ []*Context)    { w.modules[0].lose(1, gone) }
func usesPut(w *wire, _ []*Context) { useProtocol(w, Put) }
func usesGet(w *wire, _ []*Context) { useProtocol(w, Get) }

// For each legal transition the shortest way to it. Long messages go in fragments unless the way
// chooses another protocol.
var (
	sendWays = map[[2]sendState]way{
		{sendIdle, sendEager}:   sends(0, 90),
		{sendIdle, sendPending}: closed(90, 0),
		{sendPending, sendEager}: func(w *wire, c []*Context) {
			closed(1000, 500)(w, c)
			w.pmls[0].Isend(c[0], pattern(90, 0), 1, 3, Standard, "send") // is pending behind it
			w.pmls[1].Irecv(c[1], nil, 1, 0, 3, "recv")                   // opens the window
			w.settle()
		},
		{sendPending, sendRTS}:          seq(closed(1000, 0), receives(1, 0, 2), settle),
		{sendPending, sendIdle}:         seq(closed(90, 0), lose),
		{sendEager, sendIdle}:           seq(sends(0, 90), settle),
		{sendIdle, sendRTS}:             sends(0, 1000),
		{sendRTS, sendStreaming}:        seq(sends(0, 1000), receives(1, 1000, 1), step, step),
		{sendRTS, sendIdle}:             seq(sends(0, 1000), settle, lose),
		{sendStreaming, sendIdle}:       seq(sends(0, 1000), receives(1, 1000, 1), settle),
		{sendRTS, sendPutting}:          seq(usesPut, sends(0, 1000), receives(1, 1000, 1), step, step),
		{sendPutting, sendIdle}:         seq(usesPut, sends(0, 1000), receives(1, 1000, 1), settle),
		{sendPutting, sendRestarting}:   refused,
		{sendRestarting, sendStreaming}: seq(refused, settle),
		{sendRestarting, sendIdle}:      seq(refused, lose),
	}
	recvWays = map[[2]recvState]way{
		{recvIdle, recvPosted}:    receives(0, 0, 1),
		{recvIdle, recvMatched}:   seq(sends(1, 0), settle, receives(0, 0, 1)),
		{recvIdle, recvIdle}:      seq(lose, receives(0, 0, 1)),
		{recvPosted, recvMatched}: seq(receives(0, 0, 1), sends(1, 0), settle),
		{recvPosted, recvIdle}: func(w *wire, c []*Context) {
			w.pmls[0].Irecv(c[0], nil, 1, 1, 1, "recv").Cancel()
		},
		{recvMatched, recvStreaming}: seq(receives(0, 1000, 1), sends(1, 1000), step),
		{recvMatched, recvIdle}:      seq(receives(0, 0, 1), sends(1, 1000), step), // nothing fits
		{recvStreaming, recvIdle}:    seq(receives(0, 1000, 1), sends(1, 1000), settle),
		{recvMatched, recvGetting}:   seq(usesGet, receives(0, 1000, 1), sends(1, 1000), step),
		{recvGetting, recvIdle}:      seq(usesGet, receives(0, 1000, 1), sends(1, 1000), settle),
		{recvGetting, recvStreaming}: func(w *wire, c []*Context) {
			seq(usesGet, receives(0, 1000, 1))(w, c)
			s := w.pmls[1].Isend(c[1], pattern(1000, 0), 0, 1, Standard, "send")
			w.step(0)
			s.Detach()
			w.step(0)
		},
	}
)

func TestLegalTransitionsAreReachable(t *testing.T) {
	check := func(t *testing.T, way way, from, to fmt.Stringer) {
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
