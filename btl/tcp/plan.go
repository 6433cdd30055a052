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

// maxRails bounds the rails of a rank, unless it has more interfaces. Two ranks use no more pairs.
const maxRails = 32

// plan is what the rails of an interface are made from, one rail for each connection.
//
// Each is a module of its own, with listeners of its own, because striping and failover then treat
// it as any other rail. It leads only to that of the same number at the peer (leads), so the number
// of pairs grows as that of the connections.
type plan struct {
	cfg     Config
	port    string
	wires   []string // transport.Rail's
	source  *source  // nil: the rails keep the addresses of the start
	modules []*module
}

// isTaken reports whether a rail of another plan than p has an address.
func isTaken(plans []*plan, p *plan, a netip.Addr) bool {
	has := func(m *module) bool { return m.isLocal(a) }
	return slices.ContainsFunc(plans, func(o *plan) bool { return o != p && slices.ContainsFunc(o.modules, has) })
}

// Connections is how many rails a rank makes of each of its interfaces, given their number.
func Connections(set tunable.Set, interfaces int) int {
	return connectionsOf(int(set.Int(connectionsKey)), interfaces)
}

// connectionsOf is how many of the connections that the user wants for each interface there is room
// for.
func connectionsOf(wanted, interfaces int) int {
	return min(wanted, max(maxRails/max(interfaces, 1), 1))
}

// openPlans makes the rails of all interfaces: first one of each, then the second of each, and so
// on. So those that every interface has come first (transport.Limit).
func openPlans(plans []*plan, connections int) (opened transport.Opened) {
	most := connectionsOf(connections, len(plans))
	if most < connections {
		opened.LeftOut = append(opened.LeftOut, fmt.Errorf("rail tcp: %s=%d: only %d for each of %d interfaces, because a rank has at most %d rails over TCP",
			connectionsKey, connections, most, len(plans), maxRails))
	}
	broken := map[*plan]bool{} // those that have got no module: the next one would not, either
	for n := range most {
		for _, p := range plans {
			if broken[p] {
				continue
			}
			m, err := p.open(n, most)
			if err != nil && n == 0 || m == nil { // the next ones lack the same addresses
				opened.LeftOut = append(opened.LeftOut, err)
			}
			if broken[p] = m == nil; m != nil {
				opened.Rails = append(opened.Rails, transport.Rail{Module: m, Port: p.port, Wires: p.wires, Absent: m.Absent})
			}
		}
	}
	return opened
}

// open makes the rail of connection n, from 0; of is how many the interface gets. If there is an
// error and a module, the module goes on with other addresses.
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
