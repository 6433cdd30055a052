package comm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOwnOperationsAreKnown(t *testing.T) {
	type pair = ValIndex[float64]
	for name, op := range map[string]Op[int]{
		"Sum": Sum[int], "Prod": Prod[int], "Min": Min[int], "Max": Max[int], "Land": Land[int], "Lor": Lor[int],
		"Lxor": Lxor[int], "Band": Band[int], "Bor": Bor[int], "Bxor": Bxor[int],
	} {
		require.True(t, ownOps{}.has(elemOp[int](op)), name)
	}
	require.True(t, ownOps{}.has(elemOp[pair](MaxLoc[float64])))
	require.True(t, ownOps{}.has(elemOp[pair](MinLoc[float64])))
}

func TestOperationsOfTheUserAreNotOwn(t *testing.T) {
	known := ownOps{}
	sum := func(in, inout []int) { Sum(in, inout) }
	for range 2 { // the second time from what it remembers
		require.False(t, known.has(elemOp[int](sum)))
		require.True(t, known.has(elemOp[int](Sum[int])))
	}
	require.Len(t, known, 2)
	for _, name := range []string{"comm.Sum", "example.org/comm.Sum[...]", "github.com/mpigo/mpigo/comm.Sum",
		"github.com/mpigo/mpigo/comm.generic[...].Sum[...]", "github.com/mpigo/mpigo/comm_test.Sum[...]"} {
		require.False(t, isOwnOp(name), name)
	}
}
