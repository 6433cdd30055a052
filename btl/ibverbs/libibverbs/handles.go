//go:build ibverbs && cgo && linux

package libibverbs

// handles gives numbers to what C code must be able to name: slot+1 in the low 32 bits, the slot's generation in the
// high ones. A number is never used twice before the generation wraps, and 0 is none.
type handles struct {
	slots []handleSlot
	free  []uint32
}

type handleSlot struct {
	generation uint32
	object     any
}

func (h *handles) put(object any) uint64 {
	if n := len(h.free); n > 0 {
		i := h.free[n-1]
		h.free = h.free[:n-1]
		h.slots[i].object = object
		return handle(h.slots[i].generation, i)
	}
	h.slots = append(h.slots, handleSlot{object: object})
	return handle(0, uint32(len(h.slots)-1))
}

// get is what put was given, or nil.
func (h *handles) get(number uint64) any {
	i := uint64(uint32(number)) - 1
	if i >= uint64(len(h.slots)) || h.slots[i].generation != uint32(number>>32) {
		return nil
	}
	return h.slots[i].object
}

func (h *handles) drop(number uint64) {
	if h.get(number) == nil {
		return
	}
	i := uint32(number) - 1
	h.slots[i].object = nil
	h.slots[i].generation++
	h.free = append(h.free, i)
}

func handle(generation, index uint32) uint64 { return uint64(generation)<<32 | (uint64(index) + 1) }
