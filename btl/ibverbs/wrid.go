package ibverbs

// A work request's ID carries all that its completion is told by: of one that failed nothing else is valid but
// status and queue pair number, not even what it was.
//
//	type: 8 bits   incarnation: 16   slot: 40, of which endpoint: 20, entry: 20
type wrID uint64

type wrType uint8

const (
	wrSend   wrType = 1 + iota // entry: of the endpoint's send ring
	wrRecv                     // entry: receive buffer
	wrMarker                   // the send queue is drained
	wrAsk                      // of the datagram queue pair; entry: buffer
	wrHear                     // likewise
)

func makeID(t wrType, made uint32, endpoint, entry uint32) wrID {
	return wrID(t)<<56 | wrID(made&0xffff)<<40 | wrID(endpoint&(1<<20-1))<<20 | wrID(entry&(1<<20-1))
}

func (id wrID) kind() wrType     { return wrType(id >> 56) }
func (id wrID) made() uint16     { return uint16(id >> 40) }
func (id wrID) endpoint() uint32 { return uint32(id>>20) & (1<<20 - 1) }
func (id wrID) entry() uint32    { return uint32(id) & (1<<20 - 1) }
