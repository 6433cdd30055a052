package comm

import (
	"fmt"
	"math"
	"slices"

	"github.com/mpigo/mpigo/internal/calls"
)

// topology is the topology of a communicator. It does not change, so no lock guards it.
type topology struct {
	isCart bool
	// For a Cartesian topology:
	dims     []int
	periodic []bool
	// The neighbours of this rank, for every topology.
	sources, dests []int
}

var errNoCart = fmt.Errorf("%w: it has no Cartesian topology", ErrComm)

// Cart makes a communicator whose ranks form a grid (MPI 4.1, section 8.5.1). dims has the length
// of each dimension. periodic says in which dimensions the last place is next to the first. The
// last coordinate varies fastest. Ranks keep their order, and ranks beyond the grid get nil.
//
// No dimensions make a grid of one place. Cart is a collective: all ranks of c call it, with the
// same arguments.
//
// Errors: ErrCount if a dimension is not positive, if there are more places than ranks, if the
// lengths of the slices differ, or if ranks pass different arguments; ErrComm, ErrFinalized, and
// those of the peers.
func (c *Comm) Cart(dims []int, periodic []bool) (*Comm, error) {
	places, refused := checkDims(dims, periodic, c.Size())
	me := splitMember{color: Undefined, digest: cartDigest(dims, periodic)}
	var topo *topology
	if refused == nil && c.Rank() < places {
		me.color = 0
		topo = newCart(dims, periodic, c.Rank())
	}
	return c.derive(derivation{
		op: calls.Cart, suffix: "cart", refused: refused, me: me, check: sameDigest("dimensions"), topo: topo,
	})
}

// checkDims checks the arguments of Cart, and returns the number of places.
func checkDims(dims []int, periodic []bool, ranks int) (places int, err error) {
	if len(dims) != len(periodic) {
		return 0, fmt.Errorf("%w: %d dimensions, but periodic has %d elements", ErrCount, len(dims), len(periodic))
	}
	places = 1
	for i, n := range dims {
		if n < 1 {
			return 0, fmt.Errorf("%w: dimension %d is %d", ErrCount, i, n)
		}
		if n > ranks/places {
			return 0, fmt.Errorf("%w: a grid of %v has more places than the %d ranks", ErrCount, dims, ranks)
		}
		places *= n
	}
	return places, nil
}

func cartDigest(dims []int, periodic []bool) uint64 {
	numbers := slices.Clone(dims)
	for _, p := range periodic {
		wraps := 0
		if p {
			wraps = 1
		}
		numbers = append(numbers, wraps)
	}
	return digestOf(numbers...)
}

// newCart makes the Cartesian topology as a rank sees it.
func newCart(dims []int, periodic []bool, rank int) *topology {
	t := &topology{isCart: true, dims: append([]int{}, dims...), periodic: append([]bool{}, periodic...)}
	t.sources = make([]int, 0, 2*len(dims))
	for dim := range dims {
		t.sources = append(t.sources, t.shifted(rank, dim, -1), t.shifted(rank, dim, 1))
	}
	t.dests = t.sources
	return t
}

// cart is the Cartesian topology of c, or nil.
func (c *Comm) cart() *topology {
	if c.isNull() || c.topo == nil || !c.topo.isCart {
		return nil
	}
	return c.topo
}

// CartDims returns the lengths of the dimensions of a Cartesian topology, and says which dimensions
// are periodic. Both are nil without such a topology.
func (c *Comm) CartDims() (dims []int, periodic []bool) {
	t := c.cart()
	if t == nil {
		return nil, nil
	}
	return append([]int{}, t.dims...), append([]bool{}, t.periodic...)
}

// CartCoords returns the coordinates of a rank. Errors: ErrRank; ErrComm without a Cartesian
// topology.
func (c *Comm) CartCoords(rank int) ([]int, error) {
	const op = calls.CartCoords
	t := c.cart()
	if t == nil {
		return nil, c.fail(op, none, none, errNoCart)
	}
	if uint(rank) >= uint(len(c.group)) {
		return nil, c.fail(op, rank, none, c.rankError(ErrRank, rank))
	}
	return t.coords(rank), nil
}

func (t *topology) coords(rank int) []int {
	coords := make([]int, len(t.dims))
	for i := len(coords) - 1; i >= 0; i-- {
		coords[i] = rank % t.dims[i]
		rank /= t.dims[i]
	}
	return coords
}

