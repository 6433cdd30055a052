package bench

import (
	"errors"
	"unsafe"

	"github.com/mpigo/mpigo/comm"
)

// element is a type of message elements: reductions add numbers, all other operations move bytes.
type element interface{ byte | float32 }

// pool is memory for the messages of one direction. It returns the same buffer each time, or, with
// --fresh, another one each time.
type pool[T element] struct {
	mem    []T
	fresh  bool
	stride int // elements from the start of a buffer to the start of the next
	at     int // start of the next buffer
	now    []T // the next buffer
	marked int // at, when mark was called
	free   func() error
}

const lineBytes, pageBytes = 64, 4096

// freshStride returns the distance of fresh buffers in bytes. Buffers do not share pages, and begin
// at different places of the cache.
func freshStride(bytes int) int {
	return max((bytes+lineBytes-1)/lineBytes*lineBytes, pageBytes) + lineBytes
}

// newPool makes a pool of buffers of up to n elements.
func newPool[T element](j *job, n int) (*pool[T], error) {
	p := &pool[T]{fresh: j.cfg.fresh && n > 0, free: func() error { return nil }}
	if p.fresh {
		size := int(unsafe.Sizeof(*new(T)))
		n = max(j.cfg.poolBytes, freshStride(n*size)) / size
	}
	if j.cfg.alloc {
		var err error
		if p.mem, err = comm.Alloc[T](j.world, n); err != nil {
			return nil, err
		}
		p.free = func() error { return comm.FreeAlloc(j.world, p.mem) }
	} else {
		p.mem = make([]T, n)
	}
	for i := range p.mem {
		p.mem[i] = T(i & 0x3f) // touches all pages before the measurement
	}
	return p, nil
}

// resize sets the length of the buffers.
func (p *pool[T]) resize(n int) {
	size := int(unsafe.Sizeof(*new(T)))
	p.stride, p.at, p.now = freshStride(n*size)/size, 0, p.mem[:n:n]
}

// take returns the buffer of the next message.
func (p *pool[T]) take() []T {
	b := p.now
	if p.fresh {
		p.advance()
	}
	return b
}

func (p *pool[T]) advance() {
	n := len(p.now)
	if p.at += p.stride; p.at+n > len(p.mem) {
		p.at = 0
	}
	p.now = p.mem[p.at : p.at+n : p.at+n]
}

// mark records which buffer comes next.
func (p *pool[T]) mark() { p.marked = p.at }

// sinceMark calls f with the n buffers that follow the mark. If the pool has fewer, it calls f once
// with each.
func (p *pool[T]) sinceMark(n int, f func(buf []T) error) error {
	was, now := p.at, p.now
	defer func() { p.at, p.now = was, now }()
	p.at, p.now = p.marked, p.mem[p.marked:p.marked+len(now)]
	for range n {
		if err := f(p.take()); err != nil {
			return err
		}
		if p.at == p.marked {
			break
		}
	}
	return nil
}

// newPools makes two pools, of buffers of up to in and out elements.
func newPools[T element](j *job, in, out int) (a, b *pool[T], err error) {
	if a, err = newPool[T](j, in); err != nil {
		return nil, nil, err
	}
	if b, err = newPool[T](j, out); err != nil {
		return nil, nil, errors.Join(err, a.free())
	}
	return a, b, nil
}
