package pml

// Traffic counts the messages and bytes that this rank has sent to a rank of the job, collectives
// included.
type Traffic struct {
	Peer            int
	Messages, Bytes int64
}

// Traffic lists the traffic of this rank, by peer. An inline message updates only the sequence
// number and the credit of its peer, so both counts are derived from these.
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

// inlineBytes returns the number of message bytes that were sent inline to the peer.
func (pr *peer) inlineBytes() int64 {
	return pr.credit.sent - pr.posted.cost - int64(pr.Inlined())*fragmentCostBytes
}

// onTransfer reports that the transfer of a long message begins or has ended.
func (p *PML) onTransfer(begins bool) {
	if p.cfg.OnTransfer != nil {
		p.cfg.OnTransfer(begins)
	}
}
