package bml

import (
	"cmp"
	"encoding/binary"
	"errors"

	"github.com/mpigo/mpigo/btl"
)

// Send posts a fragment by the peer's first rail, as soon as a rail is up. It may call Then before
// it returns.
func (b *BML) Send(pr *Peer, op *Op) {
	op.peer = pr
	if err := b.Resolve(pr); err != nil {
		op.Then(op, err)
		return
	}
	if pr.AwaitsPath() {
		b.number(op)
		push(&pr.waiting, op)
		return
	}
	if pr.judge != nil && pr.shorts.isEmpty() && pr.first.queue.Empty() && pr.isShared() && b.isNumbered(op.Tag) {
		b.chooseFirst(pr, b.eng.Now())
	}
	b.post(pr.first, op)
}

// SendInline sends a fragment of a numbered kind without a callback, if it can go now. hdr has the
// number from NextSeq.
func (pr *Peer) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	if !pr.inliner.SendInline(tag, hdr, payload) {
		return false
	}
	pr.sendSeq++
	return true
}

// ShortSender returns the endpoint that takes a short fragment now, nil if there is none, and the
// number of the next numbered fragment. CountSent counts a fragment that it took.
func (pr *Peer) ShortSender() (btl.ShortSender, uint32) { return pr.shortSender, uint32(pr.sendSeq) }

// CountSent counts a numbered fragment that a ShortSender took.
func (pr *Peer) CountSent() { pr.sendSeq++ }

// ShortReceiver returns the endpoint that can hand over the peer's next fragment without Arrived,
// nil if there is none, and the number of that fragment. TakeNext counts the fragments handed over.
func (pr *Peer) ShortReceiver() (btl.ShortReceiver, uint32) {
	if len(pr.early) > 0 || pr.via == nil || pr.state >= PeerFailing {
		return nil, 0
	}
	return pr.shortReceiver, uint32(pr.recvSeq)
}

// RunReceiver is ShortReceiver for an endpoint that hands over runs.
func (pr *Peer) RunReceiver() (btl.RunReceiver, uint32) {
	if from, _ := pr.ShortReceiver(); from == nil {
		return nil, 0
	}
	return pr.runReceiver, uint32(pr.recvSeq)
}

// Inlined is the number of fragments that have gone inline.
func (pr *Peer) Inlined() uint64 { return pr.sendSeq - pr.posted }

// InlineRail is the index of the rail that took them, among the peer's entries in Rails. If several
// rails did, it is the last one.
func (pr *Peer) InlineRail() int { return int(pr.inlineRail) }

// NextSeq is the number of the next numbered fragment.
func (pr *Peer) NextSeq() uint32 { return uint32(pr.sendSeq) }

// SendInPlace posts a fragment under the number of an operation that ended with a *RefusedError, so
// that the sequence has no gap.
func (b *BML) SendInPlace(op, of *Op) {
	setSequence(op.Hdr[:], sequenceOf(of.Hdr[:]))
	op.numbered, op.isReplacement = true, true
	b.Send(of.peer, op)
}

// post hands an operation to a rail's endpoint. It queues the operation if others wait for the
// endpoint, or the peer is failing. It may call Then before it returns.
func (b *BML) post(rl *Rail, op *Op) {
	pr := rl.peer
	op.peer = pr
	if pr.state == PeerLost {
		b.end(op, pr.cause, true)
		return
	}
	b.number(op)
	if pr.IsAlive() && rl.queue.Empty() {
		switch b.tryPost(rl, op) {
		case accepted:
			return
		case railIsDown:
			b.divert(rl, op)
			return
		}
	}
	b.stats.Retries++
	push(&rl.queue, op)
	pr.isBusy = true
	b.startPulling(pr)
	if rl == pr.first {
		pr.stopInline() // until the queue is empty, so that fragments stay in order
	}
	if pr.IsAlive() && !rl.isRetrying {
		rl.isRetrying = true
		b.postpone(work{kind: workRetry, rail: rl})
	}
}

// outcome is what became of a post.
type outcome uint8

const (
	accepted outcome = iota
	noRoom
	railIsDown
)

