package verbs

import (
	"net/netip"
	"strconv"
)

// GID is the address of a port: for RoCE an IPv6 address, or an IPv4 one mapped into IPv6.
type GID [16]byte

// IsZero reports whether the entry of the table is empty.
func (g GID) IsZero() bool { return g == GID{} }

// String is the address as IP writes it.
func (g GID) String() string { return g.Addr().String() }

// Addr is the address as IP has it; an IPv4 one stays mapped into IPv6.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g) }

// GIDType says which protocol a GID is for.
type GIDType uint8

const (
	GIDTypeIB GIDType = iota
	GIDTypeRoCEv1
	GIDTypeRoCEv2
)

var gidTypeNames = [...]string{"IB", "RoCE v1", "RoCE v2"}

func (t GIDType) String() string {
	if int(t) < len(gidTypeNames) {
		return gidTypeNames[t]
	}
	return "GID type " + strconv.Itoa(int(t))
}

// GIDEntry is a used entry of a port's table of GIDs.
type GIDEntry struct {
	Index int
	GID   GID
	Type  GIDType
}

// MTU is a path's packet size: ibv_mtu.
type MTU uint32

const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes of a packet's payload; 0 for a number that is no MTU.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// PortState: ibv_port_state.
type PortState uint32

const (
	PortNop         PortState = 0
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

var portStateNames = [...]string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}

func (s PortState) String() string {
	if int(s) < len(portStateNames) {
		return portStateNames[s]
	}
	return "port state " + strconv.Itoa(int(s))
}

// Up reports whether the port carries traffic.
func (s PortState) Up() bool { return s == PortActive || s == PortActiveDefer }

// LinkLayer below a port.
type LinkLayer uint8

const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2
)

// DeviceAttr is what a device can do: the part of ibv_device_attr that is used.
type DeviceAttr struct {
	Ports           int
	MaxQP           int
	MaxQPWR         int // send requests and receive requests of a queue pair, each
	MaxSGE          int
	MaxCQ           int
	MaxCQE          int
	MaxMR           int
	MaxPD           int
	MaxSRQ          int
	MaxSRQWR        int
	MaxQPRdAtom     int // as responder
	MaxQPInitRdAtom int // as requester
	Atomics         bool
}

// PortAttr is a port as it is now.
type PortAttr struct {
	State     PortState
	MaxMTU    MTU
	ActiveMTU MTU
	GIDs      int // length of the table
	PKeys     int // likewise
	MaxMsg    uint32
	LID       uint16
	SMLID     uint16
	Link      LinkLayer
	// GRHRequired: whatever leaves the port, or comes to it, needs a global route header, also over
	// InfiniBand (IBV_QPF_GRH_REQUIRED). Virtual ports that share a LID are told apart by their
	// GIDs.
	GRHRequired bool
	// Mbps is its speed: width times lanes; 0 if it does not say.
	Mbps int
}

// AHAttr is a way to a port: ibv_ah_attr.
type AHAttr struct {
	Port         int // the own one
	DLID         uint16
	SL           uint8
	IsGlobal     bool // DGID and what follows are meant; always so with RoCE
	DGID         GID
	SGIDIndex    int
	HopLimit     uint8
	TrafficClass uint8
}

// QPCap is the size of a queue pair.
type QPCap struct {
	MaxSendWR     int
	MaxRecvWR     int // 0 with an SRQ
	MaxSendSGE    int
	MaxRecvSGE    int
	MaxInlineData int
}

// QPInit is what a queue pair is made from.
type QPInit struct {
	Service        Services // one
	SendCQ, RecvCQ CQ
	SRQ            SRQ // or nil
	Cap            QPCap
	SignalAll      bool // as if every request had SendSignaled
}

// QPAttr is what Modify changes and Query tells: ibv_qp_attr. Modify looks only at the members that its mask names.
// There is no migration to alternate paths: of AttrAltPath it has the address alone, of AttrPathMigState nothing.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	QKey             uint32
	RQPSN, SQPSN     uint32 // 24 bits
	DestQPN          uint32 // 24 bits
	Access           Access // of peers
	AH, AltAH        AHAttr
	PKeyIndex        uint16
	EnSQDAsyncNotify bool
	// SQDraining, of Query: the queue pair is in SQD and its send queue is not drained yet. Until
	// then Modify refuses every state but RESET and ERR; some devices refuse RESET too.
	SQDraining      bool
	MaxRdAtomic     uint8 // as requester
	MaxDestRdAtomic uint8 // as responder
	MinRNRTimer     uint8 // 5 bits: what an RNR NAK asks to wait, RNRTimer
	Port            int
	Timeout         uint8 // 5 bits: 4.096 µs · 2^Timeout for an answer; 0: for ever
	RetryCnt        uint8 // 3 bits
	RNRRetry        uint8 // 3 bits; 7: for ever
	Cap             QPCap // of Query
}

// SRQInit is what a shared receive queue is made from.
type SRQInit struct {
	MaxWR  int
	MaxSGE int
	Limit  int // below so many entries SRQ_LIMIT_REACHED is told, once; 0: not
}
