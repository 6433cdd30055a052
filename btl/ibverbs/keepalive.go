package ibverbs

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

// Who only waits for a message has nothing under way, so nothing tells it of a cut that no port reports: it would wait for ever. So a connection
// of which nothing is under way here, and on which nothing has come for a while, is tried by a write of no bytes. The peer's
// device answers it, whatever the rank there does: it takes no receive and no credit, touches no memory, for which reason no key is
// checked (InfiniBand, C9-88), and completes nothing there. If nobody answers, it ends as all that is lost does.

// sign is what a connection showed of the peer when that was last looked at.
type sign struct {
	at   int64
	tail uint32 // work requests completed
	next uint64 // the number of the peer's next message; 0 if nobody has looked yet
}

// keepAlive tries the path to the peer if that has given no sign of life for too long. Something that is under way is a trial itself.
func (e *endpoint) keepAlive() {
	m, s := e.m, &e.sign
	if e.sqTail != s.tail || e.next != s.next || e.awaited > 0 {
		*s = sign{at: m.now, tail: e.sqTail, next: e.next}
		return
	}
	if m.cfg.KeepAlive < 0 || m.now-s.at < int64(m.cfg.KeepAlive) || !e.mayNote() {
		return
	}
	wr := &m.sendWR[0]
	*wr = verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
	_ = e.post(wr, sqEntry{bounce: noBuffer}) // if the device does not take it, the endpoint is doomed, or it is tried again
}
