package tcp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// A module without an address: the user has named one that this machine did not have at the start,
// or this machine has lost the one that the module used (Config.Find).
//
// The module has its nonce from the start, and publishes that. Once an address is there, the module
// listens and connects to its peers. A peer knows the nonce that their hellos name, so it needs no
// address to accept them. Only where neither end has the address that it has published do they have
// to tell each other (Config.Moved, package comm/internal/rails).

// lookEvery is how often the module looks for an address. The kernel's reports make it look if
// there is netlink, and Connect does.
const lookEvery = 100 * time.Millisecond

// hasAddress reports whether this machine has the module's address, as far as is known.
func (m *module) hasAddress() bool {
	return m.cfg.Local.IsValid() && !errors.Is(m.link.down, errNoAddress)
}

// lookForAddress looks for an address if it is missing, or for a better one if the last one has led
// to no peer yet. It reports false if it has just done so.
func (m *module) lookForAddress() bool {
	if m.cfg.Find == nil || m.hasAddress() && !m.link.isMoved {
		return true
	}
	now := m.cfg.Clock.Now()
	if now < m.findAt {
		return false
	}
	m.findAt = now + int64(lookEvery)
	m.findAddress()
	return true
}

// findAddress begins to use an address if one is there.
func (m *module) findAddress() {
	i, ok := m.cfg.Find()
	if !ok || m.Closed {
		return
	}
	local, bits, zone, listener, port := m.cfg.Local, m.cfg.LocalBits, m.zone, m.listener, m.port
	if i.Address == local {
		if !m.hasAddress() {
			m.link.down = nil // it is back
		}
		return
	}
	m.cfg.Local, m.cfg.LocalBits = i.Address, i.Bits
	if err := m.listenAtLocal(); err != nil { // an IPv6 address cannot be used at once
		m.cfg.Local, m.cfg.LocalBits, m.zone = local, bits, zone
		if !local.IsValid() {
			m.link.down = err
		}
		return
	}
	if listener >= 0 {
		m.handshakePoller.remove(listener)
		_ = unix.Close(listener)
	}
	m.link.down, m.link.isMoved = nil, port != 0
	m.beginToWatch()
	m.SetAddress(m.encodeAddress())
	m.Unsettled = true
	if m.cfg.Moved != nil {
		m.cfg.Moved()
	}
}

// PeerMoved tells the module the new address of a peer's module, which Connect will get, too. A
// connection that is being made to the old address goes on at the new one.
func (m *module) PeerMoved(rank int, theirs []byte) {
	c, ok := parseRailAddress(theirs)
	if !ok || c.rank != uint32(rank) || !c.address.IsValid() {
		return
	}
	for _, p := range m.peers.Of(rank) {
		if p.nonce != c.nonce || p.address == c.address || m.cfg.Local.IsValid() && m.cfg.Local.Is4() != c.address.Addr().Is4() {
			continue
		}
		p.address = c.address
		if e := p.ep; e != nil && e.State() == btl.Up && e.phase == phaseDialing && e.Deferred() == nil {
			if e.attempt != nil && e.attempt.stage == stageChallenge {
				e.stopAttempt()
			}
			e.pause.at, e.pause.wait, e.pause.refusals = 0, 0, 0
			m.Unsettled = true
		}
	}
}

// Absent is transport.Rail's Absent.
func (m *module) Absent(remote bool) error {
	if m.cfg.Find != nil && !m.hasAddress() {
		m.findAddress()
	}
	if !m.cfg.Local.IsValid() {
		return m.link.down
	}
	if m.link.fd < 0 {
		return nil
	}
	s, err := m.link.state()
	switch {
	case err != nil:
		return nil // it could not be found out
	case s.name == "":
		return fmt.Errorf("%w %v", errNoAddress, m.cfg.Local)
	case !remote:
		return nil
	case !s.up:
		return fmt.Errorf("%w: %s", errLinkDown, s.name)
	case !s.carrier:
		return fmt.Errorf("%w: %s", errNoCarrier, s.name)
	}
	return nil
}
