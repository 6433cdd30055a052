package comm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/collprogram"
	"github.com/mpigo/mpigo/request"
)

// shortProgram makes random collectives whose buffers are short or nearly so, and exchanges
// messages between ranks. Each rank is late at random. So each call may take its short path or the
// general path, or begin on one and end on the other. The program counts the calls of this rank
// that ended on their short path, by name.
func shortProgram(w *comm.Comm, seed uint64, most int, shorts map[string]int) error {
	rng := rand.New(rand.NewPCG(seed, 1)) // the same at both ranks
	late := rand.New(rand.NewPCG(seed, uint64(2+w.Rank())))
	ids := []calls.ID{calls.Barrier, calls.Allreduce, calls.Reduce, calls.Bcast, calls.Allgather, calls.Alltoall}
	limits := []int{coll.MostCombined, coll.MostCopied}
	for i := range most {
		switch late.IntN(20) {
		case 0:
			time.Sleep(time.Duration(late.IntN(100)) * time.Microsecond)
		case 1, 2:
			runtime.Gosched()
		}
		switch rng.IntN(12) {
		case 0, 1, 2, 3:
			name, isShort, err := shortSums(w, rng)
			if err != nil {
				return fmt.Errorf("seed %d, call %d: %w", seed, i, err)
			}
			if isShort {
				shorts[name]++
			}
			continue
		case 4:
			if err := shortMessage(w, rng.IntN(w.Size()), i); err != nil {
				return fmt.Errorf("seed %d, call %d: %w", seed, i, err)
			}
			continue
		}
		c := &collprogram.Call{
			ID: ids[rng.IntN(len(ids))], Count: rng.IntN(12), Root: rng.IntN(w.Size()), InPlace: rng.IntN(3) == 0,
			InOrder: rng.IntN(2) == 0, Contents: rng.Uint64(), Counts: make([]int, w.Size()),
		}
		most := limits[rng.IntN(len(limits))] / int(unsafe.Sizeof(collprogram.Affine{}))
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
			return fmt.Errorf("seed %d, call %d: %w", seed, i, err)
		}
		if comm.EndedShort(w) {
			shorts[c.ID.String()]++
		}
	}
	return nil
}

// shortMessage sends a message from one rank to the next. The receiver waits for it and makes no
// collective meanwhile.
func shortMessage(w *comm.Comm, from, what int) error {
	to := (from + 1) % w.Size()
	switch w.Rank() {
	case from:
		return comm.Ssend(w, []int{what}, to, 0)
	case to:
		got := []int{0}
		_, err := comm.Recv(w, got, from, 0)
		if err == nil && got[0] != what {
			err = fmt.Errorf("received %d, want %d", got[0], what)
		}
		return err
	}
	return nil
}

