package simhca

import (
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

type packetKind uint8

const (
	pkSend packetKind = iota
	pkWrite
	pkReadRequest
	pkAtomicRequest
	pkReadResponse
	pkAtomicResponse
	pkAck
	pkNak
	// pkContinue is not a packet: its arrival makes its sender continue sending.
	pkContinue
)

var packetNames = [...]string{"send", "write", "read", "atomic", "read response", "atomic response", "ack", "nak", "continue"}

func (k packetKind) String() string { return packetNames[k] }

func (k packetKind) request() bool { return k <= pkAtomicRequest }

// nakCode is the reason of a NAK.
type nakCode uint8

const (
	nakSequence nakCode = iota
	nakRNR
	nakInvalidRequest
	nakAccess
	nakOperation
)

// nakStatus maps a NAK to the requester's status.
var nakStatus = [...]verbs.Status{
	nakInvalidRequest: verbs.StatusRemInvReqErr,
	nakAccess:         verbs.StatusRemAccessErr,
	nakOperation:      verbs.StatusRemOpErr,
}

// packet is a packet with the header fields that the simulation needs.
type packet struct {
	event
	kind      packetKind
	service   verbs.Services
	first     bool // first packet of its message
	last      bool
	hasImm    bool
	sol       bool // solicited event
	ackWanted bool
	global    bool
	code      nakCode
	timer     uint8 // RNR NAK: timer code
	sl        uint8
	tclass    uint8
	hops      uint8
	pkey      uint16
	slid      uint16
	dlid      uint16
	psn       uint32
	qpn       uint32 // destination
	srcQPN    uint32 // UD
	qkey      uint32 // UD
	rkey      uint32
	length    uint32 // of the whole message, in the first packet
	imm       uint32
	opcode    verbs.Opcode // atomics
	va        uint64
	compare   uint64 // compare operand or addend
	swap      uint64
	from      *port
	sgid      verbs.GID
	dgid      verbs.GID
	data      []byte

	source *queuePair // pkContinue: the sender
	// reader is the responder whose resp.reads decreases when this packet, the last of a response,
	// leaves the network. ownerGen is the generation of reader or source.
	reader   *queuePair
	ownerGen uint32

	next     *packet // in the pool
	replayed bool    // FaultStale: was delivered again once
}

// newPacket takes a packet from the pool, with n bytes of data that the caller fills.
func (f *Fabric) newPacket(kind packetKind, n int) *packet {
	p := f.pool
	if p == nil {
		p = &packet{}
	} else {
		f.pool = p.next
	}
	data := p.data
	*p = packet{kind: kind}
	p.event.kind, p.event.pkt = evPacket, p
	if cap(data) < n {
		data = make([]byte, max(n, 64))
	}
	p.data = data[:n]
	return p
}

// free returns a delivered or lost packet to the pool.
func (f *Fabric) free(p *packet) {
	if q := p.reader; q != nil && q.gen == p.ownerGen {
		q.resp.reads--
	}
	p.reader, p.source, p.from = nil, nil, nil
	p.next = f.pool
	f.pool = p
}

// clone returns a copy of the packet that does not belong to the pool.
func (p *packet) clone() *packet {
	c := *p
	c.event = event{kind: evPacket}
	c.event.pkt = &c
	c.reader, c.next = nil, nil
	c.data = append([]byte(nil), p.data...)
	return &c
}

// setRoute sets the addresses of a packet of q. It reports whether the packet can leave the device.
func (q *queuePair) setRoute(p *packet, to *verbs.AHAttr) bool {
	from := q.port()
	p.service, p.from, p.global = q.service, from, to.IsGlobal || from.link() == verbs.LinkEthernet
	p.pkey = from.pkey(int(q.attr.PKeyIndex))
	p.slid, p.dlid, p.sl = from.lid+uint16(to.SrcPathBits)&(from.lids()-1), to.DLID, to.SL
	if p.global {
		p.sgid, p.dgid = from.gid(to.SGIDIndex), to.DGID
		p.hops, p.tclass = to.HopLimit, to.TrafficClass
		if p.sgid.IsZero() {
			return false
		}
	}
	return from.up && !q.hca.dead
}

// emit sends a packet to the queue pair's peer.
func (q *queuePair) emit(p *packet) {
	p.qpn = q.attr.DestQPN
	if !q.setRoute(p, &q.attr.AH) {
		q.f.lose(p, "no way out")
		return
	}
	q.f.send(p, q)
}

// send puts a packet on the network. The packets of a queue pair stay in order.
func (f *Fabric) send(p *packet, q *queuePair) {
	if f.closed {
		f.free(p)
		return
	}
	latency, loss := f.cfg.Latency, f.cfg.Loss
	if len(f.impaired) > 0 && p.kind != pkContinue {
		i := f.impaired[portPair{p.from, f.route(p)}]
		latency += i.Latency
		loss = max(loss, i.Loss)
	}
	if loss > 0 && p.kind != pkContinue && f.rng.Float64() < loss {
		f.lose(p, "at random")
		return
	}
	delay := latency
	if f.cfg.Jitter > 0 {
		delay += time.Duration(f.rng.Int64N(int64(f.cfg.Jitter) + 1))
	}
	if delay == 0 && f.cfg.Jitter == 0 {
		f.ready = append(f.ready, p)
		return
	}
	at := max(f.now()+delay, q.lastArrival)
	q.lastArrival = at
	f.events.schedule(&p.event, at)
}

// continueLater makes q continue when its packets so far have arrived. This bounds the memory for
// the packets of a long message.
func (q *queuePair) continueLater() {
	p := q.f.newPacket(pkContinue, 0)
	p.source, p.ownerGen = q, q.gen
	q.f.send(p, q)
}

func (f *Fabric) lose(p *packet, why string) {
	if f.cfg.Trace != nil {
		f.tracef("lost %v to %06x psn %06x: %s", p.kind, p.qpn, p.psn, why)
	}
	f.free(p)
}

// arrive delivers a packet to its queue pair or drops it.
func (f *Fabric) arrive(p *packet) {
	if p.kind == pkContinue {
		q, gen := p.source, p.ownerGen
		f.free(p)
		if q.gen == gen && !q.destroyed {
			q.continueSending()
		}
		return
	}
	to := f.route(p)
	switch {
	case to == nil:
		f.lose(p, "unknown address")
		return
	case !to.up || to.hca.dead:
		f.lose(p, "port down")
		return
	case len(p.data) > min(p.from.mtu, to.mtu).Bytes():
		f.lose(p, "longer than the port's MTU")
		return
	}
	if to.hca.cfg.GRHRequired && !p.global {
		f.lose(p, "the port requires a global route")
		return
	}
	if _, cut := f.partitioned[portPair{p.from, to}]; cut {
		f.lose(p, "partition")
		return
	}
	q := to.hca.lookupQP(p.qpn)
	if q == nil {
		f.lose(p, "no such queue pair")
		return
	}
	if why := q.dropReason(p, to); why != "" {
		f.lose(p, why)
		return
	}
	if f.cfg.Trace != nil {
		f.tracef("%s/%06x gets %v psn %06x bytes %d", to.hca.name, p.qpn, p.kind, p.psn, len(p.data))
	}
	switch {
	case q.service == verbs.ServiceUD:
		q.receiveUD(p)
	case p.kind.request():
		q.request(p)
	default:
		q.handleResponse(p)
	}
	f.free(p)
}

// route returns the port to which a packet goes, or nil if its address leads nowhere.
func (f *Fabric) route(p *packet) *port {
	var to *port
	if s := p.from.subnet; s != nil {
		to = s.forward(f, p)
	} else {
		to = f.byGID[p.dgid]
	}
	if to != nil && to.link() != p.from.link() {
		return nil
	}
	return to
}

// dropReason returns why the queue pair silently drops a packet (InfiniBand error model, 4.3), or
// "".
func (q *queuePair) dropReason(p *packet, at *port) string {
	switch {
	case q.service != p.service:
		return "other service"
	case q.fatal || q.dev.gone || !q.attr.State.Receives():
		return "queue pair does not receive"
	case q.port() != at:
		return "other port"
	case !samePartition(p.pkey, at.pkey(int(q.attr.PKeyIndex))):
		return "other partition"
	}
	if q.service == verbs.ServiceUD {
		if q.attr.QKey != p.qkey {
			return "other Q_Key"
		}
		return ""
	}
	switch {
	case !q.isPeer(p, at):
		return "not from the peer's address"
	case !p.kind.request() && q.attr.State < verbs.StateRTS:
		return "queue pair does not send yet"
	}
	return ""
}

// samePartition reports whether two partition keys are equal except for the full-membership bit,
// which at least one must have.
func samePartition(a, b uint16) bool {
	return a&0x7fff == b&0x7fff && a&0x7fff != 0 && (a|b)&0x8000 != 0
}

const psnMask = 1<<24 - 1

// maskPSN reduces n to a packet sequence number.
func maskPSN(n uint32) uint32 { return n & psnMask }

// psnDiff returns the distance from b to a, negative if a is before b.
func psnDiff(a, b uint32) int32 { return int32((a-b)<<8) >> 8 }
