// Package btl defines the contract of a byte transfer layer (BTL). BTLs are the transports under
// the point-to-point layer. It is for those who extend the library, and may change with any
// version: programs use package comm.
//
// # The parts
//
// A [Module] is one port, one local address, one shared segment, or one rail of the in-process
// fabric. An [Endpoint] is its connection to one module of one peer. The layer above posts
// operations on endpoints, and implements [Events] to learn what arrives and what fails.
//
// A rail to a peer is the path from one module of this rank to one module of the peer; a module may
// have paths to several modules of one peer. In this package and the transports, "the rail" of a
// module means all its paths, and "the whole rail" the module with all its endpoints.
//
// # Life of an endpoint
//
//	Connect ──▶ Up ──first error, or Fail──▶ Failed ──▶ Drained
//	                                                      │
//	                     Connect again: a new incarnation, its epoch one higher
//
// # Who calls what, and when
//
// One goroutine at a time drives a rank's modules: the one that holds the lock of the rank's
// progress engine. Every method of Module and Endpoint, every method of Events and every Op.Done
// runs under that lock. A BTL with threads of its own hands over their results inside Progress.
// Below, a call of Progress is called a progress call.
//
//   - A BTL calls Events.Arrived, Events.Failed, Events.Drained and a Done with an error only from
//     inside Module.Progress, Module.Fail and Endpoint.Fail, never from inside Send, Put or Get.
//   - A Done with nil may also come from inside Send, Put or Get. Therefore callers count an
//     operation before they post it.
//   - From inside any of these calls the layer above may call Send, Put, Get, Rebind, Connect and
//     Fail, but never Progress or Close.
//
// # The contract
//
// The suite in btl/btltest checks that every BTL keeps these rules.
//
//	C1  Every operation that a BTL accepted completes exactly once, by its Done, with
//	    nil or an error.
//	C2  Success means delivered: the peer's BTL has it. A local write is not delivery.
//	C3  An error means delivery unknown, never "not delivered".
//	C4  At its first error an endpoint becomes Failed and refuses new posts. Then Failed is
//	    called once, for the endpoint, or for AllPeers if the whole rail fails. Then every
//	    outstanding and internally queued operation is called back: with nil if the BTL knows
//	    that it was delivered, else with an error. Then Drained is called. Until Drained,
//	    buffers of accepted operations belong to the BTL; after it, nothing of that
//	    incarnation can touch local memory.
//	    A Get or Put that is itself invalid (ClassUsage) may end alone with its error, where
//	    the transport can tell; the endpoint then stays Up.
//	    Between Failed and Drained, what the peer's BTL had taken before may still arrive.
//	C5  Every incarnation of an endpoint has an epoch, the same on both sides. Anything with an
//	    old epoch is dropped. An end that learns of a newer incarnation than its own fails.
//	C6  ErrResource means not taken, nothing sent: the caller keeps the operation and posts
//	    it again after a later progress call.
//	C7  Errors are *Error: rail, peer, class of cause, native status, and the side that the
//	    evidence points to.
//	C8  Nothing that arrives from a peer is trusted: lengths, handles (slot and generation,
//	    never pointers) and epochs are checked before use.
//	C9  Tests inject faults by wrapping a module (btl/faults). Every endpoint also has
//	    SendStale, for tests.
//	C10 The memory of an accepted Send or Put can be taken back (Endpoint.Rebind). If the
//	    BTL cannot release it at once, because a device was given its address, the operation
//	    is called back within the BTL's own deadline for operations that do not complete, and
//	    in any case before Drained.
//
// Fragments of one endpoint arrive in the order in which they were accepted, as long as the
// endpoint lives. Nothing is promised between endpoints. A peer may connect first: its fragments
// then arrive before this rank's Connect, or after Drained if they are of its next incarnation.
package btl

// Tag is the kind of a fragment, defined by the layer above. A BTL carries it and does not
// interpret it.
type Tag uint8

// AllPeers in place of a peer's rank means the whole rail.
const AllPeers = -1

// Path names the other end of an endpoint: one module of one rank. Module is the number that the
// layer above passes to Connect. A BTL identifies modules by their addresses.
type Path struct {
	Peer   int // rank, or AllPeers with module 0
	Module uint8
}

