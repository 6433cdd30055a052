package pml

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/request"
)

// A rank that has left makes no call any more, but is still there: it waits, in Finalize, until all
// have left. It tells so each peer that it is in touch with, and each that gets in touch later,
// once. It opens no connection for that: a rank that waits for it has opened one (waiting.go). It
// tells by a LEFT, which is numbered as messages are and goes behind those that are held, so it is
// the last that comes of that rank's sends. Who waits for another message of that rank, for itself
// or in a collective, would wait until the job ends; it gets ErrProcFailed instead. So does who
// sends to it what has to be matched before it is done, unless that rank has receives under way
// that nobody waits for there. What needs no answer goes as ever, and is dropped.
//
// A receive or probe from anyone waits on: this rank is of its communicator too, and may send to
// itself.
//
// A send that nobody waits for is left to Finalize, which reports it.

// What the tag of a LEFT says.
const (
	leftReceiving = iota // receives are under way, and may match what comes
	leftDeaf             // nothing that comes will be matched
	leftKinds
)

// TellLeft tells each other rank, now if it is in touch and else as soon as it is, that this one
// begins no operation any more.
func (p *PML) TellLeft() {
	if p.hasLeft || p.closed != nil || p.eng.Stopped() != nil {
		return
	}
	p.hasLeft, p.leftAs = true, leftDeaf
	if p.isReceiving() {
		p.leftAs = leftReceiving
	}
	for _, pr := range p.peers {
		if pr != nil && !pr.unknown() {
			p.tellLeft(pr)
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

// tellLeft tells one rank, unless something for it is held: then release does. Nobody waits any
// more when all ranks are finalized.
func (p *PML) tellLeft(pr *peer) {
	if !p.hasLeft || pr.toldLeft || pr.held.head != nil || p.rejecting || pr.failing != nil || pr.lost != nil || pr.rank == p.cfg.Rank {
		return
	}
	pr.toldLeft = true
	p.send(pr, p.noticeOp(pr, tagLeft, matchBytes, WorldContext, p.leftAs))
}

// peerLeft takes a LEFT.
func (p *PML) peerLeft(pr *peer, in *incoming, data []byte) error {
	if in.tag >= leftKinds || len(data) > 0 {
		return fmt.Errorf("%w: left as %d, with %d bytes", errMalformed, in.tag, len(data))
	}
	if pr.left != nil {
		return nil
	}
	pr.left, pr.deaf = errLeft, in.tag == leftDeaf
	p.settleDirect()
	for _, c := range p.sortedContexts() {
		c.endWaits(pr.rank, false, pr.left)
	}
	if pr.deaf && p.leaving == nil { // else nobody waits here
		pr.held.remove(func(s *SendRequest) bool { return !s.Abandoned() })
		p.sends.each(func(s *SendRequest) {
			if s.peer == pr && (s.state == sendAnnounced || s.state == sendHeld) && !s.Abandoned() {
				s.fail(pr.left)
			}
		})
		p.release(pr)
	}
	return nil
}

var errLeft = fmt.Errorf("%w: it has called Finalize, or returned", request.ErrProcFailed)

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
	return s.mode == Synchronous || pr.barred || len(s.buf) > pr.eagerBytes || !pr.credit.covers(len(s.buf))
}
