package comm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/comm/internal/coll"
)

// affine is x ↦ a·x + b over the integers modulo 2³²: its composition is associative, exact, and
// does not commute.
type affine struct{ A, B uint32 }

// affines is the contribution of a rank. No element is zero.
func affines(rank, count int) []affine {
	s := make([]affine, count)
	for i := range s {
		s[i] = affine{uint32(2*rank + 3 + i%5), uint32(rank*rank + 7*i + 1)}
	}
	return s
}

// collCall is one collective call, with the contributions of all ranks.
type collCall struct {
	kind       string
	count      int // elements of a rank, or for a rank
	root       int
	inPlace    bool
	inOrder    bool
	counts     []int      // by rank, at most count
	gap        int        // elements before each part of a call with counts, and after the last one
	descending bool       // the parts of such a call are in descending order of rank
	contents   [][]affine // by rank
}

// collKind is a kind of call, with the result that each rank must get, or nil if it gets none.
type collKind struct {
	rooted, combines, hasCounts bool
	whole                       bool // the input of a rank has a part for each rank
	result                      func(c *collCall, n, rank int) []affine
}

var collKinds = map[string]collKind{
	"barrier": {result: func(c *collCall, n, rank int) []affine { return nil }},
	"bcast": {rooted: true, result: func(c *collCall, n, rank int) []affine {
		return c.contents[c.root][:c.count]
	}},
	"reduce": {rooted: true, combines: true, result: func(c *collCall, n, rank int) []affine {
		if rank != c.root {
			return nil
		}
		return c.combined(n, 0, c.count)
	}},
	"allreduce": {combines: true, result: func(c *collCall, n, rank int) []affine {
		return c.combined(n, 0, c.count)
	}},
	"gather": {rooted: true, result: func(c *collCall, n, rank int) []affine {
		if rank != c.root {
			return nil
		}
		return c.gathered(n)
	}},
	"scatter": {rooted: true, whole: true, result: func(c *collCall, n, rank int) []affine {
		return c.contents[c.root][rank*c.count:][:c.count]
	}},
	"allgather": {result: func(c *collCall, n, rank int) []affine { return c.gathered(n) }},
	"scan": {combines: true, result: func(c *collCall, n, rank int) []affine {
		return c.combined(rank+1, 0, c.count)
	}},
	"exscan": {combines: true, result: func(c *collCall, n, rank int) []affine {
		return c.combined(max(rank, 1), 0, c.count) // rank 0 keeps what it has
	}},
	"reducescatter": {combines: true, hasCounts: true, result: func(c *collCall, n, rank int) []affine {
		displs, _ := place(c.counts, 0, false)
		return c.combined(n, displs[rank], c.counts[rank])
	}},
	"reducescatterblock": {combines: true, whole: true, result: func(c *collCall, n, rank int) []affine {
		return c.combined(n, rank*c.count, c.count)
	}},
	"gatherv": {rooted: true, hasCounts: true, result: func(c *collCall, n, rank int) []affine {
		if rank != c.root {
			return nil
		}
		return c.gatheredv(n)
	}},
	"scatterv": {rooted: true, hasCounts: true, result: func(c *collCall, n, rank int) []affine {
		displs, _ := c.layout(c.counts)
		return c.contents[c.root][displs[rank]:][:c.counts[rank]]
	}},
	"allgatherv": {hasCounts: true, result: func(c *collCall, n, rank int) []affine { return c.gatheredv(n) }},
	"alltoall": {whole: true, result: func(c *collCall, n, rank int) []affine {
		var all []affine
		for r := range n {
			all = append(all, c.contents[r][rank*c.count:][:c.count]...)
		}
		return all
	}},
	"alltoallv": {hasCounts: true, result: func(c *collCall, n, rank int) []affine {
		displs, total := c.layout(c.received(n, rank))
		all := make([]affine, total)
		if c.inPlace {
			copy(all, c.contents[rank])
		}
		for r := range n {
			sent := c.sent(n, r)
			from, _ := c.layout(sent)
			copy(all[displs[r]:], c.contents[r][from[rank]:][:sent[rank]])
		}
		return all
	}},
}

// combined combines count elements of the first n ranks.
func (c *collCall) combined(n, begin, count int) []affine {
	all := slices.Clone(c.contents[0][begin:][:count])
	for r := 1; r < n; r++ {
		for i := range all {
			all[i] = c.op(all[i], c.contents[r][begin+i])
		}
	}
	return all
}

