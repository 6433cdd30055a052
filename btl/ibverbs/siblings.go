package ibverbs

import (
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Siblings are the modules of one rank, on different rails to the same peers. The address that a
// peer has published may be old: not every launcher takes a new one, and ranks learn it a while
// later. If both ends of a rail have opened their devices again since, neither knows the other's
// address. A peer whose port has another LID since, and that has never been connected, is not at
// its published address either. So requests that are not answered are
// sent by the siblings too, at once if this module's address has changed. Such a request has the
// present address of its sender, and the peer's module that receives it passes it to its recipient.
type Siblings struct {
	modules []*module
}

func (s *Siblings) add(m *module) { s.modules = append(s.modules, m) }

func (s *Siblings) remove(m *module) {
	s.modules = slices.DeleteFunc(s.modules, func(other *module) bool { return other == m })
}

// recipient finds the module that a message is for. m has received the message.
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

// tellBySiblings sends a message to a peer by all siblings that know its address on their rails.
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
