package pml

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// When every rail calls an operation wrong in itself (bml.RefusedError), the request that it belongs to ends with an error, at
// both ends (F7):
//
//   - A NACK goes in the place of a numbered fragment. It has the fragment's number and the beginning of its header, so that the
//     sequence has no gap. The receiver matches the NACK of a message as the message, and the receive ends with an error. The
//     NACK of an answer ends the request that waits for the answer.
//   - A send whose FRAGs no rail takes ends, and sends the receive a NACK of its own.
//   - Remote reads and writes that are wrong are replaced by fragments (restart.go).
//
// An operation that is called wrong may have been delivered all the same. Its NACK is then a duplicate, and is dropped. So
// what was answered counts as delivered, whatever a rail says; and a receive that asks for the data of a send that is over
// gets a NACK.

// errRefusedThere ends a request whose other end no rail takes an operation of.
var errRefusedThere = errors.New("the other rank could not send it: no rail takes it")

// refused puts a NACK in the place of a fragment that no rail takes.
func (p *PML) refused(op *bml.Op) (h nackHdr) {
	p.stats.Withdrawn++
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

// answerRefused ends the request of this rank that an answer was for, which no rail takes.
func (p *PML) answerRefused(op *bml.Op, err error) {
	pr := p.peers[op.Peer().Rank()]
	h := p.refused(op)
	switch h.kind {
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

// nackRecv tells a receive that the rest of its message will not come.
func (p *PML) nackRecv(pr *peer, recv handle) {
	h := nackHdr{kind: tagFrag}
	binary.LittleEndian.PutUint64(h.head[:], uint64(recv))
	p.post(pr, tagNack, nackBytes, h.encode)
}

// answersNobody is called when a receive asks for the data of a send that is over. A NACK went in the place of the send's
// announcement, which may have been delivered all the same: the receive would then wait for ever.
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
	// head is the beginning of the fragment that it replaces; behind a MATCH the length of the message.
	head  [nackHead]byte
	kind  btl.Tag // of that fragment
	bytes uint32  // that would have come along
}

// first and second are the handles in an answer.
func (h *nackHdr) first() handle  { return handle(binary.LittleEndian.Uint64(h.head[:])) }
func (h *nackHdr) second() handle { return handle(binary.LittleEndian.Uint64(h.head[16:])) }

func (h nackHdr) encode(b []byte) {
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
	isKind := h.kind == tagFrag || h.kind != tagNack && isNumbered(h.kind)
	if last>>8&(1<<24-1) != 0 || !isKind || !isMessage(h.kind) && h.bytes > bml.MaxRemoteKeysBytes {
		return fmt.Errorf("%w: nack %#x", errMalformed, last)
	}
	return nil
}

// nackArrived takes a NACK as the fragment in whose place it came.
func (p *PML) nackArrived(pr *peer, frag []byte) error {
	var h nackHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	switch h.kind {
	case tagMatch, tagRndv, tagRget:
		return p.messageNacked(pr, &h, frag)
	case tagRevoke: // all of it is here
		var in incoming
		in.kind = h.kind
		if err := in.matchHdr.decode(frag); err != nil {
			return err
		}
		return p.deliver(pr, &in, h.head[matchBytes:])
	case tagFinalized:
		return p.finalizedArrived(pr, frag[:matchBytes])
	case tagFrag:
		p.endRecv(pr, h.first())
	case tagRestartNotify:
		p.endRecv(pr, h.second())
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

// messageNacked takes the NACK of a message, which matches a receive as the message would have.
func (p *PML) messageNacked(pr *peer, h *nackHdr, frag []byte) error {
	var in incoming
	if err := in.matchHdr.decode(frag); err != nil {
		return err
	}
	in.kind, in.withdrawn = h.kind, true
	in.length = int64(binary.LittleEndian.Uint64(h.head[matchBytes:]))
	if in.length < 0 || in.length > maxMessageBytes {
		return fmt.Errorf("%w: nack of length %d", errMalformed, in.length)
	}
	return p.deliver(pr, &in, make([]byte, h.bytes))
}

// endRecv ends a receive that waits for a message's rest.
func (p *PML) endRecv(pr *peer, name handle) {
	if r := p.awaiting(pr, name); r != nil {
		r.fail(errRefusedThere)
	}
}

// endSend ends a send that waits for an answer.
func (p *PML) endSend(pr *peer, name handle) {
	if s := p.sends.get(name); s != nil && s.peer == pr && (s.state == sendAnnounced || s.state == sendRestarting) {
		s.fail(errRefusedThere)
	}
}
