package progress

import "golang.org/x/sys/unix"

// SystemProcessor is the Processor of this process.
func SystemProcessor() Processor { return systemProcessor{} }

type systemProcessor struct{}

// Yield implements Processor. The system call is a raw one: it does not block, so the runtime need
// not know of it.
func (systemProcessor) Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
