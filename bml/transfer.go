package bml

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/bml/rating"
	"github.com/mpigo/mpigo/btl"
)

// Access says how the pieces of a transfer move.
type Access uint8

const (
	// Fragments: the sender posts fragments.
	Fragments Access = iota
	// Write: the sender writes into the receiver's buffer. Rails without remote writes carry
	// fragments.
	Write
	// Read: the receiver reads from the sender's buffer.
	Read
)

// ErrMovesAgain ends a piece whose bytes go again in other pieces.
var ErrMovesAgain = errors.New("piece moves again")

// Transfer moves one long message in pieces. It belongs to one request at a time, which posts the
// pieces. A piece whose delivery is not confirmed goes by another rail at once: until the buffer is
// released, writing the same bytes twice does no harm. So the buffer is released only when IsDone
// and IsSettled both hold.
type Transfer struct {
	// Owner belongs to the layer above.
	Owner any

	ledger
	peer   *Peer
	mine   Registration // of our buffer
	theirs remoteKeys
	keys   []byte // the list of remote key descriptors of mine, while it is being sent
	pieces []*Op  // queued or posted
	place  int    // in Peer.transfers, counted from 1; 0 if it is not there
	// fences are the rail incarnations, at either end, that ended a piece with an unknown result.
	fences []fence
	waits  waitsFor

	// wrong is the error that stopped remote access: a rail called an access invalid, or failed
	// again with one.
	wrong error
	trouble
	// mistakes is the most often that rails called one fragment invalid. avoid has these rails, and
	// mistake the last error.
	mistakes int
	avoid    RailSet
	mistake  error
}

// waitsFor says what a transfer waits for, and so in which list of its peer it is.
type waitsFor uint8

const (
	waitsForNothing waitsFor = iota
	waitsForRoom             // in Peer.waitRoom, until a rail has room or comes up
	waitsForFence            // in Peer.waitFence, until a rail is drained here
)

// maxFreeTransfers bounds the pool to 2 to 4 MiB, with the transfers' lists, so that memory is
// released after a burst.
const maxFreeTransfers = 1 << 11

// Transfer returns a transfer to or from a resolved peer: t, if it was kept, or a new one.
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

// EndTransfer ends a transfer without pieces under way. With keep, the registration stays for the
// next transfer of the same buffer, and the result is true. After a failure it is always released:
// the peer may still try to reach the buffer.
func (b *BML) EndTransfer(t *Transfer, keep, failed bool) (kept bool) {
	t.stop()
	t.wrong, t.trouble, t.mistakes, t.avoid, t.mistake = nil, trouble{}, 0, 0, nil
	switch {
	case failed && t.mine.access != btl.AccessLocal:
		b.revoke(&t.mine)
	case keep && !failed:
		return true
	}
	t.mine.Release()
	*t = Transfer{keys: t.keys[:0], pieces: t.pieces[:0], fences: t.fences[:0], ledger: ledger{again: t.again[:0]}}
	if len(b.freeTransfers) < maxFreeTransfers {
		b.freeTransfers = append(b.freeTransfers, t)
	}
	return false
}

// Begin starts to move the bytes from..to of the message. No piece may be under way.
func (t *Transfer) Begin(from, to int64) {
	t.stop()
	t.begin(from, to)
	pr := t.peer
	pr.transfers = append(pr.transfers, t)
	t.place = len(pr.transfers)
	pr.addLeft(t.left, 0)
	pr.b.startPulling(pr)
}

// stop takes the transfer out of the lists of its peer.
func (t *Transfer) stop() {
	pr := t.peer
	if t.place > 0 {
		last := len(pr.transfers) - 1
		moved := pr.transfers[last]
		pr.transfers[t.place-1], moved.place = moved, t.place
		pr.transfers[last] = nil
		pr.transfers = pr.transfers[:last]
		t.place = 0
		pr.addLeft(0, t.left)
	}
	t.awaits(waitsForNothing)
	t.left, t.fences = 0, t.fences[:0]
}

