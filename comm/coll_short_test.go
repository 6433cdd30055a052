package comm_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/collprogram"
)

// shortProgram makes random collectives of two ranks whose buffers are short or nearly so. Each
// rank is late at random, so each call may take its short path, the general way, or begin on the
// one and end in the other. It returns how many calls of this rank ended on their short path.
func shortProgram(w *comm.Comm, seed uint64, calls int) (shorts int, err error) {
	rng := rand.New(rand.NewPCG(seed, 1)) // the same at both ranks
	late := rand.New(rand.NewPCG(seed, uint64(2+w.Rank())))
	names := []string{"barrier", "allreduce", "reduce", "bcast", "allgather", "alltoall"}
	const most = coll.MostShort / int(unsafe.Sizeof(collprogram.Affine{}))
	for i := range calls {
		switch late.IntN(20) {
		case 0:
			time.Sleep(time.Duration(late.IntN(100)) * time.Microsecond)
		case 1, 2:
			runtime.Gosched()
		}
		if rng.IntN(3) == 0 {
			err := shortSums(w, rng)
			if err != nil {
				return shorts, fmt.Errorf("seed %d, call %d: %w", seed, i, err)
			}
			if comm.EndedShort(w) {
				shorts++
			}
			continue
		}
		c := &collprogram.Call{
			Kind: names[rng.IntN(len(names))], Count: rng.IntN(12), Root: rng.IntN(2), InPlace: rng.IntN(3) == 0,
			InOrder: rng.IntN(2) == 0, Contents: rng.Uint64(), Counts: []int{0, 0},
		}
		switch rng.IntN(8) {
		case 0:
			c.Count = most - 1 + rng.IntN(3)
		case 1:
			c.Count = rng.IntN(2 * most)
		}
		form := collprogram.Blocking
		if rng.IntN(10) == 0 {
			form = collprogram.Nonblocking + collprogram.Form(rng.IntN(2))
		}
		if err := c.Check(w, form); err != nil {
			return shorts, fmt.Errorf("seed %d, call %d: %w", seed, i, err)
		}
		if comm.EndedShort(w) {
			shorts++
		}
	}
	return shorts, nil
}

// shortSums makes a reduction with an operation of the library, as short paths want it.
func shortSums(w *comm.Comm, rng *rand.Rand) error {
	n, root := 1+rng.IntN(20), rng.IntN(2)
	in, out, want := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range in {
		of := [2]float64{rng.Float64(), rng.Float64()}
		in[i], want[i] = of[w.Rank()], of[0]+of[1]
	}
	from := in
	if rng.IntN(2) == 0 {
		copy(out, in)
		from = nil
	}
	var opts []comm.CollOption
	if rng.IntN(2) == 0 {
		opts = append(opts, comm.InRankOrder())
	}
	var err error
	switch all := rng.IntN(2) == 0; {
	case all:
		err = comm.Allreduce(w, from, out, comm.Sum[float64], opts...)
	case w.Rank() != root:
		err, want = comm.Reduce(w, in, nil, comm.Sum[float64], root, opts...), out
	default:
		err = comm.Reduce(w, from, out, comm.Sum[float64], root, opts...)
	}
	if err == nil && !slices.Equal(out, want) {
		err = fmt.Errorf("rank %d has %v, want %v", w.Rank(), out, want)
	}
	return err
}

func TestShortCollectivesAgainstNaiveModel(t *testing.T) {
	const seeds, calls = 20, 400
	var shorts [2]int
	for seed := range uint64(seeds) {
		require.NoError(t, comm.RunLocal(2, func(w *comm.Comm) error {
			n, err := shortProgram(w, seed, calls)
			shorts[w.Rank()] += n
			return err
		}))
	}
	for rank, n := range shorts {
		assert.NotZero(t, n, "rank %d", rank)
		assert.Less(t, n, seeds*calls, "rank %d", rank)
	}
}

// shortCollectivesProgram makes short collectives in a job of processes.
func shortCollectivesProgram(w *comm.Comm) error {
	for seed := range uint64(5) {
		if _, err := shortProgram(w, seed, 2000); err != nil {
			return err
		}
	}
	if w.Rank() == 0 {
		fmt.Println("short collectives done")
	}
	return nil
}

func TestShortCollectivesOfProcesses(t *testing.T) {
	launch := launcher(t)
	assert.Equal(t, outcome{0, "short collectives done\n", ""}, launch(2, "short collectives", "--set", "check=false"))
}
