package comm

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/comm/internal/coll"
)

// collCall is one collective of a scenario, with the contributions of all ranks.
type collCall struct {
	kind     string
	count    int // elements of a rank, or for a rank
	root     int
	inPlace  bool
	inOrder  bool
	counts   []int      // by rank, at most count
	gap      int        // between parts
	contents [][]affine // by rank
}

// collKinds has every kind of call, with the result that each rank must get, or nil if it gets
// none.
var collKinds = map[string]func(c *collCall, n, rank int) []affine{
	"barrier": func(c *collCall, n, rank int) []affine { return nil },
	"bcast":   func(c *collCall, n, rank int) []affine { return c.contents[c.root][:c.count] },
	"reduce": func(c *collCall, n, rank int) []affine {
		if rank != c.root {
			return nil
		}
		return c.combined(n)
	},
	"allreduce": func(c *collCall, n, rank int) []affine { return c.combined(n) },
	"gather": func(c *collCall, n, rank int) []affine {
		if rank != c.root {
			return nil
		}
		return c.gathered(n)
	},
	"scatter": func(c *collCall, n, rank int) []affine {
		return c.contents[c.root][rank*c.count : (rank+1)*c.count]
	},
	"allgather": func(c *collCall, n, rank int) []affine { return c.gathered(n) },
	"scan":      func(c *collCall, n, rank int) []affine { return c.combined(rank + 1) },
	"exscan": func(c *collCall, n, rank int) []affine {
		if rank == 0 {
			return c.contents[0][:c.count]
		}
		return c.combined(rank)
	},
	"reducescatter": func(c *collCall, n, rank int) []affine {
		displs, total := packed(c.counts)
		whole := *c
		whole.count = total
		return whole.combined(n)[displs[rank]:][:c.counts[rank]]
	},
	"reducescatterblock": func(c *collCall, n, rank int) []affine {
		whole := *c
		whole.count = n * c.count
		return whole.combined(n)[rank*c.count:][:c.count]
	},
	"gatherv": func(c *collCall, n, rank int) []affine {
		if rank != c.root {
			return nil
		}
		return c.gatheredv(n)
	},
	"scatterv": func(c *collCall, n, rank int) []affine {
		displs, _ := c.layout()
		return c.contents[c.root][displs[rank]:][:c.counts[rank]]
	},
	"allgatherv": func(c *collCall, n, rank int) []affine { return c.gatheredv(n) },
	"alltoallv": func(c *collCall, n, rank int) []affine {
		var all []affine
		for r := range n {
			displs, _ := packed(c.exchanged(n, r))
			all = append(all, c.contents[r][displs[rank]:][:c.exchanged(n, r)[rank]]...)
		}
		return all
	},
	"alltoall": func(c *collCall, n, rank int) []affine {
		var all []affine
		for r := range n {
			all = append(all, c.contents[r][rank*c.count:(rank+1)*c.count]...)
		}
		return all
	},
}

func (c *collCall) combined(n int) []affine {
	all := append([]affine(nil), c.contents[0][:c.count]...)
	for r := 1; r < n; r++ {
		for i := range all {
			all[i] = c.op(all[i], c.contents[r][i])
		}
	}
	return all
}

func (c *collCall) op(a, b affine) affine {
	if c.inOrder {
		return compose(a, b)
	}
	return affine{a.A ^ b.A, a.B + b.B}
}

func (c *collCall) gathered(n int) []affine {
	var all []affine
	for r := range n {
		all = append(all, c.contents[r][:c.count]...)
	}
	return all
}

// layout says where the parts are in a whole.
func (c *collCall) layout() (displs []int, total int) {
	for _, count := range c.counts {
		displs = append(displs, total+c.gap)
		total += count + c.gap
	}
	return displs, total
}

// exchanged is how many elements a rank sends to each rank, and receives from each rank.
func (c *collCall) exchanged(n, rank int) []int {
	counts := make([]int, n)
	for r := range counts {
		counts[r] = c.counts[(r+rank)%n]
	}
	return counts
}

