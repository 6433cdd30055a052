package base

import "iter"

// maxModules bounds the modules of one rank that a module knows. Only a faulty peer has more.
const maxModules = 64

// Peers holds what a module knows about other ranks' modules, by rank.
type Peers[P any] struct{ byRank [][]*P }

// MakePeers makes the table for a job with the given number of ranks.
func MakePeers[P any](ranks int) Peers[P] { return Peers[P]{make([][]*P, ranks)} }

// Of lists the known modules of a rank. The result is valid until the next call of Add.
func (t *Peers[P]) Of(rank int) []*P { return t.byRank[rank] }

// Add adds a module of a rank. It reports false if the rank has too many.
func (t *Peers[P]) Add(rank int, p *P) bool {
	if len(t.byRank[rank]) >= maxModules {
		return false
	}
	t.byRank[rank] = append(t.byRank[rank], p)
	return true
}

// All yields all modules, in the order of ranks.
func (t *Peers[P]) All() iter.Seq[*P] {
	return func(yield func(*P) bool) {
		for _, list := range t.byRank {
			for _, p := range list {
				if !yield(p) {
					return
				}
			}
		}
	}
}
