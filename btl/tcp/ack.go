package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// When acknowledgements are sent:
//
// Every frame carries an acknowledgement, so a reply needs no segment of its own for it. Without a
// reply, the acknowledgement is sent alone. It is sent at once if the peer's window is filling. It
// is also sent at once if the fragments were small and this rank does not usually reply
// (piggybacks), because the peer's program may be waiting. Otherwise it is sent after some progress
// calls in which nothing arrived. If this rank's program stops making progress meanwhile, the
// module's timer asks for a progress call (idle.go).
const (
	// quietTurns is the number of progress calls for which an acknowledgement waits for a frame
	// that can carry it.
	quietTurns = 16
	// promptBytes: fragments with a total of up to promptBytes are acknowledged at once. The system
	// call takes longer than such fragments do. Longer fragments are mostly followed by more, and a
	// system call for each would add up.
	promptBytes = 4 << 10
	// answerTurns: a frame sent within answerTurns progress calls after a lone acknowledgement
	// could have carried it.
	answerTurns = 2
)

// noteTaken records that a fragment of n bytes was handed up and must be acknowledged.
func (e *endpoint) noteTaken(n int) {
	e.taken++
	e.confirm()
	e.pendingAckBytes += n + headBytes
	e.quiet = 0
	if !e.ackPending {
		e.ackPending = true
		e.m.pendingAcks = append(e.m.pendingAcks, e)
	}
}

// ackCarried records that a frame with a fragment was sent, which acknowledged all taken fragments.
func (e *endpoint) ackCarried() {
	if e.ackSent != e.taken {
		e.ackSent, e.pendingAckBytes = e.taken, 0
		e.piggybacks = true
	} else if e.loneAckTurn != 0 && e.m.turns-e.loneAckTurn <= answerTurns {
		e.piggybacks, e.loneAckTurn = true, 0
	}
}

// sendPendingAcks sends the acknowledgements that are due, or all.
func (m *module) sendPendingAcks(all bool) {
	left := m.pendingAcks[:0]
	for _, e := range m.pendingAcks {
		switch {
		case e.phase != phaseReady || e.State() != btl.Up || e.ackSent == e.taken:
			e.ackPending = false
			continue
		case !all && !e.isDue():
			e.quiet++
		case e.acknowledge():
			e.ackPending = false
			continue
		}
		left = append(left, e)
	}
	clear(m.pendingAcks[len(left):])
	m.pendingAcks = left
}

// isDue reports whether the acknowledgement must be sent now.
func (e *endpoint) isDue() bool {
	cfg := &e.m.cfg
	switch {
	case e.pendingAckBytes >= cfg.WindowBytes/4 || int(e.taken-e.ackSent) >= (cfg.WindowFrags+3)/4:
		return true
	case e.moreFrames: // frames are left for the next progress call
		return false
	case !e.piggybacks && e.pendingAckBytes <= promptBytes:
		return true
	}
	return e.quiet >= quietTurns
}

// acknowledge sends a lone acknowledgement. It reports whether it has sent one.
func (e *endpoint) acknowledge() bool {
	if e.blocked || e.writeErr != 0 || len(e.rest) > 0 || e.current != nil {
		// A frame that was begun must be finished first. The next frame may carry the
		// acknowledgement.
		return false
	}
	if !e.unsent.Empty() {
		e.flush()
		return e.ackSent == e.taken
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
	e.ackSent, e.pendingAckBytes = e.taken, 0
	e.piggybacks, e.loneAckTurn = false, e.m.turns
	return true
}

// acknowledged completes the operations that the peer acknowledges, and returns how many. ok is
// false if the count is impossible.
func (e *endpoint) acknowledged(ack uint32) (n int, ok bool) {
	d := ack - e.acked
	if d > uint32(e.unacked.Len()) {
		return 0, false
	}
	for ; d > 0; d-- {
		op := e.unacked.Pop()
		if op == nil {
			break // Done has closed the module, and Close called back the rest
		}
		e.acked++
		e.inFlight--
		e.bytes -= op.Len()
		n++
		op.Done(op, nil)
	}
	return n, true
}
