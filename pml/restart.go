package pml

import (
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// How a long message starts again after a rail failed with one of its pieces. When the BML calls
// interrupted, it has stopped the transfer, every piece has ended, and both halves of each failed
// rail are drained. So nothing of the old attempt can reach a buffer any more. Then:
//
//  1. A sender of fragments or remote writes sends RNDVRESTARTNOTIFY.
//  2. The receiver gives its receive a new handle, so fragments of the old attempt that are still
//     to be delivered find nothing. It revokes its remote keys, forgets what has arrived, and
//     answers RNDVRESTARTACK. If the receive needs nothing more, it answers RNDVRESTARTNACK.
//  3. After RNDVRESTARTACK the sender sends the whole message again, in fragments. After
//     RNDVRESTARTNACK it is done.
//
// A receiver that reads restarts without these messages: it reads the whole message again by the
// rails that are up, or asks for fragments with an ACK.

// maxRestarts is how often a message starts again. A message that brings down every rail that it is
// tried on is at fault itself.
const maxRestarts = 100

// interrupted goes on with a send whose transfer was interrupted.
func (s *SendRequest) interrupted() {
	t := s.t
	switch {
	case s.err != nil: // it ends when its operations have ended
		s.advance()
	case !t.IsBroken() && t.Wrong() != nil && s.state == sendPutting:
		// The send cannot write where the receiver wants the message. The receiver takes fragments
		// too.
		s.p.stats.Unwritten++
		s.stream(&ackHdr{recv: s.recv, from: t.From(), to: t.End()})
	case !t.IsBroken():
		s.advance()
	case t.IsRefused():
		s.p.stats.Refused++
		s.err = &bml.RefusedError{Cause: t.Wrong()}
		s.p.nackRecv(s.peer, s.recv)
		s.advance()
	default:
		s.restart()
	}
}

// restart asks the receiver to start again.
func (s *SendRequest) restart() {
	p := s.p
	if s.restarts++; s.restarts > maxRestarts {
		err := s.t.LastError()
		if err == nil {
			err = btl.ErrFailed // no rail could write
		}
		p.bml.Fail(&s.peer.Peer, fmt.Errorf("no rail delivers a message whole, though it was restarted %d times: %w", maxRestarts, p.bml.CauseOf(err)))
		return
	}
	s.move(sendRestarting)
	p.stats.Restarts++
	s.t.ReleaseLocal()
	h := restartHdr{send: s.name, recv: s.recv}
	p.post(s.peer, tagRestartNotify, restartBytes, h.encode)
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

// receiveAgain invalidates what is still to arrive of the old attempt, and asks for the whole
// message again.
func (r *RecvRequest) receiveAgain() {
	p := r.p
	p.recvs.remove(r.name)
	r.name = p.recvs.add(r)
	if r.t != nil {
		p.bml.Revoke(r.t)
	}
	r.got, r.restart = 0, false
	p.stats.Restarts++
	h := ackHdr{send: r.send, recv: r.name, from: 0, to: r.want}
	p.post(r.from, tagRestartAck, ackBytes, h.encode)
}

// restartAckArrived takes a RNDVRESTARTACK.
func (p *PML) restartAckArrived(pr *peer, frag []byte) error {
	return p.acknowledged(pr, frag, sendRestarting)
}

// restartNackArrived takes a RNDVRESTARTNACK.
func (p *PML) restartNackArrived(pr *peer, frag []byte) error {
	var h restartHdr
	if err := h.decode(frag); err != nil {
		return err
	}
	if s := p.answered(pr, h.send, sendRestarting); s != nil {
		s.stream(&ackHdr{})
	}
	return nil
}

// interrupted goes on with a receive that reads, and whose transfer was interrupted.
func (r *RecvRequest) interrupted() {
	p, t := r.p, r.t
	canRead := t.CanMove(bml.Read)
	switch {
	case r.state != recvGetting || r.err != nil:
	case t.Wrong() != nil, !t.IsBroken() && !canRead:
		// The sender has revoked its remote keys, or no rail that is up can read the message.
		p.stats.Unread++
		r.askAgain()
		return
	case t.IsBroken():
		p.stats.Restarts++
		if r.restarts++; !canRead || r.restarts > maxRestarts {
			r.askAgain()
			return
		}
		r.got = 0
		t.Begin(0, r.want)
	}
	r.advance()
}

// askAgain asks for the whole message in fragments, after reads failed.
func (r *RecvRequest) askAgain() {
	r.got = 0
	r.ask()
}
