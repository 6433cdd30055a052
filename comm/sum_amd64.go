package comm

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Go's compiler generates no vector instructions. For floating-point numbers a vector sum takes
// less than a fifth of the time of Sum's loop. It has the same bits, because each element is one
// addition.

//go:noescape
func addFloat32(in, inout *float32, n int)

//go:noescape
func addFloat64(in, inout *float64, n int)

// sumVectors adds the elements that fill whole vectors, and returns their number. The slices have
// equal lengths.
func sumVectors[T Number](in, inout []T) int {
	if !cpu.X86.HasAVX {
		return 0
	}
	const perLoop = 128 // bytes
	switch in := any(in).(type) {
	case []float32:
		n := len(in) &^ (perLoop/4 - 1)
		if n > 0 {
			addFloat32(unsafe.SliceData(in), (*float32)(unsafe.Pointer(unsafe.SliceData(inout))), n)
		}
		return n
	case []float64:
		n := len(in) &^ (perLoop/8 - 1)
		if n > 0 {
			addFloat64(unsafe.SliceData(in), (*float64)(unsafe.Pointer(unsafe.SliceData(inout))), n)
		}
		return n
	}
	return 0
}
