package collprogram

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/calls"
)

// Affine is x ↦ A·x + B over the integers modulo 2³²: its composition is associative, exact, and
// does not commute.
type Affine struct{ A, B uint32 }

// affineBytes is the size of an Affine.
const affineBytes = 8

// Form is the form of a collective: blocking, nonblocking or persistent.
type Form uint8

const (
	Blocking Form = iota
	Nonblocking
	Persistent
)

func (f Form) String() string { return [...]string{"blocking", "nonblocking", "persistent"}[f] }

// Call is one collective call, the same at all ranks.
type Call struct {
	ID         calls.ID // of IDs
	Count      int      // elements that a rank sends or receives
	Root       int
	InPlace    bool
	InOrder    bool
	Counts     []int  // by rank, at most Count
	Gap        int    // elements before each part of a call with Counts, and after the last one
	Descending bool   // the parts of such a call are in descending order of rank
	Contents   uint64 // chooses the contributions of all ranks
}

func (c *Call) String() string {
	return fmt.Sprintf("%s of %d elements, root %d, inPlace=%v, inOrder=%v, counts %v, gap %d, descending=%v",
		c.ID, c.Count, c.Root, c.InPlace, c.InOrder, c.Counts, c.Gap, c.Descending)
}

// element is an element of the contribution of a rank. It is never zero.
func (c *Call) element(rank, i int) Affine {
	x := (c.Contents+uint64(rank)<<32+uint64(i))*0x9e3779b97f4a7c15 + 1
	x ^= x >> 29
	return Affine{uint32(x) | 1, uint32(x >> 32)}
}

// elements returns some elements of the contribution of a rank.
func (c *Call) elements(rank, from, count int) []Affine {
	s := make([]Affine, count)
	c.fill(s, rank, from)
	return s
}

func (c *Call) fill(s []Affine, rank, from int) {
	for i := range s {
		s[i] = c.element(rank, from+i)
	}
}

// kind describes a collective to programs.
type kind struct {
	// result returns the correct result at a rank, or nil if the rank gets none.
	result func(c *Call, n, rank int) []Affine
	forms
}

// IDs are the collectives that programs consist of, in the order of their names.
func IDs() []calls.ID {
	byName := func(a, b calls.ID) int { return strings.Compare(a.String(), b.String()) }
	return slices.SortedFunc(maps.Keys(kinds), byName)
}

