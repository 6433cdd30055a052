package verbs

// MaxSGE is the largest number of scatter/gather elements in a work request. A device may accept
// fewer (QPCap).
const MaxSGE = 4

// SGE is a scatter/gather element, a piece of local memory: ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// Opcode is the operation of a send request: ibv_wr_opcode.
type Opcode uint32

const (
	WRRDMAWrite         Opcode = 0
	WRRDMAWriteWithImm  Opcode = 1
	WRSend              Opcode = 2
	WRSendWithImm       Opcode = 3
	WRRDMARead          Opcode = 4
	WRAtomicCmpAndSwp   Opcode = 5
	WRAtomicFetchAndAdd Opcode = 6
)

// SendFlags are the flags of a send request: ibv_send_flags.
type SendFlags uint32

const (
	SendFence     SendFlags = 1 << 0 // start after all earlier reads and atomics are complete
	SendSignaled  SendFlags = 1 << 1 // generate a completion on success too
	SendSolicited SendFlags = 1 << 2 // raise an event at a receiver armed for solicited completions
	SendInline    SendFlags = 1 << 3 // copy the data when posting; L_Keys are not checked
)

// SendWR is a work request for a send queue.
type SendWR struct {
	ID     uint64 // returned in the completion
	Opcode Opcode
	Flags  SendFlags
	NumSGE uint32 // number of valid elements of SGE
	Imm    uint32 // immediate data, in host byte order here and in the receiver's WC

	RemoteAddr uint64 // reads, writes, atomics
	RKey       uint32 // reads, writes, atomics
	RemoteQPN  uint32 // UD
	RemoteQKey uint32 // UD
	_          uint32
	AH         uint64 // UD: the result of AH.Handle

	CompareAdd uint64 // compare operand of CMP_AND_SWP, addend of FETCH_AND_ADD
	Swap       uint64

	SGE [MaxSGE]SGE
}

// RecvWR is a work request for a receive queue.
type RecvWR struct {
	ID     uint64 // returned in the completion
	NumSGE uint32
	_      uint32
	SGE    [MaxSGE]SGE
}

// WCOpcode is the completed operation: ibv_wc_opcode.
type WCOpcode uint32

const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCRecv            WCOpcode = 1 << 7
	WCRecvRDMAWithImm WCOpcode = 1<<7 + 1
)

// WCFlags are the flags of a completion: ibv_wc_flags.
type WCFlags uint32

const (
	// UD: the receive buffer begins with a global route header of GRHBytes.
	WCGRH     WCFlags = 1 << 0
	WCWithImm WCFlags = 1 << 1 // Imm is valid
)

// GRHBytes is the size of a global route header. A UD receive buffer reserves it in front of the
// message even if the datagram has no such header.
const GRHBytes = 40

// WC is a work completion, with the layout of ibv_wc. If Status is not StatusSuccess, only ID,
// Status, QPNum and VendorErr are valid.
type WC struct {
	ID           uint64
	Status       Status
	Opcode       WCOpcode
	VendorErr    uint32
	ByteLen      uint32 // bytes received, read or fetched; for UD including GRHBytes
	Imm          uint32
	QPNum        uint32
	SrcQP        uint32 // UD
	Flags        WCFlags
	PKeyIndex    uint16
	SLID         uint16
	SL           uint8
	DLIDPathBits uint8
	_            uint16
}

// Access is a set of access rights to memory: ibv_access_flags.
type Access uint32

const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1 // requires AccessLocalWrite
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3 // requires AccessLocalWrite
)
