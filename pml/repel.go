package pml

import (
	"errors"

	"github.com/mpigo/mpigo/btl"
)

// repel tells a peer that was lost, and sends all the same, that nothing of it is wanted: it may have had nothing to send when the rails to it
// were failed, and would wait for an answer. Its half of the rail goes down, and no PROBE is answered, so it finds nobody until its
// grace time ends.
func (p *PML) repel(pr *peer, m btl.Module) {
	rl := pr.by(m)
	if rl == nil || rl.reopen == nil || rl.repelling || p.closed != nil {
		return
	}
	rl.repelling = true
	p.eng.After(0, func() { p.repelBy(rl, mostProbes) }) // not from inside a call of the endpoint
}

func (p *PML) repelBy(rl *rail, tries int) {
	if p.closed != nil {
		return
	}
	ep, err := rl.reopen()
	if err != nil {
		rl.repelling = false
		return
	}
	rl.endpoint = ep
	p.sayLost(rl, ep, tries)
}

// sayLost sends RAILDOWN by an endpoint to a peer that was lost, and fails it then. A rail that has no room is tried again.
func (p *PML) sayLost(rl *rail, ep btl.Endpoint, tries int) {
	if p.closed != nil {
		return
	}
	over := func() {
		rl.repelling = false
		ep.Fail(rl.peer.lost)
	}
	op := p.getOp()
	op.Tag, op.HdrLen = tagRailDown, railBytes
	h := railHdr{rail: rl.local, epoch: ep.Epoch()}
	h.encode(op.Hdr[:])
	op.Done = func(op *btl.Op, err error) {
		p.putOp(op)
		if err != nil && tries > 0 && p.closed == nil { // it has failed by itself
			p.eng.After(int64(firstRetry), func() { p.repelBy(rl, tries-1) })
			return
		}
		p.eng.After(0, over)
	}
	err := ep.Send(op)
	if err == nil {
		return
	}
	p.putOp(op)
	if tries == 0 || !errors.Is(err, btl.ErrResource) {
		over()
		return
	}
	p.eng.After(int64(firstRetry), func() { p.sayLost(rl, ep, tries-1) })
}
