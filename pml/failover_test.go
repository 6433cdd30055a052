package pml

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/request"
)

// Cases of failover that the simulation seldom meets.

var pathErr = &btl.Error{Rail: "wire", Peer: 1, Class: btl.ClassPath, Err: btl.ErrInjected}

// TestSendsQueuedOnFailedRailStayInOrder: messages that wait for a rail that fails go by another
// rail in the order of their sends.
func TestSendsQueuedOnFailedRailStayInOrder(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1))
	w.refuse = 2
	w.pmls[0].Isend(c[0], []byte{1, 1, 1}, 1, 7, Standard, "send")
	w.pmls[0].Isend(c[0], []byte{2, 2, 2}, 1, 7, Standard, "send")
	w.refuse = 0
	w.rails[0][0].down[1] = btl.ErrFailed
	for _, want := range [][]byte{{1, 1, 1}, {2, 2, 2}} {
		requireArrival(t, w, c[1], 7, want)
	}
}

// TestDeviceFailureOfDownRailEndsSend: a rail's link fails, and then its device, while another rail
// fails too. The third rail delivers the message.
func TestDeviceFailureOfDownRailEndsSend(t *testing.T) {
	w, c := newWire(t, 2, func(w *wire) { withRails(1, 1, 1)(w); w.async = true; w.attrs.Caps &^= btl.CapInline })
	for i := range w.others {
		w.others[i].Caps &^= btl.CapInline
	}
	p := w.pmls[0]
	pr := p.peer(1)
	require.NoError(t, p.resolve(pr))
	w.rails[0][0].lose(1, pathErr) // the link: rail 0 is down, and drained
	w.settle()
	s := p.Isend(c[0], []byte{1, 2, 3}, 1, 7, Standard, "send")
	require.Len(t, w.flying, 1)
	require.Equal(t, 1, w.flying[0].rail)
	f := w.flying[0]
	w.flying = nil
	p.Failed(w.rails[0][0], btl.WholeModule, pathErr) // then its device
	p.Failed(w.rails[1][0], w.rails[1][0].path(1), pathErr)
	f.op.Done(f.op, pathErr)
	w.rails[1][0].drain(1)
	w.rails[0][0].drain(btl.AllPeers)
	r := w.pmls[1].Irecv(c[1], make([]byte, 3), 1, 0, 7, "recv")
	w.settle()
	requireSuccess(t, s, r)
}

// TestDetachBeforeReplaySendsCopy: after Detach the rail fails. The replay must read the copy.
func TestDetachBeforeReplaySendsCopy(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1), withAsync(true))
	p := w.pmls[0]
	buf := bytes.Repeat([]byte{1}, 90)
	s := p.Isend(c[0], buf, 1, 7, Standard, "send")
	require.Len(t, w.flying, 1)
	s.Detach()
	clear(buf) // the user's again
	f := w.flying[0]
	w.flying = nil
	p.Failed(w.rails[0][0], w.rails[0][0].path(1), pathErr)
	f.op.Done(f.op, pathErr)
	w.rails[0][0].drain(1)
	requireArrival(t, w, c[1], 7, bytes.Repeat([]byte{1}, 90))
}

// TestDetachAfterFailureWaitsForDrain: a rail has failed and called the message back. Its device
// may read the buffer until it is drained.
func TestDetachAfterFailureWaitsForDrain(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1), withAsync(true))
	p := w.pmls[0]
	buf := bytes.Repeat([]byte{1}, 90)
	s := p.Isend(c[0], buf, 1, 7, Standard, "send")
	f := w.flying[0]
	w.flying = nil
	p.Failed(w.rails[0][0], w.rails[0][0].path(1), pathErr)
	f.op.Done(f.op, pathErr)
	d := s.Detach()
	require.NotNil(t, d)
	require.Equal(t, request.Active, d.State())
	w.rails[0][0].drain(1)
	require.Equal(t, request.Complete, d.State())
	clear(buf)
	requireArrival(t, w, c[1], 7, bytes.Repeat([]byte{1}, 90))
	requireSuccess(t, s)
}

// TestDetachmentOfPeerThatBreaksProtocolWaitsForDrain: the rail that has called the message back
// may still read the buffer.
func TestDetachmentOfPeerThatBreaksProtocolWaitsForDrain(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1), withAsync(true))
	p := w.pmls[0]
	s := p.Isend(c[0], pattern(90, 1), 1, 7, Standard, "send")
	f := w.flying[0]
	w.flying = nil
	p.Failed(w.rails[0][0], w.rails[0][0].path(1), pathErr)
	f.op.Done(f.op, pathErr)
	d := s.Detach()
	p.Arrived(w.rails[1][0], 1, tagAck, nil)
	p.Progress()
	require.True(t, p.peer(1).IsFailing())
	require.Equal(t, request.Active, d.State())
	w.rails[0][0].drain(1)
	require.True(t, p.peer(1).IsLost())
	require.Equal(t, request.Complete, d.State())
	requireFailure(t, errMalformed, s)
}

