package bml

import "github.com/mpigo/mpigo/btl"

// Sharer returns the module of a rail that is up by which this rank shares memory with a peer, nil
// if there is none.
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
