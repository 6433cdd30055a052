package comm

import (
	"fmt"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// ReduceLocal combines two slices of this rank as a reduction combines those of two ranks:
// inout[i] = in[i] ∘ inout[i] (MPI 4.1, section 6.9.7). Errors: ErrType, ErrOp; ErrCount if the
// lengths differ; ErrBuffer if the slices overlap.
func ReduceLocal[T any](in, inout []T, op Op[T]) error {
	err := checkElem[T](nil)
	switch {
	case err != nil:
	case op == nil:
		err = errNoOp
	case len(in) != len(inout):
		err = fmt.Errorf("%w: inout has %d elements, not %d", ErrCount, len(inout), len(in))
	case coll.Overlap(bytesOf(in), bytesOf(inout)):
		err = fmt.Errorf("%w: the buffers overlap", ErrBuffer)
	default:
		if len(in) > 0 {
			op(in, inout)
		}
		return nil
	}
	return fmt.Errorf("%v: %w", calls.ReduceLocal, err)
}

// ValIndex is a value and the index where it comes from, such as a rank. MaxLoc and MinLoc combine
// such elements.
type ValIndex[V Real] struct {
	Val   V
	Index int64
}

// MaxLoc is the element with the greater value; among equal values, the one with the lower index. A
// NaN is greater than every other value, as for Max.
func MaxLoc[V Real](in, inout []ValIndex[V]) {
	inout = inout[:len(in)]
	for i, a := range in {
		if b := inout[i]; locates(a, b, a.Val > b.Val) {
			inout[i] = a
		}
	}
}

// MinLoc is the element with the lesser value; among equal values, the one with the lower index. A
// NaN is less than every other value, as for Min.
func MinLoc[V Real](in, inout []ValIndex[V]) {
	inout = inout[:len(in)]
	for i, a := range in {
		if b := inout[i]; locates(a, b, a.Val < b.Val) {
			inout[i] = a
		}
	}
}

// locates reports whether a replaces b in MaxLoc or MinLoc. wins says that the value of a is
// greater, for MaxLoc, or less, for MinLoc. NaN wins over every number and equals NaN.
func locates[V Real](a, b ValIndex[V], wins bool) bool {
	aNaN, bNaN := a.Val != a.Val, b.Val != b.Val
	if aNaN != bNaN {
		return aNaN
	}
	return wins || (aNaN || a.Val == b.Val) && a.Index < b.Index
}
