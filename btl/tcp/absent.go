package tcp

import (
	"fmt"
	"net/netip"
	"time"
)

// An address that the user has named, and that this machine did not have at the start
// (Config.Find).
//
// The module has its nonce from the start, and publishes that. Once the address is there, the
// module listens and connects to its peers. A peer knows the nonce that their hellos name, so it
// needs no address to accept them. Only where neither end had an address do they have to tell each
// other (Config.Moved, package comm/internal/rails).

// lookEvery is how often Connect looks for the address. The kernel's reports make the module look,
// too, if there is netlink.
const lookEvery = 100 * time.Millisecond

// lookForAddress looks for the address, if it is missing, unless it has just done so.
func (m *module) lookForAddress() {
	if m.cfg.Find == nil {
		return
	}
	if now := m.cfg.Clock.Now(); now >= m.findAt {
		m.findAt = now + int64(lookEvery)
		m.findAddress()
	}
}

// findAddress begins to use the address if it has come.
func (m *module) findAddress() {
	i, ok := m.cfg.Find()
	if !ok {
		return
	}
	m.cfg.Local, m.cfg.LocalBits = i.Address, i.Bits
	if err := m.listenAtLocal(); err != nil { // an IPv6 address cannot be used at once
		m.cfg.Local, m.link.down = netip.Addr{}, err
		return
	}
	m.cfg.Find, m.link.down = nil, nil
	m.beginToWatch()
	m.SetAddress(m.encodeAddress())
	if m.cfg.Moved != nil {
		m.cfg.Moved()
	}
}

// Absent is transport.Rail's Absent.
func (m *module) Absent(remote bool) error {
	if m.cfg.Find != nil {
		m.findAddress()
	}
	if m.cfg.Find != nil {
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
