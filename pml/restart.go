package pml

// A message whose rail fails goes on over the other rails (package bml) without a restart. It
// restarts with another protocol if remote access has become impossible: the access was refused,
// because a device was reopened and its keys are invalid, or no rail that is up offers it. Bytes
// that have arrived are not sent again.
//
// A sender that writes negotiates again:
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

// restartNotifyArrived handles a RNDVRESTARTNOTIFY.
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

// receiveAgain revokes the remote keys, and asks for the rest of the message in fragments.
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

// restartAckArrived handles a RNDVRESTARTACK.
func (p *PML) restartAckArrived(pr *peer, frag []byte) error {
	return p.acknowledged(pr, frag, sendRestarting)
}

// restartNackArrived handles a RNDVRESTARTNACK: the receive is over.
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

// askAgain asks for the bytes that could not be read, in fragments.
func (r *RecvRequest) askAgain() {
	r.p.stats.Unread++
	r.p.stats.Restarts++
	r.got = r.t.From()
	r.t.GiveUp()
	r.ask()
}

// carryOn sends, in fragments, the bytes that the receiver still needs after a restart.
func (s *SendRequest) carryOn(h *ackHdr) {
	s.move(sendStreaming)
	s.recv = h.recv
	s.t.CarryOn()
	s.advance()
}