// TestReplayOfMessageUpToEagerCopyBytes: the rail fails, and the other one, which takes shorter
// fragments and would not send the message eagerly, delivers it.
func TestReplayOfMessageUpToEagerCopyBytes(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1), withAsync(true), withProtocol(Copy), func(w *wire) {
		w.attrs.MaxSendBytes, w.attrs.EagerCopyBytes = 300, 300
		w.others[0].MaxSendBytes = 200
	})
	p, in := w.pmls[0], pattern(200-rndvBytes, 1)
	s := p.Isend(c[0], in, 1, 7, Standard, "send")
	require.Greater(t, len(in), p.peer(1).EagerBytes())
	require.Len(t, w.flying, 1)
	require.EqualValues(t, tagMatch, w.flying[0].tag)
	f := w.flying[0]
	w.flying = nil
	p.Failed(w.rails[0][0], w.rails[0][0].path(1), pathErr)
	f.op.Done(f.op, pathErr)
	w.rails[0][0].drain(1)
	requireArrival(t, w, c[1], 7, in)
	requireSuccess(t, s)
	require.EqualValues(t, 1, p.Stats().Resent)
}

// TestReadRefusedWhileOtherRailDrainsWaits: a rail refuses one read, and another read is on a rail
// that fails. The rest comes in fragments once the failed rail is drained.
func TestReadRefusedWhileOtherRailDrainsWaits(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1), withTwoKeys, withAsync(true))
	in, out := pattern(remotePieceBytes*3, 1), make([]byte, remotePieceBytes*3)
	s := w.pmls[0].Isend(c[0], in, 1, 7, Standard, "send")
	r := w.pmls[1].Irecv(c[1], out, 1, 0, 7, "recv")
	w.step(0) // RGET
	reads := w.take(func(f *flight) bool { return f.tag == bml.TagGet })
	for rail := range 2 {
		require.True(t, slices.ContainsFunc(reads, func(f flight) bool { return f.rail == rail }), "rail %d has no read", rail)
	}
	p := w.pmls[1]
	p.Failed(w.rails[1][1], w.rails[1][1].path(0), pathErr) // rail 1 fails at the receiver
	for _, f := range reads {
		if f.rail == 1 {
			f.op.Done(f.op, pathErr) // called back, but rail 1 is not Drained
		} else {
			f.op.Done(f.op, usage("stale key"))
		}
	}
	w.settle()
	require.Equal(t, request.Active, r.State(), "the receive ended before Drained, while rail 1 may still write to its buffer")
	require.Equal(t, request.Active, s.State(), "the send ended before Drained, while rail 1 may still read its buffer")
	w.rails[1][1].drain(0)
	w.settle()
	requireSuccess(t, s, r)
	require.Equal(t, in, out)
	require.EqualValues(t, 1, p.Stats().Unread)
}

// TestSendWhosePiecesFailEndsAfterGraceTime: every FRAG fails, and every other fragment arrives.
func TestSendWhosePiecesFailEndsAfterGraceTime(t *testing.T) {
	w, c := newWire(t, 2, withAsync(true), withGrace(10*sec))
	s := w.pmls[0].Isend(c[0], pattern(1000, 1), 1, 7, Standard, "send")
	w.pmls[1].Irecv(c[1], make([]byte, 1000), 1, 0, 7, "recv").Abandon()
	for s.State() == request.Active && w.now < 20*sec {
		w.failPieces()
		w.elapse(100 * time.Millisecond)
		w.pmls[0].Progress()
		if len(w.flying) > 0 && !isBound(w.flying[0].tag) {
			w.step(0)
		}
	}
	err := requireFailure(t, request.ErrUnreachable, s)
	require.ErrorContains(t, err, "every rail fails with the same message for longer than the grace time")
	require.ErrorIs(t, err, btl.ErrInjected, "the error does not name the last cause")
	require.Greater(t, w.now, 9*sec)
}

