package ibverbs

import "slices"

// Siblings is the modules of one rank, on different rails to the same peers. A card says where a module could be reached when the job began.
// If both ends of a rail have lost their devices since, and opened them anew, neither knows the other's address. So whoever is not where
// its card says has requests that are not answered go by its siblings too: such a request says where its sender is now, and at the peer whichever module hears it gives it to whom it is for.
type Siblings struct {
	modules []*module
}

func (s *Siblings) add(m *module) {
	if s != nil {
		s.modules = append(s.modules, m)
	}
}

func (s *Siblings) remove(m *module) {
	if s != nil {
		s.modules = slices.DeleteFunc(s.modules, func(other *module) bool { return other == m })
	}
}

// whom finds the module that a message is for, which m has heard.
func (s *Siblings) whom(m *module, msg *message) *module {
	if s == nil || msg.toNonce == m.me {
		return m
	}
	for _, other := range s.modules {
		if other.me == msg.toNonce {
			return other
		}
	}
	return m
}

// tellAround sends a message, as it was told to a peer, by all siblings that know where their end of it is.
func (m *module) tellAround(p *peer, msg *message) {
	if m.cfg.Siblings == nil {
		return
	}
	for _, other := range m.cfg.Siblings.modules {
		if other == m {
			continue
		}
		if its := other.peers[p.rank]; its != nil && its.met {
			other.carry(its, msg)
		}
	}
}
