package tcp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// Whether the peer's machine is there.
//
// A connection on which nothing is sent is kept alive by the system (SO_KEEPALIVE). One on which something is sent and not acknowledged by
// the peer's machine the system would give up after a quarter of an hour, or after TCP_USER_TIMEOUT, which however
// also ends connections whose peer is well but has not read for so long, because its program computes, so that its window is full:
// Linux counts the time for which it probes a closed window, answered or not. So the system is asked (TCP_INFO) what it waits for. A
// probe of a closed window that the peer's machine answers is a sign of life, and while none is under way nothing is waited for.

// health is how long a connection's machine has been waited for.
type health struct {
	waited int64
}

const (
	mostCheckNanos  = 1e9
	leastCheckNanos = 10e6
)

// checkHealth fails endpoints whose peers' machines have not acknowledged anything for UserTimeout, though they should have.
func (m *module) checkHealth() int {
	if m.now < m.checkAt {
		return 0
	}
	every := min(max(int64(m.cfg.UserTimeout)/8, leastCheckNanos), mostCheckNanos)
	gap := m.now - m.checked
	m.checkAt, m.checked = m.now+every, m.now
	n := 0
	for _, p := range m.peers {
		if p == nil || p.ep == nil || p.ep.state != btl.Up || p.ep.phase != phaseReady {
			continue
		}
		e := p.ep
		if !m.awaits(e.fd, gap) {
			e.health.waited = 0
			continue
		}
		// Time in which nobody looked counts no more than that between two looks.
		if e.health.waited += min(gap, every); e.health.waited > int64(m.cfg.UserTimeout) {
			e.fail(m.errorf(e.p.rank, btl.ClassPath, btl.SideBoth, nativeOf(unix.ETIMEDOUT),
				fmt.Errorf("the peer's machine has acknowledged nothing for %v: %w", m.cfg.UserTimeout, unix.ETIMEDOUT)))
			n++
		}
	}
	return n
}

// awaits reports whether the system waits for an acknowledgement on a connection, and has had none in the last so many nanoseconds.
func (m *module) awaits(fd int, nanos int64) bool {
	info := &m.info
	size := uint32(unsafe.Sizeof(*info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&size)), 0)
	return errno == 0 && (info.Unacked > 0 || info.Probes > 0) && int64(info.Last_ack_recv)*1e6 >= nanos
}
