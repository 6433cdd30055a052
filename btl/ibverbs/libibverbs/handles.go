//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

// handles assigns numbers to objects that C code refers to. A number has slot+1 in its low 32 bits
// and the slot's generation in its high 32 bits. It is not reused before the generation wraps; 0 is
// never assigned.
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

// get returns the object with the number, or nil.
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
