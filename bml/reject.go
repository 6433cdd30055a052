package bml

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
)

// A peer that is lost here may not know: it may have had nothing to send when the rails to it were
// failed, and then wait for an answer. When something comes from it, this rank opens the rail once
// more and sends a RAILDOWN that says so. The peer then gives this rank up too. If it has done so
// already, it does not answer.

// reject begins to tell a lost peer, by all rails of a module by which it was heard: it may probe
// any of them.
func (b *BML) reject(pr *Peer, m btl.Module) {
	for _, rl := range pr.on(way{m, allModules}) {
		if rl.reopen == nil || rl.isRejecting || b.closed != nil {
			continue
		}
		rl.isRejecting = true
		b.postpone(work{kind: workReject, rail: rl}) // not from inside a call of the endpoint
	}
}

// isReject reports whether a fragment says that its sender has given this rank up.
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

// sendReject sends RAILDOWN by an endpoint to a lost peer, and then fails the endpoint. If it has
// no room, takes nothing now, or fails by itself, that is tried again: the peer may send nothing
// that would cause another attempt.
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
		if err != nil && tries > 0 && b.closed == nil { // it has failed by itself
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
