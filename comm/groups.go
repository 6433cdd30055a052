package comm

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// Group is an ordered set of ranks of the world (MPI 4.1, section 7.3). It is a value: nothing
// changes it, and goroutines may share it. The zero Group is the empty group.
//
// Ranks in the group number its members from 0. Methods that take ranks say whether these are ranks
// in the group or in the world.
type Group struct {
	members *pml.Group // nil: empty
}

// groupOf makes a group of ranks of the world. It keeps the slice.
func groupOf(world []int) Group {
	if len(world) == 0 {
		return Group{}
	}
	return Group{pml.NewGroup(world)}
}

// Group is the group of the communicator. It works after Free too.
func (c *Comm) Group() Group {
	if c.isNull() {
		return Group{}
	}
	return Group{c.members}
}

// Size is the number of members.
func (g Group) Size() int {
	if g.members == nil {
		return 0
	}
	return g.members.Size()
}

// Rank is the rank in the group of a rank of the world. It is Undefined if the latter is not a
// member.
func (g Group) Rank(world int) int {
	if g.members == nil || world < 0 {
		return Undefined
	}
	if rank, ok := g.members.Rank(world); ok {
		return rank
	}
	return Undefined
}

func (g Group) has(world int) bool { return g.Rank(world) != Undefined }

// Ranks lists the members, by their ranks in the world.
func (g Group) Ranks() []int {
	ranks := make([]int, g.Size())
	for r := range ranks {
		ranks[r] = g.members.World(r)
	}
	return ranks
}

// Union has the members of g, in their order, and then those of h that are not in g, in the order
// of h.
func (g Group) Union(h Group) Group {
	union := g.Ranks()
	for _, w := range h.Ranks() {
		if !g.has(w) {
			union = append(union, w)
		}
	}
	return groupOf(union)
}

// Intersection has the members of g that are also in h, in the order of g.
func (g Group) Intersection(h Group) Group {
	return groupOf(slices.DeleteFunc(g.Ranks(), func(w int) bool { return !h.has(w) }))
}

// Difference has the members of g that are not in h, in the order of g.
func (g Group) Difference(h Group) Group {
	return groupOf(slices.DeleteFunc(g.Ranks(), h.has))
}

// Incl has the members with the given ranks in the group, in the order of the list. The error is
// ErrRank if a rank is not in the group, or is in the list twice.
func (g Group) Incl(ranks ...int) (Group, error) {
	if _, err := g.marked(calls.GroupIncl, ranks); err != nil {
		return Group{}, err
	}
	world := make([]int, len(ranks))
	for i, r := range ranks {
		world[i] = g.members.World(r)
	}
	return groupOf(world), nil
}

// Excl has all members except those with the given ranks in the group. Errors as for Incl.
func (g Group) Excl(ranks ...int) (Group, error) {
	out, err := g.marked(calls.GroupExcl, ranks)
	if err != nil {
		return Group{}, err
	}
	var world []int
	for r, w := range g.Ranks() {
		if !out[r] {
			world = append(world, w)
		}
	}
	return groupOf(world), nil
}

// marked reports for each member whether its rank in the group is in the list.
func (g Group) marked(op calls.ID, ranks []int) ([]bool, error) {
	marks := make([]bool, g.Size())
	for _, r := range ranks {
		var err error
		switch {
		case uint(r) >= uint(len(marks)) && len(marks) == 0:
			err = fmt.Errorf("%w: %d of an empty group", ErrRank, r)
		case uint(r) >= uint(len(marks)):
			err = fmt.Errorf("%w: %d is not in 0…%d", ErrRank, r, len(marks)-1)
		case marks[r]:
			err = fmt.Errorf("%w: %d is in the list twice", ErrRank, r)
		default:
			marks[r] = true
			continue
		}
		return nil, wrap(op.String(), "group", none, none, err)
	}
	return marks, nil
}

// Translate converts ranks in g to the ranks of the same members in another group. The result is
// Undefined for a rank that is not in g or whose member is not in the other group, and ProcNull for
// ProcNull.
func (g Group) Translate(ranks []int, to Group) []int {
	out := make([]int, len(ranks))
	for i, r := range ranks {
		switch {
		case r == ProcNull:
			out[i] = ProcNull
		case uint(r) < uint(g.Size()):
			out[i] = to.Rank(g.members.World(r))
		default:
			out[i] = Undefined
		}
	}
	return out
}

// Comparison is the result of a comparison of groups or communicators.
type Comparison int

const (
	// Ident: the same communicator; of groups, the same members in the same order.
	Ident Comparison = iota
	// Congruent: different communicators whose groups have the same members in the same order.
	Congruent
	// Similar: the same members in another order.
	Similar
	// Unequal: other members.
	Unequal
)

// String returns the name of the result, in lower case.
func (k Comparison) String() string {
	switch k {
	case Ident:
		return "ident"
	case Congruent:
		return "congruent"
	case Similar:
		return "similar"
	case Unequal:
		return "unequal"
	}
	return "comparison " + strconv.Itoa(int(k))
}

// Compare compares the groups. It returns Ident, Similar or Unequal.
func (g Group) Compare(h Group) Comparison {
	if g.Size() != h.Size() {
		return Unequal
	}
	result := Ident
	for r := range g.Size() {
		switch h.Rank(g.members.World(r)) {
		case r:
		case Undefined:
			return Unequal
		default:
			result = Similar
		}
	}
	return result
}

// Compare compares the communicators. Views of one communicator are Ident. It works after Free too.
func (c *Comm) Compare(d *Comm) Comparison {
	switch {
	case c.isNull() && d.isNull():
		return Ident
	case c.isNull() || d.isNull():
		return Unequal
	case c.state == d.state:
		return Ident
	}
	if k := c.Group().Compare(d.Group()); k != Ident {
		return k
	}
	return Congruent
}

// digest is a number by which ranks compare groups.
func (g Group) digest() uint64 { return digestOf(g.Ranks()...) }

// digestOf is a hash of numbers and of their count. Ranks compare it to see whether they pass the
// same numbers.
func digestOf[T int | byte](numbers ...T) uint64 {
	h := fnv.New64a()
	var b [8]byte
	add := func(n int) {
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:])
	}
	add(len(numbers))
	for _, n := range numbers {
		add(int(n))
	}
	return h.Sum64()
}
