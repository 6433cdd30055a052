package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

var _ btl.StaleSender = (*endpoint)(nil)

// Break shuts down the connections to a peer as the network might: each end must detect it by
// itself. It reports whether there was a connection. It is for tests.
func (m *module) Break(rank int) (any bool) {
	for e := range m.Endpoints() {
		if e.Peer() == rank && e.phase == phaseReady {
			any = unix.Shutdown(e.fd, unix.SHUT_RDWR) == nil || any
		}
	}
	return any
}

// SendStale implements btl.StaleSender. It is for tests.
func (e *endpoint) SendStale(epoch uint32, tag btl.Tag, frag []byte) bool {
	if e.phase != phaseReady || e.current != nil || e.writeErr != 0 {
		return false
	}
	var b [headBytes]byte
	h := head{length: uint32(len(frag)), epoch: epoch, kind: frameFrag, tag: tag}
	h.put(b[:])
	e.rest = append(append(e.rest, b[:]...), frag...)
	e.flush()
	return true
}
