package progress

import "golang.org/x/sys/unix"

// yieldProcess gives the processor to another process that is ready to run on it. It
// is a raw system call: it does not block, so the runtime need not know.
func yieldProcess() {
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// pause lets a few nanoseconds pass between two looks at a shared cache line: a line
// that is polled as fast as possible reaches its writer later.
func pause() {
	for range pauseLoops {
		nop()
	}
}

const pauseLoops = 8

//go:noinline
func nop() {}
