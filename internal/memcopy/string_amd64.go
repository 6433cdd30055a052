//go:build !race

package memcopy

import (
	"time"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// usesString: the string instruction is used. Never written after the start of the program.
var usesString = cpu.X86.HasERMS && isFast()

// isFast measures that the string instruction is not slower than copy, as it may be in a virtual
// machine or with a microcode that disables it. Both copy between lines that this processor owns,
// where the instruction has no advantage, so it passes with up to maxPercent of copy's time. The
// addresses are not aligned, as those of users' buffers.
func isFast() bool {
	const (
		bytes      = 4 << 10
		rounds     = 4 // the best of them counts, because others may be interrupted
		maxPercent = 150
	)
	memory := make([]byte, 2*bytes+128)
	dst, src := memory[24:24+bytes], memory[bytes+80:2*bytes+80]
	var best [2]time.Duration
	for round := range rounds {
		for i, f := range [2]func(dst, src []byte) int{stringCopy, plainCopy} {
			begin := time.Now()
			f(dst, src)
			if took := time.Since(begin); round == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	return best[0]*100 <= best[1]*maxPercent
}

func plainCopy(dst, src []byte) int { return copy(dst, src) }

// stringCopy is copy by the string instruction, for slices that do not overlap.
func stringCopy(dst, src []byte) int {
	n := min(len(dst), len(src))
	repMovsb(unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src)), uintptr(n))
	return n
}

// repMovsb copies n bytes upwards.
//
//go:noescape
func repMovsb(dst, src unsafe.Pointer, n uintptr)