// CarryOn continues the transfer in fragments after remote access failed. Bytes that have arrived
// stay.
func (t *Transfer) CarryOn() { t.wrong = nil }

// GiveUp stops handing out pieces. No piece may be under way.
func (t *Transfer) GiveUp() {
	t.peer.addLeft(0, t.left)
	t.left, t.again, t.next = 0, t.again[:0], t.to
}

// From is the offset of the first byte not known to have arrived, and End the end of the message.
func (t *Transfer) From() int64 {
	first := t.next
	for _, s := range t.again {
		first = min(first, s.from)
	}
	for _, op := range t.pieces {
		first = min(first, op.from)
	}
	return first
}
func (t *Transfer) End() int64 { return t.to }

// FragmentBytes is how many bytes of the message have arrived in fragments.
func (t *Transfer) FragmentBytes() int64 { return t.fragments }

// IsDone reports whether every byte has arrived, as far as this rank's rails know.
func (t *Transfer) IsDone() bool { return t.left == 0 && len(t.pieces) == 0 }

// HasPieces reports whether pieces are under way.
func (t *Transfer) HasPieces() bool { return len(t.pieces) > 0 }

// IsRefused reports whether rails have called fragments invalid too often to try again. LastMistake
// is the last such error.
func (t *Transfer) IsRefused() bool    { return t.peer.isRefused(t.mistakes) }
func (t *Transfer) LastMistake() error { return t.mistake }

// Pieces lists the pieces that are under way. The list is valid until the next call.
func (t *Transfer) Pieces() []*Op { return t.pieces }

// rails returns the rails that can move the next piece now.
func (t *Transfer) rails(by Access) RailSet {
	up := t.peer.up
	switch remote := t.theirs.set & t.mine.set & up; {
	case by == Read:
		return remote
	case by == Write && !t.isNextFragment():
		return remote | up&^t.peer.putters
	}
	if others := up &^ t.avoid; others != 0 {
		return others
	}
	return up
}

// CanMove reports whether pieces can still move: remote access was not refused, and either a rail
// that is up can move them or no rail is up.
func (t *Transfer) CanMove(by Access) bool {
	return t.wrong == nil && (t.peer.up == 0 || t.rails(by) != 0)
}

// NextPiece returns an operation for the next piece, the bytes from..to of the message. The caller
// fills it in and posts it with PostPiece. The piece of a Write is a fragment if its Tag is not
// TagPut; headerBytes is the length of a fragment's header. nil: every byte was handed out, the
// transfer cannot move, or it has to wait, and Upper.Resume follows.
func (b *BML) NextPiece(t *Transfer, by Access, headerBytes int) (op *Op, from, to int64) {
	if t.left == 0 || !t.CanMove(by) {
		return nil, 0, 0
	}
	if t.isNextFragment() {
		by = Fragments
	}
	i, n := b.choose(t, by, headerBytes)
	if i < 0 {
		t.awaits(waitsForRoom)
		return nil, 0, 0
	}
	before := t.left
	s, isAgain, mistakes := t.take(n)
	t.peer.addLeft(t.left, before)
	op = b.pieceOf(t, i, s, by)
	op.isAgain, op.mistakes = isAgain, mistakes
	return op, s.from, s.to
}

// pieceOf makes an operation for a piece that goes by rail i.
func (b *BML) pieceOf(t *Transfer, i int, s span, by Access) *Op {
	op := b.GetOp()
	op.transfer, op.bound, op.rail, op.span = t, true, uint8(i), s
	if by == Write && !t.reaches(i) {
		by = Fragments
	}
	switch by {
	case Write:
		op.Tag = TagPut
	case Read:
		op.Tag = TagGet
	default:
		op.Tag = 0
	}
	if by != Fragments {
		op.HdrLen = 0
		op.Local, op.Remote, op.RemoteOffset = t.mine.regions[i], t.theirs.key[i], t.theirs.offset[i]+uint64(s.from)
	}
	t.pieces = append(t.pieces, op)
	return op
}

