package comm

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Defined types: the constraints accept their underlying types.
type (
	ownInt   int16
	ownFloat float32
	ownBool  bool
)

// checkOperation compares an operation with its definition, for random elements.
func checkOperation[T comparable](t *testing.T, name string, op Op[T], random func(r *rand.Rand) T, naive func(a, b T) T) {
	t.Run(fmt.Sprintf("%s %T", name, *new(T)), func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 11))
		for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 100} {
			in, inout, want := make([]T, n), make([]T, n), make([]T, n)
			for i := range in {
				in[i], inout[i] = random(r), random(r)
				want[i] = naive(in[i], inout[i])
			}
			given := slices.Clone(in)
			op(in, inout)
			assert.Equal(t, want, inout)
			assert.Equal(t, given, in)
		}
	})
}

func numberOps[T Number](t *testing.T, random func(r *rand.Rand) T) {
	checkOperation(t, "sum", Sum[T], random, func(a, b T) T { return a + b })
	checkOperation(t, "prod", Prod[T], random, func(a, b T) T { return a * b })
}

func realOps[T Real](t *testing.T, random func(r *rand.Rand) T) {
	numberOps(t, random)
	checkOperation(t, "min", Min[T], random, func(a, b T) T { return min(a, b) })
	checkOperation(t, "max", Max[T], random, func(a, b T) T { return max(a, b) })
}

func logicalOps[T Logical](t *testing.T, random func(r *rand.Rand) T, yes T) {
	var no T
	truth := func(b bool) T {
		if b {
			return yes
		}
		return no
	}
	checkOperation(t, "land", Land[T], random, func(a, b T) T { return truth(a != no && b != no) })
	checkOperation(t, "lor", Lor[T], random, func(a, b T) T { return truth(a != no || b != no) })
	checkOperation(t, "lxor", Lxor[T], random, func(a, b T) T { return truth((a != no) != (b != no)) })
}

func integerOps[T Integer](t *testing.T) {
	random := func(r *rand.Rand) T { // often zero, for logical operations
		if r.IntN(3) == 0 {
			return 0
		}
		return T(r.Uint64())
	}
	realOps(t, random)
	logicalOps(t, random, 1)
	checkOperation(t, "band", Band[T], random, func(a, b T) T { return a & b })
	checkOperation(t, "bor", Bor[T], random, func(a, b T) T { return a | b })
	checkOperation(t, "bxor", Bxor[T], random, func(a, b T) T { return a ^ b })
}

func TestOperationsAgainstNaiveResults(t *testing.T) {
	integerOps[int](t)
	integerOps[int8](t)
	integerOps[int16](t)
	integerOps[int32](t)
	integerOps[int64](t)
	integerOps[uint](t)
	integerOps[uint8](t)
	integerOps[uint16](t)
	integerOps[uint32](t)
	integerOps[uint64](t)
	integerOps[uintptr](t)
	integerOps[ownInt](t)
	realOps(t, func(r *rand.Rand) float32 { return float32(r.NormFloat64()) })
	realOps(t, (*rand.Rand).NormFloat64)
	realOps(t, func(r *rand.Rand) ownFloat { return ownFloat(r.NormFloat64()) })
	numberOps(t, func(r *rand.Rand) complex64 { return complex(float32(r.NormFloat64()), r.Float32()) })
	numberOps(t, func(r *rand.Rand) complex128 { return complex(r.NormFloat64(), r.Float64()) })
	logicalOps(t, func(r *rand.Rand) bool { return r.IntN(2) == 0 }, true)
	logicalOps(t, func(r *rand.Rand) ownBool { return r.IntN(2) == 0 }, true)
}

func TestMinMaxOfSpecialNumbers(t *testing.T) {
	nan, inf, minusZero := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	for _, c := range []struct{ a, b, lesser, greater float64 }{
		{nan, 1, nan, nan},
		{1, nan, nan, nan},
		{inf, nan, nan, nan},
		{0, minusZero, minusZero, 0},
		{minusZero, 0, minusZero, 0},
		{-inf, inf, -inf, inf},
		{inf, 3, 3, inf},
	} {
		for _, o := range []struct {
			op   Op[float64]
			want float64
		}{{Min[float64], c.lesser}, {Max[float64], c.greater}} {
			got := []float64{c.b}
			o.op([]float64{c.a}, got)
			if math.IsNaN(o.want) {
				assert.True(t, math.IsNaN(got[0]), "%v %v", c.a, c.b)
			} else {
				assert.Equal(t, math.Float64bits(o.want), math.Float64bits(got[0]), "%v %v", c.a, c.b)
			}
		}
	}
}

func TestOperationsCanBePassedByName(t *testing.T) {
	run(t, 3, func(w *Comm) {
		r := w.Rank()
		ints, out := []int{r + 1, 3 - r, -r}, make([]int, 3)
		flags, outFlags := []bool{true, r == 1, false}, make([]bool, 3)
		floats, outFloats := []float64{float64(r)}, make([]float64, 1)
		turns, outTurns := []complex128{1i}, make([]complex128, 1)
		check(errors.Join(
			Allreduce(w, ints, out, Sum), same("sum", []int{6, 6, -3}, out),
			Allreduce(w, ints, out, Prod), same("prod", []int{6, 6, 0}, out),
			Allreduce(w, ints, out, Min), same("min", []int{1, 1, -2}, out),
			Allreduce(w, ints, out, Max), same("max", []int{3, 3, 0}, out),
			Allreduce(w, ints, out, Land), same("land", []int{1, 1, 0}, out),
			Allreduce(w, ints, out, Lor), same("lor", []int{1, 1, 1}, out),
			Allreduce(w, ints, out, Lxor), same("lxor", []int{1, 1, 0}, out),
			Allreduce(w, ints, out, Band), same("band", []int{0, 0, 0}, out),
			Allreduce(w, ints, out, Bor), same("bor", []int{3, 3, -1}, out),
			Allreduce(w, ints, out, Bxor), same("bxor", []int{0, 0, 1}, out),
			Allreduce(w, flags, outFlags, Land), same("land", []bool{true, false, false}, outFlags),
			Allreduce(w, flags, outFlags, Lor), same("lor", []bool{true, true, false}, outFlags),
			Allreduce(w, flags, outFlags, Lxor), same("lxor", []bool{true, true, false}, outFlags),
			Allreduce(w, floats, outFloats, Max), same("max", []float64{2}, outFloats),
			Allreduce(w, turns, outTurns, Prod), same("prod", []complex128{-1i}, outTurns),
		))
	})
}
