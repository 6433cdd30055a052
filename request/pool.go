package request

// Pool keeps idle objects of operations that are complete when they begin. It is bounded, so that
// memory is released after a burst. The engine's lock guards it.
type Pool struct{ free []*Object }

// maxPooled is how many objects a pool keeps.
const maxPooled = 1 << 13

// Get takes an object out of the pool. It returns nil if the pool is empty.
func (p *Pool) Get() *Object {
	last := len(p.free) - 1
	if last < 0 {
		return nil
	}
	o := p.free[last]
	p.free = p.free[:last]
	return o
}

func (p *Pool) put(o *Object) {
	if len(p.free) < maxPooled {
		p.free = append(p.free, o)
	} else {
		o.Unbind()
	}
}
