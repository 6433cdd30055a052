package simhca

import "github.com/mpigo/mpigo/btl/ibverbs/verbs"

// subnet is an InfiniBand subnet, with the decisions of its subnet manager. The ports of a subnet
// share a GID prefix and a space of LIDs, by which its switches forward packets. A router connects
// all subnets of a fabric; it forwards by GID.
type subnet struct {
	prefix  [8]byte
	byLID   map[uint16]*port // all LIDs of each port
	lastLID uint16           // assigned last; no LID is assigned twice
	smLID   uint16
}

// firstLID is the first LID of a port. Lower LIDs belong to subnet managers.
const firstLID = 0x10

// subnetOf returns the subnet with a number. It makes the subnet if necessary. The caller holds mu.
func (f *Fabric) subnetOf(number int) *subnet {
	s := f.subnets[number]
	if s == nil {
		s = &subnet{byLID: map[uint16]*port{}, lastLID: firstLID - 1, smLID: 1}
		s.prefix = [8]byte{0xfe, 0x80}
		if number > 0 { // the prefixes of IPv6's site-local addresses are for subnets with routers
			s.prefix = [8]byte{0: 0xfe, 1: 0xc0, 6: byte(number >> 8), 7: byte(number)}
		}
		f.subnets[number] = s
	}
	return s
}

// assign gives a port new LIDs that no port has had. The first is a multiple of their number
// (InfiniBand specification, 4.1.3).
func (s *subnet) assign(p *port) {
	for i := range p.lids() {
		delete(s.byLID, p.lid+i)
	}
	n := p.lids()
	p.lid = (s.lastLID + n) &^ (n - 1)
	s.lastLID = p.lid + n - 1
	for i := range n {
		s.byLID[p.lid+i] = p
	}
}

// forward returns the port to which the subnet of the sender, and the router, carry a packet, or
// nil. Within the subnet the LID leads there, also with a global route header.
func (s *subnet) forward(f *Fabric, p *packet) *port {
	if p.global && [8]byte(p.dgid[:8]) != s.prefix {
		if p.hops < 2 {
			return nil // a router drops it (InfiniBand specification, 8.3.6)
		}
		return f.byGID[p.dgid]
	}
	to := s.byLID[p.dlid]
	if to == nil || p.global && f.byGID[p.dgid] != to {
		return nil
	}
	return to
}

// lids returns the number of LIDs of a port.
func (p *port) lids() uint16 { return 1 << p.hca.cfg.LMC }

// isPeer reports whether a packet comes from the address to which the queue pair sends. A packet
// that a router has forwarded has the router's LID.
func (q *queuePair) isPeer(p *packet, at *port) bool {
	peer := &q.attr.AH
	if p.global && p.sgid != peer.DGID {
		return false
	}
	routed := at.subnet == nil || p.global && [8]byte(p.sgid[:8]) != at.subnet.prefix
	return routed || p.slid == peer.DLID
}

// ChangeLID makes the subnet manager give a port of InfiniBand other LIDs, with LID_CHANGE. The old
// LIDs lead to no port any more. Queue pairs of the port send from the new LID, and their peers
// drop these packets.
func (h *HCA) ChangeLID(port int) { h.Raise(verbs.EventLIDChange, port) }

// SetPKeys sets a port's partition key table, with one PKEY_CHANGE. Entries without a key become 0,
// which is no key. A queue pair uses the entry with its index, whatever key that has.
func (h *HCA) SetPKeys(port int, keys ...uint16) {
	defer h.f.enter().leave()
	if p := h.port(port); p != nil && len(keys) <= len(p.pkeys) {
		p.pkeys = [tableSize]uint16{}
		copy(p.pkeys[:], keys)
		h.raiseUnaffiliated(verbs.EventPKeyChange, port)
	}
}
