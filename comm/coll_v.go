package comm

import (
	"fmt"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// Collectives with a part of a different length for each rank.

// Gatherv is Gather of parts of different lengths. At the root, counts[r] elements from rank r go
// to out[displs[r]:]. Parts must not overlap; elements between them do not change. If displs is
// nil, the parts lie one after the other. Other ranks ignore out, counts and displs.
//
// In place: the root passes nil as in, and its part is already at its place in out.
func Gatherv[T any](c *Comm, in, out []T, counts, displs []int, root int) error {
	_, err := c.gatherv(blocking, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), root, elemOf[T]())
	return err
}

// Scatterv is Scatter of parts of different lengths. The root sends counts[r] elements at
// in[displs[r]:] to rank r, where out has that length. If displs is nil, the parts lie one after
// the other. Other ranks ignore in, counts and displs.
//
// In place: the root passes nil as out, and its part stays in its place in in.
func Scatterv[T any](c *Comm, in, out []T, counts, displs []int, root int) error {
	_, err := c.scatterv(blocking, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), root, elemOf[T]())
	return err
}

// Allgatherv is Allgather of parts of different lengths. counts[r] elements from rank r go to
// out[displs[r]:]. counts are the same at all ranks. Parts must not overlap; elements between them
// do not change. If displs is nil, the parts lie one after the other.
//
// In place: a rank passes nil as in, and its part is already at its place in out.
func Allgatherv[T any](c *Comm, in, out []T, counts, displs []int) error {
	_, err := c.allgatherv(blocking, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), elemOf[T]())
	return err
}

// Alltoallv is Alltoall of parts of different lengths. scounts[r] elements at in[sdispls[r]:] go to
// rank r, and rcounts[r] elements from rank r go to out[rdispls[r]:]. Sender and receiver of a part
// must give it the same length. Parts of out must not overlap. If displacements are nil, the parts
// lie one after the other.
//
// In place: all ranks pass nil as in and as scounts, and sdispls is ignored. The part for rank r
// has the place and the length of the part from rank r. With scounts, a nil in is a slice without
// elements.
func Alltoallv[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) error {
	_, err := c.alltoallv(blocking, bytesOf(in), layoutOf[T](scounts, sdispls), bytesOf(out), layoutOf[T](rcounts, rdispls),
		elemOf[T]())
	return err
}

// layout says where the parts of the ranks are in a buffer.
type layout struct {
	counts, displs []int // in elements
	elem           int   // size of an element, in bytes
}

func layoutOf[T any](counts, displs []int) layout { return layout{counts, displs, int(sizeOf[T]())} }

// parts cuts buf into the parts of n ranks, and appends them to dst. what names buf in errors.
func (l layout) parts(dst [][]byte, what string, buf []byte, n int) ([][]byte, error) {
	if len(l.counts) != n {
		return dst, fmt.Errorf("%w: %d counts of %s for %d ranks", ErrCount, len(l.counts), what, n)
	}
	if l.displs != nil && len(l.displs) != n {
		return dst, fmt.Errorf("%w: %d displacements of %s for %d ranks", ErrCount, len(l.displs), what, n)
	}
	room, end := perElem(len(buf), l.elem), 0
	for r, count := range l.counts {
		if l.displs != nil {
			end = l.displs[r]
		}
		if l.elem == 0 {
			room = max(room, end+count) // elements of size zero fit anywhere
		}
		// This order of terms cannot overflow.
		if count < 0 || end < 0 || end > room || count > room-end {
			return dst, fmt.Errorf("%w: rank %d has %d elements at %d of %s, which has %d", ErrCount, r, count, end, what, room)
		}
		dst = append(dst, buf[end*l.elem:(end+count)*l.elem])
		end += count
	}
	return dst, nil
}

// checkOwn checks a rank's own part, nil for in place, against its place in the whole.
func checkOwn(what string, own, place []byte, elem int) error {
	if own == nil {
		return nil
	}
	if len(own) != len(place) {
		return lengthError(what, len(own), len(place), elem)
	}
	return checkApart(own, place)
}

func (c *Comm) gatherv(how coll.How, in, out []byte, l layout, root int, typ elemType) (Request, error) {
	s, err := c.beginRooted(how, calls.Gatherv, root, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	if c.rank != root {
		s.Gatherv(in, nil, root)
		return c.run(s, typ)
	}
	s.Parts, err = l.parts(s.Parts[:0], "out", out, len(c.group))
	if err == nil {
		err = checkOwn("in", in, s.Parts[root], l.elem)
	}
	if err == nil {
		err = c.checkDisjoint(l, nil)
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Gatherv(in, s.Parts, root)
	return c.run(s, typ)
}

func (c *Comm) scatterv(how coll.How, in, out []byte, l layout, root int, typ elemType) (Request, error) {
	s, err := c.beginRooted(how, calls.Scatterv, root, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	if c.rank != root {
		s.Scatterv(nil, out, root)
		return c.run(s, typ)
	}
	s.Parts, err = l.parts(s.Parts[:0], "in", in, len(c.group))
	if err == nil {
		err = checkOwn("out", out, s.Parts[root], l.elem)
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Scatterv(s.Parts, out, root)
	return c.run(s, typ)
}

func (c *Comm) allgatherv(how coll.How, in, out []byte, l layout, typ elemType) (Request, error) {
	s, err := c.begin(how, calls.Allgatherv, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	s.Parts, err = l.parts(s.Parts[:0], "out", out, len(c.group))
	if err == nil {
		err = checkOwn("in", in, s.Parts[c.rank], l.elem)
	}
	if err == nil {
		err = c.checkDisjoint(l, nil)
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	s.Allgatherv(in, s.Parts)
	return c.run(s, typ)
}

func (c *Comm) alltoallv(how coll.How, in []byte, sl layout, out []byte, rl layout, typ elemType) (Request, error) {
	s, err := c.begin(how, calls.Alltoallv, c.checkElem(typ))
	if err != nil {
		return Request{}, err
	}
	defer c.endCollective(s)
	n, inPlace := len(c.group), in == nil && sl.counts == nil
	s.Parts = s.Parts[:0]
	if !inPlace {
		s.Parts, err = sl.parts(s.Parts, "in", in, n)
	}
	if err == nil {
		s.Parts, err = rl.parts(s.Parts, "out", out, n)
	}
	if err == nil && !inPlace {
		give, got := s.Parts[:n], s.Parts[n:]
		if len(give[c.rank]) != len(got[c.rank]) {
			err = fmt.Errorf("%w: this rank sends itself %d elements and expects %d", ErrCount,
				perElem(len(give[c.rank]), sl.elem), perElem(len(got[c.rank]), rl.elem))
		} else {
			err = checkApart(give[c.rank], got[c.rank])
		}
	}
	if err == nil {
		err = c.checkDisjoint(rl, nil)
	}
	if err != nil {
		return Request{}, s.Refuse(err)
	}
	if inPlace {
		s.AlltoallvInPlace(s.Parts)
	} else {
		s.Alltoallv(s.Parts[:n], s.Parts[n:])
	}
	return c.run(s, typ)
}