// TestRailDownForRailUnknownToPeerIsAnswered: RAILDOWNACK for a rail that the peer does not use
// names that rail.
func TestRailDownForRailUnknownToPeerIsAnswered(t *testing.T) {
	w, _ := newWire(t, 2, withRails(1, 1), withAsync(true))
	a, b := w.pmls[0], w.pmls[1]
	b.cfg.Resolve = func(peer int) ([]bml.Route, error) {
		return []bml.Route{w.rails[0][1].route(peer, 0)}, nil
	}
	a.cfg.Resolve = func(peer int) ([]bml.Route, error) {
		return []bml.Route{w.rails[0][0].route(peer, 0), w.rails[1][0].route(peer, 5)}, nil
	}
	require.NoError(t, a.resolve(a.peer(1)))
	w.rails[1][0].lose(1, pathErr)
	require.Equal(t, bml.TagRailDown, w.flying[0].tag)
	w.step(0)
	require.Equal(t, bml.TagRailDownAck, w.flying[0].tag)
	answer, err := a.Look(bml.TagRailDownAck, w.flying[0].frag)
	require.NoError(t, err)
	require.Equal(t, "down", a.StateOf(1, answer, false), "rank 0 does not find the rail that RAILDOWNACK names")
	w.settle()
	about := func(tag btl.Tag, sender, receiver uint8) Fragment {
		f, err := a.Look(tag, railOf(railHeader{rail: sender, other: receiver, epoch: 1}))
		require.NoError(t, err)
		return f
	}
	require.Equal(t, "down", a.StateOf(1, about(bml.TagRailDown, 1, 5), true), "its own message")
	require.Equal(t, "down", a.StateOf(1, about(bml.TagRailDownAck, 5, 1), false), "the answer")
	require.Equal(t, "down", a.StateOf(1, about(bml.TagRailDown, 5, 1), false), "the peer's message")
	require.Equal(t, Gone, a.StateOf(1, about(bml.TagRailDownAck, 1, 5), false), "the numbers of another rail")
}

// TestFailureOfIncomingRailKeepsPeer: a peer sends by a rail that this rank does not use for it. If
// that rail fails, the peer is not lost.
func TestFailureOfIncomingRailKeepsPeer(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1))
	b := w.pmls[1]
	b.cfg.Resolve = func(peer int) ([]bml.Route, error) {
		return []bml.Route{w.rails[1][1].route(peer, 1)}, nil
	}
	w.pmls[0].Isend(c[0], []byte{1}, 1, 7, Standard, "send") // by rail 0
	w.settle()
	require.NoError(t, b.resolve(b.peer(0)))
	w.rails[0][1].lose(0, &btl.Error{Rail: "wire", Peer: 0, Class: btl.ClassPath})
	require.NoError(t, b.peer(0).Err(), "the peer is lost although rail 1 is up")
}

// TestDeviceFailureAfterLinkFailureDeliversMessage: a rail's link fails, and then its device, while
// its pieces go by the other rail.
func TestDeviceFailureAfterLinkFailureDeliversMessage(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1), withAsync(true), withProtocol(Copy))
	p := w.pmls[0]
	out := make([]byte, 2000)
	s := p.Isend(c[0], pattern(2000, 1), 1, 7, Standard, "send")
	r := w.pmls[1].Irecv(c[1], out, 1, 0, 7, "recv")
	w.step(0)                        // RNDV
	for w.flying[0].tag != tagFrag { // ACK
		w.step(0)
	}
	w.loseRail(0, 0) // the link
	w.rails[0][0].drain(1)
	w.step(slices.IndexFunc(w.flying, func(f flight) bool { return f.tag == bml.TagRailDown }))
	p.Failed(w.rails[0][0], btl.WholeModule, pathErr)               // its device
	w.pmls[1].Failed(w.rails[0][1], w.rails[0][1].path(0), pathErr) // the peer's half
	w.rails[0][1].drain(0)                                          // and RAILDOWNACK
	w.settle()
	w.rails[0][0].drain(btl.AllPeers)
	w.settle()
	requireSuccess(t, s, r)
}

// TestSwitchNanosIsTimeOfOwnDrain: the operations of a failed rail are posted again when it is
// drained here. Pieces go on before that, and nothing waits for the peer's half.
func TestSwitchNanosIsTimeOfOwnDrain(t *testing.T) {
	const one, two = int64(1e6), int64(2e6)
	w, c := newWire(t, 2, withRails(1, 1), withAsync(true), withProtocol(Copy))
	p := w.pmls[0]
	s := p.Isend(c[0], pattern(2000, 1), 1, 7, Standard, "send")
	r := w.pmls[1].Irecv(c[1], make([]byte, 2000), 1, 0, 7, "recv")
	for w.flying[0].tag != tagFrag {
		w.step(0)
	}
	w.now = one
	w.loseRail(0, 0)
	w.now += one
	w.settle()
	requireSuccess(t, r)
	require.Equal(t, request.Active, s.State(), "the rail may still read the buffer")
	require.Zero(t, p.Stats().SwitchNanos, "this half is not drained")
	w.now += two
	w.rails[0][0].drain(1)
	require.Equal(t, one+two, p.Stats().SwitchNanos)
	requireSuccess(t, s)
}