// shortSums makes a reduction with an operation of the library, as short paths require, and returns
// its name. The result must have the same bits as the result of the nonblocking call, which uses
// messages.
func shortSums(w *comm.Comm, rng *rand.Rand) (name string, isShort bool, err error) {
	n, root := 1+rng.IntN(20), rng.IntN(w.Size())
	in, out, want := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range in {
		for rank := range w.Size() {
			if v := rng.Float64(); rank == w.Rank() {
				in[i] = v
			}
		}
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
	var byMessages request.Request
	name = "reduce"
	switch all := rng.IntN(2) == 0; {
	case all:
		name = "allreduce"
		err = comm.Allreduce(w, from, out, comm.Sum[float64], opts...)
		isShort = comm.EndedShort(w)
		byMessages = must(comm.Iallreduce(w, in, want, comm.Sum[float64], opts...))
	case w.Rank() != root:
		err = comm.Reduce(w, in, nil, comm.Sum[float64], root, opts...)
		isShort = comm.EndedShort(w)
		byMessages, want = must(comm.Ireduce(w, in, nil, comm.Sum[float64], root, opts...)), out
	default:
		err = comm.Reduce(w, from, out, comm.Sum[float64], root, opts...)
		isShort = comm.EndedShort(w)
		byMessages = must(comm.Ireduce(w, in, want, comm.Sum[float64], root, opts...))
	}
	if err == nil {
		_, err = byMessages.Wait()
	}
	if err == nil && !slices.Equal(out, want) {
		err = fmt.Errorf("rank %d has %v, want %v", w.Rank(), out, want)
	}
	return name, isShort, err
}

// everyShortCall checks that each call has ended on its short path some times.
func everyShortCall(shorts map[string]int) error {
	for _, name := range []string{"barrier", "allreduce", "reduce", "bcast", "allgather", "alltoall"} {
		if shorts[name] == 0 {
			return fmt.Errorf("no %s took its short path: %v", name, shorts)
		}
	}
	return nil
}

// TestShortCollectivesAgainstNaiveModel: more than two ranks that are goroutines do not wait on a
// short path, so only the last rank to arrive ends there.
func TestShortCollectivesAgainstNaiveModel(t *testing.T) {
	for ranks, seeds := range map[int]uint64{2: 20, 3: 5, 5: 5} {
		shorts := make([]map[string]int, ranks)
		for rank := range shorts {
			shorts[rank] = map[string]int{}
		}
		for seed := range seeds {
			require.NoError(t, comm.RunLocal(ranks, func(w *comm.Comm) error {
				return shortProgram(w, seed, 400, shorts[w.Rank()])
			}))
		}
		for rank := range shorts {
			assert.NoError(t, everyShortCall(shorts[rank]), "rank %d of %d", rank, ranks)
		}
	}
}

// shortCollectivesProgram makes short collectives in a job of processes.
func shortCollectivesProgram(w *comm.Comm) error {
	shorts := map[string]int{}
	for seed := range uint64(3) {
		if err := shortProgram(w, seed, 1000, shorts); err != nil {
			return err
		}
	}
	if w.Rank() == 0 {
		fmt.Println("short collectives done")
	}
	return everyShortCall(shorts)
}

// TestRoomAfterShortCollectives: a rank that only writes its contributions leaves room for the
// other rank, even if it makes no further collective.
func TestRoomAfterShortCollectives(t *testing.T) {
	for bcasts := range 17 {
		require.NoError(t, comm.RunLocal(2, func(w *comm.Comm) error {
			v := []int{1}
			for range 3 { // the third one sets the shared memory up
				check(w.Barrier())
			}
			for wasShort := []bool{false}; !wasShort[0]; { // at rank 1, and not at rank 0
				if w.Rank() == 1 {
					time.Sleep(100 * time.Microsecond)
				}
				check(w.Barrier())
				if w.Rank() == 1 {
					wasShort[0] = comm.EndedShort(w)
					check(comm.Send(w, wasShort, 0, 1))
				} else {
					must(comm.Recv(w, wasShort, 1, 1))
				}
			}
			for range bcasts {
				check(comm.Bcast(w, v, 1))
			}
			toOne := func() {
				if w.Rank() == 0 {
					check(comm.Send(w, v, 1, 0))
				} else {
					must(comm.Recv(w, v, 0, 0))
				}
			}
			toOne() // rank 0 has room everywhere
			check(comm.Reduce(w, v, []int{0}, comm.Sum, 0))
			toOne()
			return nil
		}))
	}
}

// shortKilledProgram kills rank 1 between two short collectives.
func shortKilledProgram(w *comm.Comm) error {
	for i := 0; ; i++ {
		if i == 1000 && w.Rank() == 1 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		if err := comm.Allreduce(w, []int{1}, []int{0}, comm.Sum); err != nil {
			if i != 1000 || !errors.Is(err, comm.ErrProcFailed) {
				return fmt.Errorf("allreduce %d: %w", i, err)
			}
			fmt.Println("ended")
			return nil
		}
	}
}

func TestRankKilledBetweenShortCollectives(t *testing.T) {
	for _, ranks := range []int{2, 4} {
		got := unmanaged(t, ranks, "short killed")
		for rank := range got {
			if rank == 1 {
				assert.Equal(t, -1, got[rank].status, "killed")
			} else {
				assert.Equal(t, "ended\n", got[rank].stdout, got[rank].stderr)
			}
		}
	}
}

// TestShortCollectivesThatDiffer: ranks that make different calls get an error on every path.
func TestShortCollectivesThatDiffer(t *testing.T) {
	v, two := []int{1}, []int{1, 2}
	calls := map[string]func(w *comm.Comm) error{
		"barrier":     func(w *comm.Comm) error { return w.Barrier() },
		"allreduce":   func(w *comm.Comm) error { return comm.Allreduce(w, v, []int{0}, comm.Sum) },
		"longer":      func(w *comm.Comm) error { return comm.Allreduce(w, two, []int{0, 0}, comm.Sum) },
		"in order":    func(w *comm.Comm) error { return comm.Allreduce(w, v, []int{0}, comm.Sum, comm.InRankOrder()) },
		"reduce to 0": func(w *comm.Comm) error { return comm.Reduce(w, v, []int{0}, comm.Sum, 0) },
		"reduce to 1": func(w *comm.Comm) error { return comm.Reduce(w, v, []int{0}, comm.Sum, 1) },
		"allgather":   func(w *comm.Comm) error { return comm.Allgather(w, v, make([]int, w.Size())) },
		"alltoall":    func(w *comm.Comm) error { return comm.Alltoall(w, make([]int, w.Size()), make([]int, w.Size())) },
		"no op":       func(w *comm.Comm) error { return comm.Allreduce(w, v, []int{0}, nil) },
	}
	for _, ranks := range []int{2, 3} {
		for one, call := range calls {
			for other, otherCall := range calls {
				if one == other || one == "reduce to 1" && other == "reduce to 0" { // no rank waits
					continue
				}
				t.Run(fmt.Sprintf("%d ranks, %s, %s", ranks, one, other), func(t *testing.T) {
					errs := make([]error, ranks)
					require.NoError(t, comm.RunLocal(ranks, func(w *comm.Comm) error {
						d := must(w.Dup())
						for range 4 {
							check(d.Barrier())
						}
						if w.Rank() == 0 {
							errs[0] = call(d)
						} else {
							errs[w.Rank()] = otherCall(d)
						}
						check(w.Barrier())
						return nil
					}))
					assert.Error(t, errors.Join(errs...), "no rank noticed")
				})
			}
		}
	}
}

func TestShortCollectivesOfProcesses(t *testing.T) {
	launch := launcher(t)
	for _, ranks := range []int{2, 4} {
		assert.Equal(t, outcome{0, "short collectives done\n", ""},
			launch(ranks, "short collectives", "--set", "check=false", "--oversubscribe"))
	}
}

// TestRootRunsAheadOfShortCollectives: a rank that has ended an exchange on its short path leaves
// all the room to the others, even if it makes no further collective.
func TestRootRunsAheadOfShortCollectives(t *testing.T) {
	require.NoError(t, comm.RunLocal(2, func(w *comm.Comm) error {
		v, parts := []int{1}, []int{0, 0}
		for range 3 { // the third one sets the shared memory up
			check(w.Barrier())
		}
		for wasShort := []bool{false}; !wasShort[0]; { // at rank 1
			if w.Rank() == 1 {
				time.Sleep(100 * time.Microsecond)
			}
			check(comm.Allgather(w, v, parts))
			if w.Rank() == 1 {
				wasShort[0] = comm.EndedShort(w)
				check(comm.Send(w, wasShort, 0, 1))
			} else {
				must(comm.Recv(w, wasShort, 1, 1))
			}
		}
		bcasts := func() {
			for range area.RoundsAhead {
				check(comm.Bcast(w, v, 0))
			}
		}
		if w.Rank() == 0 {
			bcasts()
			return comm.Send(w, v, 1, 0)
		}
		_, err := comm.Recv(w, v, 0, 0)
		bcasts()
		return err
	}))
}
