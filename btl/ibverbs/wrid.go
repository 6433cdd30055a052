package ibverbs

// wrID is a work request's ID. It identifies the request of a completion by itself, because in an
// error completion only the status and the queue pair number are valid too, not the opcode.
//
//	type: 8 bits   incarnation: 16   slot: 40, of which endpoint: 20, entry: 20
type wrID uint64

type wrType uint8

const (
	wrSend   wrType = 1 + iota // entry: of the endpoint's send ring
	wrRecv                     // entry: receive buffer
	wrMarker                   // the last request of a queue pair in Error
	wrUDSend                   // of the datagram queue pair; entry: buffer
	wrUDRecv                   // of the datagram queue pair; entry: buffer
	// wrSharedRecv: of the shared receive queue. Its incarnation field counts how often the receive
	// was posted, and its endpoint field is the queue's number.
	wrSharedRecv
)

const endpointMask = 1<<20 - 1

// isRecv: the request is a receive of a connection.
func (t wrType) isRecv() bool { return t == wrRecv || t == wrSharedRecv }

func makeID(t wrType, made uint32, endpoint, entry uint32) wrID {
	return wrID(t)<<56 | wrID(made&0xffff)<<40 | wrID(endpoint&endpointMask)<<20 | wrID(entry&(1<<20-1))
}

func (id wrID) kind() wrType     { return wrType(id >> 56) }
func (id wrID) made() uint16     { return uint16(id >> 40) }
func (id wrID) endpoint() uint32 { return uint32(id>>20) & endpointMask }
func (id wrID) entry() uint32    { return uint32(id) & (1<<20 - 1) }
