package pml

import (
	"fmt"
	"slices"
	"time"
)

// A finalized rank sends FINALIZED only to peers with which it has exchanged fragments
// (finalized.go). A rank may wait for a peer that does not know of it: posting a receive opens a
// connection, but sends no fragment. So each rank sends one WAITING to each peer whose rails it has
// resolved, if the two exchange no fragments for a while. A finalized peer answers with FINALIZED.
// Any other peer only learns that this rank exists. A WAITING is numbered, so it arrives even if
// rails fail.
//
// A timer sends it instead of the idle policy, because a program that only calls Test or Iprobe may
// never sleep, and may make few turns of progress.

// waitingPeriod: WAITING is sent between one and two periods after the rails to a peer were
// resolved.
const waitingPeriod = 150 * time.Millisecond

// noteContact records that the rails to a peer were resolved.
func (p *PML) noteContact(pr *peer) {
	if pr.IsInTouch() || pr.Rank() == p.cfg.Rank {
		return
	}
	if len(p.newContacts)+len(p.silentContacts) == 0 {
		p.eng.After(int64(waitingPeriod), p.tellWaiting)
	}
	p.newContacts = append(p.newContacts, pr)
}

// tellWaiting sends WAITING to the peers that have been silent since the previous period.
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

// waitingArrived handles a WAITING, which carries no information beyond its arrival.
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
