package tcp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mpigo/mpigo/btl"
)

// A module may have no address: the user named one that this machine did not have at start-up, or
// this machine has lost the addresses that the module used (Config.Find).
//
// Such a module publishes its nonce. Once it has an address, it listens and connects to its peers.
// Its hello names the nonce, so a peer accepts it without knowing its address. Only if neither end
// has the address that it has published must they exchange the new ones (Config.Moved, package
// comm/internal/rails).

// lookEvery is the time between two searches for an address. Reports by netlink and Connect cause
// searches too.
const lookEvery = 100 * time.Millisecond

// hasAddress reports whether this machine has an address of the module, as far as the module knows.
func (m *module) hasAddress() bool {
	return len(m.locals) > 0 && !errors.Is(m.link.down, errNoAddress)
}

// lookForAddresses finds the addresses that the module can use now. It returns false if it has just
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

// PeerMoved gives the module the new addresses of a peer's module. Connect will get them too. An
// attempt to connect to an old address continues at a new one.
func (m *module) PeerMoved(rank int, theirs []byte) {
	c, err := m.parsePeer(rank, theirs)
	if err != nil || len(c.addresses) == 0 {
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

// Absent is transport.Module's Absent.
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
		return nil // the state of the addresses is not known
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
