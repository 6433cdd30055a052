package loop

import "github.com/mpigo/mpigo/btl"

var _ btl.StaleSender = (*endpoint)(nil)

// SendStale implements btl.StaleSender. It is for tests.
func (e *endpoint) SendStale(epoch uint32, tag btl.Tag, frag []byte) bool {
	if !e.Accepts() || e.out == nil {
		return false
	}
	if e.m.f.sim != nil {
		f := &flight{e: e, v: send, epoch: epoch, tag: tag, data: append([]byte(nil), frag...)}
		f.depart()
		return true
	}
	return e.out.publish(&e.m.bufs, epoch, tag, frag, nil) == published
}
