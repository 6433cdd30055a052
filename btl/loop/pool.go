package loop

import (
	"math/bits"
	"sync/atomic"
)

// buffer carries a fragment that does not fit into a slot.
type buffer struct {
	mem  []byte
	home *pool
	next *buffer // in a list of its pool
}

const (
	minBufferBits = 8
	maxBufferBits = 31
)

// pool holds a module's free buffers, by powers of two. Its module takes buffers out; receivers put
// them back, from their own goroutines.
type pool struct {
	free [maxBufferBits]*buffer // the module's alone

	// returned is the list of buffers that receivers gave back. They push one by one, and the
	// module takes the whole list. Therefore no buffer can return to the list while a receiver
	// pushes.
	returned atomic.Pointer[buffer]
}

func bufferClass(n int) int { return max(bits.Len(uint(n-1)), minBufferBits) }

// get returns a buffer for n bytes, n > 0. Only the pool's module may call it.
func (p *pool) get(n int) *buffer {
	class := bufferClass(n)
	if p.free[class] == nil {
		p.collect()
	}
	if b := p.free[class]; b != nil {
		p.free[class] = b.next
		b.next = nil
		return b
	}
	return &buffer{mem: make([]byte, 1<<class), home: p}
}

func (p *pool) collect() {
	for b := p.returned.Swap(nil); b != nil; {
		next := b.next
		p.put(b)
		b = next
	}
}

// put gives a buffer back. Only the pool's module may call it.
func (p *pool) put(b *buffer) {
	class := bufferClass(len(b.mem))
	b.next = p.free[class]
	p.free[class] = b
}

// giveBack returns the buffer to its pool from any goroutine.
func (b *buffer) giveBack() {
	for {
		b.next = b.home.returned.Load()
		if b.home.returned.CompareAndSwap(b.next, b) {
			return
		}
	}
}
