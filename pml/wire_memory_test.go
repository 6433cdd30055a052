package pml

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// wireMemory is the memory that the ranks of a wire have registered.
type wireMemory struct {
	regions map[uint64]*wireRegion // by number; released ones are removed
	numbers uint64                 // the last number
	// memory, if set, is called for each registration and release.
	memory func(what string, r *wireRegion)
	// mishap, if set, may give an error for a read or write that would succeed.
	mishap func(f *flight) error
	// unregistrable, if set, may give an error for a registration.
	unregistrable func(m *wireModule, access btl.Access) error
}

// wireRegion is registered memory of a rank, on one rail. Its key is its number. Numbers are not
// reused.
type wireRegion struct {
	m        *wireModule
	number   uint64
	mem      []byte
	access   btl.Access
	released bool
}

func (m *wireModule) Register(mem []byte, access btl.Access) (btl.Region, error) {
	w := m.w
	r := &wireRegion{m: m, mem: mem, access: access}
	if w.unregistrable != nil {
		if err := w.unregistrable(m, access); err != nil {
			w.tell("cannot register", r)
			return nil, fmt.Errorf("wire: %w", err)
		}
	}
	w.numbers++
	r.number = w.numbers
	if w.regions == nil {
		w.regions = map[uint64]*wireRegion{}
	}
	w.regions[r.number] = r
	w.tell("registers", r)
	return r, nil
}

func (w *wire) tell(what string, r *wireRegion) {
	if w.memory != nil {
		w.memory(what, r)
	}
}

func (r *wireRegion) Key() (key btl.Key) {
	binary.LittleEndian.PutUint64(key[:], r.number)
	return key
}

func (r *wireRegion) Release() error {
	w := r.m.w
	if r.released {
		w.t.Errorf("region %d is released twice", r.number)
		return errors.New("released")
	}
	r.released = true
	delete(w.regions, r.number)
	w.tell("releases", r)
	return nil
}

func (e *wireEndpoint) Get(op *btl.Op) error { return e.postRemote(bml.TagGet, op) }
func (e *wireEndpoint) Put(op *btl.Op) error { return e.postRemote(bml.TagPut, op) }

func (e *wireEndpoint) postRemote(verb btl.Tag, op *btl.Op) error {
	w := e.m.w
	f := flight{from: e.m.rank, to: e.to, rail: e.m.rail, tag: verb, op: op}
	if err := e.refuses(&f); err != nil {
		return err
	}
	w.note("posted", &f)
	if !w.async {
		if f.failed = w.reach(&f); f.failed == nil {
			op.Done(op, nil)
			return nil
		}
		// An error is never reported from inside the post.
	}
	w.flying = append(w.flying, f)
	return nil
}

func usage(format string, args ...any) error {
	return &btl.Error{Rail: "wire", Peer: btl.AllPeers, Class: btl.ClassUsage, Err: fmt.Errorf(format, args...)}
}

// reach performs a read or write.
func (w *wire) reach(f *flight) error {
	if f.failed != nil {
		return f.failed
	}
	op := f.op
	need := btl.AccessRemoteWrite
	if f.tag == bml.TagGet {
		need = btl.AccessRemoteRead
	}
	theirs := w.regions[binary.LittleEndian.Uint64(op.Remote[:])]
	mine, ok := op.Local.(*wireRegion)
	switch {
	case !ok || mine.released || mine.m != w.rails[f.rail][f.from] || mine.access&btl.AccessLocal == 0 || !mine.holds(op.Payload):
		return usage("not registered here")
	case theirs == nil || theirs.m != w.rails[f.rail][f.to] || theirs.access&need == 0:
		return usage("stale key")
	case op.RemoteOffset > uint64(len(theirs.mem)) || uint64(len(op.Payload)) > uint64(len(theirs.mem))-op.RemoteOffset:
		return usage("out of bounds")
	}
	if w.mishap != nil {
		if err := w.mishap(f); err != nil {
			return err
		}
	}
	if f.tag == bml.TagGet {
		copy(op.Payload, theirs.mem[op.RemoteOffset:])
	} else {
		copy(theirs.mem[op.RemoteOffset:], op.Payload)
	}
	return nil
}

// holds reports whether b, which is not empty, lies in the region.
func (r *wireRegion) holds(b []byte) bool {
	at := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(unsafe.SliceData(r.mem)))
	return at < uintptr(len(r.mem)) && uintptr(len(b)) <= uintptr(len(r.mem))-at
}