// WholeModule is the path that stands for all endpoints of a module. Never written.
var WholeModule = Path{Peer: AllPeers}

// MaxHeaderBytes bounds the header of an operation.
const MaxHeaderBytes = 64

// State of an endpoint. The legal transitions are Up → Failed → Drained.
type State uint8

const (
	// Up: operations are accepted.
	Up State = iota
	// Failed: no operation is accepted; outstanding ones are being called back.
	Failed
	// Drained: every operation was called back; the endpoint cannot be used any more.
	Drained
)

func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Failed:
		return "failed"
	case Drained:
		return "drained"
	}
	return "invalid"
}

// Caps are a module's capabilities beyond Send.
type Caps uint8

const (
	// CapPut: its endpoints are Putters, and the module is a Registrar.
	CapPut Caps = 1 << iota
	// CapGet: its endpoints are Getters, and the module is a Registrar.
	CapGet
	// CapInline: its endpoints are Inliners.
	CapInline
)

// Attrs describes a module. It does not change during a module's life.
type Attrs struct {
	// Name of the rail, unique within a rank: "sm", "loop0", "tcp:eth0". Further rails of an
	// interface have "#2", "#3", and so on after its name.
	Name string
	// LatencyNanos is the expected one-way latency of a small fragment.
	LatencyNanos int64
	// BandwidthMBps (10^6 bytes a second) is the weight for striping.
	BandwidthMBps int64
	// EagerBytes is the largest fragment, header and payload, that is best sent without asking the
	// receiver first.
	EagerBytes int
	// EagerCopyBytes, if greater, replaces EagerBytes where the receiver cannot read the message in
	// the sender's memory.
	EagerCopyBytes int
	// MaxSendBytes is the largest fragment, header and payload, that Send takes.
	MaxSendBytes int
	// PieceBytes is the longest fragment, header and payload, of a message that is sent in several
	// fragments. 0 means MaxSendBytes.
	PieceBytes int
	// InlineBytes is the largest fragment, header and payload, that SendInline takes.
	InlineBytes int
	// RDMABytes is the length from which a Put or Get moves a message faster than fragments do.
	RDMABytes int
	Caps      Caps
}

// Module is one port or address of one rank (see "The parts").
type Module interface {
	// Attrs describes the rail. The result is shared, and the caller must not change it.
	Attrs() *Attrs

	// Address is the address that this rail publishes for its peers. Only modules of the same kind
	// understand it. The caller must not change it.
	Address() []byte

	// Connect makes the endpoint to a module of a peer. address is what Address of that module
	// returns. Connect does not wait for the peer: operations may be posted at once. If the
	// endpoint to that module is Drained, Connect makes the next incarnation. While the endpoint is
	// Up or Failed, Connect returns it.
	//
	// The error wraps ErrUnreachable if this rail does not lead to that peer; otherwise it is an
	// *Error.
	Connect(to Path, address []byte) (Endpoint, error)

	// Progress polls once, hands up what arrived and completes what finished, and returns the
	// number of such events. It never blocks. The number of fragments handled in one call is
	// bounded.
	Progress() int

	// Fail brings the whole rail down as if the device had reported cause (C4, with AllPeers).
	// Within a few progress calls every endpoint is Drained, and Events.Drained was called with
	// AllPeers.
	Fail(cause error)

	// Close releases the rail. Outstanding operations complete with an error before it returns, and
	// Events is not called afterwards. A second Close does nothing and returns nil. The peers'
	// endpoints to this rank fail (C4), even if nothing was ever sent on them, because a receive
	// may wait there.
	Close() error
}

// Endpoint is a module's connection to one module of a peer, in one incarnation.
type Endpoint interface {
	// Path returns the path that was passed to Connect.
	Path() Path
	// Epoch returns the epoch of this incarnation: 1 for the first one, and a higher one for each
	// later incarnation.
	Epoch() uint32
	State() State

	// Send posts op as an active message: op.Tag and the bytes of op.Hdr and op.Payload arrive at
	// the peer as one fragment.
	//
	// nil: accepted (C1). ErrResource: not taken (C6). ErrFailed: not taken, the endpoint is not
	// Up. ErrTooLong: not taken, longer than MaxSendBytes.
	Send(op *Op) error

	// Rebind makes payload the payload of op, in place of the memory that op was posted with, and
	// reports whether the BTL is done with that memory (C10). op is a Send or a Put that this
	// endpoint has accepted, in this incarnation, and has not called back. payload is a copy of
	// op.Payload, of the same length.
	//
	// true: op.Payload is payload. The BTL reads the rest from there, even if half of the fragment
	// is already sent. It does not touch the old memory again, so the caller may overwrite or unmap
	// it.
	//
	// false: nothing has changed, because a device that knows the address of the old memory may
	// still read it. The caller waits for op's Done.
	Rebind(op *Op, payload []byte) bool

	// Fail brings this endpoint down as if the transport had reported cause (C4). It does nothing
	// if the endpoint is not Up.
	Fail(cause error)
}

