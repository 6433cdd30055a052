package pml

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/request"
)

// A rank that has left makes no call any more, but is still there: it waits, in Finalize, until all
// have left. It tells so each peer that it is in touch with, and each that gets in touch later,
// once. It opens no connection for that: a rank that waits for it has opened one (waiting.go). It
// tells by a FINALIZED, which is numbered as messages are and goes behind those that are held, so it is
// the last that comes of that rank's sends. Who waits for another message of that rank, for itself
// or in a collective, would wait until the job ends; it gets ErrProcFailed instead. So does who
// sends to it what has to be matched before it is done, unless that rank has receives under way
// that nobody waits for there. What needs no answer goes as ever, and is dropped.
//
// A receive or probe from anyone waits on: this rank is of its communicator too, and may send to
// itself.
//
// A send that nobody waits for is left to Finalize, which reports it.

// What the tag of a FINALIZED says.
const (
	saysReceiving    = iota // receives are under way, and may match what comes
	saysNotReceiving        // nothing that comes will be matched
	saysKinds
)

// TellFinalized tells each other rank, now if it is in touch and else as soon as it is, that this one
// begins no operation any more.
func (p *PML) TellFinalized() {
	if p.hasFinalized || p.closed != nil || p.eng.Stopped() != nil {
		return
	}
	p.hasFinalized, p.finalizedAs = true, saysNotReceiving
	if p.isReceiving() {
		p.finalizedAs = saysReceiving
	}
	for _, pr := range p.peers {
		if pr != nil && !pr.IsUnknown() {
			p.tellFinalized(pr)
		}
	}
}

// isReceiving reports whether any receive is posted, or its message arriving.
func (p *PML) isReceiving() bool {
	p.settleDirect()
	under := false
	p.recvs.each(func(*RecvRequest) { under = true })
	for _, c := range p.contexts {
		under = under || c.posted.count > 0
	}
	return under
}

// tellFinalized tells one rank, unless something for it is held: then release does. Nobody waits any
// more when all ranks are finalized.
func (p *PML) tellFinalized(pr *peer) {
	if !p.hasFinalized || pr.isTold || pr.pending.head != nil || p.rejecting || !pr.IsAlive() || pr.Rank() == p.cfg.Rank {
		return
	}
	pr.isTold = true
	p.send(pr, p.noticeOp(tagFinalized, matchBytes, WorldContext, p.finalizedAs))
}

// finalizedArrived takes a FINALIZED.
func (p *PML) finalizedArrived(pr *peer, frag []byte) error {
	var h matchHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	if h.tag >= saysKinds || len(frag) > matchBytes {
		return fmt.Errorf("%w: finalized as %d, in %d bytes", errMalformed, h.tag, len(frag))
	}
	if pr.finalized != running {
		return nil
	}
	pr.finalized = finalizedReceiving
	if h.tag == saysNotReceiving {
		pr.finalized = finalizedNotReceiving
	}
	p.settleDirect()
	for _, c := range p.sortedContexts() {
		c.endWaits(pr.Rank(), false, errFinalized)
	}
	if pr.finalized == finalizedNotReceiving && p.leaving == nil { // else nobody waits here
		pr.pending.remove(func(s *SendRequest) bool { return !s.Abandoned() })
		p.sends.each(func(s *SendRequest) {
			if s.peer == pr && (s.state == sendAnnounced || s.state == sendPending) && !s.Abandoned() {
				s.fail(errFinalized)
			}
		})
		p.release(pr)
	}
	return nil
}

var errFinalized = fmt.Errorf("%w: it has called Finalize, or returned", request.ErrProcFailed)

// endWaits ends the receives and probes that wait for a message of a rank of the job, also those from
// anyone if fromAny.
func (c *Context) endWaits(world int, fromAny bool, err error) {
	for _, r := range c.posted.inOrder() {
		if r.world == world || fromAny && r.world == request.AnySource {
			c.posted.remove(r)
			r.finish(err)
		}
	}
	c.probes = slices.DeleteFunc(c.probes, func(r *ProbeRequest) bool {
		if s := c.world(r.source); s != world && !(fromAny && s == request.AnySource) {
			return false
		}
		r.Complete(request.Empty(), err)
		return true
	})
	c.settle()
}

// needsAnswer reports whether a message that does not go at once, and is about to be sent, would wait for
// the peer.
func (s *SendRequest) needsAnswer(pr *peer) bool {
	return s.mode == Synchronous || pr.pending.head != nil || len(s.buf) > pr.EagerBytes() || !pr.credit.covers(len(s.buf))
}

// finality is what a peer has said of its Finalize.
type finality uint8

const (
	running               finality = iota // nothing
	finalizedReceiving                    // it sends nothing any more, and receives of it may still match
	finalizedNotReceiving                 // it sends nothing any more, and matches nothing
)
