package bml

import "github.com/mpigo/mpigo/btl"

// Sharer returns the module by which this rank shares memory with a peer: that of a rail which is
// up. It is nil if there is none.
func (pr *Peer) Sharer() btl.Sharer {
	for i := range pr.rails {
		if pr.up.Has(i) {
			if s, ok := pr.rails[i].module.(btl.Sharer); ok {
				return s
			}
		}
	}
	return nil
}