// Inliner is an endpoint that can take a small fragment without an operation to call back: when
// SendInline returns true, the fragment is delivered (C2).
type Inliner interface {
	// SendInline sends hdr and payload, together at most Attrs.InlineBytes, and reports whether it
	// took them. It copies; both slices are the caller's again on return.
	SendInline(tag Tag, hdr, payload []byte) bool
}

// ShortSender is an Inliner that takes the header of a short message as two words, which is faster
// than as a slice.
type ShortSender interface {
	Inliner
	// SendShort is SendInline with a header of 16 bytes: two little-endian words. If it reports
	// false, SendInline may still take the fragment. It calls no event.
	SendShort(tag Tag, first, second uint64, payload []byte) bool
}

// ShortReceiver is an endpoint that hands a fragment to a caller that knows its header, without
// Events.Arrived.
type ShortReceiver interface {
	// ReceiveShort looks up to polls times for the next fragment that Module.Progress would hand up
	// from this peer. If that fragment has the tag, begins with the two little-endian words, and
	// its rest fits into buf, ReceiveShort copies the rest and returns its length: the fragment is
	// handed up. Otherwise it takes nothing and returns −1. It stops polling once it sees a
	// fragment that it does not take.
	ReceiveShort(polls int, tag Tag, first, second uint64, buf []byte) int
}

// RunReceiver is a ShortReceiver that hands over several fragments in a row.
type RunReceiver interface {
	ShortReceiver
	// ReceiveRun calls ReceiveShort up to most times, in effect. The upper half of second is one
	// higher each time. It calls to.Taken for each fragment, which returns the buffer for the next
	// one. ReceiveRun returns how many fragments it has handed up, or −1 if it cannot look now.
	ReceiveRun(polls, most int, tag Tag, first, second uint64, buf []byte, to Run) int
}

// Run takes the fragments of a ReceiveRun.
type Run interface {
	// Taken reports that a fragment of n bytes is in the buffer. It returns the buffer for the next
	// one, or false to end the run.
	Taken(n int) (next []byte, more bool)
}

// DeliveryCounter is an endpoint whose device acknowledges messages before this rank has seen them.
// The device may break in between. Then the delivery counters of both ends show whether anything
// was lost.
type DeliveryCounter interface {
	// DeliveryCounters returns the delivery counters of this incarnation: how many messages the
	// peer's device has acknowledged, and how many of the peer's messages this rank has taken. The
	// BTL decides which messages count. Both ends count the same ones. Both numbers are final once
	// the endpoint is Drained.
	DeliveryCounters() (delivered, taken uint32)
}

// Registrar is a module that can expose memory to its peers.
type Registrar interface {
	// Register makes mem reachable by this rail with the given access. mem must stay alive, and
	// must not move, until the region is released. An error that wraps ErrMemory says that this
	// rail cannot expose this memory, and never will; with AccessLocal alone any memory will do.
	Register(mem []byte, access Access) (Region, error)
}

// Allocator is a Registrar that can expose only memory that it allocated itself, such as memory
// that processes share.
type Allocator interface {
	// Alloc returns at least the given number of zeroed bytes, page-aligned and outside of Go's
	// heap. The caller frees them, and may do so after the module was closed.
	Alloc(bytes int) ([]byte, error)
	// Free takes back exactly what Alloc returned. It is called once, after the last region of the
	// memory was released.
	Free(mem []byte) error
}

