package tcp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/tunable"
)

// maxRails bounds the rails of a rank, unless it has more interfaces. It also bounds the pairs of
// rails that two ranks use.
const maxRails = 32

// plan says how to make the rails of an interface, one rail for each connection.
//
// Each rail is a module of its own with its own listeners, so that striping and failover treat it
// as any other rail. It leads only to the peer's rail with the same number (leads), so the number
// of pairs grows linearly with the number of connections.
type plan struct {
	cfg     Config
	port    string
	wires   []string // transport.Module's
	source  *source  // nil: the rails keep their first addresses
	modules []*module
}

// isTaken reports whether a rail of another plan than p has an address.
func isTaken(plans []*plan, p *plan, a netip.Addr) bool {
	has := func(m *module) bool { return m.isLocal(a) }
	return slices.ContainsFunc(plans, func(o *plan) bool { return o != p && slices.ContainsFunc(o.modules, has) })
}

// Connections returns how many rails a rank makes for each of its interfaces, given their number.
func Connections(set tunable.Set, interfaces int) int {
	return connectionsOf(int(set.Int(connectionsKey)), interfaces)
}

// connectionsOf returns how many connections for each interface fit, given how many the user wants.
func connectionsOf(wanted, interfaces int) int {
	return min(wanted, max(maxRails/max(interfaces, 1), 1))
}

// openPlans makes the rails of all interfaces: the first rail of each, then the second of each, and
// so on. Thus transport.Limit keeps the first rail of each interface first.
func openPlans(plans []*plan, connections int) (opened transport.Opened) {
	most := connectionsOf(connections, len(plans))
	if most < connections {
		opened.LeftOut = append(opened.LeftOut, fmt.Errorf("rail tcp: %s=%d: only %d for each of %d interfaces, because a rank has at most %d rails over TCP",
			connectionsKey, connections, most, len(plans), maxRails))
	}
	broken := map[*plan]bool{} // plans that got no module: the next attempt would fail too
	for n := range most {
		for _, p := range plans {
			if broken[p] {
				continue
			}
			m, err := p.open(n, most)
			if err != nil && n == 0 || m == nil { // further rails would lack the same addresses
				opened.LeftOut = append(opened.LeftOut, err)
			}
			if broken[p] = m == nil; m != nil {
				opened.Modules = append(opened.Modules, transport.Module{Module: m, Port: p.port, Wires: p.wires, Absent: m.Absent})
			}
		}
	}
	return opened
}

// open makes the rail of connection n, from 0; of is the number of connections of the interface. If
// open returns both a module and an error, the module works with other addresses.
func (p *plan) open(n, of int) (*module, error) {
	cfg := p.cfg
	cfg.Connection = uint8(n)
	cfg.BandwidthMBps = max(cmp.Or(cfg.BandwidthMBps, speedOf(cfg.Local))/int64(of), 1)
	if n > 0 {
		cfg.Rail = fmt.Sprintf("%s#%d", cfg.Rail, n+1)
	}
	m, err := newModule(cfg)
	if err == nil {
		err = errors.Join(m.leftOut...)
	}
	if err != nil {
		if cfg.LastPort != 0 && errors.Is(err, syscall.EADDRINUSE) {
			ports, advice := "one port", "give more ports"
			if of > 1 {
				ports, advice = fmt.Sprintf("%d ports", of), "give more ports, or set "+connectionsKey+" lower"
			}
			err = fmt.Errorf("%w (%s=%d-%d: each rank of a machine takes %s: %s)", err, portsKey, cfg.FirstPort, cfg.LastPort, ports, advice)
		}
		err = fmt.Errorf("rail %s: %w", cfg.Rail, err)
	}
	if m != nil {
		p.modules = append(p.modules, m)
	}
	return m, err
}
