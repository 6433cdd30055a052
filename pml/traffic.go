package pml

// Traffic is what this rank has sent to a rank of the job, collectives included.
type Traffic struct {
	Peer            int
	Messages, Bytes int64
}

// Traffic lists what this rank has sent, by peer. A message that goes inline counts nothing but the
// sequence number and the credit of its peer, so both numbers follow from these.
func (p *PML) Traffic() (list []Traffic) {
	for rank, pr := range p.peers {
		if pr == nil {
			continue
		}
		inline := int64(pr.Inlined())
		t := Traffic{
			Peer: rank, Messages: pr.posted.messages + inline,
			Bytes: pr.posted.bytes + pr.credit.sent - pr.posted.cost - inline*fragmentCostBytes,
		}
		if t.Messages > 0 {
			list = append(list, t)
		}
	}
	return list
}

// onTransfer tells that the bytes of a long message begin to move, or that they have ended to.
func (p *PML) onTransfer(begins bool) {
	if p.cfg.OnTransfer != nil {
		p.cfg.OnTransfer(begins)
	}
}
