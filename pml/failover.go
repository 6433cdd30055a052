package pml

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/btl"
)

// A rail to a peer may fail while others lead there, or while it may come back. Then the program is to notice
// nothing. Nothing is kept for that while all is well: a rail tells what became of every operation, and what did not
// succeed is done again.
//
// Numbered fragments (hdr.go) whose delivery is unknown wait in limbo until all rails to the peer that have failed are Drained here, and then go again, under
// their number, by a rail that is up. The peer drops what it has had. So they arrive once, and in order.
//
// Pieces of a long message are not sent again one by one. Whoever has an error of one posts no more of that message, waits
// until all of its operations were called back, and until each failed rail is fenced: our half is Drained, and so is the peer's. Only then can nothing of the old
// attempt reach any buffer. Then
//
//   - a sender, of fragments or of remote writes, tells the receiver by RNDVRESTARTNOTIFY. That gives its receive a new handle, so
//     that fragments of the old attempt that are still to be handed up find nothing, revokes what it had exposed, forgets what has come, and answers
//     RNDVRESTARTACK: all is to be sent again, in fragments. If the message is all there it answers RNDVRESTARTNACK.
//   - a receiver that reads reads all of it again, by the rails that are left, or asks for fragments by an ACK.
//
// One side may see an error that the other one does not. So whoever's half of a rail fails tells the peer by RAILDOWN, over any
// rail that is up; that fails its half, and answers RAILDOWNACK when it is Drained. A rail that has failed
// comes back as the next incarnation (health.go), which has answered a PROBE before it takes traffic. Where no rail was left to carry RAILDOWN, that tells the same: nobody
// begins the next incarnation before its half of the last is Drained.

// railState is what a rail to a peer is good for.
type railState uint8

const (
	railUp      railState = iota // takes traffic
	railFailing                  // its endpoint has failed; until it is Drained
	railDown                     // Drained, until the next incarnation
	railProbing                  // there is one; until the peer has answered by it
)

var railNames = [...]string{"up", "failing", "down", "probing"}

func (s railState) String() string { return railNames[s] }

// railLegal is the table of transitions.
//
//	up       failing  the endpoint failed, or the peer said that its own did
//	failing  down     the endpoint is Drained
//	down     probing  the next incarnation is made, and asked, or has been asked
//	probing  up       PROBEACK came, or ours was delivered
//	         failing  the endpoint failed, or nobody has answered
var railLegal = [4][4]bool{
	railUp:      {railFailing: true},
	railFailing: {railDown: true},
	railDown:    {railProbing: true},
	railProbing: {railUp: true, railFailing: true},
}

func (p *PML) moveRail(rl *rail, to railState) {
	if !railLegal[rl.state][to] {
		p.illegal("rail: " + rl.state.String() + " → " + to.String())
	}
	rl.state = to
}

// railFailed takes a rail to a peer out of use. The failed endpoint calls back, or has called back, what it has accepted.
func (p *PML) railFailed(rl *rail, err error) {
	pr, m := rl.peer, &rl.mending
	if rl.state == railFailing || rl.state == railDown {
		return // it was, or is not in use
	}
	wasUp := rl.state == railUp
	p.moveRail(rl, railFailing)
	m.epoch = rl.endpoint.Epoch()
	if wasUp || m.cause == nil {
		m.cause = err // that it does not come back yet says nothing new
	}
	if wasUp { // else nothing was posted by it that matters
		m.since = p.eng.Now()
		pr.drains(rl.module)
		if !m.unfenced {
			m.unfenced = true
			pr.unfenced++
		}
	}
	p.hurt(rl, err, wasUp)
	p.prefer(pr)
	if pr.up == 0 && pr.stranded == nil {
		p.strand(rl, err)
	}
	for q := rl.takeQueue(); !q.Empty(); {
		op := q.Pop()
		p.divert(rl, op, err)
	}
	if wasUp && !isClosed(err) {
		p.stats.RailsFailed++
		if pr.failing == nil {
			p.tellRail(rl, err)
		}
	}
	p.tellDown(rl)
}

// isClosed reports whether a rail has ended because one end, which has left, closed it.
func isClosed(err error) bool {
	var be *btl.Error
	return errors.As(err, &be) && be.Class == btl.ClassClosed
}

// divert finds another way for an operation that a rail which has failed did not take.
func (p *PML) divert(rl *rail, op *btl.Op, err error) {
	if pr := rl.peer; isBound(op.Tag) || pr.failing != nil {
		op.Done(op, cmp.Or(pr.lost, err))
	} else {
		p.send(pr, op)
	}
}

// takeQueue empties a rail's queue.
func (rl *rail) takeQueue() btl.Queue {
	q := rl.queue
	rl.queue = btl.Queue{}
	return q
}

// railDrained is called when our half of a failed rail is Drained.
func (p *PML) railDrained(rl *rail) {
	pr, m := rl.peer, &rl.mending
	p.moveRail(rl, railDown)
	m.count(rl.endpoint)
	if m.isAsked {
		m.isAsked = false
		p.sendAboutRail(pr, tagRailDownAck, railHdr{rail: rl.remote, epoch: m.askedEpoch, tally: m.ours})
	}
	p.reckon(rl)
	if pr.isFailing() || pr.lost != nil {
		return
	}
	p.plan(rl)
	p.settled(pr)
}

