package pml

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/request"
)

// A finalized rank starts no further operation, but is still alive: it waits in Finalize for all
// other ranks. It sends one FINALIZED to each peer with which it has exchanged fragments, or
// exchanges fragments later. It opens no connection for that, because a rank that waits for it has
// opened one (waiting.go). A FINALIZED is numbered like a message and is sent after the pending
// sends, so no send of that rank follows it.
//
// At the peer, operations that would wait for the finalized rank until the job ends fail with
// ErrProcFailed: receives and probes, with their collectives, and sends that the finalized rank
// would have to match. If that rank has active receives, its FINALIZED says so, and the sends go
// on. A send that needs no answer goes on too, and the peer drops its message. Finalize reports
// abandoned sends.
//
// A receive or probe from AnySource keeps waiting, because its own rank also belongs to the
// communicator, and may send to itself.

// The tag of a FINALIZED.
const (
	stillReceiving = iota // receives are active, and may match messages
	notReceiving          // the rank matches no message any more
	numFinalizedTags
)

// finalizedState is the state that a peer has reported in its FINALIZED. A finalized peer starts no
// more sends.
type finalizedState uint8

const (
	notFinalized          finalizedState = iota
	finalizedReceiving                   // its receives may still match
	finalizedNotReceiving                // it matches nothing
)

// finalizedError returns the error of a receive or probe that waits for a finalized rank of the
// job. If unmatched messages of that rank have arrived, the error names the first.
func (c *Context) finalizedError(world int) error {
	if c.handler != nil { // users do not know the tags of collectives
		return errFinalized
	}
	list := c.unexpected.table.find(keyOf(world, request.AnyTag))
	if list == nil || list.head == nil {
		return errFinalized
	}
	first, count, more := c.envelope(list.head.item), 0, ""
	for n := list.head.next; n != nil; n = n.next {
		count++
	}
	if count > 0 {
		more = fmt.Sprintf(", and %d more", count)
	}
	return fmt.Errorf("%w; a message of rank %d with tag %d, of %d bytes, has arrived and was not received%s: compare the tags",
		errFinalized, first.Source, first.Tag, first.Bytes, more)
}

var errFinalized = fmt.Errorf("%w: it has called Finalize, or returned", request.ErrProcFailed)

// TellFinalized tells each other rank that this rank starts no further operation: immediately if
// the two have exchanged fragments, otherwise as soon as they do.
func (p *PML) TellFinalized() {
	if p.hasFinalized || p.closed != nil || p.eng.Stopped() != nil {
		return
	}
	p.hasFinalized, p.finalizedTag = true, notReceiving
	if p.isReceiving() {
		p.finalizedTag = stillReceiving
	}
	for _, pr := range p.peers {
		if pr != nil && !pr.IsUnknown() {
			p.tellFinalized(pr)
		}
	}
}

// isReceiving reports whether a receive is posted, or its message is arriving.
func (p *PML) isReceiving() bool {
	p.postBlocking()
	if p.recvs.inUse() > 0 {
		return true
	}
	for _, c := range p.contexts {
		if c.posted.count > 0 {
			return true
		}
	}
	return false
}

// tellFinalized sends FINALIZED to one peer, unless sends to it are pending; then launchPending
// sends it. No rank needs it once all ranks are in Finalize.
func (p *PML) tellFinalized(pr *peer) {
	if !p.hasFinalized || pr.wasToldFinalized || pr.pending.head != nil || p.isRejecting || !pr.IsAlive() || pr.Rank() == p.cfg.Rank {
		return
	}
	pr.wasToldFinalized = true
	p.send(pr, p.noticeOp(tagFinalized, matchBytes, WorldContext, p.finalizedTag))
}

// finalizedArrived handles a FINALIZED.
func (p *PML) finalizedArrived(pr *peer, frag []byte) error {
	var h matchHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	if h.tag >= numFinalizedTags || len(frag) > matchBytes {
		return fmt.Errorf("%w: FINALIZED of %d bytes with tag %d", errMalformed, len(frag), h.tag)
	}
	if pr.finalized != notFinalized {
		return nil
	}
	pr.finalized = finalizedReceiving
	if h.tag == notReceiving {
		pr.finalized = finalizedNotReceiving
	}
	p.postBlocking()
	for _, c := range p.sortedContexts() {
		c.failWaits(pr.Rank(), false, c.finalizedError(pr.Rank()))
	}
	if pr.finalized == finalizedNotReceiving && p.leaving == nil { // otherwise no caller waits here
		p.failUnmatched(pr, func(s *SendRequest) bool { return !s.Abandoned() }, errFinalized)
	}
	return nil
}

// failWaits fails the receives and probes that wait for a message of a rank of the job, and with
// anySource also the ones from AnySource.
func (c *Context) failWaits(world int, anySource bool, err error) {
	matches := func(source int) bool { return source == world || anySource && source == request.AnySource }
	c.failPosted(func(r *RecvRequest) bool { return matches(r.world) }, err)
	c.probes = slices.DeleteFunc(c.probes, func(r *ProbeRequest) bool {
		if !matches(c.world(r.source)) {
			return false
		}
		r.Complete(request.Empty(), err)
		return true
	})
	c.freeIfUnused()
}
