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
	gen     uint32 // of the handle that was given out last
	removed int    // handles removed since shrink was called last
}

type handleEntry[T any] struct {
	gen  uint32
	item *T // nil while free
}

const (
	// minSlots is how many slots a table keeps.
	minSlots = 1 << 12
	// A table is shrunk when fewer than one in sparse of its slots are in use. That looks at every
	// slot, so while some are in use it waits until one slot in removesPerLook was given up.
	sparse         = 4
	removesPerLook = 8
)

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
	t.gen++
	if t.gen == 0 {
		t.gen = 1
	}
	e := &t.entries[slot]
	e.gen, e.item = t.gen, item
	return handle(slot) | handle(t.gen)<<32
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
	t.removed++
	if n := len(t.entries); n > minSlots && t.inUse() < n/sparse && (t.inUse() == 0 || t.removed >= n/removesPerLook) {
		t.shrink()
	}
}

// shrink gives up the free slots at the end, as far as that halves the table at least. It puts low
// slots first in the list of free ones, so that handles move away from the end.
func (t *handleTable[T]) shrink() {
	t.removed = 0
	n := len(t.entries)
	for n > minSlots && t.entries[n-1].item == nil {
		n--
	}
	if n <= len(t.entries)/2 {
		t.entries = append(make([]handleEntry[T], 0, n), t.entries[:n]...)
		t.free = make([]uint32, 0, n)
	}
	t.free = t.free[:0]
	for slot := len(t.entries) - 1; slot >= 0; slot-- {
		if t.entries[slot].item == nil {
			t.free = append(t.free, uint32(slot))
		}
	}
}

// inUse is the number of items.
func (t *handleTable[T]) inUse() int { return len(t.entries) - len(t.free) }

// each calls f for every item, by slot. f may remove the item.
func (t *handleTable[T]) each(f func(*T)) {
	for i, n := 0, len(t.entries); i < min(n, len(t.entries)); i++ { // f may make the table shorter
		if item := t.entries[i].item; item != nil {
			f(item)
		}
	}
}