// tryPost posts an operation once. An endpoint that returns ErrFailed fails its rail. An invalid
// operation is called back with an error, and counts as accepted.
func (b *BML) tryPost(rl *Rail, op *Op) outcome {
	if rl.state == railFailing || rl.state == railDown {
		return railIsDown
	}
	op.rail, op.state = rl.index, opPosted
	b.begin(rl, op)
	var err error
	switch op.Tag {
	case TagGet:
		err = rl.getter.Get(&op.Op)
	case TagPut:
		err = rl.putter.Put(&op.Op)
	default:
		err = rl.endpoint.Send(&op.Op)
	}
	if err == nil {
		return accepted
	}
	op.state = opIdle
	b.finish(op, false)
	switch {
	case errors.Is(err, btl.ErrResource):
		return noRoom
	case errors.Is(err, btl.ErrFailed):
		b.railFailed(rl, err)
		if rl.peer.IsAlive() {
			return railIsDown
		}
	case errors.Is(err, btl.ErrTooLong), isUsage(err):
		b.end(op, rl.usageError(err), true)
		return accepted
	default: // an error outside the contract: the owner must not wait for ever
		b.fail(rl.peer, CauseOf(err), nil)
	}
	return noRoom
}

// divert finds another way for an operation that a failed rail did not take.
func (b *BML) divert(rl *Rail, op *Op) {
	switch pr := rl.peer; {
	case !pr.IsAlive() || op.bound:
		b.end(op, cmp.Or(pr.Err(), rl.recovery.cause), true)
	default:
		b.Send(pr, op)
	}
}

// retry posts a rail's queue until the rail has no room. It returns how many operations were taken.
func (b *BML) retry(rl *Rail) int {
	n := 0
	for rl.peer.IsAlive() && !rl.queue.Empty() {
		// It leaves the queue first: once posted, the BTL owns its link.
		op := pop(&rl.queue)
		switch b.tryPost(rl, op) {
		case noRoom:
			op.state = opQueued
			rl.queue.PushFront(&op.Op)
			return n
		case railIsDown:
			b.divert(rl, op)
		}
		n++
	}
	rl.isRetrying = false
	b.pull(rl.peer) // the rail has room again
	if rl == rl.peer.first && rl.peer.HasPath() {
		b.useFirst(rl.peer, int(rl.index))
	}
	return n
}

// number gives an operation of a numbered kind the next sequence number when it is first posted,
// even if it has to wait.
func (b *BML) number(op *Op) {
	if op.numbered || !b.isNumbered(op.Tag) {
		return
	}
	setSequence(op.Hdr[:], uint32(op.peer.sendSeq))
	op.numbered = true
	op.peer.sendSeq++
	op.peer.posted++
}

// sequenceOf is the number in the header of a numbered fragment, which has at least MatchBytes.
func sequenceOf(hdr []byte) uint32 { return binary.LittleEndian.Uint32(hdr[12:]) }

func setSequence(hdr []byte, seq uint32) { binary.LittleEndian.PutUint32(hdr[12:], seq) }

// onOpDone is called when a BTL is done with an operation.
func (b *BML) onOpDone(done *btl.Op, err error) { b.end(opOf(done), err, false) }

// end ends an operation, or queues it for replay. isPosting: end runs inside the operation's post.
func (b *BML) end(op *Op, err error, isPosting bool) {
	wasPosted := op.state == opPosted
	if wasPosted {
		b.finish(op, err == nil)
	}
	op.state = opIdle
	if released := op.released; released != nil {
		op.Payload, op.replacement, op.released = op.replacement, nil, nil
		if err == nil || !b.AfterDrain(op.peer, released) {
			released()
		}
	}
	if op.hasCopy && op.twin != nil { // the copy is still under way
		op.twin.twin, op.twin = nil, nil
	}
	switch {
	case op.transfer != nil:
		b.pieceDone(op, err, isPosting, wasPosted)
	case err == nil || op.Answered:
		op.Then(op, nil)
	case op.bound:
		op.Then(op, err)
	default:
		op.isResent = op.isResent || wasPosted
		b.replay(op, err)
	}
}
