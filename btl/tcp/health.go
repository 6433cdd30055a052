package tcp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// How the module detects that a peer's machine does not answer:
//
// The system probes an idle connection (SO_KEEPALIVE). If sent bytes are not acknowledged on a busy
// one, the system gives up after a quarter of an hour, or after TCP_USER_TIMEOUT. That option would
// also end connections to healthy peers whose window is full because their program computes and
// does not read: Linux counts the time for which it probes a closed window, even if the probes are
// answered.
//
// Therefore the module asks the system (TCP_INFO) whether it waits for an answer: to a probe of a
// closed window, or to the last bytes that were sent or resent. Any answer shows that the peer's
// machine is alive, even one that says that it has no room. One probe may go unanswered, because
// Linux answers at most two a second.

// health is how long the module has waited for a peer's machine.
type health struct {
	waited int64
	acked  uint64 // bytes, at the last check
}

const (
	checks        = 16 // checks within UserTimeout
	maxCheckNanos = 500e6
	minCheckNanos = 10e6
	maxSleepNanos = 100e6 // how late a rank that sleeps checks
)

// checkHealth fails endpoints whose peers' machines have acknowledged nothing for UserTimeout,
// although they should have.
func (m *module) checkHealth() int {
	if m.now < m.checkAt {
		return 0
	}
	every := min(max(int64(m.cfg.UserTimeout)/checks, minCheckNanos), maxCheckNanos)
	gap := m.now - m.checked
	m.checkAt, m.checked = m.now+every, m.now
	n := 0
	for e := range m.Endpoints() {
		if e.State() != btl.Up || e.phase != phaseReady {
			continue
		}
		if !e.awaits(gap) {
			e.health.waited = 0
			continue
		}
		// A gap in which this rank did not check counts at most as long as the sleep of a rank.
		if e.health.waited += min(gap, every+maxSleepNanos); e.health.waited >= int64(m.cfg.UserTimeout) {
			e.fail(m.NewError(e.p.rank, btl.ClassPath, btl.SideBoth, nativeOf(unix.ETIMEDOUT),
				fmt.Errorf("%s: the peer's machine has acknowledged nothing for %v: %w", e.connection(), m.cfg.UserTimeout, unix.ETIMEDOUT)))
			n++
		}
	}
	return n
}

// awaits reports whether the system waits for an acknowledgement on a connection, and has received
// none in the last nanos nanoseconds.
func (e *endpoint) awaits(nanos int64) bool {
	info := &e.m.info
	size := uint32(unsafe.Sizeof(*info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(e.fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return false
	}
	moved := info.Bytes_acked != e.health.acked
	e.health.acked = info.Bytes_acked
	switch {
	case moved:
		return false
	case info.Unacked > 0 && info.Retransmits > 1 && info.Snd_wnd > 0:
		return true // bytes may arrive from there, but sent bytes do not get there
	case info.Probes > 1, info.Unacked > 0 && info.Last_ack_recv > info.Last_data_sent:
		return int64(info.Last_ack_recv)*1e6 >= nanos
	}
	return false
}
