package ibverbs

import (
	"encoding/binary"
	"fmt"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// repostBatch bounds how many receives are posted in one call.
const repostBatch = 16

// received handles a message in receive buffer i.
func (e *endpoint) received(i uint32, n int) {
	m := e.m
	buf := e.receive(i)
	if e.phase == phaseAccepted {
		e.established()
	}
	if n < headBytes || n > headBytes+m.cfg.FragBytes {
		e.protocolError("message of %d bytes", n)
		return
	}
	if e.ahead > 0 {
		e.protocolError("message %d after %d", e.next-uint64(e.ahead), e.next-1)
		return
	}
	e.nextMessage()
	t, tag := wireType(buf[0]), btl.Tag(buf[1])
	if !e.spend(t) {
		return
	}
	credits, control := int(binary.LittleEndian.Uint16(buf[2:])), binary.LittleEndian.Uint64(buf[8:])
	if epoch := binary.LittleEndian.Uint32(buf[4:]); epoch != e.Epoch() {
		m.Stale++ // of an earlier incarnation
		e.again(i, t)
		return
	}
	if !e.credit(credits, int(min(control, controlDepth+1))) {
		return
	}
	switch t {
	case wireFrag:
		if n <= slotBytes {
			e.small++
		}
		m.Events.Arrived(m, e.p.rank, tag, buf[headBytes:n])
	case wireHello, wireCredit:
	case wireGoodbye:
		e.leave = receivedGoodbye
		e.fail(m.NewError(e.p.rank, btl.ClassClosed, btl.SideRemote, "", base.ErrPeerClosed))
	case wireRing:
		r, ok := parseRing(buf[headBytes:n], int(e.remote.recvDepth)+controlDepth)
		if !ok || e.out != (outRing{}) {
			e.protocolError("invalid offer of a ring")
			return
		}
		e.out = r
	default:
		e.protocolError("message of type %d", t)
		return
	}
	e.again(i, t)
}

// credit adds the credits of a message. It reports false if there are too many.
func (e *endpoint) credit(credits, control int) bool {
	if e.credits+credits > int(e.remote.recvDepth) || e.controlCredits+control > controlDepth {
		e.protocolError("%d credits and %d control too many", credits, control)
		return false
	}
	e.credits += credits
	e.controlCredits += control
	if e.early.Len() > 0 {
		e.catchUp()
	}
	return true
}

// receive returns the memory of receive i.
func (e *endpoint) receive(i uint32) []byte {
	if e.shared != nil {
		return e.shared.buffer(i)
	}
	return e.bufs.buffer(int(i))
}

// spend takes the credit of a message of the peer. It reports whether the peer had one. A peer
// without a credit takes the receives of other messages, or of other peers.
func (e *endpoint) spend(t wireType) bool {
	given := &e.givenControl
	if t == wireFrag {
		given = &e.given
	}
	*given--
	if *given < 0 {
		e.protocolError("message %d is without a credit", e.next-1)
	}
	return *given >= 0
}

// protocolError fails the endpoint because of a message that no peer of this version sends (C8).
func (e *endpoint) protocolError(format string, args ...any) {
	e.fail(e.m.NewError(e.p.rank, btl.ClassProtocol, btl.SideRemote, "", fmt.Errorf(format, args...)))
}

// again lists buffer i to be posted again. Its credit is given back after that.
func (e *endpoint) again(i uint32, t wireType) {
	if e.phase != phaseReady && e.phase != phaseAccepted {
		return
	}
	if e.shared == nil {
		e.repost = append(e.repost, int32(i))
	}
	if t == wireFrag {
		e.reposting++
	} else {
		e.repostingControl++
	}
	// The few receives for control messages must not wait for further ones.
	if t != wireFrag || e.reposting >= e.repostAt() || e.creditsAreDue() || e.wantsRing() {
		e.list()
	}
}

// list makes the progress call handle this endpoint in giveCredits at its end.
func (e *endpoint) list() {
	if !e.listed {
		e.listed = true
		e.m.toSettle = append(e.m.toSettle, e)
	}
}

// repostAt returns how many receives are posted in one call of the device. More receives share the
// cost of the call, but a peer without credits waits until they are posted.
func (e *endpoint) repostAt() int { return max(min(repostBatch/2, e.window/4), 1) }

// creditsAreDue reports whether a credit message should be sent now. It should if many credits are
// pending. It also should if the peer can send only one more control message: the peer keeps that
// for GOODBYE, and could not give credits back. Between two calls of giveCredits, at most these
// control messages arrive: HELLO from one of the ends, the offer of a ring, and two credit
// messages, because each gives back half of the credits that this end can use. Therefore no end
// runs out of control credits.
func (e *endpoint) creditsAreDue() bool {
	return e.controlCredits > 1 &&
		(e.pendingCredits >= max(e.window/2, 1) || e.pendingControlCredits >= controlDepth-1)
}

// giveCredits posts receives, and gives credits back in control messages if no other message has
// carried them.
func (m *module) giveCredits() {
	list := m.toSettle
	m.toSettle = m.toSettle[:0]
	if len(list) > 0 && list[0].shared != nil {
		m.postShared()
	}
	for _, e := range list {
		e.listed = false
		if e.State() != btl.Up || e.phase != phaseReady && e.phase != phaseAccepted {
			continue
		}
		if err := e.postReceives(); err != nil {
			e.deviceFails(err)
			continue
		}
		if e.maySendControl() && e.creditsAreDue() && !e.sendControl(wireCredit) {
			e.list() // there was no room, and the peer may be waiting for these credits
		}
		if e.wantsRing() && e.maySendControl() {
			e.offerRing()
		}
	}
}

// maySendControl reports whether a control message may be posted now.
func (e *endpoint) maySendControl() bool {
	return e.State() == btl.Up && e.phase == phaseReady && e.Deferred() == nil && e.m.portUp
}

// postReceives posts all buffers that are free. Buffers of a shared queue have been posted already.
func (e *endpoint) postReceives() error {
	for len(e.repost) > 0 {
		wrs := e.m.recvWR[:min(len(e.repost), repostBatch)]
		for k := range wrs {
			i := e.repost[k]
			wrs[k].ID = uint64(makeID(wrRecv, e.made, e.number, uint32(i)))
			wrs[k].NumSGE = 1
			wrs[k].SGE[0] = e.bufs.sge(int(i), headBytes+e.m.cfg.FragBytes)
		}
		n, err := e.qp.PostRecv(wrs)
		e.posted += n
		e.repost = e.repost[:copy(e.repost, e.repost[n:])]
		if err != nil {
			return err
		}
	}
	e.pendingCredits, e.pendingControlCredits = e.pendingCredits+e.reposting, e.pendingControlCredits+e.repostingControl
	e.reposting, e.repostingControl = 0, 0
	return nil
}
