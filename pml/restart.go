package pml

// A message whose rail fails goes on by the other rails (package bml): no message starts again for
// that. It starts again in another way if remote access is of no use any more: the access was
// refused, because a device was made anew and its keys are gone; or no rail that is up has it. What
// is there already stays.
//
// A sender that writes asks for new terms:
//
//  1. When no write is under way any more it sends RNDVRESTARTNOTIFY.
//  2. The receiver revokes its remote keys, and answers RNDVRESTARTACK. If it needs nothing more,
//     it answers RNDVRESTARTNACK.
//  3. After RNDVRESTARTACK the sender sends what is missing in fragments, and then FIN. After
//     RNDVRESTARTNACK it is done.
//
// A receiver that reads asks for the rest in fragments with an ACK.

// restart asks the receiver to take the rest in fragments.
func (s *SendRequest) restart() {
	s.move(sendRestarting)
	s.p.stats.Restarts++
	s.p.stats.Unwritten++
	s.t.ReleaseLocal()
	h := restartHdr{send: s.name, recv: s.recv}
	s.p.post(s.peer, tagRestartNotify, restartBytes, h.encode)
}

// restartNotifyArrived takes a RNDVRESTARTNOTIFY.
func (p *PML) restartNotifyArrived(pr *peer, frag []byte) error {
	var h restartHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	r := p.awaiting(pr, h.recv)
	if r == nil || r.send != h.send {
		p.post(pr, tagRestartNack, restartBytes, h.encode)
		return nil
	}
	r.restart = true
	r.noteAnswered()
	r.advance()
	return nil
}

// receiveAgain takes the remote keys back, and asks for the rest of the message in fragments.
func (r *RecvRequest) receiveAgain() {
	p := r.p
	if r.t != nil {
		p.bml.Revoke(r.t)
	}
	r.restart = false
	p.stats.Restarts++
	h := ackHdr{send: r.send, recv: r.name, from: r.got, to: r.want}
	p.post(r.from, tagRestartAck, ackBytes, h.encode)
}

// restartAckArrived takes a RNDVRESTARTACK.
func (p *PML) restartAckArrived(pr *peer, frag []byte) error {
	return p.acknowledged(pr, frag, sendRestarting)
}

// restartNackArrived takes a RNDVRESTARTNACK: the receive is over.
func (p *PML) restartNackArrived(pr *peer, frag []byte) error {
	var h restartHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	if s := p.answered(pr, h.send, sendRestarting); s != nil {
		s.writes = false
		s.stream(&ackHdr{})
	}
	return nil
}

// askAgain asks for what could not be read, in fragments. What is there already stays.
func (r *RecvRequest) askAgain() {
	r.p.stats.Unread++
	r.p.stats.Restarts++
	r.got = r.t.From()
	r.t.GiveUp()
	r.ask()
}

// carryOn sends in fragments what the receiver still misses after a restart.
func (s *SendRequest) carryOn(h *ackHdr) {
	s.move(sendStreaming)
	s.recv = h.recv
	s.t.CarryOn()
	s.advance()
}
