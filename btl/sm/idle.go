package sm

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/progress"
)

// How a rank that sleeps is woken.
//
// The sleeper stores "asleep" (Arm) and then polls once more. A sender publishes and then looks
// whether the receiver sleeps. So that not both miss the other, each side's load has to come after
// its store for every processor. The sleeper's store is a fence. On amd64 the sender's would cost a
// tenth of a message's latency, for every message, so the sleeper waits instead, about a
// microsecond, before it polls: by then what a sender stored before it looked has reached memory.
//
// No processor promises a time. If that was too short, the sleeper sees the fragment a moment
// later, because the engine first takes a nap, and looks again (progress.Idler). membarrier instead
// of the wait interrupts all processors, and took half of the time that a rank needs to fall asleep
// and wake up.
//
// A receiver that closes a channel, and then looks for what is in it, has no second look. It waits
// until every processor has been through the scheduler (membarrier). Where the kernel has no
// membarrier, or forbids it, the receiver's address says so or the sender knows, and the sender
// publishes with a fence.

var _ progress.Idler = (*module)(nil)

// Commands of membarrier(2): MEMBARRIER_CMD_GLOBAL, MEMBARRIER_CMD_GLOBAL_EXPEDITED and the
// latter's registration.
const (
	membarrierSlow     = 1 << 0
	membarrierGlobal   = 1 << 1
	membarrierRegister = 1 << 2
)

// wakeByte is never written to.
var wakeByte = []byte{1}

// registerBarrier registers this process for the fences of barrier. It reports whether the kernel
// permits that.
func registerBarrier() bool {
	_, _, errno := unix.RawSyscall(unix.SYS_MEMBARRIER, membarrierRegister, 0, 0)
	return errno == 0
}

// barrier orders what this thread did before it, and what it does after it, for the threads of all
// registered processes, within microseconds. Kernels leave out some processors (seen with Linux
// 6.18: exit_mm, sync_runqueues_membarrier_state and membarrier_switch_mm).
func barrier() {
	_, _, _ = unix.RawSyscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
}

// slowBarrier is barrier without exceptions. It takes some 10 ms.
func slowBarrier() {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierSlow, 0, 0); errno != 0 {
		barrier() // it cannot wait for processors without a scheduler's tick (nohz_full)
	}
}

// storeRelaxes is for how many calls of Relax, together about a microsecond, a sleeper gives stores
// of senders time to reach memory.
const storeRelaxes = 32

const asleep = 1 // bit of hdrAttention

// Arm implements progress.Idler.
func (m *module) Arm() bool {
	if m.Closed || m.cfg.Wakeup == nil {
		return false
	}
	m.lookForEnds()
	m.dropFreedViews()
	// The flag that peers look at last comes first: a peer that makes room and sees want must also
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
	// What is still to be settled needs progress calls, and wakes no one.
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
		// If it cannot be opened, the sleeper wakes by itself when its longest sleep is over.
		f.wakeup = openWakeup(&f.address)
	}
	if f.wakeup >= 0 {
		// A full pipe wakes its reader without this byte; a closed pipe has no reader to wake.
		_, _ = unix.Write(f.wakeup, wakeByte)
	}
}
