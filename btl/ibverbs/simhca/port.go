package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

// port is where a device meets the network.
type port struct {
	hca   *HCA
	num   int // from 1
	up    bool
	mtu   verbs.MTU // the active one, at most the device's
	gids  []verbs.GID
	pkeys []uint16
	lid   uint16
	smlid uint16
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
	for _, g := range p.gids { // it may be there twice
		if !g.IsZero() {
			f.byGID[g] = p
		}
	}
}

func (p *port) setLID(lid uint16) {
	f := p.hca.f
	if f.byLID[p.lid] == p {
		delete(f.byLID, p.lid)
	}
	p.lid = lid
	f.byLID[lid] = p
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
		MaxMsg: p.hca.cfg.MaxMsgBytes, LID: p.lid, SMLID: p.smlid, Link: p.link(), Mbps: p.hca.cfg.Mbps,
		GRHRequired: p.hca.cfg.GRHRequired,
	}
	if p.up {
		a.State = verbs.PortActive
	}
	return a
}

// SetLink brings a port's link down, with PORT_ERR, or up, with PORT_ACTIVE. While it is down, what the port sends and what comes
// to it is lost; queue pairs stay in their states (InfiniBand error model, 3.5.2).
func (h *HCA) SetLink(port int, up bool) {
	h.f.enter()
	defer h.f.leave()
	h.setLink(port, up)
}

func (h *HCA) setLink(num int, up bool) {
	p := h.port(num)
	if p == nil || p.up == up {
		return
	}
	p.up = up
	if up {
		h.tellAll(verbs.EventPortActive, num)
	} else {
		h.tellAll(verbs.EventPortErr, num)
	}
}

// SetMTU sets a port's active MTU, at most the device's, as a link does whose network interface
// gets another one: nothing is told. Packets that are longer get lost, on their way out and on
// their way in; queue pairs keep the path MTU that they have.
func (h *HCA) SetMTU(port int, mtu verbs.MTU) {
	h.f.enter()
	defer h.f.leave()
	if p := h.port(port); p != nil && mtu.Bytes() != 0 {
		p.mtu = min(mtu, h.cfg.MTU)
	}
}

// ChangeGID sets an entry of a port's table, with GID_CHANGE; the zero GID empties it. Queue pairs that used the entry send from
// the new address from now on, which their peers do not know, and what goes to the old one is lost: silence, until a
// requester has retried enough.
func (h *HCA) ChangeGID(port, index int, gid verbs.GID) {
	h.f.enter()
	defer h.f.leave()
	p := h.port(port)
	if p == nil || index < 0 || index >= len(p.gids) {
		return
	}
	p.setGID(index, gid)
	h.tellAll(verbs.EventGIDChange, port)
}

// ChangePKey sets an entry of a port's table of partition keys, with PKEY_CHANGE.
func (h *HCA) ChangePKey(port, index int, key uint16) {
	h.f.enter()
	defer h.f.leave()
	p := h.port(port)
	if p == nil || index < 0 || index >= len(p.pkeys) {
		return
	}
	p.pkeys[index] = key
	h.tellAll(verbs.EventPKeyChange, port)
}

// tellAll is an unaffiliated event: every context of the device is told.
func (h *HCA) tellAll(t verbs.EventType, port int) {
	if h.f.cfg.Trace != nil {
		h.f.tracef("%s port %d: %v", h.name, port, t)
	}
	for _, c := range h.contexts {
		if !c.gone || t == verbs.EventDeviceFatal {
			c.tell(verbs.AsyncEvent{Type: t, Port: port})
		}
	}
}
