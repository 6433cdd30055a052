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
	// pkContinue is no packet: the queue pair that it is from goes on sending.
	pkContinue
)

var packetNames = [...]string{"send", "write", "read", "atomic", "read response", "atomic response", "ack", "nak", "continue"}

func (k packetKind) String() string { return packetNames[k] }

func (k packetKind) request() bool { return k <= pkAtomicRequest }

// nakCode is why a responder did not do a request.
type nakCode uint8

const (
	nakSequence nakCode = iota
	nakRNR
	nakInvalidRequest
	nakAccess
	nakOperation
)

// nakStatus is what the requester makes of it.
var nakStatus = [...]verbs.Status{
	nakInvalidRequest: verbs.StatusRemInvReqErr,
	nakAccess:         verbs.StatusRemAccessErr,
	nakOperation:      verbs.StatusRemOpErr,
}

// packet is a packet with the headers that count.
type packet struct {
	event
	kind      packetKind
	service   verbs.Services
	first     bool // of its message
	last      bool
	hasImm    bool
	sol       bool // solicited event
	ackWanted bool
	global    bool
	code      nakCode
	timer     uint8 // of an RNR NAK
	sl        uint8
	tclass    uint8
	hops      uint8
	pkey      uint16
	slid      uint16
	dlid      uint16
	psn       uint32
	qpn       uint32 // of the destination
	srcQPN    uint32 // UD
	qkey      uint32 // UD
	rkey      uint32
	length    uint32 // of the whole message, in its first packet
	imm       uint32
	opcode    verbs.Opcode // of atomics
	va        uint64
	compare   uint64 // or what is to be added; of the response what was there
	swap      uint64
	from      *port
	sgid      verbs.GID
	dgid      verbs.GID
	data      []byte

	source *queuePair // pkContinue
	// credit is whose count of reads under way goes down once this, the last packet of an answer, has left the wire.
	credit    *queuePair
	creditGen uint32

	next  *packet // in the pool
	again bool    // FaultStale: delivered once already
}

// newPacket takes one from the pool, with n bytes of data that the caller fills.
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

// drop gives a packet back, delivered or lost.
func (f *Fabric) drop(p *packet) {
	if q := p.credit; q != nil && q.gen == p.creditGen {
		q.resp.reads--
	}
	p.credit, p.source, p.from = nil, nil, nil
	p.next = f.pool
	f.pool = p
}

// copyOf is a packet that is kept, outside the pool.
func (p *packet) copyOf() *packet {
	c := *p
	c.event = event{kind: evPacket}
	c.event.pkt = &c
	c.credit, c.next = nil, nil
	c.data = append([]byte(nil), p.data...)
	return &c
}

// address fills in where a packet of q goes to, and reports whether there is a way out at all.
func (q *queuePair) address(p *packet, to *verbs.AHAttr) bool {
	from := q.port()
	p.service, p.from, p.global = q.service, from, to.IsGlobal || from.link() == verbs.LinkEthernet
	p.pkey = from.pkey(int(q.attr.PKeyIndex))
	p.slid, p.dlid, p.sl = from.lid, to.DLID, to.SL
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
	if !q.address(p, &q.attr.AH) {
		q.f.lose(p, "no way out")
		return
	}
	q.f.wire(p, q)
}

// wire carries a packet; those of one queue pair stay in order.
func (f *Fabric) wire(p *packet, q *queuePair) {
	if f.closed {
		f.drop(p)
		return
	}
	if f.cfg.Loss > 0 && p.kind != pkContinue && f.rng.Float64() < f.cfg.Loss {
		f.lose(p, "at random")
		return
	}
	delay := f.cfg.Latency
	if f.cfg.Jitter > 0 {
		delay += time.Duration(f.rng.Int64N(int64(f.cfg.Jitter) + 1))
	}
	if delay == 0 && f.cfg.Jitter == 0 {
		f.ready = append(f.ready, p)
		return
	}
	at := max(f.now()+delay, q.lastArrival)
	q.lastArrival = at
	f.agenda.plan(&p.event, at)
}

// continueLater has q go on after what it has sent so far has arrived: memory does not hold a whole long message.
func (q *queuePair) continueLater() {
	p := q.f.newPacket(pkContinue, 0)
	p.source, p.creditGen = q, q.gen
	q.f.wire(p, q)
}

func (f *Fabric) lose(p *packet, why string) {
	if f.cfg.Trace != nil {
		f.tracef("lost %v to %06x psn %06x: %s", p.kind, p.qpn, p.psn, why)
	}
	f.drop(p)
}

// arrive is the end of a packet's way.
func (f *Fabric) arrive(p *packet) {
	if p.kind == pkContinue {
		q, gen := p.source, p.creditGen
		f.drop(p)
		if q.gen == gen && !q.destroyed {
			q.goOn()
		}
		return
	}
	to := f.route(p)
	switch {
	case to == nil:
		f.lose(p, "nobody has that address")
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
	if _, cut := f.cut[lane{p.from, to}]; cut {
		f.lose(p, "partition")
		return
	}
	q := to.hca.lookupQP(p.qpn)
	if q == nil {
		f.lose(p, "no such queue pair")
		return
	}
	if why := q.unfit(p, to); why != "" {
		f.lose(p, why)
		return
	}
	if f.cfg.Trace != nil {
		f.tracef("%s/%06x gets %v psn %06x bytes %d", to.hca.name, p.qpn, p.kind, p.psn, len(p.data))
	}
	switch {
	case q.service == verbs.ServiceUD:
		q.datagram(p)
	case p.kind.request():
		q.request(p)
	default:
		q.answer(p)
	}
	f.drop(p)
}

func (f *Fabric) route(p *packet) *port {
	if p.global {
		return f.byGID[p.dgid]
	}
	return f.byLID[p.dlid]
}

// unfit says why a packet is not for the queue pair, which then hears nothing of it (InfiniBand error model, 4.3), or "".
func (q *queuePair) unfit(p *packet, at *port) string {
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
	case p.global && p.sgid != q.attr.AH.DGID, !p.global && p.slid != q.attr.AH.DLID:
		return "not from the peer's address"
	case !p.kind.request() && q.attr.State < verbs.StateRTS:
		return "queue pair does not send yet"
	}
	return ""
}

// samePartition: equal but for the bit of full membership, which at least one has.
func samePartition(a, b uint16) bool {
	return a&0x7fff == b&0x7fff && a&0x7fff != 0 && (a|b)&0x8000 != 0
}

const psnMask = 1<<24 - 1

// psnDiff is how far a is ahead of b, negative if it is behind.
func psnDiff(a, b uint32) int32 { return int32((a-b)<<8) >> 8 }
