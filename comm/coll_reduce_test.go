package comm

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mpigo/mpigo/comm/internal/coll"
)

// affine is x ↦ a·x + b over the integers modulo 2³²: its composition is associative, exact, and
// does not commute.
type affine struct{ A, B uint32 }

// compose is f ∘ g as in f first: x ↦ g(f(x)).
func compose(f, g affine) affine { return affine{f.A * g.A, f.B*g.A + g.B} }

func composeAll(in, inout []affine) {
	for i := range inout {
		inout[i] = compose(in[i], inout[i])
	}
}

func affineOf(rank, i int) affine {
	return affine{uint32(2*rank + 3 + i%5), uint32(rank*rank + 7*i + 1)}
}

func affines(rank, count int) []affine {
	s := make([]affine, count)
	for i := range s {
		s[i] = affineOf(rank, i)
	}
	return s
}

// composed is the composition of the contributions of n ranks, in order.
func composed(n, count int) []affine {
	s := affines(0, count)
	for r := 1; r < n; r++ {
		for i := range s {
			s[i] = compose(s[i], affineOf(r, i))
		}
	}
	return s
}

// sums is the sum of the marks of n ranks.
func sums(n, count int) []int32 {
	s := make([]int32, count)
	for r := range n {
		for i := range s {
			s[i] += mark(r, i)
		}
	}
	return s
}

func TestReduce(t *testing.T) { forEachTuning(t, checkReduce) }

