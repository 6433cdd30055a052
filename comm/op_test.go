package comm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
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

// opCase is an operation on a type, and its definition for one pair of elements.
type opCase struct {
	name string
	// run compares the operation with its definition, for random elements.
	run func(t *testing.T)
}

func checkOperation[T comparable](name string, op Op[T], random func(r *rand.Rand) T, naive func(a, b T) T) opCase {
	return opCase{fmt.Sprintf("%s %T", name, *new(T)), func(t *testing.T) {
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
	}}
}

func numberOps[T Number](random func(r *rand.Rand) T) []opCase {
	return []opCase{
		checkOperation("sum", Sum[T], random, func(a, b T) T { return a + b }),
		checkOperation("prod", Prod[T], random, func(a, b T) T { return a * b }),
	}
}

func realOps[T Real](random func(r *rand.Rand) T) []opCase {
	return append(numberOps(random),
		checkOperation("min", Min[T], random, func(a, b T) T {
			if a < b {
				return a
			}
			return b
		}),
		checkOperation("max", Max[T], random, func(a, b T) T {
			if a > b {
				return a
			}
			return b
		}))
}

func logicalOps[T Logical](random func(r *rand.Rand) T, yes T) []opCase {
	var no T
	truth := func(b bool) T {
		if b {
			return yes
		}
		return no
	}
	return []opCase{
		checkOperation("land", Land[T], random, func(a, b T) T { return truth(a != no && b != no) }),
		checkOperation("lor", Lor[T], random, func(a, b T) T { return truth(a != no || b != no) }),
		checkOperation("lxor", Lxor[T], random, func(a, b T) T { return truth((a != no) != (b != no)) }),
	}
}

func integerOps[T Integer]() []opCase {
	random := func(r *rand.Rand) T { // often zero, for logical operations
		if r.IntN(3) == 0 {
			return 0
		}
		return T(r.Uint64())
	}
	all := append(realOps(random), logicalOps(random, 1)...)
	return append(all,
		checkOperation("band", Band[T], random, func(a, b T) T { return a & b }),
		checkOperation("bor", Bor[T], random, func(a, b T) T { return a | b }),
		checkOperation("bxor", Bxor[T], random, func(a, b T) T { return a ^ b }))
}

func TestOperationsAgainstNaiveResults(t *testing.T) {
	var cases []opCase
	for _, some := range [][]opCase{
		integerOps[int](), integerOps[int8](), integerOps[int16](), integerOps[int32](), integerOps[int64](),
		integerOps[uint](), integerOps[uint8](), integerOps[uint16](), integerOps[uint32](), integerOps[uint64](),
		integerOps[uintptr](), integerOps[ownInt](),
		realOps(func(r *rand.Rand) float32 { return float32(r.NormFloat64()) }),
		realOps(func(r *rand.Rand) float64 { return r.NormFloat64() }),
		realOps(func(r *rand.Rand) ownFloat { return ownFloat(r.NormFloat64()) }),
		numberOps(func(r *rand.Rand) complex64 { return complex(float32(r.NormFloat64()), r.Float32()) }),
		numberOps(func(r *rand.Rand) complex128 { return complex(r.NormFloat64(), r.Float64()) }),
		logicalOps(func(r *rand.Rand) bool { return r.IntN(2) == 0 }, true),
		logicalOps(func(r *rand.Rand) ownBool { return r.IntN(2) == 0 }, true),
	} {
		cases = append(cases, some...)
	}
	for _, c := range cases {
		t.Run(c.name, c.run)
	}
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
	runColl(t, 3, func(w *Comm) error {
		check := func(what string, err error, got, want any) error {
			if err == nil && !reflect.DeepEqual(got, want) {
				err = fmt.Errorf("%s: %v, want %v", what, got, want)
			}
			return err
		}
		r := w.Rank()
		ints, out := []int{r + 1, 3 - r, -r}, make([]int, 3)
		flags, outFlags := []bool{true, r == 1, false}, make([]bool, 3)
		floats, outFloats := []float64{float64(r)}, make([]float64, 1)
		turns, outTurns := []complex128{1i}, make([]complex128, 1)
		for _, err := range []error{
			check("sum", Allreduce(w, ints, out, Sum), out, []int{6, 6, -3}),
			check("prod", Allreduce(w, ints, out, Prod), out, []int{6, 6, 0}),
			check("min", Allreduce(w, ints, out, Min), out, []int{1, 1, -2}),
			check("max", Allreduce(w, ints, out, Max), out, []int{3, 3, 0}),
			check("land", Allreduce(w, ints, out, Land), out, []int{1, 1, 0}),
			check("lor", Allreduce(w, ints, out, Lor), out, []int{1, 1, 1}),
			check("lxor", Allreduce(w, ints, out, Lxor), out, []int{1, 1, 0}),
			check("band", Allreduce(w, ints, out, Band), out, []int{0, 0, 0}),
			check("bor", Allreduce(w, ints, out, Bor), out, []int{3, 3, -1}),
			check("bxor", Allreduce(w, ints, out, Bxor), out, []int{0, 0, 1}),
			check("land", Allreduce(w, flags, outFlags, Land), outFlags, []bool{true, false, false}),
			check("lor", Allreduce(w, flags, outFlags, Lor), outFlags, []bool{true, true, false}),
			check("lxor", Allreduce(w, flags, outFlags, Lxor), outFlags, []bool{true, true, false}),
			check("max", Allreduce(w, floats, outFloats, Max), outFloats, []float64{2}),
			check("prod", Allreduce(w, turns, outTurns, Prod), outTurns, []complex128{-1i}),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
}
