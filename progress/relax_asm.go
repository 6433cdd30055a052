//go:build amd64 || arm64

package progress

// Relax tells the processor that the caller polls memory that another processor is about to write.
// Without it, a loop has many loads of the cache line in flight. They delay the write, and the
// processor has to discard them once the write arrives. Relax takes some tens of nanoseconds at
// most.
//
// PAUSE: Intel SDM volume 2B. YIELD: Arm Architecture Reference Manual, section C6.
//
//go:noescape
func Relax()
