package pml

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// refusal is a message of which rails always refuse one kind of operation (btl.ClassUsage).
type refusal struct {
	kind     btl.Tag
	from     int // rank that posts the operation; the message goes from rank 0 to rank 1
	bytes    int
	protocol Protocol
	mode     Mode
	// send and recv are parts of the errors of the send and the receive, "" for success.
	send, recv string
}

const (
	noRail = "no rail takes it: rail wire"
	byPeer = "the other rank could not send it"
)

var refusals = []refusal{
	{kind: tagMatch, bytes: 90, send: noRail, recv: byPeer},
	{kind: tagRndv, bytes: 1000, protocol: Copy, send: noRail, recv: byPeer},
	{kind: tagRndv, bytes: 0, protocol: Copy, mode: Synchronous, send: noRail, recv: byPeer},
	{kind: tagRget, bytes: 1000, protocol: Get, send: noRail, recv: byPeer},
	{kind: tagAck, from: 1, bytes: 1000, protocol: Copy, send: byPeer, recv: noRail},
	{kind: tagAck, from: 1, bytes: 0, protocol: Copy, mode: Synchronous, send: byPeer},
	{kind: tagPut, from: 1, bytes: 1000, protocol: Put, send: byPeer, recv: noRail},
	{kind: tagFin, bytes: 1000, protocol: Put, send: noRail, recv: byPeer},
	{kind: tagFin, from: 1, bytes: 1000, protocol: Get, send: byPeer},
	{kind: tagFrag, bytes: 1000, protocol: Copy, send: noRail, recv: byPeer},
	// Fragments replace remote reads and writes.
	{kind: bml.TagGet, from: 1, bytes: 1000, protocol: Get},
	{kind: bml.TagPut, bytes: 1000, protocol: Put},
}

// kindName returns the name of a kind of operations.
func kindName(tag btl.Tag) string {
	names := map[btl.Tag]string{
		bml.TagRailDown: "RAILDOWN", bml.TagRailDownAck: "RAILDOWNACK",
		bml.TagProbe: "PROBE", bml.TagProbeAck: "PROBEACK", bml.TagGet: "READ", bml.TagPut: "WRITE",
	}
	if name, ok := names[tag]; ok {
		return name
	}
	return new(PML).kinds()[tag].Name
}

func (d *refusal) String() string {
	return fmt.Sprintf("%s of %d bytes by %v, mode %d", kindName(d.kind), d.bytes, d.protocol, d.mode)
}

// eachRefusal runs a test for each refusal: with operations that fail when they are posted or
// later, and with receives that are posted first or last.
func eachRefusal(t *testing.T, run func(t *testing.T, d *refusal, w *wire, c []*Context, expected bool)) {
	for _, later := range []bool{false, true} {
		for _, expected := range []bool{false, true} {
			for _, d := range refusals {
				t.Run(fmt.Sprintf("%v, later %v, expected %v", &d, later, expected), func(t *testing.T) {
					w, c := newWire(t, 2, func(w *wire) {
						withRemote(getPut)(w)
						w.async, w.later = true, later
						w.attrs.Caps &^= btl.CapInline
						w.config.Protocol = d.protocol
					})
					run(t, &d, w, c, expected)
				})
			}
		}
	}
}

// run sends the message, with its receive posted first or last, and settles.
func (d *refusal) run(w *wire, c []*Context, expected bool) (s *SendRequest, r *RecvRequest, in, out []byte) {
	in, out = pattern(d.bytes, 2), make([]byte, d.bytes)
	if expected {
		r = w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
	}
	s = w.pmls[0].Isend(c[0], in, 1, 1, d.mode, "send")
	w.settle()
	if !expected {
		r = w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
		w.settle()
	}
	return s, r, in, out
}

// checkRefused takes a request, and compares its error with the expected one.
func checkRefused(t *testing.T, o ended, want string) {
	t.Helper()
	require.Equal(t, request.Complete, o.State())
	_, err := o.Take()
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, want)
	require.NotErrorIs(t, err, request.ErrUnreachable)
	require.NotErrorIs(t, err, request.ErrProcFailed)
}

// requireUsable checks that no rank has lost the other or a rail, and that nothing is left.
func requireUsable(t *testing.T, w *wire) {
	t.Helper()
	for rank, p := range w.pmls {
		require.True(t, p.peer(1-rank).IsAlive())
		require.Zero(t, p.Stats().RailsFailed)
		require.Empty(t, p.Leftovers())
	}
	require.Empty(t, w.regions)
}

