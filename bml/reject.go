package bml

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
)

// A peer that is lost here may not know it: a peer that sends nothing may not see its rails fail,
// and would wait for an answer. When a fragment comes from a lost peer, this rank opens the rail
// once more and sends a RAILDOWN with "gave up". The peer then gives this rank up, too. If it has
// done so already, it does not answer.

// reject starts to tell a lost peer, by all rails of the module that brought its fragment: the peer
// may probe any of them.
func (b *BML) reject(pr *Peer, m btl.Module) {
	for _, rl := range pr.on(way{m, allModules}) {
		if rl.reopen == nil || rl.isRejecting || b.closed != nil {
			continue
		}
		rl.isRejecting = true
		b.postpone(work{kind: workReject, rail: rl}) // this may run inside a call of the endpoint
	}
}

// isReject reports whether a fragment is a RAILDOWN with "gave up".
func (b *BML) isReject(tag btl.Tag, frag []byte) bool {
	var h railHeader
	return tag == TagRailDown && h.decode(frag, b.cfg.Version) == nil && h.gaveUp
}

// rejectBy opens a rail to a lost peer, to send RAILDOWN by it.
func (b *BML) rejectBy(rl *Rail, tries int) {
	if b.closed != nil {
		return
	}
	ep, err := rl.reopen()
	if err != nil {
		rl.isRejecting = false
		return
	}
	rl.endpoint = ep
	b.sendReject(rl, ep, tries)
}

// sendReject sends RAILDOWN by an endpoint to a lost peer, and then fails the endpoint. If the
// endpoint has no room or fails, the send is tried again: no further fragment of the peer may come
// to cause another attempt.
func (b *BML) sendReject(rl *Rail, ep btl.Endpoint, tries int) {
	if b.closed != nil {
		return
	}
	end := func() {
		rl.isRejecting = false
		ep.Fail(rl.peer.cause)
	}
	op := b.GetOp()
	op.Tag, op.HdrLen, op.bound = TagRailDown, railBytes, true
	h := railHeader{sender: rl.local, receiver: rl.remote, version: b.cfg.Version, gaveUp: true, epoch: ep.Epoch()}
	h.encode(op.Hdr[:])
	op.Then = func(op *Op, err error) {
		b.PutOp(op)
		if err != nil && tries > 0 && b.closed == nil { // the endpoint has failed
			b.eng.After(int64(firstReopen), func() { b.rejectBy(rl, tries-1) })
			return
		}
		b.postpone(work{kind: workRejected, end: end})
	}
	err := ep.Send(&op.Op)
	if err == nil {
		return
	}
	b.PutOp(op)
	switch {
	case tries == 0:
		end()
	case errors.Is(err, btl.ErrFailed):
		b.eng.After(int64(firstReopen), func() { b.rejectBy(rl, tries-1) })
	default:
		b.eng.After(int64(firstReopen), func() { b.sendReject(rl, ep, tries-1) })
	}
}
