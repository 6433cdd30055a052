package comm

import "unsafe"

// Op combines two sequences of equal length, element by element: inout[i] = in[i] ∘ inout[i]. in
// comes from the lower ranks. An Op must be associative. It must also be commutative unless the
// call has the option InRankOrder. It may get the sequences in pieces of any length.
//
// An Op must not keep the slices, and must not call the library, except Abort (MPI 4.1, section
// 6.9.5). It may run on any goroutine, during any call of the library, and also while the program
// makes no call. So it must not take a lock that the program holds during a call.
type Op[T any] func(in, inout []T)

// Integer is every integer type.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Real is every type of integers or floating-point numbers.
type Real interface {
	Integer | ~float32 | ~float64
}

// Number is every type of numbers.
type Number interface {
	Real | ~complex64 | ~complex128
}

// Logical is every type that has truth values: bool, and integers, where zero is false and all
// other values are true.
type Logical interface {
	Integer | ~bool
}

// CollOption changes how a collective does its work.
type CollOption struct {
	inRankOrder bool
}

// InRankOrder says that the operation is not commutative. The call combines the contributions in
// the order of ranks, with rank 0 leftmost. The operation must still be associative.
func InRankOrder() CollOption { return CollOption{inRankOrder: true} }

// commutes reports whether opts permit a reduction to change the order.
func commutes(opts []CollOption) bool {
	for _, o := range opts {
		if o.inRankOrder {
			return false
		}
	}
	return true
}

// Sum and Prod combine eight elements per iteration, because the compiler does not unroll loops.

// Sum is inout[i] = in[i] + inout[i]. Integers wrap around.
func Sum[T Number](in, inout []T) {
	inout = inout[:len(in)]
	if len(in) >= 32 {
		n := sumVectors(in, inout)
		in, inout = in[n:], inout[n:]
	}
	for len(in) >= 8 && len(inout) >= 8 {
		a, b := (*[8]T)(in), (*[8]T)(inout)
		b[0] = a[0] + b[0]
		b[1] = a[1] + b[1]
		b[2] = a[2] + b[2]
		b[3] = a[3] + b[3]
		b[4] = a[4] + b[4]
		b[5] = a[5] + b[5]
		b[6] = a[6] + b[6]
		b[7] = a[7] + b[7]
		in, inout = in[8:], inout[8:]
	}
	for i := range inout {
		inout[i] = in[i] + inout[i]
	}
}

// Prod is inout[i] = in[i] · inout[i]. Integers wrap around.
func Prod[T Number](in, inout []T) {
	inout = inout[:len(in)]
	for len(in) >= 8 && len(inout) >= 8 {
		a, b := (*[8]T)(in), (*[8]T)(inout)
		b[0] = a[0] * b[0]
		b[1] = a[1] * b[1]
		b[2] = a[2] * b[2]
		b[3] = a[3] * b[3]
		b[4] = a[4] * b[4]
		b[5] = a[5] * b[5]
		b[6] = a[6] * b[6]
		b[7] = a[7] * b[7]
		in, inout = in[8:], inout[8:]
	}
	for i := range inout {
		inout[i] = in[i] * inout[i]
	}
}

// Min is the lesser of each two elements. As with Go's min, the result is NaN if one of the two is
// NaN, and −0 is less than 0.
func Min[T Real](in, inout []T) {
	inout = inout[:len(in)]
	for i := range inout {
		inout[i] = min(in[i], inout[i])
	}
}

// Max is the greater of each two elements, with the rules of Min.
func Max[T Real](in, inout []T) {
	inout = inout[:len(in)]
	for i := range inout {
		inout[i] = max(in[i], inout[i])
	}
}

// Land is the logical and: true if both elements are. True as an integer is 1.
func Land[T Logical](in, inout []T) {
	var no T
	yes := truth[T]()
	inout = inout[:len(in)]
	for i := range inout {
		if in[i] != no && inout[i] != no {
			inout[i] = yes
		} else {
			inout[i] = no
		}
	}
}

// Lor is the logical or: true if at least one element is. True as an integer is 1.
func Lor[T Logical](in, inout []T) {
	var no T
	yes := truth[T]()
	inout = inout[:len(in)]
	for i := range inout {
		if in[i] != no || inout[i] != no {
			inout[i] = yes
		} else {
			inout[i] = no
		}
	}
}

// Lxor is the logical exclusive or: true if exactly one element is. True as an integer is 1.
func Lxor[T Logical](in, inout []T) {
	var no T
	yes := truth[T]()
	inout = inout[:len(in)]
	for i := range inout {
		if (in[i] != no) != (inout[i] != no) {
			inout[i] = yes
		} else {
			inout[i] = no
		}
	}
}

// Band is the bitwise and.
func Band[T Integer](in, inout []T) {
	inout = inout[:len(in)]
	for i := range inout {
		inout[i] &= in[i]
	}
}

// Bor is the bitwise or.
func Bor[T Integer](in, inout []T) {
	inout = inout[:len(in)]
	for i := range inout {
		inout[i] |= in[i]
	}
}

// Bxor is the bitwise exclusive or.
func Bxor[T Integer](in, inout []T) {
	inout = inout[:len(in)]
	for i := range inout {
		inout[i] ^= in[i]
	}
}

// truth returns the value true of type T, which is true or 1. No constant has both types, but both
// values have the same bits.
func truth[T Logical]() T {
	var v T
	p := unsafe.Pointer(&v)
	switch unsafe.Sizeof(v) {
	case 1:
		*(*uint8)(p) = 1
	case 2:
		*(*uint16)(p) = 1
	case 4:
		*(*uint32)(p) = 1
	case 8:
		*(*uint64)(p) = 1
	}
	return v
}

// elemOp makes a coll.Combiner of an Op. It is a function type like Op, so that an interface holds
// it without an allocation.
type elemOp[T any] func(in, inout []T)

// Combine implements coll.Combiner. It applies the operation to whole elements.
func (op elemOp[T]) Combine(in, inout []byte) {
	size := int(sizeOf[T]())
	if size == 0 || len(in) == 0 {
		return
	}
	n := len(in) / size
	op(unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(in))), n),
		unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(inout))), n))
}
