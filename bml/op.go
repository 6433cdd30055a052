package bml

import (
	"github.com/mpigo/mpigo/bml/rating"
	"github.com/mpigo/mpigo/btl"
)

// Op is one operation: a fragment, or a remote read or write. The layer above sets Tag, header,
// payload, Request and Then, and posts it with [BML.Send] or [BML.PostPiece]. It may use the
// operation again once Then is called.
type Op struct {
	btl.Op
	// Request belongs to the layer above.
	Request any
	// Then is called once, possibly from inside the post. nil: the fragment is delivered, or the
	// remote access done. *RefusedError: every rail calls the operation invalid. ErrMovesAgain: the
	// piece is moved again. Any other error: the peer is failing or lost.
	Then func(op *Op, err error)
	// Answered: the peer's answer shows that the fragment was delivered, even if its rail reports
	// an error.
	Answered bool

	peer     *Peer
	transfer *Transfer // of a piece
	rail     uint8     // index of the last rail that it was posted by
	state    opState
	// bound: no other rail can take the operation.
	bound bool
	// numbered: the header has its sequence number.
	numbered bool
	// isReplacement: it was posted by SendInPlace.
	isReplacement bool
	// bytes is its length when it was last posted, and mark is its rail's rating mark.
	bytes   int32
	mark    rating.Mark
	isRated bool
	// The piece's bytes of the message. isAgain: they were handed out before. Its twin carries the
	// same bytes by another rail. isCovered: the twin has delivered them.
	span
	isAgain, isCovered bool
	twin               *Op
	// Links in the peer's list of posted numbered fragments. hasCopy: a copy was sent by another
	// rail. isCopy: it is such a copy.
	older, younger  *Op
	hasCopy, isCopy bool
	isResent        bool  // a rail took it, and it goes again
	retries         uint8 // how often it was posted again
	mistakes        uint8 // how often a rail called it invalid
	trouble         trouble
	// replacement is the new payload after an incomplete Rebind, else nil: the operation uses it
	// once the BTL has called it back. released is called when no device reads the old payload.
	replacement []byte
	released    func()
}

// opState says who holds an operation.
type opState uint8

const (
	opIdle   opState = iota // the layer above
	opQueued                // a queue here
	opPosted                // a BTL
)

// TagGet and TagPut are the tags of remote reads and writes. They never go over the wire.
const (
	TagGet btl.Tag = 0xfe
	TagPut btl.Tag = 0xff
)

// Init makes an operation that is part of another object ready for use.
func (b *BML) Init(op *Op) {
	op.Owner, op.Done = op, b.opDone
}

// GetOp returns an operation from the pool.
func (b *BML) GetOp() *Op {
	if last := len(b.freeOps) - 1; last >= 0 {
		op := b.freeOps[last]
		b.freeOps = b.freeOps[:last]
		return op
	}
	op := new(Op)
	b.Init(op)
	return op
}

// maxFreeOps bounds the pool to about 2 MiB, so that memory is released after a burst.
const maxFreeOps = 1 << 13

// PutOp returns an operation to the pool.
func (b *BML) PutOp(op *Op) {
	op.Reset()
	if len(b.freeOps) < maxFreeOps {
		b.freeOps = append(b.freeOps, op)
	}
}

// Reset clears an operation, so that it can be posted as another one.
func (op *Op) Reset() {
	op.Request, op.Then, op.Payload, op.Local = nil, nil, nil, nil
	op.peer, op.transfer, op.state = nil, nil, opIdle
	op.replacement, op.released = nil, nil
	op.Answered, op.bound, op.numbered, op.isReplacement = false, false, false, false
	op.retries, op.mistakes, op.trouble = 0, 0, trouble{}
	op.isAgain, op.isCovered, op.twin = false, false, nil
	op.hasCopy, op.isCopy, op.isResent = false, false, false
}

// opOf is the Op around a btl.Op from a BTL or a queue.
func opOf(op *btl.Op) *Op { return op.Owner.(*Op) }

// Rebind makes an operation that is under way use payload, a copy of op.Payload. It reports false
// if a device still reads the old memory. Then the BML calls released when the device is done,
// within the BTL's own deadline (btl, C10), and uses payload if the operation is posted again.
func (b *BML) Rebind(op *Op, payload []byte, released func()) bool {
	switch {
	case op.state == opIdle:
		return true
	case op.state == opQueued:
		op.Payload = payload
		return true
	case op.peer.rails[op.rail].endpoint.Rebind(&op.Op, payload):
		return true
	}
	op.replacement, op.released = payload, released
	return false
}

// EndQueued ends an operation that is queued here, as if its rail had called it back with err.
func (b *BML) EndQueued(op *Op, err error) {
	for _, q := range op.peer.queues() {
		q.Remove(&op.Op)
	}
	b.end(op, err, false)
}

// Peer is the peer that the operation was last posted to.
func (op *Op) Peer() *Peer { return op.peer }

// IsQueued reports whether an operation waits here to be posted.
func (op *Op) IsQueued() bool { return op.state == opQueued }

// queues lists the places where operations to a peer wait.
func (pr *Peer) queues() []*btl.Queue {
	all := []*btl.Queue{&pr.replay, &pr.waiting}
	for i := range pr.rails {
		all = append(all, &pr.rails[i].queue)
	}
	return append(all, pr.emptied...)
}

// empty hands on the operations of a queue, in order. Handing one on may end others (EndQueued), or
// queue new ones, which stay in the queue.
func (pr *Peer) empty(q *btl.Queue, handOn func(op *Op)) {
	if q.Empty() {
		return
	}
	left := *q
	*q = btl.Queue{}
	pr.emptied = append(pr.emptied, &left)
	for !left.Empty() {
		handOn(pop(&left))
	}
	pr.emptied = pr.emptied[:len(pr.emptied)-1] // calls of empty are nested
}

// push queues an operation.
func push(q *btl.Queue, op *Op) {
	op.state = opQueued
	q.Push(&op.Op)
}

// pop takes the oldest operation out of a queue that is not empty.
func pop(q *btl.Queue) *Op {
	op := opOf(q.Pop())
	op.state = opIdle
	return op
}
