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
	// Request is the layer above's, and untouched here.
	Request any
	// Then is called once, possibly from inside the post. nil: the fragment is delivered, or the
	// remote access done. A *RefusedError: every rail calls the operation wrong in itself. Any
	// other error: it will never be delivered, because the peer is failing or lost. A piece of a
	// transfer that is to be moved again ends with ErrMovesAgain.
	Then func(op *Op, err error)
	// Answered: an answer of the peer shows that the fragment was delivered, whatever its rail
	// says.
	Answered bool

	peer     *Peer
	transfer *Transfer // of a piece
	rail     uint8     // index of the rail that it is, or was last, posted by
	state    opState
	// bound operations are made for their rail; another one cannot take them.
	bound bool
	// numbered: the header has its sequence number.
	numbered bool
	// isReplacement: it was posted by SendInPlace.
	isReplacement bool
	// bytes is its length since it was last posted, and mark what its rail's rating keeps of it.
	bytes   int32
	mark    rating.Mark
	isRated bool
	// What a piece has of its message. isAgain: it was handed out before. Its twin has the same
	// bytes, by another rail. isCovered: they are there by a twin.
	span
	isAgain, isCovered bool
	twin               *Op
	// A numbered fragment that an endpoint has is in the list of its peer. hasCopy: a copy was sent
	// by another rail. isCopy: it is one.
	older, younger  *Op
	hasCopy, isCopy bool
	isResent        bool  // a rail had taken it, and it is to go again
	retries         uint8 // how often it was posted again
	mistakes        uint8 // how often a rail called it wrong in itself
	trouble         trouble
	// replacement is the payload from which the operation goes on when the BTL has called it back,
	// and released is called when no device reads the old one; nil without an incomplete Rebind.
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

// GetOp takes an operation from the pool.
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

// maxFreeOps bounds the pool: about 2 MiB, so that a burst does not cost its memory for ever.
const maxFreeOps = 1 << 13

// PutOp gives an operation from GetOp back.
func (b *BML) PutOp(op *Op) {
	op.Reset()
	if len(b.freeOps) < maxFreeOps {
		b.freeOps = append(b.freeOps, op)
	}
}

// Reset makes an operation as new, so that it can be posted as another one.
func (op *Op) Reset() {
	op.Request, op.Then, op.Payload, op.Local = nil, nil, nil, nil
	op.peer, op.transfer, op.state = nil, nil, opIdle
	op.replacement, op.released = nil, nil
	op.Answered, op.bound, op.numbered, op.isReplacement = false, false, false, false
	op.retries, op.mistakes, op.trouble = 0, 0, trouble{}
	op.isAgain, op.isCovered, op.twin = false, false, nil
	op.hasCopy, op.isCopy, op.isResent = false, false, false
}

// opOf is the operation that a BTL or a queue holds.
func opOf(op *btl.Op) *Op { return op.Owner.(*Op) }

// Rebind has an operation that is under way go on from payload, a copy of what op.Payload holds. It
// reports false if a device still reads the old memory. Then released is called when the device is
// done with it, within the BTL's own deadline (btl, C10), and the operation goes on from payload if
// it is posted again.
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

// Peer that the operation was posted to last.
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

// empty hands the operations in a queue on, in order. Some of them may end meanwhile (EndQueued):
// to hand one on may call back another one. Those that are queued anew are not handed on.
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
