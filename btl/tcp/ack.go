package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// When the peer learns that its fragments were taken.
//
// Every frame carries an acknowledgement, so an answer costs no segment of its own for it. Where no answer comes the
// acknowledgement goes alone: at once if much is owed, or if the fragments were small and the peer is not one whom we answer
// (chatty), for its program may wait; else after some turns in which nothing came. If this rank's program stops making progress
// meanwhile, the module's timer has it kicked (idle.go).
const (
	// quietTurns is how many turns an acknowledgement waits for a frame to go with.
	quietTurns = 16
	// promptBytes: fragments of no more than so many bytes together are acknowledged at once. The write takes longer than they
	// do, but with longer ones, which are most often followed by more, it would add up.
	promptBytes = 4 << 10
	// answerTurns: what is sent so few turns after an acknowledgement of its own could have carried that.
	answerTurns = 2
)

// owe notes that a fragment was taken.
func (e *endpoint) owe(n int) {
	e.taken++
	e.hear()
	e.owedBytes += n + headBytes
	e.quiet = 0
	if !e.owing {
		e.owing = true
		e.m.owing = append(e.m.owing, e)
	}
}

// carried notes that a frame with a fragment was sent, which has told the peer what was taken.
func (e *endpoint) carried() {
	if e.told != e.taken {
		e.told, e.owedBytes = e.taken, 0
		e.chatty = true
	} else if e.loneTurn != 0 && e.m.turns-e.loneTurn <= answerTurns {
		e.chatty, e.loneTurn = true, 0
	}
}

// settleDebts sends the acknowledgements that are due, or all.
func (m *module) settleDebts(all bool) {
	left := m.owing[:0]
	for _, e := range m.owing {
		switch {
		case e.phase != phaseReady || e.State() != btl.Up || e.told == e.taken:
			e.owing = false
			continue
		case !all && !e.isDue():
			e.quiet++
		case e.acknowledge():
			e.owing = false
			continue
		}
		left = append(left, e)
	}
	clear(m.owing[len(left):])
	m.owing = left
}

// isDue reports whether what is owed is to be told now.
func (e *endpoint) isDue() bool {
	cfg := &e.m.cfg
	switch {
	case e.owedBytes >= cfg.WindowBytes/4 || int(e.taken-e.told) >= (cfg.WindowFrags+3)/4:
		return true
	case e.more: // the turn has not come to the end
		return false
	case !e.chatty && e.owedBytes <= promptBytes:
		return true
	}
	return e.quiet >= quietTurns
}

// acknowledge sends an acknowledgement of its own. It reports whether it did.
func (e *endpoint) acknowledge() bool {
	if e.blocked || e.writeErr != 0 || len(e.rest) > 0 || e.current != nil {
		return false // what is under way has to be finished first, and then what follows may carry it
	}
	if !e.unsent.Empty() {
		e.flush()
		return e.told == e.taken
	}
	b := e.m.out.packed[:headBytes]
	e.putHead(b, frameAck, 0, 0)
	sent, errno := send(e.fd, b)
	if errno != 0 {
		e.refused(errno)
		return false
	}
	if sent < len(b) {
		e.rest = append(e.rest[:0], b[sent:]...)
		e.refused(unix.EAGAIN)
	}
	e.told, e.owedBytes = e.taken, 0
	e.chatty, e.loneTurn = false, e.m.turns
	return true
}

// acknowledged completes what the peer says that it has taken, and reports whether that makes sense.
func (e *endpoint) acknowledged(ack uint32) (n int, ok bool) {
	d := ack - e.acked
	if d > uint32(e.unacked.Len()) {
		return 0, false
	}
	for ; d > 0; d-- {
		op := e.unacked.Pop()
		if op == nil {
			break // what was called back has closed the module, and so all the others were
		}
		e.acked++
		e.inFlight--
		e.bytes -= op.Len()
		n++
		op.Done(op, nil)
	}
	return n, true
}
