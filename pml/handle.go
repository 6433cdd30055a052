package pml

// handle names a request to a peer: a slot in a table and the generation of that slot,
// so that a late or forged one finds nothing (C8). 0 is never valid.
type handle uint64

func (h handle) slot() uint32 { return uint32(h) }
func (h handle) gen() uint32  { return uint32(h >> 32) }

// handleTable maps handles to requests.
type handleTable[T any] struct {
	entries []handleEntry[T]
	free    []uint32
}

type handleEntry[T any] struct {
	gen  uint32 // of the handle that is or was last given out
	item *T     // nil while free
}

// add gives item a handle.
func (t *handleTable[T]) add(item *T) handle {
	var slot uint32
	if last := len(t.free) - 1; last >= 0 {
		slot = t.free[last]
		t.free = t.free[:last]
	} else {
		slot = uint32(len(t.entries))
		t.entries = append(t.entries, handleEntry[T]{})
	}
	e := &t.entries[slot]
	e.gen++
	if e.gen == 0 {
		e.gen = 1
	}
	e.item = item
	return handle(slot) | handle(e.gen)<<32
}

// get finds what h names, or nil.
func (t *handleTable[T]) get(h handle) *T {
	if s := h.slot(); int(s) < len(t.entries) && t.entries[s].gen == h.gen() {
		return t.entries[s].item
	}
	return nil
}

// remove makes h invalid.
func (t *handleTable[T]) remove(h handle) {
	if t.get(h) == nil {
		return
	}
	t.entries[h.slot()].item = nil
	t.free = append(t.free, h.slot())
}

// inUse is the number of items.
func (t *handleTable[T]) inUse() int { return len(t.entries) - len(t.free) }

// each calls f for every item, by slot. f may remove the item.
func (t *handleTable[T]) each(f func(*T)) {
	for i := range t.entries {
		if item := t.entries[i].item; item != nil {
			f(item)
		}
	}
}
