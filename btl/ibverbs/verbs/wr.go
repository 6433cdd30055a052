package verbs

// MaxSGE is how many pieces of memory a work request can name here. Devices may take fewer (QPCap).
const MaxSGE = 4

// SGE is a piece of local memory: ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// Opcode of a send request: ibv_wr_opcode.
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

// SendFlags of a send request: ibv_send_flags.
type SendFlags uint32

const (
	SendFence     SendFlags = 1 << 0 // wait for reads and atomics before it
	SendSignaled  SendFlags = 1 << 1 // complete also if it succeeds
	SendSolicited SendFlags = 1 << 2 // an event at a receiver that waits for solicited ones
	SendInline    SendFlags = 1 << 3 // take the bytes at the post; no key is needed
)

// SendWR is a request for a send queue.
type SendWR struct {
	ID     uint64 // given back in the completion
	Opcode Opcode
	Flags  SendFlags
	NumSGE uint32 // of SGE that are used
	Imm    uint32 // of operations with immediate data, in host order here and in the receiver's WC

	RemoteAddr uint64 // reads, writes, atomics
	RKey       uint32 // likewise
	RemoteQPN  uint32 // UD
	RemoteQKey uint32 // UD
	_          uint32
	AH         uint64 // UD: AH.Handle

	CompareAdd uint64 // what is compared, or added
	Swap       uint64

	SGE [MaxSGE]SGE
}

// RecvWR is a request for a receive queue.
type RecvWR struct {
	ID     uint64 // given back in the completion
	NumSGE uint32
	_      uint32
	SGE    [MaxSGE]SGE
}

// WCOpcode says what completed: ibv_wc_opcode.
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

// WCFlags of a completion: ibv_wc_flags.
type WCFlags uint32

const (
	WCGRH     WCFlags = 1 << 0 // UD: the first GRHBytes of the receive buffer are a routing header
	WCWithImm WCFlags = 1 << 1 // Imm is valid
)

// GRHBytes is how much of the front of a UD receive buffer the message does not use, whether there is a routing header or not.
const GRHBytes = 40

// WC is a work completion: ibv_wc, and laid out like it. If Status is not StatusSuccess, then only ID, Status, QPNum and
// VendorErr are valid.
type WC struct {
	ID           uint64
	Status       Status
	Opcode       WCOpcode
	VendorErr    uint32
	ByteLen      uint32 // received, read, or fetched; of UD with GRHBytes
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

// Access to memory: ibv_access_flags.
type Access uint32

const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1 // needs AccessLocalWrite
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3 // needs AccessLocalWrite
)
