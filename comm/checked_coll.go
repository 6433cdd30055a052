package comm

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/mpigo/mpigo/comm/internal/audit"
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
)

// runChecked is run in checked mode: the ranks compare their calls first.
func (c *Comm) runChecked(s *coll.Schedule, typ elemType) (Request, error) {
	call := audit.Call{
		Name: s.ID().Go(), Type: c.job.check.typeOf(typ), Root: s.Root(),
		Bytes: s.Agreed(), InPlace: s.InPlace(),
	}
	if s.Op != nil {
		call.Op, call.InOrder = audit.OpAt(reflect.ValueOf(s.Op).Pointer()), !s.Commutes
	}
	lengths := c.partLengths(s, call.Name, call.Type)
	if lengths != nil {
		call.Bytes = audit.NoLength
	}
	if s.Op == nil && lengths != nil || lengths == nil && call.Bytes == 0 || isAllEmpty(s) {
		call.Type = call.Type.None() // the parts carry their types, or there are no elements
	}
	s.Check(coll.Check{
		Record:  call.Encode(),
		Compare: func(records []byte) error { return differs(audit.Compare(records)) },
		Lengths: lengths,
	})
	if s.How() == blocking {
		return s.Call(c.collectiveContext())
	}
	w := newWatch(s.Inputs()...)
	s.Audit(w)
	r, err := s.Call(c.collectiveContext())
	if err != nil {
		s.Unaudit()
		return r, err
	}
	return c.job.check.handle(c.job, &s.Object, w), nil
}

// checkDisjoint checks, in checked mode, that no two received parts overlap. l is the layout of the
// parts. Part i comes from rank i, or from rank sources[i] if sources is not nil. ProcNull sends no
// part.
func (c *Comm) checkDisjoint(l layout, sources []int) error {
	if c.job.check == nil || l.displs == nil || l.elem == 0 {
		return nil
	}
	var parts []int
	for i, count := range l.counts {
		if count > 0 && (sources == nil || sources[i] != ProcNull) {
			parts = append(parts, i)
		}
	}
	slices.SortStableFunc(parts, func(a, b int) int { return cmp.Compare(l.displs[a], l.displs[b]) })
	from := func(i int) int {
		if sources != nil {
			return sources[i]
		}
		return i
	}
	for i := 1; i < len(parts); i++ { // earlier parts do not overlap, so the previous one ends last
		a, b := parts[i-1], parts[i]
		if l.displs[b] < l.displs[a]+l.counts[a] {
			return fmt.Errorf("%w: parts of out overlap: %d elements at %d from rank %d, and %d at %d from rank %d",
				ErrBuffer, l.counts[a], l.displs[a], from(a), l.counts[b], l.displs[b], from(b))
		}
	}
	return nil
}

// differs turns a difference that package audit has found into an error of this package.
func differs(err error) error {
	if err == nil {
		return nil
	}
	return &differsError{err}
}

// differsError is the error of calls that do not match. It Is ErrComm, because the communicator
// does not permit such calls, and it Is the kind of the argument that differs.
type differsError struct{ found error }

func (e *differsError) Error() string { return e.found.Error() }

func (e *differsError) Is(target error) bool {
	switch target {
	case ErrComm:
		return true
	case ErrType:
		return errors.Is(e.found, audit.ErrType)
	case ErrRoot:
		return errors.Is(e.found, audit.ErrRoot)
	case ErrOp:
		return errors.Is(e.found, audit.ErrOp)
	case ErrCount:
		return errors.Is(e.found, audit.ErrCount)
	}
	return false
}

// isAllEmpty reports whether the parts that all ranks agree on have no elements.
func isAllEmpty(s *coll.Schedule) bool {
	n := len(s.Ints)
	return s.ID().Base() == calls.ReduceScatter && s.Ints[n-1] == 0
}

// partLengths are the lengths of the parts of a call that permits different lengths; nil for other
// calls.
func (c *Comm) partLengths(s *coll.Schedule, name string, typ audit.Type) *coll.PartLengths {
	n, me := len(c.group), c.rank
	var give, take []int // by rank; −1: nothing is exchanged
	isAgreement := false // whose types are compared as in any reduction
	switch call := s.ID().Base(); call {
	case calls.Gatherv, calls.Scatterv:
		give, take = nothing(n), nothing(n)
		own, parts := give, take
		if call == calls.Scatterv {
			own, parts = take, give
		}
		if me != s.Root() {
			own[s.Root()] = s.OwnLength()
			break
		}
		for r, part := range s.Parts {
			if r != me {
				parts[r] = len(part)
			}
		}
	case calls.Allgatherv:
		take = lengthsOf(s.Parts)
		give = uniform(n, take[me])
	case calls.ReduceScatter:
		give = make([]int, n)
		for r, end := range s.Ints {
			give[r] = end
			if r > 0 {
				give[r] -= s.Ints[r-1]
			}
		}
		take = uniform(n, give[me])
		isAgreement, typ.Kind = true, audit.NoKind
	case calls.Alltoallv:
		give = lengthsOf(s.Parts[:n])
		take = lengthsOf(s.Parts[len(s.Parts)-n:]) // the same in place
	default:
		if c.topo == nil || call.Flow() != calls.FromNeighbors {
			return nil
		}
		sources := len(c.topo.sources)
		return newPartLengths(c.topo.sources, c.topo.dests, c.topo.isCart,
			lengthsOf(s.Parts[sources:]), lengthsOf(s.Parts[:sources]),
			audit.Mismatch{Receiver: me, ElemBytes: typ.Size}, typ.Kind, name)
	}
	all := make([]int, n)
	for r := range all {
		all[r] = r
	}
	give[me], take[me] = -1, -1 // the call itself compares this part
	return newPartLengths(all, all, false, give, take,
		audit.Mismatch{Receiver: me, ElemBytes: typ.Size, IsAgreement: isAgreement}, typ.Kind, name)
}

// newPartLengths lets ranks compare the lengths of parts that they send to dests with the lengths
// that they expect from sources, and the element kinds of parts that are not empty. found describes
// a mismatch that this rank finds.
func newPartLengths(sources, dests []int, pairs bool, give, take []int, found audit.Mismatch, kind audit.Kind, name string) *coll.PartLengths {
	l := &coll.PartLengths{Pairs: pairs, RecordBytes: audit.MismatchBytes}
	for i, dest := range dests {
		if give[i] < 0 {
			dest = coll.NoRank
		}
		l.Dests, l.Give = append(l.Dests, dest), append(l.Give, audit.Part(max(give[i], 0), kind))
	}
	for i, source := range sources {
		if take[i] < 0 {
			source = coll.NoRank
		}
		l.Sources = append(l.Sources, source)
	}
	l.Compare = func(got []uint64) []byte {
		m := found
		for i, source := range l.Sources {
			if source != coll.NoRank && !m.Found {
				m.Compare(source, got[i], take[i], kind)
			}
		}
		return m.Encode()
	}
	l.CompareAll = func(records []byte) error { return differs(audit.CompareMismatches(name, records)) }
	return l
}

func lengthsOf(parts [][]byte) []int {
	lengths := make([]int, len(parts))
	for i, part := range parts {
		lengths[i] = len(part)
	}
	return lengths
}

// uniform is a list of n equal lengths.
func uniform(n, length int) []int {
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = length
	}
	return lengths
}

// nothing is a list of n lengths that says that no part is exchanged.
func nothing(n int) []int { return uniform(n, -1) }