// TestOperationRefusedByAllRailsEndsItsMessage: the message ends with an error at both ends. The
// messages before and after it arrive in order, and the peer stays up.
func TestOperationRefusedByAllRailsEndsItsMessage(t *testing.T) {
	eachRefusal(t, func(t *testing.T, d *refusal, w *wire, c []*Context, expected bool) {
		in := [3][]byte{pattern(50, 1), pattern(d.bytes, 2), pattern(50, 3)}
		var out [3][]byte
		var sends, recvs [3]ended
		post := func() {
			for i := range in {
				out[i] = make([]byte, len(in[i]))
				recvs[i] = w.pmls[1].Irecv(c[1], out[i], 1, 0, 1, "recv")
			}
		}
		if expected {
			post()
		}
		refused := 0
		w.wrong = func(f *flight) bool {
			if f.tag != d.kind || f.from != d.from || f.tag == tagMatch && len(f.frag) != matchBytes+d.bytes {
				return false
			}
			refused++
			return true
		}
		for i, b := range in {
			mode := Standard
			if i == 1 {
				mode = d.mode
			}
			sends[i] = w.pmls[0].Isend(c[0], b, 1, 1, mode, "send")
		}
		w.settle()
		if !expected {
			post()
			w.settle()
		}
		require.Positive(t, refused)
		for i := range in {
			if i == 1 {
				continue
			}
			requireSuccess(t, sends[i], recvs[i])
			require.Equal(t, in[i], out[i])
		}
		checkRefused(t, sends[1], d.send)
		checkRefused(t, recvs[1], d.recv)
		if d.recv == "" {
			require.Equal(t, in[1], out[1])
		}
		requireUsable(t, w)
		require.Zero(t, w.pmls[0].Stats().Malformed+w.pmls[1].Stats().Malformed)
		most := maxMistakes + 1
		if d.kind == tagFrag {
			most *= pipelineDepth // fragments under way at a time
		}
		require.LessOrEqual(t, refused, most)
	})
}

func TestOperationRefusedByOneRailGoesByAnother(t *testing.T) {
	eachRefusal(t, func(t *testing.T, d *refusal, like *wire, _ []*Context, expected bool) {
		for bad := range 3 {
			w, c := newWire(t, 2, func(w *wire) {
				withRails(1, 1, 1)(w)
				w.async, w.later = true, like.later
				w.config.Protocol = d.protocol
				w.attrs.Caps &^= btl.CapInline
			})
			refused := 0
			w.wrong = func(f *flight) bool {
				if f.tag != d.kind || f.rail != bad {
					return false
				}
				refused++
				return true
			}
			s, r, in, out := d.run(w, c, expected)
			requireSuccess(t, s, r)
			require.Equal(t, in, out)
			if bad == 0 || isBound(d.kind) && d.bytes > 1000 {
				require.Positive(t, refused)
			}
			for _, p := range w.pmls {
				require.Zero(t, p.Stats().Refused)
				require.Empty(t, p.Leftovers())
			}
		}
	})
}

// TestOperationRefusedThoughDeliveredEndsBothRequests: the refused operation has arrived
// nevertheless, so its NACK is a duplicate.
func TestOperationRefusedThoughDeliveredEndsBothRequests(t *testing.T) {
	eachRefusal(t, func(t *testing.T, d *refusal, w *wire, c []*Context, expected bool) {
		w.later, w.delivered = true, true
		w.wrong = func(f *flight) bool { return f.tag == d.kind && f.from == d.from }
		s, r, in, out := d.run(w, c, expected)
		for _, o := range []ended{s, r} {
			require.Equal(t, request.Complete, o.State())
		}
		if _, err := r.Take(); err == nil {
			require.Equal(t, in, out)
		}
		requireUsable(t, w)
	})
}

// TestOperationRefusedThoughAnsweredDeliversMessage: the refused operation has arrived, and the
// peer answers it before the last retry. Most of the message is still to be sent then.
func TestOperationRefusedThoughAnsweredDeliversMessage(t *testing.T) {
	const n = 10_000
	for _, tc := range []struct {
		kind     btl.Tag
		from     int
		protocol Protocol
	}{
		{tagRndv, 0, Copy},
		{tagRndv, 0, Put},
		{tagPut, 1, Put},
		{tagRestartNotify, 0, Put},
	} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %v, a rail fails with pieces %v", kindName(tc.kind), tc.protocol, fails), func(t *testing.T) {
				w, c := newWire(t, 2, func(w *wire) {
					withRails(1, 1)(w)
					w.async, w.later, w.delivered = true, true, true
					w.config.Protocol = tc.protocol
				})
				w.wrong = func(f *flight) bool { return f.tag == tc.kind && f.from == tc.from }
				if tc.kind == tagRestartNotify {
					w.mishap = func(*flight) error { return usage("stale key") }
				}
				s, r, in, out := oneWay(w, c, n)
				if fails {
					for !isBound(w.flying[0].tag) {
						w.step(0)
					}
					rail := w.flying[0].rail
					w.loseRail(rail, 0)
					w.settle()
					for rank := range 2 {
						w.rails[rail][rank].drain(1 - rank)
					}
				}
				w.settle()
				requireSuccess(t, s, r)
				require.Equal(t, in, out)
				if !fails {
					requireUsable(t, w)
				}
				require.Empty(t, w.regions)
				require.True(t, w.pmls[0].peer(1).IsAlive() && w.pmls[1].peer(0).IsAlive())
			})
		}
	}
}

