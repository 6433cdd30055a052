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
		t := Traffic{
			Peer: rank, Messages: pr.posted.messages + int64(pr.Inlined()), Bytes: pr.posted.bytes + pr.inlineBytes(),
		}
		if t.Messages > 0 {
			list = append(list, t)
		}
	}
	return list
}

// inlineBytes is how many bytes of messages have gone to the peer inline.
func (pr *peer) inlineBytes() int64 {
	return pr.credit.sent - pr.posted.cost - int64(pr.Inlined())*fragmentCostBytes
}

// onTransfer tells that the bytes of a long message begin to move, or that they have ended to.
func (p *PML) onTransfer(begins bool) {
	if p.cfg.OnTransfer != nil {
		p.cfg.OnTransfer(begins)
	}
}
