package pml

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// If every rail refuses an operation as wrong in itself (bml.RefusedError), its request ends with
// an error at both ranks:
//
//   - A NACK takes the place of a numbered fragment. It has the fragment's number, so that the
//     sequence has no gap, and the start of its header. The NACK of a message is matched as the
//     message would have been, and the receive ends with an error. The NACK of an answer ends the
//     request that waits for the answer.
//   - A send whose FRAGs are refused ends, and sends the receive a NACK of kind FRAG.
//   - Remote reads and writes that are refused are replaced by fragments (restart.go).
//
// A refused fragment may have been delivered nevertheless. Its NACK is then a duplicate, and is
// dropped. So an answered fragment counts as delivered, even if its rail reports an error, and a
// receive that asks for the data of a send that is over gets a NACK.

// errPeerRefused ends a request if every rail of the other rank refuses a fragment of its message.
var errPeerRefused = errors.New("the other rank could not send it: no rail takes it")

// nackOp sends a NACK in the place of a refused fragment, and returns it.
func (p *PML) nackOp(op *bml.Op) (h nackHdr) {
	p.stats.Refused++
	h = nackHdr{kind: op.Tag, bytes: uint32(len(op.Payload))}
	copy(h.head[:], op.Header())
	if op.Tag == tagMatch {
		binary.LittleEndian.PutUint64(h.head[matchBytes:], uint64(len(op.Payload)))
	}
	nack := p.answerOp(tagNack, nackBytes)
	h.encode(nack.Hdr[:])
	p.bml.SendInPlace(nack, op)
	return h
}

// answerRefused replaces a refused answer by a NACK, and ends the request of this rank that sent
// it.
func (p *PML) answerRefused(op *bml.Op, err error) {
	pr := p.peers[op.Peer().Rank()]
	h := p.nackOp(op)
	switch h.kind {
	case tagAck, tagRestartAck:
		if r := p.awaiting(pr, h.second()); r != nil {
			r.fail(err)
		}
	case tagRestartNotify:
		// In any other state the send has an answer, so the fragment was delivered nevertheless.
		if s := p.sendOf(pr, h.first(), sendRestarting); s != nil {
			s.fail(err)
		}
	}
}

// nackRecv tells the peer's receive that the rest of its message will not come.
func (p *PML) nackRecv(pr *peer, recv handle) {
	h := nackHdr{kind: tagFrag}
	binary.LittleEndian.PutUint64(h.head[:], uint64(recv))
	p.post(pr, tagNack, nackBytes, h.encode)
}

// nackOrphanedRecv answers a receive that asks for the data of a send that is over. A NACK replaced
// the send's RTS, but the RTS may have been delivered nevertheless. Without an answer the receive
// would wait for ever.
func (p *PML) nackOrphanedRecv(pr *peer, h *ackHdr) {
	if h.recv != 0 && p.sends.get(h.send) == nil {
		p.nackRecv(pr, h.recv)
	}
}

// nackBytes is the length of a NACK. nackHeadBytes is the number of bytes in it from the replaced
// fragment.
const (
	nackBytes     = 32
	nackHeadBytes = 24
)

// nackHdr is a NACK.
type nackHdr struct {
	// head is the start of the replaced fragment; for a MATCH, the length of the message follows.
	head  [nackHeadBytes]byte
	kind  btl.Tag // of that fragment
	bytes uint32  // length of its payload
}

// first and second are the handles in an answer.
func (h *nackHdr) first() handle  { return handle(binary.LittleEndian.Uint64(h.head[:])) }
func (h *nackHdr) second() handle { return handle(binary.LittleEndian.Uint64(h.head[16:])) }

func (h nackHdr) encode(b []byte) {
	copy(b, h.head[:])
	binary.LittleEndian.PutUint64(b[nackHeadBytes:], uint64(h.kind)|uint64(h.bytes)<<32)
}

func (h *nackHdr) decode(b []byte) error {
	if len(b) != nackBytes {
		return fmt.Errorf("%w: NACK of %d bytes", errMalformed, len(b))
	}
	copy(h.head[:], b)
	last := binary.LittleEndian.Uint64(b[nackHeadBytes:])
	h.kind, h.bytes = btl.Tag(last), uint32(last>>32)
	isKind := h.kind == tagFrag || h.kind != tagNack && isNumbered(h.kind)
	if last>>8&(1<<24-1) != 0 || !isKind || !isMessage(h.kind) && h.bytes > bml.MaxRemoteKeysBytes {
		return fmt.Errorf("%w: NACK with %#x", errMalformed, last)
	}
	return nil
}

// nackArrived handles a NACK in place of the fragment that it replaces.
func (p *PML) nackArrived(pr *peer, frag []byte) error {
	var h nackHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	switch h.kind {
	case tagMatch, tagRndv, tagRget:
		return p.messageNacked(pr, &h)
	case tagRevoke: // the NACK has all of it
		in := incoming{kind: h.kind}
		if err := in.matchHdr.decode(h.head[:]); err != nil {
			return err
		}
		return p.deliver(pr, &in, h.head[matchBytes:])
	case tagInvite:
		return fmt.Errorf("an invitation to a communicator: %w", errPeerRefused)
	case tagFinalized:
		return p.finalizedArrived(pr, h.head[:matchBytes])
	case tagFrag:
		p.failNackedRecv(pr, h.first())
	case tagRestartNotify:
		p.failNackedRecv(pr, h.second())
	case tagFin:
		var f finHdr
		if err := f.decode(h.head[:finBytes]); err != nil {
			return err
		}
		if f.ofReceive {
			p.failNackedRecv(pr, f.handle)
		} else {
			p.failNackedSend(pr, f.handle)
		}
	case tagAck, tagPut, tagRestartAck, tagRestartNack:
		p.failNackedSend(pr, h.first())
	}
	return nil
}

// messageNacked delivers the NACK of a message, which matches a receive as the message would have.
func (p *PML) messageNacked(pr *peer, h *nackHdr) error {
	in := incoming{kind: h.kind, isNack: true, length: int64(binary.LittleEndian.Uint64(h.head[matchBytes:]))}
	if err := in.matchHdr.decode(h.head[:]); err != nil {
		return err
	}
	// cost has checked h.bytes too, but has read the fragment separately: the peer may have changed
	// it since.
	if in.length < 0 || in.length > maxMessageBytes || int64(h.bytes) > pr.credit.window {
		return fmt.Errorf("%w: NACK of a message of length %d with %d bytes", errMalformed, in.length, h.bytes)
	}
	return p.deliver(pr, &in, make([]byte, h.bytes))
}

// failNackedRecv fails a receive that waits for the rest of its message.
func (p *PML) failNackedRecv(pr *peer, recv handle) {
	if r := p.awaiting(pr, recv); r != nil {
		r.fail(errPeerRefused)
	}
}

// failNackedSend fails a send that waits for an answer.
func (p *PML) failNackedSend(pr *peer, send handle) {
	s := p.sendOf(pr, send, sendRTS)
	if s == nil {
		s = p.sendOf(pr, send, sendRestarting)
	}
	if s != nil {
		s.fail(errPeerRefused)
	}
}
