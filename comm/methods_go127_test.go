//go:build go1.27

package comm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

// The type arguments of a method, and of an operation that it is passed, follow from its slices.
func ExampleComm_Allreduce() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		sum := []float64{0}
		if err := world.Allreduce([]float64{1.5}, sum, comm.Sum); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(sum[0])
		}
		return nil
	})
	// Output: 4.5
}

func ExampleComm_Send() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return world.Send([]int{7}, 1, 0)
		}
		buf := make([]int, 1)
		st, err := world.Recv(buf, 0, 0)
		fmt.Println(buf[0], "from", st.Source)
		return err
	})
	// Output: 7 from 0
}

// TestMethodsDoWhatFunctionsDo: one of each kind, with variadic arguments, two types, requests.
func TestMethodsDoWhatFunctionsDo(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		peer := 1 - w.Rank()
		got := []int32{0}
		st := must(w.Sendrecv([]float32{1}, peer, 1, got, peer, 1))
		assert.Equal(t, peer, st.Source)
		assert.EqualValues(t, 0x3f800000, got[0])
		r := must(w.Irecv(got, peer, 2))
		check(w.Send([]int32{5}, peer, 2))
		must(r.Wait())
		assert.EqualValues(t, 5, got[0])
		persistent := must(w.AllreduceInit([]int32{3}, got, comm.Max, comm.InRankOrder()))
		check(persistent.Start())
		must(persistent.Wait())
		check(persistent.Free())
		assert.EqualValues(t, 3, got[0])
		check(w.Reduce([]int32{1}, got, comm.Sum, 0))
		mem := must(w.Alloc[int64](4))
		assert.Len(t, mem, 4)
		check(w.FreeAlloc(mem))
		check(w.SendValue("text", peer, 3))
		text, _, err := w.RecvValue[string](peer, 3)
		require.NoError(t, err)
		assert.Equal(t, "text", text)
	})
}

// TestErrorOfMethodHasLineOfProgram: not that of the method.
func TestErrorOfMethodHasLineOfProgram(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		assert.ErrorContains(t, w.Send([]int{1}, 9, 0), "world: send (methods_go127_test.go:")
	})
}
