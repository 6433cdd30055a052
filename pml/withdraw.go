package pml

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/btl"
)

// A rail may call an operation wrong in itself: it refuses it for its length, or ends it with an
// error of ClassUsage. That says nothing of the path. The operation is tried by other rails. When
// none takes it, the one request that it belongs to ends with an error, at both ends:
//
//   - A numbered fragment is replaced by a NACK, which has its number and the beginning of its header,
//     so that the sequence has no gap. The receiver matches the NACK of a message as the message, and the receive ends with
//     an error; that of an answer ends the request that waits for the answer.
//   - A send whose FRAGs no rail takes ends, and tells the receive by a NACK of its own.
//   - Remote reads and writes that are wrong are replaced by fragments (recvreq.go, sendreq.go).
//
// An operation that is called wrong may have been delivered all the same. Its NACK is then a
// duplicate, and is dropped. So what was answered counts as delivered, whatever a rail says; and a
// receive that asks for the data of a send that is over gets a NACK.
//
// A rail that takes neither a fragment nor its NACK, or refuses what is not numbered, carries
// nothing. If all do the peer is failed.

// mostMistakes is how often an operation is called wrong before it is given up; at least once by
// each rail.
const mostMistakes = 3

// refusedError ends a request that all is well with, but that no rail takes an operation of.
type refusedError struct{ cause error }

func (e *refusedError) Error() string { return fmt.Sprintf("no rail takes it: %v", e.cause) }
func (e *refusedError) Unwrap() error { return e.cause }

func isRefused(err error) bool {
	var r *refusedError
	return errors.As(err, &r)
}

// errWithdrawn ends a request at the other end.
var errWithdrawn = errors.New("the other rank could not send it: no rail takes it")

// misused reports whether an error is of an operation, and not of the rail.
func misused(err error) bool {
	if err == nil || isRefused(err) {
		return false
	}
	var be *btl.Error
	return errors.Is(err, errUnregistered) || errors.As(err, &be) && be.Class == btl.ClassUsage
}

// callsWrong ends an operation that a rail has refused when it was posted, as if it had been taken
// and ended as wrong.
func (rl *rail) callsWrong(op *btl.Op, err error) {
	var be *btl.Error
	if !errors.As(err, &be) || be.Class != btl.ClassUsage {
		err = &btl.Error{Rail: rl.module.Attrs().Name, Peer: rl.peer.rank, Class: btl.ClassUsage, Side: btl.SideLocal, Err: err}
	}
	op.Done(op, err)
}

// isHopeless reports whether so many mistakes are enough to give up what was tried.
func (pr *peer) isHopeless(mistakes int) bool { return mistakes > max(mostMistakes, len(pr.rails)) }

// next is the rail for an operation that was called wrong: the one that is up after the last that
// it was tried on.
func (pr *peer) next(last uint8) *rail {
	n := len(pr.rails)
	for i := 1; i <= n; i++ {
		if at := (int(last) + i) % n; pr.up.has(at) {
			return &pr.rails[at]
		}
	}
	return pr.first
}

// withdraw gives up an operation that no rail takes, and ends the request that it belongs to. The
// operation is its owner's.
func (p *PML) withdraw(pr *peer, op *btl.Op, err error) {
	if !isNumbered(op.Tag) || op.Tag == tagNack {
		p.fail(pr, causeOf(err), nil)
		return
	}
	p.stats.Withdrawn++
	nack := p.answerOp(pr, tagNack, nackBytes)
	h := nackHdr{kind: op.Tag, bytes: uint32(len(op.Payload))}
	copy(h.head[:], op.Header())
	if op.Tag == tagMatch {
		binary.LittleEndian.PutUint64(h.head[matchBytes:], uint64(len(op.Payload)))
	}
	h.encode(nack.Hdr[:])
	nack.Hdr[opNumbered] = 1
	p.send(pr, nack)
	refused := &refusedError{err}
	switch owner := op.Owner.(type) {
	case *SendRequest:
		owner.err = refused // it ends when this operation is counted
	case *RecvRequest:
		owner.err = refused
	default:
		p.endLocal(pr, op.Tag, &h, refused)
	}
}

// endLocal ends the request of ours that was to send an answer.
func (p *PML) endLocal(pr *peer, kind btl.Tag, h *nackHdr, err error) {
	switch kind {
	case tagAck, tagRestartAck:
		if r := p.awaiting(pr, h.second()); r != nil {
			r.fail(err)
		}
	case tagRestartNotify:
		// In any other state it is answered: it was delivered all the same.
		if s := p.sends.get(h.first()); s != nil && s.peer == pr && s.state == sendRestarting {
			s.fail(err)
		}
	}
}

// withdraw ends a send whose pieces no rail takes, and tells the receive. Nothing of it is under
// way.
func (s *SendRequest) withdraw() {
	s.p.stats.Withdrawn++
	s.err = &refusedError{s.t.wrong}
	s.p.nackRecv(s.peer, s.recv)
}

