package simhca

import (
	"maps"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// port is a port of a device.
type port struct {
	hca   *HCA
	num   int // counts from 1
	up    bool
	mtu   verbs.MTU // active MTU, at most the device's
	gids  [tableSize]verbs.GID
	pkeys [tableSize]uint16
	// InfiniBand: the port's subnet, and its first LID. nil and 0 for RoCE.
	subnet *subnet
	lid    uint16
}

func (p *port) link() verbs.LinkLayer { return p.hca.cfg.Link }

func (p *port) gid(index int) verbs.GID {
	if index < 0 || index >= len(p.gids) {
		return verbs.GID{}
	}
	return p.gids[index]
}

func (p *port) pkey(index int) uint16 {
	if index < 0 || index >= len(p.pkeys) {
		return 0
	}
	return p.pkeys[index]
}

func (p *port) setGID(index int, gid verbs.GID) {
	f := p.hca.f
	if old := p.gids[index]; f.byGID[old] == p {
		delete(f.byGID, old)
	}
	p.gids[index] = gid
	for _, g := range p.gids { // the table may contain old twice
		if !g.IsZero() {
			f.byGID[g] = p
		}
	}
}

func (p *port) gidType() verbs.GIDType {
	if p.link() == verbs.LinkInfiniBand {
		return verbs.GIDTypeIB
	}
	return verbs.GIDTypeRoCEv2
}

func (p *port) attr() verbs.PortAttr {
	a := verbs.PortAttr{
		State: verbs.PortDown, MaxMTU: p.hca.cfg.MTU, ActiveMTU: p.mtu, GIDs: len(p.gids), PKeys: len(p.pkeys),
		MaxMsg: p.hca.cfg.MaxMsgBytes, LID: p.lid, Link: p.link(), Mbps: mbps,
		GRHRequired: p.hca.cfg.GRHRequired,
	}
	if p.up {
		a.State = verbs.PortActive
	}
	if p.subnet != nil {
		a.LMC, a.SMLID = p.hca.cfg.LMC, p.subnet.smLID
	}
	return a
}

// SetLink takes a port's link down, with PORT_ERR, or up, with PORT_ACTIVE, unless the device has
// NoPortEvents. While the link is down, the port loses all packets in both directions; queue pairs
// keep their states (InfiniBand error model, 3.5.2).
func (h *HCA) SetLink(port int, up bool) {
	defer h.f.enter().leave()
	h.setLink(port, up)
}

func (h *HCA) setLink(num int, up bool) {
	p := h.port(num)
	if p == nil || p.up == up {
		return
	}
	p.up = up
	event := verbs.EventPortErr
	if up {
		event = verbs.EventPortActive
	} else {
		maps.DeleteFunc(h.resolved, func(e pathEnd, _ struct{}) bool { return e.port == num })
	}
	if !h.cfg.NoPortEvents {
		h.raiseUnaffiliated(event, num)
	}
}

// SetMTU sets a port's active MTU, at most the device's, as a change to the network interface
// would: without an event. Longer packets are lost in both directions; queue pairs keep their path
// MTU.
func (h *HCA) SetMTU(port int, mtu verbs.MTU) {
	defer h.f.enter().leave()
	if p := h.port(port); p != nil && mtu.Bytes() != 0 {
		p.mtu = min(mtu, h.cfg.MTU)
	}
}

// ChangeGID sets an entry of a port's GID table, with GID_CHANGE; the zero GID empties the entry.
// Queue pairs that use the entry then send from the new address, and their peers drop these
// packets. Packets to the old address are lost. Requesters notice only when their retries are
// exhausted.
func (h *HCA) ChangeGID(port, index int, gid verbs.GID) {
	defer h.f.enter().leave()
	p := h.port(port)
	if p == nil || index < 0 || index >= len(p.gids) {
		return
	}
	p.setGID(index, gid)
	h.raiseUnaffiliated(verbs.EventGIDChange, port)
}

// ChangePKey sets an entry of a port's partition key table, with PKEY_CHANGE.
func (h *HCA) ChangePKey(port, index int, key uint16) {
	defer h.f.enter().leave()
	p := h.port(port)
	if p == nil || index < 0 || index >= len(p.pkeys) {
		return
	}
	p.pkeys[index] = key
	h.raiseUnaffiliated(verbs.EventPKeyChange, port)
}

// raiseUnaffiliated raises an event in every context of the device.
func (h *HCA) raiseUnaffiliated(t verbs.EventType, port int) {
	if h.f.cfg.Trace != nil {
		h.f.tracef("%s port %d: %v", h.name, port, t)
	}
	for _, c := range h.contexts {
		if !c.gone || t == verbs.EventDeviceFatal {
			c.push(verbs.AsyncEvent{Type: t, Port: port})
		}
	}
}
