package pml

import (
	"fmt"
	"slices"
	"time"
)

// A finalized rank tells only the peers that it is in touch with (left.go). A rank may wait for a
// peer that does not know of it: to post a receive opens a connection, and sends nothing. So a rank
// sends one WAITING to each peer to which it has found a way but with which it has exchanged
// nothing for a while. A peer that is finalized answers with its FINALIZED; any other peer is in touch
// from then on. A WAITING is numbered, so it arrives whatever rails fail.
//
// A timer sends it, not the idle policy: a program that only calls Test or Iprobe may never sleep,
// and may make few turns.

// waitingPeriod: a WAITING goes between one and two of these after the way to the peer was found.
const waitingPeriod = 150 * time.Millisecond

// noteContact notes that a way to a peer was found.
func (p *PML) noteContact(pr *peer) {
	if pr.IsInTouch() || pr.Rank() == p.cfg.Rank {
		return
	}
	if len(p.met)+len(p.silent) == 0 {
		p.eng.After(int64(waitingPeriod), p.tellWaiting)
	}
	p.met = append(p.met, pr)
}

// tellWaiting sends WAITING to the peers that are silent since the period before.
func (p *PML) tellWaiting() {
	if p.closed != nil {
		return
	}
	due := p.silent
	p.silent, p.met = slices.DeleteFunc(p.met, func(pr *peer) bool { return pr.IsInTouch() }), nil
	if len(p.silent) > 0 {
		p.eng.After(int64(waitingPeriod), p.tellWaiting)
	}
	for _, pr := range due {
		if !pr.IsInTouch() && pr.IsAlive() {
			p.send(pr, p.noticeOp(tagWaiting, matchBytes, WorldContext, 0))
		}
	}
}

// waitingArrived takes a WAITING, which says no more than that it comes.
func (p *PML) waitingArrived(_ *peer, frag []byte) error {
	var h matchHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	if h.tag != 0 || len(frag) > matchBytes {
		return fmt.Errorf("%w: waiting with tag %d, in %d bytes", errMalformed, h.tag, len(frag))
	}
	return nil
}
