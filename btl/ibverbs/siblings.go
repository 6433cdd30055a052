package ibverbs

import "slices"

// Siblings are the modules of one rank, on different rails to the same peers. A published address
// says where a module could be reached when the job began. If both ends of a rail have lost their
// devices since, and opened them anew, neither knows the other's address. So a module that has left
// its published address sends requests that are not answered by its siblings too. Such a request
// says where its sender is now, and the module of the peer that receives it passes it to its
// recipient.
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

// recipient finds the module that a message is for, which m has received.
func (s *Siblings) recipient(m *module, msg *message) *module {
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

// tellBySiblings sends a message for a peer by all siblings that know their peer's address.
func (m *module) tellBySiblings(p *peer, msg *message) {
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
