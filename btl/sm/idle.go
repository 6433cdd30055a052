package sm

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/progress"
)

// How a sleeping rank is woken:
//
// The sleeper stores "asleep" (Arm) and then polls once more. A sender publishes and then checks
// whether the receiver sleeps. To ensure that at least one of them sees the other's store, each
// side's load must come after its store for every processor.
//
// The sleeper's store is a fence. On amd64, a fence in the sender would cost a tenth of the latency
// of every message. Therefore the sleeper waits about a microsecond before it polls. By then, a
// sender's stores have reached memory.
//
// No processor guarantees such a time. If the wait was too short, the sleeper sees the fragment a
// moment later, because the engine first takes a nap, and polls again (progress.Idler). membarrier
// would avoid the wait, but it interrupts all processors, and took half of the time that a rank
// needs to fall asleep and wake up.
//
// A receiver that closes a channel, and then takes what is in it, cannot poll a second time. It
// waits until every processor has been through the scheduler (membarrier). If the kernel of either
// side has no membarrier, or forbids it, the sender publishes with a fence. The receiver's address
// tells the sender whether the receiver can use it.

var _ progress.Idler = (*module)(nil)

// Commands of membarrier(2): MEMBARRIER_CMD_GLOBAL, MEMBARRIER_CMD_GLOBAL_EXPEDITED and the
// registration for the latter.
const (
	membarrierSlow     = 1 << 0
	membarrierGlobal   = 1 << 1
	membarrierRegister = 1 << 2
)

// wakeByte is never written to.
var wakeByte = []byte{1}

// registerBarrier registers this process for the fences of barrier. It reports whether the kernel
// allows it.
func registerBarrier() bool {
	_, _, errno := unix.RawSyscall(unix.SYS_MEMBARRIER, membarrierRegister, 0, 0)
	return errno == 0
}

// barrier is a memory fence for the threads of all registered processes: they see this thread's
// accesses before it ahead of those after it. It takes microseconds. Kernels leave out some
// processors (seen with Linux 6.18: exit_mm, sync_runqueues_membarrier_state and
// membarrier_switch_mm).
func barrier() {
	_, _, _ = unix.RawSyscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
}

// slowBarrier is barrier without exceptions. It takes some 10 ms.
func slowBarrier() {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierSlow, 0, 0); errno != 0 {
		barrier() // it cannot wait for processors without a scheduler's tick (nohz_full)
	}
}

// storeRelaxes is the number of calls of Relax, together about a microsecond, for which a sleeper
// waits until senders' stores have reached memory.
const storeRelaxes = 32

const asleep = 1 // bit of hdrAttention

// Arm implements progress.Idler.
func (m *module) Arm() bool {
	if m.Closed || m.cfg.Wakeup == nil {
		return false
	}
	m.lookForEnds()
	m.dropFreedViews()
	// The flag that peers load last is stored first: a peer that makes room and sees want must also
	// see asleep.
	atomic.OrUint32(m.own.attention, asleep)
	for _, e := range m.blocked {
		e.blocked = false
		if e.plain {
			atomic.StoreUint32(e.remote.out.want, 1)
		}
	}
	m.blocked = m.blocked[:0]
	if m.fences {
		for range storeRelaxes {
			progress.Relax()
		}
	}
	// Unsettled work needs progress calls, and nothing would wake the rank for it.
	return !m.Unsettled
}

// Disarm implements progress.Idler.
func (m *module) Disarm() {
	if !m.Closed {
		atomic.AndUint32(m.own.attention, ^uint32(asleep))
	}
}

// wake writes to the pipe of the peer if the peer sleeps. If several ranks find it sleeping, only
// one of them writes.
func (f *remoteSegment) wake() {
	if atomic.LoadUint32(f.attention)&asleep == 0 {
		return
	}
	if atomic.AndUint32(f.attention, ^uint32(asleep))&asleep == 0 {
		return
	}
	if f.wakeup < 0 {
		// If the pipe cannot be opened, the sleeper wakes by itself after its longest sleep.
		f.wakeup = openWakeup(&f.address)
	}
	if f.wakeup >= 0 {
		// A full pipe wakes its reader without this byte; a closed pipe has no reader to wake.
		_, _ = unix.Write(f.wakeup, wakeByte)
	}
}