func (c *collCall) gatheredv(n int) []affine {
	displs, total := c.layout()
	all := make([]affine, total)
	for r := range n {
		copy(all[displs[r]:], c.contents[r][:c.counts[r]])
	}
	return all
}

// call makes the call at one rank, and returns its result.
func (c *collCall) call(w *Comm) ([]affine, error) {
	n, rank := w.Size(), w.Rank()
	mine := append([]affine(nil), c.contents[rank]...)
	op := func(in, inout []affine) {
		for i := range inout {
			inout[i] = c.op(in[i], inout[i])
		}
	}
	var opts []CollOption
	if c.inOrder {
		opts = append(opts, InRankOrder())
	}
	one, all := mine[:c.count:c.count], make([]affine, n*c.count)
	switch c.kind {
	case "barrier":
		return nil, w.Barrier()
	case "bcast":
		buf := make([]affine, c.count)
		if rank == c.root {
			copy(buf, one)
		}
		return buf, Bcast(w, buf, c.root)
	case "reduce":
		if rank != c.root {
			return nil, Reduce(w, one, nil, op, c.root, opts...)
		}
		if c.inPlace {
			return one, Reduce(w, nil, one, op, c.root, opts...)
		}
		return all[:c.count], Reduce(w, one, all[:c.count], op, c.root, opts...)
	case "allreduce":
		if c.inPlace {
			return one, Allreduce(w, nil, one, op, opts...)
		}
		return all[:c.count], Allreduce(w, one, all[:c.count], op, opts...)
	case "gather":
		if rank != c.root {
			return nil, Gather(w, one, nil, c.root)
		}
		if c.inPlace {
			copy(all[rank*c.count:], one)
			return all, Gather(w, nil, all, c.root)
		}
		return all, Gather(w, one, all, c.root)
	case "scatter":
		if rank != c.root {
			return all[:c.count], Scatter(w, nil, all[:c.count], c.root)
		}
		if c.inPlace {
			return mine[rank*c.count : (rank+1)*c.count], Scatter(w, mine[:n*c.count], nil, c.root)
		}
		return all[:c.count], Scatter(w, mine[:n*c.count], all[:c.count], c.root)
	case "allgather":
		if c.inPlace {
			copy(all[rank*c.count:], one)
			return all, Allgather(w, nil, all)
		}
		return all, Allgather(w, one, all)
	case "alltoall":
		if c.inPlace {
			return mine[:n*c.count], Alltoall(w, nil, mine[:n*c.count])
		}
		return all, Alltoall(w, mine[:n*c.count], all)
	case "scan":
		if c.inPlace {
			return one, Scan(w, nil, one, op, opts...)
		}
		return all[:c.count], Scan(w, one, all[:c.count], op, opts...)
	case "exscan":
		if c.inPlace {
			return one, Exscan(w, nil, one, op, opts...)
		}
		copy(all, one)
		return all[:c.count], Exscan(w, one, all[:c.count], op, opts...)
	case "reducescatter":
		_, total := packed(c.counts)
		if c.inPlace {
			return mine[:c.counts[rank]], ReduceScatter(w, nil, mine[:total], c.counts, op, opts...)
		}
		return all[:c.counts[rank]], ReduceScatter(w, mine[:total], all[:c.counts[rank]], c.counts, op, opts...)
	case "reducescatterblock":
		if c.inPlace {
			return mine[:c.count], ReduceScatterBlock(w, nil, mine[:n*c.count], op, opts...)
		}
		return all[:c.count], ReduceScatterBlock(w, mine[:n*c.count], all[:c.count], op, opts...)
	}
	return c.callv(w, mine)
}