// Sharer is a module that can give memory to peers of the same host, to read and to write. Every
// peer that has mapped the memory can write anything there at any time, so its content is not
// trusted (C8).
type Sharer interface {
	// Share allocates at least the given number of zeroed bytes, page-aligned, and outside of Go's
	// heap if processes share them. Until Hide, peers that know the key can map the memory with
	// MapShared. The error wraps ErrMemory if this rail cannot share memory.
	Share(bytes int) (mem []byte, key Key, err error)
	// MapShared maps the memory that a peer has shared under a key. This rail must have an endpoint
	// to that peer. MapShared fails if the memory is shorter than the given number of bytes.
	MapShared(peer int, key Key, bytes int) ([]byte, error)
	// Hide stops further peers from mapping memory that Share has made. Peers that have mapped it
	// keep it.
	Hide(mem []byte)
	// Unshare takes back exactly what Share or MapShared has returned. It is called once, possibly
	// after the module was closed. Other ranks keep their mappings.
	Unshare(mem []byte) error
	// WakePeer wakes a peer that may be waiting for a change of shared memory. The caller makes the
	// change first, with an atomic operation.
	WakePeer(peer int)
}

// Access is what a region permits.
type Access uint8

const (
	// AccessLocal: the memory is the source of this rank's Puts or the target of its Gets.
	AccessLocal Access = 1 << iota
	// AccessRemoteRead: peers may Get from it.
	AccessRemoteRead
	// AccessRemoteWrite: peers may Put into it.
	AccessRemoteWrite
)

// Key names a region to a peer. Only the BTL knows what its bytes mean. It holds handles (slot and
// generation), never pointers, so that a stale key is refused (C8).
type Key [32]byte

// Region is registered memory.
type Region interface {
	Key() Key
	// Release revokes the key: after it returns, no peer can reach the memory with this key.
	Release() error
}

// Putter is an endpoint with remote writes.
type Putter interface {
	// Put writes op.Payload into the peer's region op.Remote at op.RemoteOffset. The bytes are in
	// the peer's memory when Done is called with nil. It returns the same errors as Send.
	Put(op *Op) error
}

// Getter is an endpoint with remote reads.
type Getter interface {
	// Get reads len(op.Payload) bytes of the peer's region op.Remote, from op.RemoteOffset, into
	// op.Payload. It returns the same errors as Send.
	Get(op *Op) error
}

// Op is one operation. The caller owns it until it is accepted, and again once Done is called. In
// between, the BTL owns the operation and the memory that it names. An Op is reused, not copied.
type Op struct {
	// Done is called exactly once for an accepted operation (C1). The caller sets it. When Done is
	// called, the caller owns the operation again, and its buffers too. After an error, the caller
	// owns the buffers only from Drained on (C4).
	Done func(op *Op, err error)
	// Owner is the caller's. A BTL does not touch it.
	Owner any

	Tag Tag
	// HdrLen is how many bytes of Hdr are sent.
	HdrLen uint8
	Hdr    [MaxHeaderBytes]byte
	// Payload follows the header (Send), is the source (Put) or the target (Get).
	Payload []byte

	// Local is the registration of Payload, for Put and Get.
	Local Region
	// Remote and RemoteOffset are the place in the peer's memory, for Put and Get.
	Remote       Key
	RemoteOffset uint64

	// Next links the operation into a queue of its current owner.
	Next *Op
}

// Header is the part of Hdr that is sent.
func (op *Op) Header() []byte { return op.Hdr[:op.HdrLen] }

// Len is the length of the fragment in bytes, header and payload.
func (op *Op) Len() int { return int(op.HdrLen) + len(op.Payload) }

// Events is how a BTL reports to the layer above. The package comment says when.
type Events interface {
	// Arrived hands up one fragment, header and payload in one piece. frag is valid, and may be
	// read, only inside the call. It may lie in memory that the peer can still write. Therefore the
	// callee checks and uses a copy, not the memory itself (C8).
	Arrived(m Module, peer int, tag Tag, frag []byte)

	// Failed reports that the endpoint of a path, or with AllPeers the whole rail, takes no more
	// operations. Accepted operations are called back later. A BTL may also name a rank to which
	// the layer above has no endpoint, with module 0: nothing will arrive from that rank.
	Failed(m Module, to Path, err *Error)

	// Drained reports that all operations of the endpoint or rail that Failed named were called
	// back.
	Drained(m Module, to Path)
}