// CartRank returns the rank with the given coordinates. In a periodic dimension a coordinate of any
// value is taken modulo the dimension's length. Errors: ErrRank for a coordinate outside of a
// dimension that is not periodic; ErrCount if there are not as many coordinates as dimensions;
// ErrComm without a Cartesian topology.
func (c *Comm) CartRank(coords ...int) (int, error) {
	const op = calls.CartRank
	t := c.cart()
	if t == nil {
		return Undefined, c.fail(op, none, none, errNoCart)
	}
	if len(coords) != len(t.dims) {
		return Undefined, c.fail(op, none, none, fmt.Errorf("%w: %d coordinates in %d dimensions", ErrCount, len(coords), len(t.dims)))
	}
	rank := 0
	for i, x := range coords {
		n := t.dims[i]
		switch {
		case t.periodic[i]:
			x = wrapped(x, n)
		case uint(x) >= uint(n):
			return Undefined, c.fail(op, none, none, fmt.Errorf("%w: coordinate %d is %d, not in 0…%d", ErrRank, i, x, n-1))
		}
		rank = rank*n + x
	}
	return rank, nil
}

// wrapped is x modulo n, not negative.
func wrapped(x, n int) int {
	if x %= n; x < 0 {
		x += n
	}
	return x
}

// CartShift returns the ranks from which this rank receives, and to which it sends, when all ranks
// send disp places along a dimension (MPI 4.1, section 8.5.6). A rank beyond the end of a dimension
// that is not periodic is ProcNull. Errors: ErrCount if the dimension does not exist; ErrComm
// without a Cartesian topology.
func (c *Comm) CartShift(dim, disp int) (source, dest int, err error) {
	const op = calls.CartShift
	t := c.cart()
	if t == nil {
		return ProcNull, ProcNull, c.fail(op, none, none, errNoCart)
	}
	if uint(dim) >= uint(len(t.dims)) {
		return ProcNull, ProcNull, c.fail(op, none, none, fmt.Errorf("%w: dimension %d of %d", ErrCount, dim, len(t.dims)))
	}
	if t.periodic[dim] {
		disp %= t.dims[dim]
	}
	return t.shiftedBack(c.rank, dim, disp), t.shifted(c.rank, dim, disp), nil
}

// shifted is the rank at a distance of disp places from a rank along a dimension, or ProcNull.
func (t *topology) shifted(rank, dim, disp int) int {
	stride := 1
	for _, n := range t.dims[dim+1:] {
		stride *= n
	}
	n := t.dims[dim]
	x := rank / stride % n
	switch {
	case t.periodic[dim]:
		return rank + (wrapped(x+disp%n, n)-x)*stride
	case disp > n-1-x || disp < -x:
		return ProcNull
	}
	return rank + disp*stride
}

// shiftedBack is shifted by −disp. It takes the least int too, which cannot be negated.
func (t *topology) shiftedBack(rank, dim, disp int) int {
	if disp == math.MinInt {
		return ProcNull // the dimension is not periodic: see CartShift
	}
	return t.shifted(rank, dim, -disp)
}

// CartSub cuts a Cartesian topology into grids of the dimensions that keep selects, and makes a
// communicator of each grid (MPI 4.1, section 8.5.7). It may keep no dimension. It is a collective:
// all ranks of c call it, with the same arguments. Errors: ErrCount if keep does not have one
// element for each dimension, or if ranks pass different arguments; ErrComm without a Cartesian
// topology; ErrFinalized, and those of the peers.
func (c *Comm) CartSub(keep ...bool) (*Comm, error) {
	const op = calls.CartSub
	t := c.cart()
	if t == nil {
		return nil, c.fail(op, none, none, errNoCart)
	}
	d := derivation{op: op, suffix: "sub", me: splitMember{key: c.rank, digest: cartDigest(nil, keep)}, check: sameDigest("dimensions to keep")}
	if len(keep) != len(t.dims) {
		d.refused = fmt.Errorf("%w: keep has %d elements for %d dimensions", ErrCount, len(keep), len(t.dims))
		return c.derive(d)
	}
	var dims []int
	var periodic []bool
	rank := 0 // in the new communicator
	for i, x := range t.coords(c.rank) {
		if keep[i] {
			dims, periodic = append(dims, t.dims[i]), append(periodic, t.periodic[i])
			rank = rank*t.dims[i] + x
		} else {
			d.me.color = d.me.color*t.dims[i] + x
		}
	}
	d.topo = newCart(dims, periodic, rank)
	return c.derive(d)
}
