package pml

import (
	"fmt"
	"slices"
	"time"
)

// A finalized rank tells only the peers that it is in touch with (left.go). A rank may wait for a
// peer that does not know of it: to post a receive opens a connection, and sends nothing. So a rank
// sends one WAITING to each peer to which it has found a way but with which it has exchanged
// nothing for a while. A peer that is finalized answers with its LEFT; any other peer is in touch
// from then on. A WAITING is numbered, so it arrives whatever rails fail.
//
// A timer sends it, not the idle policy: a program that only calls Test or Iprobe may never sleep,
// and may make few turns.

// waitingPeriod: a WAITING goes between one and two of these after the way to the peer was found.
const waitingPeriod = 150 * time.Millisecond

// inTouch reports whether a numbered fragment was posted to the peer, which it gets unless it is
// lost, or something has come from it.
func (pr *peer) inTouch() bool { return pr.sendSeq > 0 || pr.via != nil }

// noteContact notes that a way to a peer was found.
func (p *PML) noteContact(pr *peer) {
	if pr.inTouch() || pr.rank == p.cfg.Rank {
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
	p.silent, p.met = slices.DeleteFunc(p.met, (*peer).inTouch), nil
	if len(p.silent) > 0 {
		p.eng.After(int64(waitingPeriod), p.tellWaiting)
	}
	for _, pr := range due {
		if !pr.inTouch() && pr.lost == nil && pr.failing == nil {
			p.send(pr, p.noticeOp(pr, tagWaiting, matchBytes, WorldContext, 0))
		}
	}
}

// peerWaits takes a WAITING, which says no more than that it comes.
func peerWaits(in *incoming, data []byte) error {
	if in.tag != 0 || len(data) > 0 {
		return fmt.Errorf("%w: waiting with tag %d and %d bytes", errMalformed, in.tag, len(data))
	}
	return nil
}