// op is the composition of a and b, a first, where the call combines in order of rank, and
// otherwise an operation that commutes.
func (c *collCall) op(a, b affine) affine {
	if c.inOrder || c.kind == "scan" || c.kind == "exscan" {
		return affine{a.A * b.A, a.B*b.A + b.B}
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

func (c *collCall) gatheredv(n int) []affine {
	displs, total := c.layout(c.counts)
	all := make([]affine, total)
	for r := range n {
		copy(all[displs[r]:], c.contents[r][:c.counts[r]])
	}
	return all
}

// place says where the parts of all ranks are in a whole.
func place(counts []int, gap int, descending bool) (displs []int, total int) {
	displs = make([]int, len(counts))
	for i := range counts {
		if descending {
			i = len(counts) - 1 - i
		}
		displs[i] = total + gap
		total = displs[i] + counts[i]
	}
	return displs, total + gap
}

func (c *collCall) layout(counts []int) (displs []int, total int) {
	return place(counts, c.gap, c.descending)
}

// displs is what a call passes for a layout: nil if the parts lie one after the other.
func (c *collCall) displs(counts []int) []int {
	if c.gap == 0 && !c.descending {
		return nil
	}
	displs, _ := c.layout(counts)
	return displs
}

// sent is how many elements a rank sends to each rank in alltoallv: if in place, as many as it
// receives from there.
func (c *collCall) sent(n, rank int) []int {
	counts := make([]int, n)
	for r := range counts {
		counts[r] = c.counts[(rank+r*(2-b2i(c.inPlace)))%n]
	}
	return counts
}

// received is how many elements a rank receives from each rank in alltoallv.
func (c *collCall) received(n, rank int) []int {
	counts := make([]int, n)
	for r := range counts {
		counts[r] = c.sent(n, r)[rank]
	}
	return counts
}

// check makes the call at one rank, and checks its result, and that input and gaps are unchanged.
func (c *collCall) check(w *Comm) error {
	rank := w.Rank()
	what := fmt.Sprintf("%s of %d elements, root %d, inPlace=%v, inOrder=%v, counts %v, gap %d, descending=%v",
		c.kind, c.count, c.root, c.inPlace, c.inOrder, c.counts, c.gap, c.descending)
	kind, given := collKinds[c.kind], c.contents[rank]
	if !kind.whole && !kind.hasCounts {
		given = given[:c.count]
	}
	mine := slices.Clone(given)
	got, err := c.call(w, mine)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	err = same(what, kind.result(c, w.Size(), rank), got)
	if !c.inPlace || !kind.combines && !strings.HasPrefix(c.kind, "alltoall") {
		err = errors.Join(err, same(what+": input", given, mine))
	}
	return err
}

// call makes the call, and returns its result. mine is the contribution of this rank.
func (c *collCall) call(w *Comm, mine []affine) ([]affine, error) {
	n, rank := w.Size(), w.Rank()
	op := func(in, inout []affine) {
		for i := range inout {
			inout[i] = c.op(in[i], inout[i])
		}
	}
	var opts []CollOption
	if c.inOrder {
		opts = append(opts, InRankOrder())
	}
	one, out := mine[:c.count:c.count], make([]affine, c.count)
	switch c.kind {
	case "barrier":
		return nil, w.Barrier()
	case "bcast":
		if rank == c.root {
			copy(out, one)
		}
		return out, Bcast(w, out, c.root)
	case "reduce":
		if rank != c.root {
			return nil, Reduce(w, one, nil, op, c.root, opts...)
		}
		if c.inPlace {
			return one, Reduce(w, nil, one, op, c.root, opts...)
		}
		return out, Reduce(w, one, out, op, c.root, opts...)
	case "allreduce":
		if c.inPlace {
			return one, Allreduce(w, nil, one, op, opts...)
		}
		return out, Allreduce(w, one, out, op, opts...)
	case "gather":
		if rank != c.root {
			return nil, Gather(w, one, nil, c.root)
		}
		all := make([]affine, n*c.count)
		if c.inPlace {
			copy(all[rank*c.count:], one)
			one = nil
		}
		return all, Gather(w, one, all, c.root)
	case "scatter":
		if rank != c.root {
			return out, Scatter(w, nil, out, c.root)
		}
		if c.inPlace {
			return mine[rank*c.count:][:c.count], Scatter(w, mine[:n*c.count], nil, c.root)
		}
		return out, Scatter(w, mine[:n*c.count], out, c.root)
	case "allgather":
		all := make([]affine, n*c.count)
		if c.inPlace {
			copy(all[rank*c.count:], one)
			one = nil
		}
		return all, Allgather(w, one, all)
	case "alltoall":
		if c.inPlace {
			return mine[:n*c.count], Alltoall(w, nil, mine[:n*c.count])
		}
		all := make([]affine, n*c.count)
		return all, Alltoall(w, mine[:n*c.count], all)
	case "scan":
		if c.inPlace {
			return one, Scan(w, nil, one, op, opts...)
		}
		return out, Scan(w, one, out, op, opts...)
	case "exscan":
		if c.inPlace {
			return one, Exscan(w, nil, one, op, opts...)
		}
		copy(out, one)
		return out, Exscan(w, one, out, op, opts...)
	case "reducescatterblock":
		if c.inPlace {
			return one, ReduceScatterBlock(w, nil, mine[:n*c.count], op, opts...)
		}
		return out, ReduceScatterBlock(w, mine[:n*c.count], out, op, opts...)
	}
	return c.callv(w, mine, op, opts)
}

// callv is call for collectives with a length for each rank.
func (c *collCall) callv(w *Comm, mine []affine, op Op[affine], opts []CollOption) ([]affine, error) {
	n, rank := w.Size(), w.Rank()
	where, total := c.layout(c.counts)
	displs := c.displs(c.counts)
	one, out := mine[:c.counts[rank]:c.counts[rank]], make([]affine, c.counts[rank])
	all := make([]affine, total)
	switch c.kind {
	case "reducescatter":
		_, total := place(c.counts, 0, false)
		if c.inPlace {
			return one, ReduceScatter(w, nil, mine[:total], c.counts, op, opts...)
		}
		return out, ReduceScatter(w, mine[:total], out, c.counts, op, opts...)
	case "gatherv":
		if rank != c.root {
			return nil, Gatherv(w, one, nil, nil, nil, c.root)
		}
		if c.inPlace {
			copy(all[where[rank]:], one)
			one = nil
		}
		return all, Gatherv(w, one, all, c.counts, displs, c.root)
	case "scatterv":
		if rank != c.root {
			return out, Scatterv(w, nil, out, nil, nil, c.root)
		}
		if c.inPlace {
			return mine[where[rank]:][:c.counts[rank]], Scatterv(w, mine, nil, c.counts, displs, c.root)
		}
		return out, Scatterv(w, mine, out, c.counts, displs, c.root)
	case "allgatherv":
		if c.inPlace {
			copy(all[where[rank]:], one)
			one = nil
		}
		return all, Allgatherv(w, one, all, c.counts, displs)
	case "alltoallv":
		sent, received := c.sent(n, rank), c.received(n, rank)
		_, total := c.layout(received)
		if c.inPlace {
			return mine[:total], Alltoallv(w, nil, nil, nil, mine[:total], received, c.displs(received))
		}
		all := make([]affine, total)
		return all, Alltoallv(w, mine, sent, c.displs(sent), all, received, c.displs(received))
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
				kind:       rapid.SampledFrom(kinds).Draw(t, "kind"),
				count:      rapid.IntRange(0, 60).Draw(t, "count"),
				root:       rapid.IntRange(0, n-1).Draw(t, "root"),
				inPlace:    rapid.Bool().Draw(t, "in place"),
				inOrder:    rapid.Bool().Draw(t, "in rank order"),
				gap:        rapid.IntRange(0, 3).Draw(t, "gap"),
				descending: rapid.Bool().Draw(t, "descending"),
			}
			c.counts = rapid.SliceOfN(rapid.IntRange(0, c.count), n, n).Draw(t, "counts")
			for r := range n {
				c.contents = append(c.contents, affines(r*31+c.count, n*(c.count+c.gap)+c.gap))
			}
			return c
		}), 1, 8).Draw(t, "calls")
		err := RunLocal(n, func(w *Comm) error {
			w.team.SetTuning(tuning)
			for i, c := range calls {
				if err := c.check(w); err != nil {
					return fmt.Errorf("call %d: %w", i, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestCollectivesOfEveryTuningAgainstNaiveModel makes each call with every number of ranks, every
// algorithm, every root, and several lengths.
func TestCollectivesOfEveryTuningAgainstNaiveModel(t *testing.T) { forEachTuning(t, checkResults) }

func checkResults(w *Comm) {
	n := w.Size()
	for _, count := range countsFor(w) {
		var contents [][]affine
		for r := range n {
			contents = append(contents, affines(r, n*(count+2)+2))
		}
		counts := make([]int, n)
		for r := range counts {
			counts[r] = (r + 2) % 3 * count / 2
		}
		for _, name := range slices.Sorted(maps.Keys(collKinds)) {
			kind := collKinds[name]
			roots := []int{0}
			if kind.rooted {
				roots = rootsOf(n, count)
			}
			for _, root := range roots {
				for _, inPlace := range []bool{false, true} {
					for _, odd := range []bool{false, true} {
						if odd && !kind.combines && !kind.hasCounts {
							continue
						}
						if count > 1000 && kind.hasCounts && odd != inPlace {
							continue // it would take too long
						}
						check((&collCall{
							kind: name, count: count, root: root, inPlace: inPlace, inOrder: odd && kind.combines,
							counts: counts, gap: 2 * b2i(odd), descending: odd, contents: contents,
						}).check(w))
					}
				}
			}
		}
	}
}
