package verbs

import (
	"fmt"
	"net/netip"
)

// GID is the address of a port. For RoCE it is an IPv6 address or an IPv4-mapped IPv6 address.
type GID [16]byte

// IsZero reports whether the GID marks an empty table entry.
func (g GID) IsZero() bool { return g == GID{} }

// String returns the GID in the notation of IPv6.
func (g GID) String() string { return g.Addr().String() }

// Addr returns the GID as an IPv6 address. An IPv4-mapped address stays mapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g) }

// GIDType is the protocol that a GID belongs to.
type GIDType uint8

const (
	GIDTypeIB GIDType = iota
	GIDTypeRoCEv1
	GIDTypeRoCEv2
)

var gidTypeNames = [...]string{"IB", "RoCE v1", "RoCE v2"}

func (t GIDType) String() string { return enumName("GID type", gidTypeNames[:], t) }

// GIDEntry is a nonempty entry of a port's GID table.
type GIDEntry struct {
	Index int
	GID   GID
	Type  GIDType
}

func (e GIDEntry) String() string { return fmt.Sprintf("%d (%v, %v)", e.Index, e.GID, e.Type) }

// MTU is the largest payload of a packet: ibv_mtu.
type MTU uint32

const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes returns the MTU in bytes, or 0 for an invalid MTU.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// PortState is the state of a port: ibv_port_state.
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

func (s PortState) String() string { return enumName("port state", portStateNames[:], s) }

// Up reports whether the port carries traffic.
func (s PortState) Up() bool { return s == PortActive || s == PortActiveDefer }

// LinkLayer is the link layer of a port.
type LinkLayer uint8

const (
	LinkUnspecified LinkLayer = 0
	LinkInfiniBand  LinkLayer = 1
	LinkEthernet    LinkLayer = 2
)

// DeviceAttr holds the capabilities of a device, a subset of ibv_device_attr.
type DeviceAttr struct {
	Ports           int
	MaxQP           int
	MaxQPWR         int // work requests in each queue of a queue pair
	MaxSGE          int
	MaxCQ           int
	MaxCQE          int
	MaxMR           int
	MaxPD           int
	MaxSRQ          int
	MaxSRQWR        int
	MaxQPRdAtom     int    // outstanding reads and atomics as responder
	MaxQPInitRdAtom int    // outstanding reads and atomics as requester
	MaxMRBytes      uint64 // longest memory region
	Atomics         bool
	VendorID        uint32
	// CurState: Modify takes AttrCurState (IBV_DEVICE_CURR_QP_STATE_MOD). Some devices take it
	// without this capability.
	CurState bool
	// PortEvents: the device raises PORT_ERR and PORT_ACTIVE (IBV_DEVICE_PORT_ACTIVE_EVENT).
	PortEvents bool
}

// VendorSoftRoCE is the vendor ID of Linux's soft-RoCE (rdma_rxe).
const VendorSoftRoCE = 0xffffff

// PortAttr holds the current attributes of a port, a subset of ibv_port_attr.
type PortAttr struct {
	State     PortState
	MaxMTU    MTU
	ActiveMTU MTU
	GIDs      int // length of the GID table
	PKeys     int // length of the partition key table
	MaxMsg    uint32
	LID       uint16
	LMC       uint8 // the port has 2^LMC LIDs, which differ in the lowest LMC bits
	SMLID     uint16
	Link      LinkLayer
	// GRHRequired: all packets to and from the port need a global route header, over InfiniBand too
	// (IBV_QPF_GRH_REQUIRED). GIDs distinguish virtual ports that share a LID.
	GRHRequired bool
	// Mbps is the speed of the port: width times lanes, in Mbit/s. 0: unknown.
	Mbps int
}

// AHAttr is the address vector of a remote port: ibv_ah_attr.
type AHAttr struct {
	Port         int // the local port
	DLID         uint16
	SL           uint8
	SrcPathBits  uint8 // lowest bits of the source LID, as many as the port's LMC
	IsGlobal     bool  // DGID and the members after it are valid; always true for RoCE
	DGID         GID
	SGIDIndex    int
	HopLimit     uint8
	TrafficClass uint8
}

// QPCap holds the capacities of a queue pair.
type QPCap struct {
	MaxSendWR     int
	MaxRecvWR     int // 0 with an SRQ
	MaxSendSGE    int
	MaxRecvSGE    int
	MaxInlineData int
}

// QPInit holds the parameters of a new queue pair.
type QPInit struct {
	Service        Services // a single service
	SendCQ, RecvCQ CQ
	SRQ            SRQ // nil: the queue pair has its own receive queue
	Cap            QPCap
	SignalAll      bool // treat every send request as SendSignaled
}

// QPAttr holds the attributes that Modify sets and Query returns: ibv_qp_attr. Modify reads only
// the members that its mask selects. Path migration is not supported: AttrAltPath selects only the
// address AltAH, AttrPathMigState selects no member.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	QKey             uint32
	RQPSN, SQPSN     uint32 // 24 bits
	DestQPN          uint32 // 24 bits
	Access           Access // access rights of the peer
	AH, AltAH        AHAttr
	PKeyIndex        uint16
	EnSQDAsyncNotify bool
	// SQDraining is set by Query: the queue pair is in SQD and its send queue is not yet drained.
	// Until then Modify refuses every state except RESET and ERR; some devices refuse RESET too.
	SQDraining      bool
	MaxRdAtomic     uint8 // outstanding reads and atomics as requester
	MaxDestRdAtomic uint8 // outstanding reads and atomics as responder
	MinRNRTimer     uint8 // 5 bits: delay that an RNR NAK requests (RNRTimer)
	Port            int
	Timeout         uint8 // 5 bits: acknowledgment timeout (AckTimeout); 0: none
	RetryCnt        uint8 // 3 bits
	RNRRetry        uint8 // 3 bits; 7: retry forever
	Cap             QPCap // set by Query
}

// SRQAttr holds the attributes of a shared receive queue: ibv_srq_attr.
type SRQAttr struct {
	MaxWR, MaxSGE, Limit int
}

// SRQInit holds the parameters of a new shared receive queue.
type SRQInit struct {
	MaxWR  int
	MaxSGE int
	Limit  int // with fewer entries, SRQ_LIMIT_REACHED is raised once; 0: never
}
