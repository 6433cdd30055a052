package tcp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mpigo/mpigo/btl"
)

// A module without an address: the user has named one that this machine did not have at the start,
// or this machine has lost those that the module used (Config.Find).
//
// The module has its nonce from the start, and publishes that. Once an address is there, the module
// listens and connects to its peers. A peer knows the nonce that their hellos name, so it needs no
// address to accept them. Only where neither end has the address that it has published do they have
// to tell each other (Config.Moved, package comm/internal/rails).

// lookEvery is how often the module looks for an address. The kernel's reports make it look if
// there is netlink, and Connect does.
const lookEvery = 100 * time.Millisecond

// hasAddress reports whether this machine has an address of the module, as far as is known.
func (m *module) hasAddress() bool {
	return len(m.locals) > 0 && !errors.Is(m.link.down, errNoAddress)
}

// lookForAddresses looks which addresses the module can use now. It reports false if it has just
// done so.
func (m *module) lookForAddresses() bool {
	if m.cfg.Find == nil {
		return true
	}
	now := m.cfg.Clock.Now()
	if now < m.findAt {
		return false
	}
	m.findAt = now + int64(lookEvery)
	m.findAddresses()
	return true
}

// PeerMoved tells the module the new addresses of a peer's module, which Connect will get, too. A
// connection that is being made to an old address goes on at a new one.
func (m *module) PeerMoved(rank int, theirs []byte) {
	c, ok := parseRailAddress(theirs)
	if !ok || c.rank != uint32(rank) || len(c.addresses) == 0 {
		return
	}
	for _, p := range m.peers.Of(rank) {
		if p.nonce != c.nonce || slices.Equal(p.addresses, c.addresses) || len(m.locals) > 0 && len(pathsBetween(m.published(isAny), c.addresses, !p.onOtherMachine)) == 0 {
			continue
		}
		p.addresses = c.addresses
		if e := p.ep; e != nil && e.State() == btl.Up && e.phase == phaseDialing && e.Deferred() == nil {
			if e.attempt != nil && e.attempt.stage == stageChallenge {
				e.stopAttempt()
			}
			e.pause.at, e.pause.wait, e.pause.refusals, e.pause.path = 0, 0, 0, 0
			m.Unsettled = true
		}
	}
}

// Absent is transport.Rail's Absent.
func (m *module) Absent(remote bool) error {
	if m.cfg.Find != nil && !m.hasAddress() {
		m.findAddresses()
	}
	if len(m.locals) == 0 {
		return m.link.down
	}
	if m.link.fd < 0 {
		return nil
	}
	s, err := m.lookUpAddresses()
	switch {
	case err != nil:
		return nil // it could not be found out
	case s.name == "":
		return m.noAddress()
	case !remote:
		return nil
	case !s.up:
		return fmt.Errorf("%w: %s", errLinkDown, s.name)
	case !s.carrier:
		return fmt.Errorf("%w: %s", errNoCarrier, s.name)
	}
	return nil
}