// TestSendFailsAfterMaxMistakes: the rail refuses the MATCH and its NACK. Each is posted
// maxMistakes + 1 times, and then the peer is lost.
func TestSendFailsAfterMaxMistakes(t *testing.T) {
	w, c := newWire(t, 2, withAsync(true))
	s := w.pmls[0].Isend(c[0], pattern(90, 1), 1, 7, Standard, "send")
	n := map[btl.Tag]int{}
	for range 1000 {
		fl := w.flying
		w.flying = nil
		for _, f := range fl {
			n[f.tag]++
			f.op.Done(f.op, usage("LOC_PROT"))
		}
		w.pmls[0].Progress()
	}
	require.Equal(t, map[btl.Tag]int{tagMatch: maxMistakes + 1, tagNack: maxMistakes + 1}, n)
	_, err := s.Take()
	require.ErrorContains(t, err, "no rail takes it: rail wire: usage: LOC_PROT")
	another := w.pmls[0].Isend(c[0], nil, 1, 7, Synchronous, "send")
	w.modules[0].lose(1, pathErr) // the peer is lost already
	requireFailure(t, request.ErrUnreachable, another)
}

// TestDetachWhilePeerFailsEndsSend: the copy cannot be registered, and the peer's process has
// ended, so the send cannot go on in fragments.
func TestDetachWhilePeerFailsEndsSend(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1), withAsync(true), withProtocol(Put))
	const n = 100_000
	p := w.pmls[0]
	w.pmls[1].Irecv(c[1], make([]byte, n), 1, 0, 7, "recv").Abandon()
	s := p.Isend(c[0], pattern(n, 1), 1, 7, Standard, "send")
	w.step(0)
	w.step(0)
	require.Equal(t, sendPutting, s.state)
	w.loseRail(0, 0)
	w.rails[0][0].drain(1)
	p.Failed(w.rails[1][0], w.rails[1][0].path(1), gone)
	w.unregistrable = func(*wireModule, btl.Access) error { return btl.ErrResource }
	s.Detach()
	w.failPieces()
	w.rails[1][0].drain(1)
	requireFailure(t, request.ErrProcFailed, s)
	require.Zero(t, p.Busy())
}

// TestInlineBytesStayWithTheirRail: when the rail that took messages inline fails, they do not
// count for the rail that takes its place.
func TestInlineBytesStayWithTheirRail(t *testing.T) {
	w, c := newWire(t, 2, withRails(1, 1), func(w *wire) { w.others[0].Caps &^= btl.CapInline })
	p := w.pmls[0]
	send := func() {
		s := p.Isend(c[0], []byte{1, 2, 3}, 1, 7, Standard, "send")
		requireArrival(t, w, c[1], 7, []byte{1, 2, 3})
		requireSuccess(t, s)
	}
	for range 10 {
		send()
	}
	require.EqualValues(t, 10, p.peer(1).Inlined())
	before := p.Rails()
	require.True(t, before[0].First)
	require.GreaterOrEqual(t, before[0].Bytes, int64(10*3))
	w.rails[0][0].lose(1, pathErr)
	w.settle()
	send()
	after := p.Rails()
	require.True(t, after[1].First)
	require.GreaterOrEqual(t, after[0].Bytes, before[0].Bytes, "a counter does not go back")
	require.Less(t, after[1].Bytes-before[1].Bytes, before[0].Bytes)
}

// TestLateReadFindsNoOtherBytes: a rail ends a read with an unknown result, the rest comes in
// fragments, and the sender's user overwrites the buffer when the send is complete. Until this half
// of the rail is drained, the read may still happen.
func TestLateReadFindsNoOtherBytes(t *testing.T) {
	w, c := newWire(t, 2, func(w *wire) {
		withRails(1, 1)(w)
		w.others[0].Caps &^= getPut
		w.async = true
		w.config.Protocol = Get
	})
	in, out := pattern(2000, 1), make([]byte, 2000)
	want := bytes.Clone(in)
	w.pmls[0].AddMemory(in) // its key outlives the send
	r := w.pmls[1].Irecv(c[1], out, 1, 0, 1, "recv")
	s := w.pmls[0].Isend(c[0], in, 1, 1, Standard, "send")
	for len(w.flying) == 0 || !w.flying[0].isRemote() {
		w.step(0)
	}
	rail := w.rails[0][1]
	late := w.take(func(f *flight) bool { return f.isRemote() })
	w.pmls[1].Failed(rail, rail.path(0), pathErr)
	for i := range late {
		op := late[i].op
		late[i].op = &btl.Op{Payload: op.Payload, Local: op.Local, Remote: op.Remote, RemoteOffset: op.RemoteOffset}
		op.Done(op, pathErr)
	}
	w.settle()
	if s.State() != request.Active {
		clear(in)
	}
	for i := range late {
		require.NoError(t, w.reach(&late[i]))
	}
	rail.drain(0)
	w.settle()
	requireSuccess(t, s, r)
	require.True(t, bytes.Equal(want, out), "the receive has what the sender's user wrote after the send")
	require.EqualValues(t, 1, w.pmls[1].Stats().Unread)
}