// kinds has the collectives. Never written.
var kinds = map[calls.ID]kind{
	calls.Barrier: {forms: barrier, result: func(c *Call, n, rank int) []Affine { return nil }},
	calls.Bcast: {forms: bcast, result: func(c *Call, n, rank int) []Affine {
		return c.elements(c.Root, 0, c.Count)
	}},
	calls.Reduce: {forms: reduce, result: func(c *Call, n, rank int) []Affine {
		if rank != c.Root {
			return nil
		}
		return c.combined(n, 0, c.Count)
	}},
	calls.Allreduce: {forms: allreduce, result: func(c *Call, n, rank int) []Affine {
		return c.combined(n, 0, c.Count)
	}},
	calls.Gather: {forms: gather, result: func(c *Call, n, rank int) []Affine {
		if rank != c.Root {
			return nil
		}
		return c.gathered(n)
	}},
	calls.Scatter: {forms: scatter, result: func(c *Call, n, rank int) []Affine {
		return c.elements(c.Root, rank*c.Count, c.Count)
	}},
	calls.Allgather: {forms: allgather, result: func(c *Call, n, rank int) []Affine { return c.gathered(n) }},
	calls.Scan: {forms: scan, result: func(c *Call, n, rank int) []Affine {
		return c.combined(rank+1, 0, c.Count)
	}},
	calls.Exscan: {forms: exscan, result: func(c *Call, n, rank int) []Affine {
		return c.combined(max(rank, 1), 0, c.Count) // rank 0 keeps its buffer unchanged
	}},
	calls.ReduceScatter: {forms: reduceScatter, result: func(c *Call, n, rank int) []Affine {
		displs, _ := place(c.Counts, 0, false)
		return c.combined(n, displs[rank], c.Counts[rank])
	}},
	calls.ReduceScatterBlock: {forms: reduceScatterBlock, result: func(c *Call, n, rank int) []Affine {
		return c.combined(n, rank*c.Count, c.Count)
	}},
	calls.Gatherv: {forms: gatherv, result: func(c *Call, n, rank int) []Affine {
		if rank != c.Root {
			return nil
		}
		return c.gatheredv(n)
	}},
	calls.Scatterv: {forms: scatterv, result: func(c *Call, n, rank int) []Affine {
		displs, _ := c.layout(c.Counts)
		return c.elements(c.Root, displs[rank], c.Counts[rank])
	}},
	calls.Allgatherv: {forms: allgatherv, result: func(c *Call, n, rank int) []Affine { return c.gatheredv(n) }},
	calls.Alltoall: {forms: alltoall, result: func(c *Call, n, rank int) []Affine {
		all := make([]Affine, n*c.Count)
		for r := range n {
			c.fill(all[r*c.Count:][:c.Count], r, rank*c.Count)
		}
		return all
	}},
	calls.Alltoallv: {forms: alltoallv, result: func(c *Call, n, rank int) []Affine {
		displs, total := c.layout(c.received(n, rank))
		all := make([]Affine, total)
		if c.InPlace {
			c.fill(all, rank, 0)
		}
		for r := range n {
			sent := c.sent(n, r)
			from, _ := c.layout(sent)
			c.fill(all[displs[r]:][:sent[rank]], r, from[rank])
		}
		return all
	}},
}

// combined combines count elements of the first n ranks.
func (c *Call) combined(n, begin, count int) []Affine {
	all := c.elements(0, begin, count)
	for r := 1; r < n; r++ {
		for i := range all {
			all[i] = c.op(all[i], c.element(r, begin+i))
		}
	}
	return all
}

// op returns the composition of a and b, a first, if the call combines in order of rank. Otherwise
// it returns the result of a commutative operation.
func (c *Call) op(a, b Affine) Affine {
	if c.InOrder || c.ID.Flow() == calls.FromLower {
		return Affine{a.A * b.A, a.B*b.A + b.B}
	}
	return Affine{a.A ^ b.A, a.B + b.B}
}

func (c *Call) gathered(n int) []Affine {
	all := make([]Affine, n*c.Count)
	for r := range n {
		c.fill(all[r*c.Count:][:c.Count], r, 0)
	}
	return all
}

func (c *Call) gatheredv(n int) []Affine {
	displs, total := c.layout(c.Counts)
	all := make([]Affine, total)
	for r := range n {
		c.fill(all[displs[r]:][:c.Counts[r]], r, 0)
	}
	return all
}

// place returns the displacement of each rank's part, and the total length.
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

func (c *Call) layout(counts []int) (displs []int, total int) {
	return place(counts, c.Gap, c.Descending)
}

// displs returns the displacements that a call passes: nil if the parts are contiguous.
func (c *Call) displs(counts []int) []int {
	if c.Gap == 0 && !c.Descending {
		return nil
	}
	displs, _ := c.layout(counts)
	return displs
}

// sent returns the number of elements that a rank sends to each rank in alltoallv. In place, it is
// the number that the rank receives from there.
func (c *Call) sent(n, rank int) []int {
	step := 2
	if c.InPlace {
		step = 1
	}
	counts := make([]int, n)
	for r := range counts {
		counts[r] = c.Counts[(rank+r*step)%n]
	}
	return counts
}

// received returns the number of elements that a rank receives from each rank in alltoallv.
func (c *Call) received(n, rank int) []int {
	counts := make([]int, n)
	for r := range counts {
		counts[r] = c.sent(n, r)[rank]
	}
	return counts
}