// reaches reports whether a rail reaches both buffers.
func (t *Transfer) reaches(i int) bool { return (t.theirs.set & t.mine.set).Has(i) }

// isFragment reports whether an operation goes as a fragment.
func (op *Op) isFragment() bool { return op.Tag != TagPut && op.Tag != TagGet }

// PostPiece posts a piece. It may call Then before it returns.
func (b *BML) PostPiece(op *Op) { b.post(&op.transfer.peer.rails[op.rail], op) }

// pieceDone is called when a piece has ended. isPosting: it runs inside the piece's PostPiece.
// wasPosted: an endpoint had accepted the piece, so after an error its result is unknown.
func (b *BML) pieceDone(op *Op, err error, isPosting, wasPosted bool) {
	t, pr := op.transfer, op.transfer.peer
	t.forget(op)
	twin := op.twin
	if twin != nil {
		op.twin, twin.twin = nil, nil
	}
	failedBefore := t.by.Has(int(op.rail))
	if err != nil && wasPosted && !isUsage(err) {
		failedBefore = t.addFence(&pr.rails[op.rail]) && failedBefore
	}
	switch {
	case op.isCovered: // its bytes have arrived
		err = nil
	case err == nil:
		t.arrived(op.span, op.isAgain, op.isFragment())
		if t.redone == 0 {
			t.trouble = trouble{}
		}
		if twin != nil {
			b.cover(twin)
		}
	case !pr.IsAlive():
		err = pr.cause
	case twin != nil: // the twin may still arrive
		err = ErrMovesAgain
	default:
		err = b.moveAgain(op, err, wasPosted, failedBefore)
	}
	op.Then(op, err)
	if err == nil && t.left == 0 && pr.isShared() {
		b.helpTail(t, b.eng.Now())
	}
	if isPosting { // its request may be posting
		b.pullLater(pr)
	} else {
		b.pull(pr)
	}
}

// moveAgain takes back a piece that a rail did not deliver, and returns the error that ends the
// piece. failedBefore: an earlier incarnation of the rail failed with a piece, too, and nothing was
// delivered since. A path may carry fragments and no remote access, so the rest goes in fragments.
func (b *BML) moveAgain(op *Op, err error, wasPosted, failedBefore bool) error {
	t, pr := op.transfer, op.transfer.peer
	isWrong := isUsage(err) || errors.Is(err, ErrUnregistered)
	switch {
	case isWrong && op.isFragment():
		op.mistakes++
		t.mistakes, t.mistake = max(t.mistakes, int(op.mistakes)), err
		t.avoid |= 1 << op.rail
	case isWrong:
		t.wrong = err
	case wasPosted && !b.mayTryAgain(pr, &t.trouble, 1<<op.rail, err):
		return b.finalError(pr, err)
	case wasPosted && failedBefore && !op.isFragment():
		t.wrong = err
	}
	before := t.left
	t.giveBack(givenBack{op.span, op.isFragment(), op.mistakes}, op.isAgain)
	pr.addLeft(t.left, before)
	if wasPosted {
		b.stats.Resent++
		b.stats.ResentBytes += op.span.bytes()
	}
	return ErrMovesAgain
}

// forget removes a piece that has ended from the list.
func (t *Transfer) forget(op *Op) {
	last := len(t.pieces) - 1
	t.pieces[slices.Index(t.pieces, op)] = t.pieces[last]
	t.pieces[last] = nil
	t.pieces = t.pieces[:last]
}

// demand is how much the messages to the peer have to hand out, when t wants a piece. Only
// fragments can be sent twice.
func (t *Transfer) demand(asFragment bool) rating.Demand {
	return rating.Demand{Left: t.left, All: t.peer.left, Messages: t.peer.wanting, Stays: !asFragment, Full: rating.Set(t.peer.up &^ t.peer.withRoom(t.peer.up))}
}
