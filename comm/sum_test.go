package comm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm"
)

// fahrenheit is a type of the user's, which Sum adds element by element.
type fahrenheit float32

// TestSumOfEveryLengthHasBitsOfAddition: for every length and address of the slices, each element
// is one addition, and memory beside the slices does not change.
func TestSumOfEveryLengthHasBitsOfAddition(t *testing.T) {
	checkSum(t, math.Float32bits)
	checkSum(t, math.Float64bits)
	checkSum(t, func(v fahrenheit) uint32 { return math.Float32bits(float32(v)) })
}

func checkSum[T float32 | float64 | fahrenheit, B comparable](t *testing.T, bits func(T) B) {
	random := rand.New(rand.NewPCG(1, 2))
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64}
	value := func() T {
		if i := random.IntN(20); i < len(special) {
			return T(special[i])
		}
		return T(random.NormFloat64() * math.Pow(10, float64(random.IntN(9))))
	}
	for n := range 150 {
		for gap := range 4 {
			in, inout, want := make([]T, gap+n+1), make([]T, gap+n+1), make([]T, gap+n+1)
			for i := range in {
				in[i], inout[i] = value(), value()
				want[i] = inout[i]
				if i >= gap && i < gap+n {
					want[i] = in[i] + inout[i]
				}
			}
			comm.Sum(in[gap:gap+n], inout[gap:gap+n])
			for i := range want {
				if bits(want[i]) != bits(inout[i]) {
					assert.Failf(t, "another sum", "%d elements from %d: element %d is %v, want %v", n, gap, i, inout[i], want[i])
				}
			}
		}
	}
}
