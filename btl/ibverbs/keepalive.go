package ibverbs

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

// A rank that only receives has nothing posted. If the network is cut and no port reports it, no
// error is raised, and the rank would wait forever. Therefore the module probes a connection with a
// write of no bytes if nothing is in flight, and nothing has arrived for a while. The peer's device
// acknowledges the write, whatever its rank does: the write takes no receive and no credit, and
// completes nothing there. It accesses no memory, so no key is checked (InfiniBand, C9-88). If the
// device does not answer, the write fails like every lost request.

// sign records the last sign of life of the peer.
type sign struct {
	at   int64
	tail uint32 // work requests completed by then
	next uint64 // number of the peer's next message then; 0 before the first check
}

// keepAlive probes the path to the peer if there was no sign of life for too long. Requests in
// flight are probes themselves.
func (e *endpoint) keepAlive() {
	m, s := e.m, &e.sign
	if e.sqTail != s.tail || e.next != s.next || e.awaited > 0 {
		*s = sign{at: m.now, tail: e.sqTail, next: e.next}
		return
	}
	if m.cfg.KeepAlive < 0 || m.now-s.at < int64(m.cfg.KeepAlive) || !e.maySendControl() {
		return
	}
	wr := &m.sendWR[0]
	*wr = verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
	// If the device refuses it, the endpoint fails, or the next check tries again.
	_ = e.post(wr, sqEntry{bounce: noBuffer})
}
