package comm

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/internal/calls"
)

// AttrKey names an attribute of communicators, with values of type V. The pointer is the key, so a
// package that keeps its key to itself has attributes that no other package sees.
type AttrKey[V any] struct {
	copy func(V) (V, bool)
}

// NewAttrKey makes a key. Dup calls copyValue at each rank where the communicator has a value for
// the key, and the duplicate gets the result, unless ok is false. If copyValue is nil, Dup does not
// copy the attribute.
func NewAttrKey[V any](copyValue func(v V) (copied V, ok bool)) *AttrKey[V] {
	return &AttrKey[V]{copyValue}
}

// attr is an attribute of a communicator at this rank.
type attr struct {
	key   any // *AttrKey[V]
	value any // V
	// copy makes the value for a duplicate; nil: the duplicate gets none.
	copy func(value any) (copied any, ok bool)
}

var errNoKey = fmt.Errorf("%w: the key is nil", ErrCount)

// SetAttr sets the communicator's value for a key, at this rank only (MPI 4.1, section 7.7.2). It
// replaces an earlier value. Free drops the attributes. Errors: ErrComm, ErrFinalized; ErrCount if
// key is nil.
func SetAttr[V any](c *Comm, key *AttrKey[V], v V) error {
	const op = calls.SetAttr
	if key == nil {
		return c.fail(op, none, none, errNoKey)
	}
	a := attr{key: key, value: v}
	if key.copy != nil {
		a.copy = func(value any) (any, bool) { return key.copy(value.(V)) }
	}
	if err := c.enter(); err != nil {
		return c.fail(op, none, none, err)
	}
	defer c.leave()
	if i := c.attrIndex(key); i >= 0 {
		c.attrs[i] = a
	} else {
		c.attrs = append(c.attrs, a)
	}
	return nil
}

// GetAttr returns the communicator's value for a key. ok is false if there is none.
func GetAttr[V any](c *Comm, key *AttrKey[V]) (v V, ok bool) {
	if c.enter() != nil {
		return v, false
	}
	defer c.leave()
	if i := c.attrIndex(key); i >= 0 {
		return c.attrs[i].value.(V), true
	}
	return v, false
}

// DelAttr removes the communicator's value for a key, if there is one. Errors as for SetAttr.
func DelAttr[V any](c *Comm, key *AttrKey[V]) error {
	const op = calls.DelAttr
	if key == nil {
		return c.fail(op, none, none, errNoKey)
	}
	if err := c.enter(); err != nil {
		return c.fail(op, none, none, err)
	}
	defer c.leave()
	if i := c.attrIndex(key); i >= 0 {
		c.attrs = slices.Delete(c.attrs, i, i+1)
	}
	return nil
}

// attrIndex is the index of the attribute with a key, or −1. Lock held.
func (s *state) attrIndex(key any) int {
	return slices.IndexFunc(s.attrs, func(a attr) bool { return a.key == key })
}

// inherit gives c, a new duplicate, the topology of the original communicator and copies of its
// attributes. The lock is not held, because the functions that copy are the user's.
func (c *Comm) inherit(from *Comm) {
	c.topo = from.topo
	copies := from.copyAttrs()
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	c.attrs = copies
}

// copyAttrs makes the copies of attributes that a duplicate gets.
func (c *Comm) copyAttrs() []attr {
	c.job.eng.Lock()
	attrs := slices.Clone(c.attrs)
	c.job.eng.Unlock()
	var copies []attr
	for _, a := range attrs {
		if a.copy == nil {
			continue
		}
		if v, ok := a.copy(a.value); ok {
			copies = append(copies, attr{a.key, v, a.copy})
		}
	}
	return copies
}
