package comm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

func TestReduceLocalCombines(t *testing.T) {
	for _, n := range []int{0, 1, 7, 100_000} {
		in, inout, want := make([]int, n), make([]int, n), make([]int, n)
		for i := range in {
			in[i], inout[i] = i, 3*i+1
			want[i] = in[i] - inout[i]
		}
		require.NoError(t, comm.ReduceLocal(in, inout, func(in, inout []int) {
			for i := range in {
				inout[i] = in[i] - inout[i]
			}
		}))
		assert.Equal(t, want, inout)
	}
	out := []float64{1, 2}
	require.NoError(t, comm.ReduceLocal([]float64{10, 20}, out, comm.Sum))
	assert.Equal(t, []float64{11, 22}, out)
	require.NoError(t, comm.ReduceLocal(nil, nil, comm.Sum[int]))
}

func TestReduceLocalRefusesBadArguments(t *testing.T) {
	b := []int{1, 2, 3}
	assert.ErrorIs(t, comm.ReduceLocal([]string{"a"}, []string{"b"}, nil), comm.ErrType)
	assert.ErrorIs(t, comm.ReduceLocal(b, b[:2], nil), comm.ErrOp)
	assert.ErrorIs(t, comm.ReduceLocal(b, b[:2], comm.Sum), comm.ErrCount)
	assert.ErrorIs(t, comm.ReduceLocal(nil, b, comm.Sum), comm.ErrCount)
	assert.ErrorIs(t, comm.ReduceLocal(b[:2], b[1:], comm.Sum), comm.ErrBuffer)
	assert.Equal(t, []int{1, 2, 3}, b)
}

type loc = comm.ValIndex[float64]

// TestLocOperations: ties have the lower index, and NaN wins.
func TestLocOperations(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct{ a, b, max, min loc }{
		{loc{1, 5}, loc{2, 3}, loc{2, 3}, loc{1, 5}},
		{loc{2, 5}, loc{2, 3}, loc{2, 3}, loc{2, 3}},
		{loc{2, -5}, loc{2, 3}, loc{2, -5}, loc{2, -5}},
		{loc{nan, 7}, loc{inf, 0}, loc{nan, 7}, loc{nan, 7}},
		{loc{nan, 7}, loc{-inf, 0}, loc{nan, 7}, loc{nan, 7}},
		{loc{nan, 7}, loc{nan, 4}, loc{nan, 4}, loc{nan, 4}},
		{loc{inf, 7}, loc{inf, 9}, loc{inf, 7}, loc{inf, 7}},
	} {
		for _, pair := range [][2]loc{{c.a, c.b}, {c.b, c.a}} {
			for _, op := range []struct {
				op   comm.Op[loc]
				want loc
			}{{comm.MaxLoc[float64], c.max}, {comm.MinLoc[float64], c.min}} {
				inout := []loc{pair[1]}
				require.NoError(t, comm.ReduceLocal([]loc{pair[0]}, inout, op.op))
				assert.Equal(t, op.want.Index, inout[0].Index)
				assert.Equal(t, math.Float64bits(op.want.Val), math.Float64bits(inout[0].Val))
			}
		}
	}
	small := []comm.ValIndex[int8]{{-3, 1}}
	require.NoError(t, comm.ReduceLocal([]comm.ValIndex[int8]{{-3, 0}}, small, comm.MinLoc))
	assert.Equal(t, []comm.ValIndex[int8]{{-3, 0}}, small)
}

// TestLocOperationsInCollectives has the cases of MPICH's opmaxloc and opminloc.
func TestLocOperationsInCollectives(t *testing.T) {
	const count = 600
	for _, n := range []int{1, 3, 4} {
		vals := make([][]comm.ValIndex[int16], n)
		rng := rand.New(rand.NewPCG(5, uint64(n)))
		for r := range vals {
			for range count {
				vals[r] = append(vals[r], comm.ValIndex[int16]{Val: int16(rng.IntN(3)), Index: int64(r)})
			}
		}
		most, least := make([]comm.ValIndex[int16], count), make([]comm.ValIndex[int16], count)
		for i := range count {
			most[i], least[i] = vals[0][i], vals[0][i]
			for _, v := range vals[1:] {
				if v[i].Val > most[i].Val {
					most[i] = v[i]
				}
				if v[i].Val < least[i].Val {
					least[i] = v[i]
				}
			}
		}
		run(t, n, func(t rank, w *comm.Comm) {
			out := make([]comm.ValIndex[int16], count)
			require.NoError(t, comm.Allreduce(w, vals[w.Rank()], out, comm.MaxLoc))
			assert.Equal(t, most, out)
			require.NoError(t, comm.Allreduce(w, vals[w.Rank()], out, comm.MinLoc))
			assert.Equal(t, least, out)
			require.NoError(t, comm.Reduce(w, vals[w.Rank()], out, comm.MaxLoc, n-1))
			if w.Rank() == n-1 {
				assert.Equal(t, most, out)
			}
		})
	}
}
