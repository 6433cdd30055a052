package comm

import (
	"fmt"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// Neighbourhood collectives (MPI 4.1, section 8.6): each rank exchanges blocks with its neighbours
// in the topology of the communicator, as Neighbors lists them. They do not wait for other ranks. A
// source that is ProcNull has a block in the slices too, which does not change. None of these calls
// works in place: a nil slice has no elements.

// NeighborAllgather sends in to every destination, and puts the blocks from the sources into out,
// in the order of sources: len(out) == len(sources)*len(in). If there are no destinations, in may
// be empty. Errors: ErrComm without a topology, and those of [Allgather].
//
// Neighbourhood collectives have no form in place. A nil slice has no elements.
func NeighborAllgather[T any](c *Comm, in, out []T) error {
	_, err := c.neighborAllgather(blocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
	return err
}

// NeighborAllgatherv is NeighborAllgather of blocks of different lengths: counts[i] elements from
// source i go to out[displs[i]:]. Blocks must not overlap; elements between them do not change. If
// displs is nil, the blocks lie one after the other.
func NeighborAllgatherv[T any](c *Comm, in, out []T, counts, displs []int) error {
	_, err := c.neighborAllgatherv(blocking, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), elemOf[T]())
	return err
}

// NeighborAlltoall sends block i of in to destination i, and puts the block from source i into
// block i of out. All blocks have the same length: len(in)/len(dests) == len(out)/len(sources).
func NeighborAlltoall[T any](c *Comm, in, out []T) error {
	_, err := c.neighborAlltoall(blocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
	return err
}

// NeighborAlltoallv is NeighborAlltoall of blocks of different lengths: scounts[i] elements at
// in[sdispls[i]:] go to destination i, and rcounts[i] elements from source i go to
// out[rdispls[i]:]. Sender and receiver of a block must give it the same length. Blocks of out must
// not overlap. If displacements are nil, the blocks lie one after the other.
func NeighborAlltoallv[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) error {
	_, err := c.neighborAlltoallv(blocking, bytesOf(in), layoutOf[T](scounts, sdispls), bytesOf(out),
		layoutOf[T](rcounts, rdispls), elemOf[T]())
	return err
}

var errNoTopology = fmt.Errorf("%w: it has no topology", ErrComm)

// beginNeighbor is begin of a neighbourhood collective. topo is the topology if there is no error.
func (c *Comm) beginNeighbor(how coll.How, call calls.ID, err error) (s *coll.Schedule, topo *topology, _ error) {
	if err == nil && !c.isNull() && c.topo == nil {
		err = errNoTopology
	}
	if s, err = c.begin(how, call, err); err != nil {
		return nil, nil, err
	}
	return s, c.topo, nil
}

// exchange makes the steps for the parts of in and out, and runs them.
func (c *Comm) exchange(s *coll.Schedule, typ elemType, topo *topology, in, out [][]byte) (Request, error) {
	s.Neighbors(in, out, topo.sources, topo.dests, topo.isCart)
	return c.run(s, typ)
}

func (c *Comm) neighborAllgather(how coll.How, in, out []byte, elem int, typ elemType) (Request, error) {
	s, topo, err := c.beginNeighbor(how, calls.NeighborAllgather, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	n := len(topo.sources)
	switch {
	case len(topo.dests) == 0 && len(in) == 0:
		err = checkBlocks("out", out, n, elem)
	case len(out) != n*len(in):
		err = lengthError("out", len(out), n*len(in), elem)
	default:
		err = checkApart(in, out)
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Parts = blocks(s.Parts[:0], out, n)
	for range topo.dests {
		s.Parts = append(s.Parts, in)
	}
	return c.exchange(s, typ, topo, s.Parts[n:], s.Parts[:n])
}

func (c *Comm) neighborAllgatherv(how coll.How, in, out []byte, l layout, typ elemType) (Request, error) {
	s, topo, err := c.beginNeighbor(how, calls.NeighborAllgatherv, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	n := len(topo.sources)
	if s.Parts, err = l.parts(s.Parts[:0], "out", out, n); err == nil {
		err = checkApart(in, out)
	}
	if err == nil {
		err = c.checkDisjoint(l, topo.sources)
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	for range topo.dests {
		s.Parts = append(s.Parts, in)
	}
	return c.exchange(s, typ, topo, s.Parts[n:], s.Parts[:n])
}

func (c *Comm) neighborAlltoall(how coll.How, in, out []byte, elem int, typ elemType) (Request, error) {
	s, topo, err := c.beginNeighbor(how, calls.NeighborAlltoall, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	n, m := len(topo.sources), len(topo.dests)
	err = checkBlocks("out", out, n, elem)
	if err == nil {
		err = checkBlocks("in", in, m, elem)
	}
	if err == nil && n > 0 && m > 0 && len(in)/m != len(out)/n {
		err = lengthError("out", len(out), len(in)/m*n, elem)
	}
	if err == nil {
		err = checkApart(in, out)
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Parts = blocks(blocks(s.Parts[:0], out, n), in, m)
	return c.exchange(s, typ, topo, s.Parts[n:], s.Parts[:n])
}

func (c *Comm) neighborAlltoallv(how coll.How, in []byte, sl layout, out []byte, rl layout, typ elemType) (Request, error) {
	s, topo, err := c.beginNeighbor(how, calls.NeighborAlltoallv, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	n := len(topo.sources)
	s.Parts, err = rl.parts(s.Parts[:0], "out", out, n)
	if err == nil {
		s.Parts, err = sl.parts(s.Parts, "in", in, len(topo.dests))
	}
	if err == nil {
		err = checkApart(in, out)
	}
	if err == nil {
		err = c.checkDisjoint(rl, topo.sources)
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	return c.exchange(s, typ, topo, s.Parts[n:], s.Parts[:n])
}

// checkBlocks checks that a buffer has a number of equal blocks.
func checkBlocks(what string, buf []byte, n, elem int) error {
	switch {
	case n == 0 && len(buf) > 0:
		return lengthError(what, len(buf), 0, elem)
	case n*elem > 0 && len(buf)%(n*elem) != 0:
		return fmt.Errorf("%w: %s has %d elements, which is not a multiple of the %d neighbours", ErrCount, what, perElem(len(buf), elem), n)
	}
	return nil
}

// blocks appends the n equal blocks of a buffer to dst.
func blocks(dst [][]byte, buf []byte, n int) [][]byte {
	for i := range n {
		size := len(buf) / n
		dst = append(dst, buf[i*size:(i+1)*size])
	}
	return dst
}