// isUnsettled reports whether something of an incarnation that has failed may still reach a buffer.
func (pr *peer) isUnsettled() bool { return pr.unfenced > 0 || len(pr.draining) > 0 }

// fence is called when the peer's half of a failed rail is known to be Drained.
func (p *PML) fence(rl *rail) {
	if !rl.mending.unfenced {
		return
	}
	rl.mending.unfenced = false
	rl.peer.unfenced--
	p.settled(rl.peer)
}

// settled posts again what is in limbo once all failed rails are Drained, and begins anew what has met an error once all
// are fenced too.
func (p *PML) settled(pr *peer) {
	if len(pr.draining) > 0 || pr.failing != nil || pr.lost != nil {
		return
	}
	p.resend(pr)
	if pr.unfenced == 0 {
		p.sends.each(func(s *SendRequest) {
			if s.peer == pr {
				s.advance()
			}
		})
		p.recvs.each(func(r *RecvRequest) {
			if r.from == pr {
				r.advance()
			}
		})
	} else if p.beginsAnew(pr) {
		return
	}
	p.switched(pr)
}

// beginsAnew reports whether a message to or from a peer is to begin anew.
func (p *PML) beginsAnew(pr *peer) bool {
	any := false
	p.sends.each(func(s *SendRequest) { any = any || s.peer == pr && s.broken })
	p.recvs.each(func(r *RecvRequest) { any = any || r.from == pr && r.broken })
	return any
}

// switched notes how long it took to go on without the rails that have failed.
func (p *PML) switched(pr *peer) {
	if pr.stranded != nil {
		return
	}
	for i := range pr.rails {
		if m := &pr.rails[i].mending; m.since != 0 {
			p.stats.SwitchNanos = max(p.stats.SwitchNanos, p.eng.Now()-m.since)
			m.since = 0
		}
	}
}

// mostTries is how often an operation is posted again, and a message begun anew: what brings down
// every rail that it is tried on is at fault itself.
const mostTries = 100

// saves keeps an operation, which a rail has called back with an error, to be posted again. It reports false if that is of
// no use any more; then the operation is the caller's.
func (p *PML) saves(pr *peer, op *btl.Op, err error) bool {
	if pr.failing != nil || pr.lost != nil || p.closed != nil {
		return false
	}
	if misused(err) { // no evidence against the path
		if op.Hdr[opMistakes]++; pr.isHopeless(int(op.Hdr[opMistakes])) {
			p.withdraw(pr, op, err)
			return false
		}
	} else if !p.mayPostAgain(pr, op, err) {
		return false
	}
	if op.Hdr[opTries]++; op.Hdr[opTries] > mostTries {
		p.fail(pr, causeOf(err), nil)
		return false
	}
	pr.limbo.Push(op)
	if len(pr.draining) == 0 { // the rail has told the end of all before that of this one: not from in here
		p.broken = append(p.broken, pr)
		p.eng.Wake()
	}
	return true
}

// mend posts again what is in limbo though no rail is to be drained.
func (p *PML) mend() {
	for len(p.broken) > 0 {
		pr := p.broken[0]
		p.broken = p.broken[1:]
		p.settled(pr)
	}
}

// resend posts what is in limbo.
func (p *PML) resend(pr *peer) {
	q := pr.limbo
	pr.limbo = btl.Queue{}
	for !q.Empty() {
		p.stats.Resent++
		if op := q.Pop(); op.Hdr[opMistakes] > 0 && pr.up != 0 {
			p.post(pr.next(op.Hdr[opRail]), op)
		} else {
			p.send(pr, op)
		}
	}
}

// queues is where operations to a peer wait.
func (pr *peer) queues() []*btl.Queue {
	all := []*btl.Queue{&pr.limbo, &pr.waiting}
	for i := range pr.rails {
		all = append(all, &pr.rails[i].queue)
	}
	return all
}

// restart asks the receiver to begin anew.
func (s *SendRequest) restart() {
	p := s.p
	if s.restarts++; s.restarts > mostTries {
		err := btl.ErrFailed // no rail could write it
		if s.trouble.by != 0 {
			err = s.trouble.last
		}
		p.fail(s.peer, fmt.Errorf("no rail delivers a message whole, though it begins anew %d times: %w", mostTries, p.causeOf(err)), nil)
		return
	}
	s.move(sendRestarting)
	s.broken = false
	p.stats.Restarts++
	if s.t.mine.access == btl.AccessLocal {
		s.t.mine.release()
	}
	h := restartHdr{send: s.name, recv: s.recv}
	op := p.answerOp(s.peer, tagRestartNotify, restartBytes)
	h.encode(op.Hdr[:])
	p.send(s.peer, op)
}