func checkReduce(w *Comm) error {
	for _, count := range countsFor(w) {
		for _, root := range rootsOf(w.Size(), count) {
			what := fmt.Sprintf("%d elements to %d", count, root)
			err := errors.Join(
				testReduce(w, what+" in order", root, affines(w.Rank(), count), composed(w.Size(), count),
					composeAll, InRankOrder()),
				testReduce(w, what, root, marks(w.Rank(), count), sums(w.Size(), count), Sum))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func testReduce[T comparable](w *Comm, what string, root int, in, want []T, op Op[T], opts ...CollOption) error {
	given := append([]T(nil), in...)
	var out []T
	if w.Rank() != root {
		want = nil
	} else {
		out = make([]T, len(in))
	}
	err := errors.Join(Reduce(w, in, out, op, root, opts...), same(what, want, out), same(what+": in", given, in))
	if w.Rank() == root {
		copy(out, in)
		in = nil
	}
	return errors.Join(err, Reduce(w, in, out, op, root, opts...), same(what+" in place", want, out))
}

func TestAllreduce(t *testing.T) { forEachTuning(t, checkAllreduce) }

func checkAllreduce(w *Comm) error {
	for _, count := range countsFor(w) {
		what := fmt.Sprintf("%d elements", count)
		err := errors.Join(
			testAllreduce(w, what+" in order", affines(w.Rank(), count), composed(w.Size(), count),
				composeAll, InRankOrder()),
			testAllreduce(w, what, marks(w.Rank(), count), sums(w.Size(), count), Sum))
		if err != nil {
			return err
		}
	}
	return nil
}

func testAllreduce[T comparable](w *Comm, what string, in, want []T, op Op[T], opts ...CollOption) error {
	given := append([]T(nil), in...)
	out, inPlace := make([]T, len(in)), append([]T(nil), in...)
	return errors.Join(
		Allreduce(w, in, out, op, opts...), same(what, want, out), same(what+": in", given, in),
		Allreduce(w, nil, inPlace, op, opts...), same(what+" in place", want, inPlace))
}

func TestScan(t *testing.T) { forEachTuning(t, checkScan) }

func checkScan(w *Comm) error {
	for _, count := range countsFor(w) {
		what := fmt.Sprintf("%d elements", count)
		in := affines(w.Rank(), count)
		// Exscan does not change out at rank 0.
		before := slices.Clone(in)
		if w.Rank() > 0 {
			before = composed(w.Rank(), count)
		}
		out := slices.Clone(in)
		err := errors.Join(
			Exscan(w, in, out, composeAll, InRankOrder()), same(what+" before", before, out),
			same(what+": in", affines(w.Rank(), count), in))
		copy(out, in)
		err = errors.Join(err, Exscan(w, nil, out, composeAll), same(what+" before, in place", before, out))
		upTo := composed(w.Rank()+1, count)
		err = errors.Join(err,
			Scan(w, in, out, composeAll), same(what, upTo, out), same(what+": in", affines(w.Rank(), count), in))
		copy(out, in)
		err = errors.Join(err, Scan(w, nil, out, composeAll, InRankOrder()), same(what+" in place", upTo, out))
		if err != nil {
			return err
		}
	}
	return nil
}

func TestReduceScatter(t *testing.T) { forEachTuning(t, checkReduceScatters) }

func checkReduceScatters(w *Comm) error {
	n, rank := w.Size(), w.Rank()
	for _, count := range countsFor(w) {
		if count > 100 { // of each rank
			count /= 5
		}
		equal, uneven := make([]int, n), make([]int, n)
		for r := range n {
			equal[r] = count
			uneven[r] = r % 3 * count / 2
		}
		for _, counts := range [][]int{equal, uneven} {
			total, begin := 0, 0
			for r, c := range counts {
				if r < rank {
					begin += c
				}
				total += c
			}
			own := counts[rank]
			call := func(in, out []affine, op Op[affine], opts ...CollOption) error {
				if &counts[0] == &equal[0] {
					return ReduceScatterBlock(w, in, out, op, opts...)
				}
				return ReduceScatter(w, in, out, counts, op, opts...)
			}
			what := fmt.Sprintf("%v elements", counts)
			in, out := affines(rank, total), make([]affine, own)
			want := composed(n, total)[begin:][:own]
			err := errors.Join(
				call(in, out, composeAll, InRankOrder()), same(what, want, out),
				same(what+": in", affines(rank, total), in),
				call(nil, in, composeAll, InRankOrder()), same(what+" in place", want, in[:own]))
			// Any order.
			in = affines(rank, total)
			for i := range want {
				want[i] = affine{}
				for r := range n {
					want[i].B += affineOf(r, begin+i).B
				}
			}
			add := func(in, inout []affine) {
				for i := range inout {
					inout[i] = affine{0, in[i].B + inout[i].B}
				}
			}
			for i := range in {
				in[i].A = 0
			}
			given := slices.Clone(in)
			err = errors.Join(err,
				call(in, out, add), same(what+" added", want, out), same(what+": in", given, in),
				call(nil, in, add), same(what+" added in place", want, in[:own]))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// TestAllreduceGivesSameBitsAtAllRanks: that holds for sums that depend on the order, too.
func TestAllreduceGivesSameBitsAtAllRanks(t *testing.T) {
	forEachTuning(t, checkAllreduceGivesTheSameBits)
}

func checkAllreduceGivesTheSameBits(w *Comm) error {
	random := rand.New(rand.NewPCG(1, uint64(w.Rank())))
	for _, count := range []int{1, 7, 1500} {
		in, out := make([]float32, count), make([]float32, count)
		for i := range in {
			in[i] = float32(random.NormFloat64() * math.Pow(10, float64(random.IntN(9))))
		}
		if err := Allreduce(w, in, out, Sum); err != nil {
			return err
		}
		root := make([]float32, count)
		copy(root, out)
		if err := errors.Join(Bcast(w, root, 0), same("bits", bits(root), bits(out))); err != nil {
			return err
		}
	}
	return nil
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i := range x {
		b[i] = math.Float32bits(x[i])
	}
	return b
}

// TestOperationThatPanicsFailsEveryRank: the rank whose operation panics or ends its goroutine
// fails, and no other rank hangs.
func TestOperationThatPanicsFailsEveryRank(t *testing.T) {
	for _, c := range []struct {
		ranks, panics int
		tuning        *coll.Tuning
	}{{2, 1, coll.DefaultTuning(false)}, {5, 1, coll.DefaultTuning(false)}, {5, 0, coll.DefaultTuning(true)}} {
		runColl(t, c.ranks, func(w *Comm) error {
			d, err := w.Dup()
			if err != nil {
				return err
			}
			d.team.SetTuning(c.tuning)
			boom := func() (recovered any) {
				defer func() { recovered = recover() }()
				return Allreduce(d, []int{1}, []int{0}, func(in, inout []int) {
					if w.Rank() == c.panics {
						panic("boom")
					}
				})
			}()
			if w.Rank() == c.panics {
				if boom != "boom" {
					return fmt.Errorf("recovered %v", boom)
				}
				if err := d.Barrier(); !errors.Is(err, ErrComm) {
					return fmt.Errorf("after the panic: %v", err)
				}
			} else if boom != nil { // a rank that needs nothing more of that rank may have finished
				if err, ok := boom.(error); !ok || !errors.Is(err, ErrComm) {
					return fmt.Errorf("where another rank panics: %v", boom)
				}
			}
			return w.Barrier()
		})
	}
}

// TestOperationMayCallIprobe: an operation may use calls that do not communicate.
func TestOperationMayCallIprobe(t *testing.T) {
	runColl(t, 2, func(w *Comm) error {
		sum := []int{0}
		err := Allreduce(w, []int{1 + w.Rank()}, sum, func(in, inout []int) {
			if _, _, err := w.Iprobe(AnySource, AnyTag); err != nil {
				panic(err)
			}
			inout[0] += in[0]
		})
		if err == nil && sum[0] != 3 {
			err = fmt.Errorf("the sum of 1 and 2 is %d", sum[0])
		}
		return err
	})
}
