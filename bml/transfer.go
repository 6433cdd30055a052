package bml

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Access says how the pieces of a transfer move.
type Access uint8

const (
	// Fragments: the sender posts fragments.
	Fragments Access = iota
	// Write: the sender writes into the receiver's buffer.
	Write
	// Read: the receiver reads from the sender's buffer.
	Read
)

// ErrInterrupted ends a piece of a transfer that was interrupted. Upper.Restart follows.
var ErrInterrupted = errors.New("transfer interrupted")

// Transfer moves one long message in pieces. It belongs to one request at a time, which posts the
// pieces.
type Transfer struct {
	// Owner is the layer above's.
	Owner any

	stripes
	peer   *Peer
	mine   Registration // of our buffer
	theirs remoteKeys
	keys   []byte // the list of remote key descriptors of mine, while it is being sent
	pieces []*Op  // queued or posted: few, see pipelineDepth

	// isInterrupted: it is in Peer.interrupted, and posts no pieces.
	isInterrupted bool
	// isBroken: a rail failed with a piece, or no rail that is up can move one.
	isBroken bool
	// wrong is the error of a piece that a rail called wrong in itself.
	wrong error
	trouble
	// mistakes counts the attempts in which a rail called a fragment wrong in itself, and avoid has
	// these rails.
	mistakes int
	avoid    RailSet
}

// maxFreeTransfers bounds the pool: 2 to 4 MiB with the lists that transfers keep, so that a burst
// does not cost its memory for ever.
const maxFreeTransfers = 1 << 11

// Transfer gives a transfer to or from a peer that Resolve has found: t, if that was kept, else
// another one.
func (b *BML) Transfer(t *Transfer, pr *Peer, owner any) *Transfer {
	if last := len(b.freeTransfers) - 1; t == nil && last >= 0 {
		t = b.freeTransfers[last]
		b.freeTransfers = b.freeTransfers[:last]
	} else if t == nil {
		t = new(Transfer)
	}
	t.Owner, t.peer = owner, pr
	b.wantLong(pr)
	return t
}

// EndTransfer ends a transfer none of whose pieces is under way. With keep its registration stays
// for the next transfer of the same buffer, and the result is true. After a failure it never stays:
// the peer may still be about to reach what it was told of.
func (b *BML) EndTransfer(t *Transfer, keep, failed bool) (kept bool) {
	t.isInterrupted, t.isBroken, t.wrong, t.trouble, t.mistakes, t.avoid = false, false, nil, trouble{}, 0, 0
	switch {
	case failed && t.mine.access != btl.AccessLocal:
		b.revoke(&t.mine)
	case keep && !failed:
		return true
	}
	t.mine.Release()
	keys, pieces := t.keys[:0], t.pieces[:0]
	*t = Transfer{keys: keys, pieces: pieces}
	if len(b.freeTransfers) < maxFreeTransfers {
		b.freeTransfers = append(b.freeTransfers, t)
	}
	return false
}

// Begin starts an attempt to move the bytes from..to of the message. No piece is under way.
func (t *Transfer) Begin(from, to int64) {
	t.begin(from, to)
	t.isBroken, t.wrong = false, nil
}

// From and End are the range of the attempt.
func (t *Transfer) From() int64 { return t.from }
func (t *Transfer) End() int64  { return t.end }

// IsDone reports whether all pieces were posted and have ended well.
func (t *Transfer) IsDone() bool { return t.next == t.end && t.under == 0 && !t.isInterrupted }

// IsBroken reports whether the transfer has to begin anew, because a rail failed with a piece.
func (t *Transfer) IsBroken() bool { return t.isBroken }

// Wrong is the error of a piece that a rail called wrong in itself, nil if there was none.
func (t *Transfer) Wrong() error { return t.wrong }

// IsRefused reports whether rails have called fragments wrong so often that it is of no use to
// begin anew.
func (t *Transfer) IsRefused() bool { return t.peer.isRefused(t.mistakes) }

// LastError is why a rail failed with a piece, nil if none has.
func (t *Transfer) LastError() error { return t.trouble.last }

// Pieces lists the pieces that are under way. It is valid until the next call.
func (t *Transfer) Pieces() []*Op { return t.pieces }

// rails are the rails that can move pieces now.
func (t *Transfer) rails(by Access) RailSet {
	up := t.peer.up
	if by != Fragments {
		return t.peer.fast(t.theirs.set & t.mine.set & up)
	}
	if others := up &^ t.avoid; others != 0 {
		return t.peer.fast(others)
	}
	return t.peer.fast(up)
}

// fast are the rails of a set that are not slow, or all if there is none.
func (pr *Peer) fast(set RailSet) RailSet {
	if fast := set &^ pr.slow; fast != 0 {
		return fast
	}
	return set
}