// nackRecv tells a receive that the rest of its message will not come.
func (p *PML) nackRecv(pr *peer, recv handle) {
	op := p.answerOp(pr, tagNack, nackBytes)
	h := nackHdr{kind: tagFrag}
	binary.LittleEndian.PutUint64(h.head[:], uint64(recv))
	h.encode(op.Hdr[:])
	p.send(pr, op)
}

// answersNobody is called when a receive asks for the data of a send that is over. An announcement
// that was given up, and replaced, may have been delivered all the same: then the receive would
// wait for ever.
func (p *PML) answersNobody(pr *peer, h *ackHdr) {
	if h.recv != 0 && p.sends.get(h.send) == nil {
		p.nackRecv(pr, h.recv)
	}
}

// nackBytes is the length of a NACK, of which nackHead are of the fragment that it replaces.
const (
	nackBytes = 32
	nackHead  = 24
)

// nackHdr is a NACK.
type nackHdr struct {
	// head is how the fragment begins in whose place it comes; behind a MATCH the length of the
	// message.
	head  [nackHead]byte
	kind  btl.Tag // of that
	bytes uint32  // that would have come along
}

// first and second are the handles in an answer.
func (h *nackHdr) first() handle  { return handle(binary.LittleEndian.Uint64(h.head[:])) }
func (h *nackHdr) second() handle { return handle(binary.LittleEndian.Uint64(h.head[16:])) }

func (h *nackHdr) encode(b []byte) {
	copy(b, h.head[:])
	binary.LittleEndian.PutUint64(b[nackHead:], uint64(h.kind)|uint64(h.bytes)<<32)
}

func (h *nackHdr) decode(b []byte) error {
	if len(b) != nackBytes {
		return fmt.Errorf("%w: nack of %d bytes", errMalformed, len(b))
	}
	copy(h.head[:], b)
	last := binary.LittleEndian.Uint64(b[nackHead:])
	h.kind, h.bytes = btl.Tag(last), uint32(last>>32)
	if last>>8&(1<<24-1) != 0 || h.kind == tagNack || h.kind != tagFrag && !isNumbered(h.kind) || !isMessage(h.kind) && h.bytes > maxRails*exposureBytes {
		return fmt.Errorf("%w: nack %#x", errMalformed, last)
	}
	return nil
}

// decodeNack reads a NACK as what it replaces, if that is a message, which is as long then as what
// would have come along; else whole.
func (p *PML) decodeNack(pr *peer, in *incoming, frag []byte) (data []byte, err error) {
	var h nackHdr
	if err := h.decode(frag); err != nil {
		return nil, err
	}
	in.kind = tagNack
	in.seq = sequenceOf(frag)
	if !isMessage(h.kind) {
		return frag, nil
	}
	if err := in.matchHdr.decode(frag); err != nil {
		return nil, err
	}
	in.length = int64(binary.LittleEndian.Uint64(h.head[matchBytes:]))
	if in.length < 0 || in.length > maxMessageBytes || int64(h.bytes) > pr.credit.window {
		return nil, fmt.Errorf("%w: nack of length %d with %d bytes", errMalformed, in.length, h.bytes)
	}
	in.kind, in.withdrawn = h.kind, true
	return make([]byte, h.bytes), nil
}

// nacked takes the NACK of what is no message.
func (p *PML) nacked(pr *peer, frag []byte) error {
	var h nackHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	switch h.kind {
	case tagRevoke, tagLeft: // all of it is here
		in := incoming{announcement: announcement{kind: h.kind}}
		if err := in.matchHdr.decode(frag); err != nil {
			return err
		}
		if h.kind == tagLeft {
			return p.peerLeft(pr, &in, nil)
		}
		return p.deliver(pr, &in, h.head[matchBytes:])
	case tagFrag, tagRestartNotify:
		recv := h.first()
		if h.kind == tagRestartNotify {
			recv = h.second()
		}
		p.endRecv(pr, recv)
	case tagFin:
		var f finHdr
		if err := f.decode(h.head[:finBytes]); err != nil {
			return err
		}
		if f.ofReceive {
			p.endRecv(pr, f.handle)
		} else {
			p.endSend(pr, f.handle)
		}
	case tagAck, tagPut, tagRestartAck, tagRestartNack:
		p.endSend(pr, h.first())
	}
	return nil
}

// endRecv ends a receive that waits for a message's rest.
func (p *PML) endRecv(pr *peer, name handle) {
	if r := p.awaiting(pr, name); r != nil {
		r.fail(errWithdrawn)
	}
}

// endSend ends a send that waits for an answer.
func (p *PML) endSend(pr *peer, name handle) {
	if s := p.sends.get(name); s != nil && s.peer == pr && (s.state == sendAnnounced || s.state == sendRestarting) {
		s.fail(errWithdrawn)
	}
}