// callv is call for collectives with a length for each rank.
func (c *collCall) callv(w *Comm, mine []affine) ([]affine, error) {
	n, rank := w.Size(), w.Rank()
	displs, total := c.layout()
	one, all := mine[:c.counts[rank]:c.counts[rank]], make([]affine, total)
	switch c.kind {
	case "gatherv":
		if rank != c.root {
			return nil, Gatherv(w, one, nil, nil, nil, c.root)
		}
		if c.inPlace {
			copy(all[displs[rank]:], one)
			one = nil
		}
		return all, Gatherv(w, one, all, c.counts, displs, c.root)
	case "scatterv":
		got := make([]affine, c.counts[rank])
		if rank != c.root {
			return got, Scatterv(w, nil, got, nil, nil, c.root)
		}
		if c.inPlace {
			return mine[displs[rank]:][:c.counts[rank]], Scatterv(w, mine, nil, c.counts, displs, c.root)
		}
		return got, Scatterv(w, mine, got, c.counts, displs, c.root)
	case "allgatherv":
		if c.inPlace {
			copy(all[displs[rank]:], one)
			one = nil
		}
		return all, Allgatherv(w, one, all, c.counts, displs)
	case "alltoallv":
		counts := c.exchanged(n, rank)
		_, total := packed(counts)
		if c.inPlace {
			return mine[:total], Alltoallv(w, nil, nil, nil, mine[:total], counts, nil)
		}
		all := make([]affine, total)
		return all, Alltoallv(w, mine, counts, nil, all, counts, nil)
	}
	return nil, fmt.Errorf("no call %q", c.kind)
}

// TestCollectivesAgainstNaiveModel: random sequences of collectives, with random algorithms, give
// the results of a naive model.
func TestCollectivesAgainstNaiveModel(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(collKinds))
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 10).Draw(t, "ranks")
		limit := rapid.IntRange(-1, 400)
		ranks := rapid.IntRange(0, 10)
		tuning := &coll.Tuning{
			BcastTreeBytes:         limit.Draw(t, "bcast tree"),
			ReduceTreeBytes:        limit.Draw(t, "reduce tree"),
			FlatRanks:              ranks.Draw(t, "flat ranks"),
			FlatBytes:              rapid.IntRange(-1, 4000).Draw(t, "flat"),
			ScanDoublingBytes:      limit.Draw(t, "scan doubling"),
			AllreduceDoublingBytes: limit.Draw(t, "allreduce doubling"),
			GatherTreeBytes:        limit.Draw(t, "gather tree"),
			GatherTreeRanks:        ranks.Draw(t, "gather tree ranks"),
			AllgatherBruckBytes:    limit.Draw(t, "allgather Bruck"),
			AlltoallBruckBytes:     limit.Draw(t, "alltoall Bruck"),
			AlltoallBruckRanks:     ranks.Draw(t, "alltoall Bruck ranks"),
			AlltoallFlightBytes:    limit.Draw(t, "alltoall flight"),
			PieceBytes:             rapid.IntRange(1, 200).Draw(t, "piece"),
		}
		calls := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *collCall {
			c := &collCall{
				kind:    rapid.SampledFrom(kinds).Draw(t, "kind"),
				count:   rapid.IntRange(0, 60).Draw(t, "count"),
				root:    rapid.IntRange(0, n-1).Draw(t, "root"),
				inPlace: rapid.Bool().Draw(t, "in place"),
				inOrder: rapid.Bool().Draw(t, "in rank order"),
			}
			c.counts = rapid.SliceOfN(rapid.IntRange(0, c.count), n, n).Draw(t, "counts")
			c.gap = rapid.IntRange(0, 3).Draw(t, "gap")
			for r := range n {
				c.contents = append(c.contents, affines(r*31+c.count, n*(c.count+c.gap)))
			}
			return c
		}), 1, 8).Draw(t, "calls")
		err := RunLocal(n, func(w *Comm) error {
			w.team.SetTuning(tuning)
			for i, c := range calls {
				got, err := c.call(w)
				if err != nil {
					return err
				}
				want := collKinds[c.kind](c, n, w.Rank())
				if err := same(fmt.Sprintf("call %d, %s", i, c.kind), want, got); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
