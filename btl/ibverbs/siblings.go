package ibverbs

import (
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Siblings are the modules of one rank, on different rails to the same peers. The address that a
// peer has published may be old: not every launcher accepts a new one, and ranks learn it with a
// delay. If both ends of a rail have reopened their devices, neither knows the other's address. If
// a peer's port has got another LID, a peer that was never connected is not at its published
// address either.
//
// Therefore siblings send unanswered requests too, at once if this module's address has changed.
// Such a request has the current address of its sender. The peer's module that receives it passes
// it to its recipient.
type Siblings struct {
	modules []*module
}

func (s *Siblings) add(m *module) { s.modules = append(s.modules, m) }

func (s *Siblings) remove(m *module) {
	s.modules = slices.DeleteFunc(s.modules, func(other *module) bool { return other == m })
}

// recipient finds the module to which a message is addressed. m has received the message.
func (s *Siblings) recipient(m *module, msg *message) *module {
	for _, other := range s.modules {
		if other.me == msg.toNonce {
			return other
		}
	}
	return m
}

// hasSiblingTo reports whether a sibling is connected to a peer.
func (m *module) hasSiblingTo(rank int) bool {
	for _, other := range m.cfg.Siblings.modules {
		for _, p := range other.peers.Of(rank) {
			if other != m && p.ep != nil && p.ep.State() == btl.Up && p.ep.phase == phaseReady {
				return true
			}
		}
	}
	return false
}

// tellBySiblings sends a message to a peer through all siblings that know its address on their
// rails.
func (m *module) tellBySiblings(p *peer, msg *message) {
	for _, other := range m.cfg.Siblings.modules {
		if other == m {
			continue
		}
		for _, its := range other.peers.Of(p.rank) {
			other.carry(its, msg)
		}
	}
}
