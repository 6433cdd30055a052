package pml

// handle names a request in the fragments of a peer: a slot in a table and the generation of that
// slot. A late or forged handle finds nothing (C8). 0 is never valid.
type handle uint64

func (h handle) slot() uint32 { return uint32(h) }
func (h handle) gen() uint32  { return uint32(h >> 32) }

// handleTable maps handles to requests.
type handleTable[T any] struct {
	entries []handleEntry[T]
	free    []uint32
	gen     uint32 // of the newest handle
	removed int    // handles removed since shrink was last called
}

type handleEntry[T any] struct {
	gen  uint32
	item *T // nil while free
}

const (
	// minSlots is how many slots a table keeps when it shrinks.
	minSlots = 1 << 12
	// A table shrinks when fewer than one in sparse of its slots is in use. Shrinking reads every
	// slot, so while some are in use the table waits until one slot in removesPerLook was freed.
	sparse         = 4
	removesPerLook = 8
)

// add returns a handle for item.
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

// get returns the item that h names, or nil.
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

// shrink cuts off the free slots at the end, if that at least halves the table. It makes the table
// use low slots first, so that handles move away from the end.
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

// each calls f for every item, in the order of slots. f may remove the item.
func (t *handleTable[T]) each(f func(*T)) {
	for i, n := 0, len(t.entries); i < min(n, len(t.entries)); i++ { // f may make the table shorter
		if item := t.entries[i].item; item != nil {
			f(item)
		}
	}
}
