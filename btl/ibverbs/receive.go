package ibverbs

import (
	"encoding/binary"
	"fmt"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// repostBatch is how many receives are posted at once, at most.
const repostBatch = 16

// received takes a message out of receive buffer i.
func (e *endpoint) received(i uint32, n int) {
	m := e.m
	buf := e.bufs.buffer(int(i))
	if e.phase == phaseAccepted {
		e.established()
	}
	if n < headBytes || n > headBytes+m.cfg.FragBytes {
		e.nonsense("a message of %d bytes", n)
		return
	}
	if e.ahead > 0 {
		e.nonsense("message %d after %d", e.next-uint64(e.ahead), e.next-1)
		return
	}
	e.turnOver()
	t, tag := wireType(buf[0]), btl.Tag(buf[1])
	credits, notes := int(binary.LittleEndian.Uint16(buf[2:])), binary.LittleEndian.Uint64(buf[8:])
	if epoch := binary.LittleEndian.Uint32(buf[4:]); epoch != e.Epoch() {
		m.Stale++ // of an incarnation that is over
		e.again(i, t)
		return
	}
	if !e.credit(credits, int(min(notes, noteDepth+1))) {
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
		e.leave = heardGoodbye
		e.fail(m.NewError(e.p.rank, btl.ClassClosed, btl.SideRemote, "", base.ErrPeerClosed))
	case wireRing:
		r, ok := parseRing(buf[headBytes:n], int(e.remote.recvDepth)+noteDepth)
		if !ok || e.out != (outRing{}) {
			e.nonsense("a ring that cannot be")
			return
		}
		e.out = r
	default:
		e.nonsense("a message of type %d", t)
		return
	}
	e.again(i, t)
}

// credit takes the credits that came with a message. It reports whether they can be right.
func (e *endpoint) credit(credits, notes int) bool {
	if e.credits+credits > int(e.remote.recvDepth) || e.notes+notes > noteDepth {
		e.nonsense("%d credits and %d notes too many", credits, notes)
		return false
	}
	e.credits += credits
	e.notes += notes
	if e.early.Len() > 0 {
		e.catchUp()
	}
	return true
}

// nonsense fails the endpoint for what no peer of ours would send.
func (e *endpoint) nonsense(format string, args ...any) {
	e.fail(e.m.NewError(e.p.rank, btl.ClassProtocol, btl.SideRemote, "", fmt.Errorf(format, args...)))
}

// again notes that buffer i can be posted again. Its credit is owed once it is.
func (e *endpoint) again(i uint32, t wireType) {
	if e.phase != phaseReady && e.phase != phaseAccepted {
		return
	}
	e.repost = append(e.repost, int32(i))
	if t == wireFrag {
		e.reposting++
	} else {
		e.repostingNotes++
	}
	// The few receives for notes are not to wait for others.
	if t != wireFrag || len(e.repost) >= e.m.repostAt() || e.owesMuch() || e.wantsRing() {
		e.list()
	}
}

// list has the end of the turn settle what the endpoint owes.
func (e *endpoint) list() {
	if !e.listed {
		e.listed = true
		e.m.owing = append(e.m.owing, e)
	}
}

// repostAt is how many receives are worth a call of the device; no more than the peer can do without.
func (m *module) repostAt() int { return max(min(repostBatch/2, m.cfg.RecvDepth/4), 1) }

// owesMuch reports whether the peer should be told of credits now: of many, or when it has but its last note, which is kept for GOODBYE, so that
// it could not tell us of ours. No more than two notes of credits come between two turns of settleDebts, as each is of half of what we
// can use up, and that of a ring, and from one of the ends HELLO before them: so never are both ends without.
func (e *endpoint) owesMuch() bool {
	return e.notes > 1 && (e.owed >= max(e.m.cfg.RecvDepth/2, 1) || e.owedNotes >= noteDepth-1)
}

// settleDebts posts receives, and gives credits back where there has been no message to take them along.
func (m *module) settleDebts() {
	list := m.owing
	m.owing = m.owing[:0]
	for _, e := range list {
		e.listed = false
		if e.State() != btl.Up || e.phase != phaseReady && e.phase != phaseAccepted {
			continue
		}
		if err := e.postReceives(); err != nil {
			e.failDeferred(m.NewError(e.p.rank, btl.ClassDevice, btl.SideLocal, "", err))
			continue
		}
		if e.mayNote() && e.owesMuch() && !e.note(wireCredit) {
			e.list() // there was no room: the peer may wait for just that
		}
		if e.wantsRing() && e.mayNote() {
			e.offerRing()
		}
	}
}

// mayNote reports whether a message of our own may be posted now.
func (e *endpoint) mayNote() bool {
	return e.State() == btl.Up && e.phase == phaseReady && e.Deferred() == nil && e.m.portUp
}

// postReceives posts all buffers that can be.
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
	e.owed, e.owedNotes = e.owed+e.reposting, e.owedNotes+e.repostingNotes
	e.reposting, e.repostingNotes = 0, 0
	return nil
}
