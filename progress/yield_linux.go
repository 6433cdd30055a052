package progress

import "golang.org/x/sys/unix"

// yieldProcess gives the processor to another process that is ready to run on it. The system call
// is a raw one: it does not block, so the runtime need not know of it.
func yieldProcess() {
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// pause lets a few nanoseconds pass between two reads of a shared cache line. Without a pause the
// reads keep the line away from the core that is about to write it.
func pause() {
	for range pauseLoops {
		nop()
	}
}

// pauseLoops is the number of empty calls in a pause, each about a nanosecond.
const pauseLoops = 8

//go:noinline
func nop() {}
