package tcp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// Whether the peer's machine answers.
//
// The system probes an idle connection (SO_KEEPALIVE). On a busy one, where sent bytes are not
// acknowledged, the system gives up after a quarter of an hour, or after TCP_USER_TIMEOUT. That
// option also ends connections whose peer is well but has not read for so long, because its program
// computes, so that its window is full: Linux counts the time for which it probes a closed window,
// answered or not.
//
// So the module asks the system (TCP_INFO) what it waits for: the answer to a probe of a closed
// window, or to what was sent or resent last. If the peer's machine has answered that, even by
// saying that it has no room, it is there, and nothing is waited for until the next is sent. One
// probe may go unanswered: Linux answers at most two a second.

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
// though they should have.
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
		// Time in which this rank did not check counts no more than that of a rank that sleeps.
		if e.health.waited += min(gap, every+maxSleepNanos); e.health.waited >= int64(m.cfg.UserTimeout) {
			e.fail(m.NewError(e.p.rank, btl.ClassPath, btl.SideBoth, nativeOf(unix.ETIMEDOUT),
				fmt.Errorf("%s: the peer's machine has acknowledged nothing for %v: %w", e.connection(), m.cfg.UserTimeout, unix.ETIMEDOUT)))
			n++
		}
	}
	return n
}

// awaits reports whether the system waits for an acknowledgement on a connection, and has had none
// in the last nanos nanoseconds.
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
		return true // whatever arrives from there, what is sent does not get there
	case info.Probes > 1, info.Unacked > 0 && info.Last_ack_recv > info.Last_data_sent:
		return int64(info.Last_ack_recv)*1e6 >= nanos
	}
	return false
}