// restartAsked takes a RNDVRESTARTNOTIFY.
func (p *PML) restartAsked(pr *peer, h *restartHdr) {
	r := p.awaiting(pr, h.recv)
	if r == nil || r.send != h.send {
		p.tellNeedless(pr, *h)
		return
	}
	r.restart = true
	r.advance()
}

// tellNeedless says that a message is all here.
func (p *PML) tellNeedless(pr *peer, h restartHdr) {
	op := p.answerOp(pr, tagRestartNack, restartBytes)
	h.encode(op.Hdr[:])
	p.send(pr, op)
}

// restartNeedless takes a RNDVRESTARTNACK.
func (p *PML) restartNeedless(pr *peer, h *restartHdr) {
	if s := p.answered(pr, h.send, sendRestarting); s != nil {
		s.stream(&ackHdr{})
	}
}

// receiveAnew makes what is still to come of the old attempt find nothing, and asks for all again.
func (r *RecvRequest) receiveAnew() {
	p := r.p
	p.recvs.remove(r.name)
	r.name = p.recvs.add(r)
	if r.t != nil {
		p.revoke(&r.t.mine)
	}
	r.got, r.restart = 0, false
	p.stats.Restarts++
	p.answerWith(r.from, tagRestartAck, ackHdr{send: r.send, recv: r.name, from: 0, to: r.want})
}

// readAnew reads the whole message again, by rails that are up, or asks for fragments if none can.
func (r *RecvRequest) readAnew() {
	r.p.stats.Restarts++
	if r.restarts++; r.readers() == 0 || r.restarts > mostTries {
		r.askAnew()
		return
	}
	r.broken, r.got = false, 0
	r.t.begin(0, r.want)
	r.advance()
}

// tellDown tells the peer that our half of a rail has failed, now or when a rail is up.
func (p *PML) tellDown(rl *rail) {
	m := &rl.mending
	if m.untold = rl.peer.up == 0; m.untold {
		return
	}
	p.sendAboutRail(rl.peer, tagRailDown, railHdr{rail: rl.local, epoch: m.epoch})
}

// sendAboutRail posts a message about a rail by whichever is the first.
func (p *PML) sendAboutRail(pr *peer, tag btl.Tag, h railHdr) {
	op := p.getOp()
	op.Tag, op.HdrLen, op.Owner, op.Done = tag, railBytes, pr, p.railDone
	h.encode(op.Hdr[:])
	p.send(pr, op)
}

// onRailDone is called when a message about a rail was delivered, or not.
func (p *PML) onRailDone(op *btl.Op, err error) {
	if err != nil && !isBound(op.Tag) && p.saves(op.Owner.(*peer), op, err) {
		return
	}
	p.putOp(op)
}

// aboutRail takes a message about a rail, which has come by m.
func (p *PML) aboutRail(pr *peer, m btl.Module, tag btl.Tag, h railHdr) {
	if p.route(pr) != nil || pr.failing != nil {
		return
	}
	i := pr.numbered(h.rail)
	if tag == tagRailDownAck {
		i = pr.ours(h.rail)
	}
	var rl *rail
	if i >= 0 {
		rl = &pr.rails[i]
	}
	if rl != nil && h.tally.epoch != 0 {
		if rl.mending.theirs = h.tally; p.reckon(rl) {
			return
		}
	}
	switch tag {
	case tagRailDown:
		p.peerRailDown(pr, rl, h)
	case tagRailDownAck:
		if rl != nil && rl.mending.unfenced && rl.mending.epoch == h.epoch {
			p.fence(rl)
		}
	case tagProbe, tagProbeAck:
		if rl == nil || rl.module != m {
			return // of a rail that this rank does not use
		}
		if tag == tagProbe {
			p.probed(rl, h)
		} else {
			p.probeAnswered(rl, h)
		}
	}
}

// peerRailDown takes a RAILDOWN: our half of that incarnation ends too, and so does one of an earlier incarnation, whose failure we
// may not hear of by itself.
func (p *PML) peerRailDown(pr *peer, rl *rail, h railHdr) {
	if rl != nil && rl.endpoint != nil && rl.endpoint.Epoch() <= h.epoch && rl.state != railDown {
		if !rl.mending.isAsked || rl.mending.askedEpoch < h.epoch {
			rl.mending.isAsked, rl.mending.askedEpoch = true, h.epoch
		}
		if rl.state != railFailing {
			p.bringDown(rl, &btl.Error{Rail: rl.module.Attrs().Name, Peer: pr.rank, Class: btl.ClassPath, Side: btl.SideRemote, Native: "RAILDOWN", Err: errOtherEnd})
		}
		return
	}
	h.tally = tally{}
	if rl != nil {
		h.tally = rl.mending.ours
	}
	p.sendAboutRail(pr, tagRailDownAck, h) // by the peer's own number, of a rail that we may not know
}

var errOtherEnd = errors.New("its other end has failed, and says so")

// bringDown fails our half of a rail. The endpoint is failed at the next turn, because this may be inside a call of it.
func (p *PML) bringDown(rl *rail, err *btl.Error) {
	p.railFailed(rl, err)
	p.eng.After(0, func() {
		if rl.state == railFailing {
			rl.endpoint.Fail(err)
		}
	})
}
