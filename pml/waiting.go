package pml

import (
	"fmt"
	"slices"
	"time"
)

// A finalized rank tells only the peers that it has exchanged fragments with (finalized.go). A rank
// may wait for a peer that does not know of it: posting a receive opens a connection, but sends
// nothing. So each rank sends one WAITING to each peer whose rails it has resolved, if the two have
// exchanged nothing for a while. A finalized peer answers with FINALIZED. Any other peer only
// learns that this rank exists. A WAITING is numbered, so it arrives whatever rails fail.
//
// A timer sends it, and not the idle policy: a program that only calls Test or Iprobe may never
// sleep, and may make few turns of progress.

// waitingPeriod: WAITING goes between one and two periods after the rails to a peer were resolved.
const waitingPeriod = 150 * time.Millisecond

// noteContact notes that the rails to a peer were resolved.
func (p *PML) noteContact(pr *peer) {
	if pr.IsInTouch() || pr.Rank() == p.cfg.Rank {
		return
	}
	if len(p.newContacts)+len(p.silentContacts) == 0 {
		p.eng.After(int64(waitingPeriod), p.tellWaiting)
	}
	p.newContacts = append(p.newContacts, pr)
}

// tellWaiting sends WAITING to the peers that have been silent since the period before.
func (p *PML) tellWaiting() {
	if p.closed != nil {
		return
	}
	due := p.silentContacts
	p.silentContacts, p.newContacts = slices.DeleteFunc(p.newContacts, func(pr *peer) bool { return pr.IsInTouch() }), nil
	if len(p.silentContacts) > 0 {
		p.eng.After(int64(waitingPeriod), p.tellWaiting)
	}
	for _, pr := range due {
		if !pr.IsInTouch() && pr.IsAlive() {
			p.send(pr, p.noticeOp(tagWaiting, matchBytes, WorldContext, 0))
		}
	}
}

// waitingArrived takes a WAITING. Its arrival is all that it says.
func (p *PML) waitingArrived(_ *peer, frag []byte) error {
	var h matchHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	if h.tag != 0 || len(frag) > matchBytes {
		return fmt.Errorf("%w: WAITING of %d bytes with tag %d", errMalformed, len(frag), h.tag)
	}
	return nil
}