// TestRestartRefusedByAllRailsEndsMessage: the writes are refused, and then all rails refuse a
// fragment of the restart.
func TestRestartRefusedByAllRailsEndsMessage(t *testing.T) {
	for _, kind := range []btl.Tag{tagRestartNotify, tagRestartAck, tagRestartNack} {
		w, c := newWire(t, 2, withAsync(true), withRemote(btl.CapPut))
		w.mishap = func(*flight) error { return usage("stale key") }
		refused := 0
		w.wrong = func(f *flight) bool {
			if f.tag == kind {
				refused++
			}
			return f.tag == kind
		}
		s, r, _, _ := oneWay(w, c, 800)
		for !isBound(w.flying[0].tag) {
			w.step(0)
		}
		if kind == tagRestartNack { // the receive is over
			w.pmls[1].Arrived(w.modules[1], 0, tagFin, inSequence(finOf(finHdr{handle: r.name, ofReceive: true}), 1))
			w.pmls[0].peer(1).CountSent()
			require.Equal(t, request.Complete, r.State())
		}
		w.settle()
		require.Positive(t, refused, "%s", kindName(kind))
		wantSend, wantRecv := noRail, byPeer
		switch kind {
		case tagRestartAck:
			wantSend, wantRecv = byPeer, noRail
		case tagRestartNack:
			wantSend, wantRecv = byPeer, ""
		}
		checkRefused(t, s, wantSend)
		checkRefused(t, r, wantRecv)
		requireUsable(t, w)
	}
}

// refuse has the modules of a rank refuse the next operation to the other rank as often as it is
// tried.
func (w *pair) refuse(rank int) {
	rails := w.modules[rank]
	for _, m := range rails {
		m.(btl.Injector).Inject(btl.Fault{Kind: btl.FaultWrong, Peer: 1 - rank, Count: (maxMistakes + 1) / len(rails)})
	}
}

// TestRefusedMessageOverLoopFailsAlone: all rails refuse an operation of the first message. The
// next message arrives.
func TestRefusedMessageOverLoopFailsAlone(t *testing.T) {
	for rails := 1; rails <= 2; rails++ {
		for _, n := range []int{0, 8, 500, 100_000} {
			for _, who := range []int{0, 1} {
				w := newPair(t, rails, 10*sec)
				in, out := pattern(n, 1), make([]byte, n)
				other, got := pattern(300, 2), make([]byte, 300)
				w.refuse(who)
				s := w.pmls[0].Isend(w.ctxs[0], in, 1, 1, Synchronous, "send")
				w.run(50_000_000, 0, 1)
				s2 := w.pmls[0].Isend(w.ctxs[0], other, 1, 1, Standard, "send")
				r := w.pmls[1].Irecv(w.ctxs[1], out, 1, 0, 1, "recv")
				r2 := w.pmls[1].Irecv(w.ctxs[1], got, 1, 0, 1, "recv")
				w.run(50_000_000, 0, 1)
				for _, o := range []ended{s, r, s2, r2} {
					require.Equal(t, request.Complete, o.State())
				}
				_, err := s.Take()
				_, rerr := r.Take()
				if who == 0 {
					require.ErrorContains(t, err, "no rail takes it: rail loop", "%d bytes", n)
					require.ErrorIs(t, err, btl.ErrTooLong)
					require.ErrorIs(t, rerr, errPeerRefused)
				} else if err != nil { // the ACK was refused; a message that is read needs none
					require.ErrorIs(t, err, errPeerRefused)
				}
				requireSuccess(t, s2, r2)
				require.Equal(t, other, got)
				for rank, p := range w.pmls {
					require.True(t, p.peer(1-rank).IsAlive())
					require.Zero(t, p.Stats().RailsFailed)
					require.Empty(t, p.Leftovers())
				}
			}
		}
	}
}

// The length in a NACK is checked where memory is allocated for it: the fragment may lie in memory
// that the peer changes after it was admitted.
func TestNackChangedAfterAdmissionFails(t *testing.T) {
	w, _ := newWire(t, 2)
	p := w.pmls[0]
	frag := nackFor(tagMatch, matchOf(matchHdr{tag: 1}), 1<<31)
	require.ErrorIs(t, p.nackArrived(p.peer(1), frag), errMalformed)
}