// CanMove reports whether a rail that is up can move pieces.
func (t *Transfer) CanMove(by Access) bool { return t.rails(by) != 0 }

// NextPiece gives an operation for the next piece, of the bytes from..to of the message, which the
// caller fills in and posts with PostPiece. headerBytes is the length of the header of a fragment.
// nil: all were given out, no rail has room for one now, or the transfer was interrupted.
func (b *BML) NextPiece(t *Transfer, by Access, headerBytes int) (op *Op, from, to int64) {
	if t.isInterrupted || t.next == t.end {
		return nil, 0, 0
	}
	set := t.rails(by)
	if set == 0 {
		t.isBroken = by == Write && t.peer.up != 0
		b.interrupt(t)
		return nil, 0, 0
	}
	i, from, to := t.take(t.peer.rails, set, by, headerBytes)
	if i < 0 {
		return nil, 0, 0
	}
	op = b.GetOp()
	op.transfer, op.bound, op.rail = t, true, uint8(i)
	switch by {
	case Write:
		op.Tag = TagPut
	case Read:
		op.Tag = TagGet
	}
	if by != Fragments {
		op.HdrLen = 0
		op.Local, op.Remote, op.RemoteOffset = t.mine.regions[i], t.theirs.key[i], t.theirs.offset[i]+uint64(from)
	}
	t.pieces = append(t.pieces, op)
	return op, from, to
}

// access is how an operation moves its bytes.
func (op *Op) access() Access {
	switch op.Tag {
	case TagPut:
		return Write
	case TagGet:
		return Read
	}
	return Fragments
}

// moveTo makes an operation that waits for one rail one for another rail. Those that are no pieces
// go by any rail.
func (op *Op) moveTo(rl *Rail) {
	t, from, to := op.transfer, int(op.rail), int(rl.index)
	if t == nil {
		return
	}
	t.move(from, to, len(op.Payload))
	if op.access() != Fragments {
		offset := op.RemoteOffset - t.theirs.offset[from]
		op.Local, op.Remote, op.RemoteOffset = t.mine.regions[to], t.theirs.key[to], t.theirs.offset[to]+offset
	}
	op.rail = rl.index
}

// PostPiece posts a piece. Then may be called inside.
func (b *BML) PostPiece(op *Op) { b.post(&op.transfer.peer.rails[op.rail], op) }

// pieceDone is called when a piece was moved, or not. isPosting: this is inside its PostPiece.
func (b *BML) pieceDone(op *Op, err error, isPosting bool) {
	t, pr := op.transfer, op.transfer.peer
	t.done(int(op.rail), len(op.Payload))
	t.forget(op)
	switch {
	case err == nil:
	case !pr.IsAlive():
		err = pr.cause
	case isUsage(err) || errors.Is(err, ErrUnregistered):
		if op.Tag != TagGet && op.Tag != TagPut {
			if !t.isBroken {
				t.mistakes++
			}
			t.avoid |= 1 << op.rail
			t.isBroken = true
		}
		t.wrong = err
		b.interrupt(t)
		err = ErrInterrupted
	case b.mayTryAgain(pr, &t.trouble, 1<<op.rail, err):
		t.isBroken = true
		b.interrupt(t)
		err = ErrInterrupted
	default:
		err = b.finalError(pr, err)
	}
	op.Then(op, err)
	switch {
	case !t.isInterrupted || t.under > 0 || !pr.IsAlive():
	case isPosting: // the request that posts it cannot be restarted in there
		b.settleLater(pr)
	default:
		b.restartInterrupted(pr)
	}
}

// interrupt stops a transfer until its pieces have ended, the failed rails are fenced, and a rail
// is up.
func (b *BML) interrupt(t *Transfer) {
	if t.isInterrupted {
		return
	}
	t.isInterrupted = true
	t.peer.interrupted = append(t.peer.interrupted, t)
	if t.under == 0 {
		b.settleLater(t.peer)
	}
}

// settleLater has interrupted transfers restarted at the next turn, if the rails are fenced; else
// the event that fences them does.
func (b *BML) settleLater(pr *Peer) {
	if pr.IsFenced() && pr.IsAlive() && !pr.isSettling {
		pr.isSettling = true
		b.postpone(work{kind: workSettle, peer: pr})
	}
}

// Interrupt stops a transfer whose buffer one of its rails cannot reach any more, as if it had
// called a piece wrong.
func (b *BML) Interrupt(t *Transfer, wrong error) {
	t.wrong = wrong
	b.interrupt(t)
}

// forget takes a piece that has ended out of the list.
func (t *Transfer) forget(op *Op) {
	last := len(t.pieces) - 1
	t.pieces[slices.Index(t.pieces, op)] = t.pieces[last]
	t.pieces[last] = nil
	t.pieces = t.pieces[:last]
}
