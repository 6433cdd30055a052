// Package btl is the contract that every byte transfer layer (BTL) fulfils. BTLs are the transports
// under the point-to-point layer.
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
// runs under that lock. A BTL with threads of its own hands their news over inside Progress, which
// the following calls a progress call.
//
//   - A BTL calls Events.Arrived, Events.Failed, Events.Drained and a Done with an error only from
//     inside Module.Progress, Module.Fail and Endpoint.Fail, never from inside Send, Put or Get.
//   - A Done with nil may come from inside Send, Put or Get as well: callers count an operation
//     before they post it.
//   - From inside any of these calls the layer above may call Send, Put, Get, Rebind, Connect and
//     Fail, but never Progress or Close.
//
// # The contract
//
// The suite in btl/btltest tests every BTL for these rules.
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
//	    A Get or Put that is wrong in itself (ClassUsage) may end alone with its error, where
//	    the transport can tell; the endpoint then stays Up.
//	    Between Failed and Drained, what the peer's BTL had taken before may still arrive.
//	C5  Every incarnation of an endpoint has an epoch, the same on both sides. What bears an
//	    old epoch is dropped. An end that learns of a newer incarnation than its own fails.
//	C6  ErrResource means not taken, nothing sent: the caller keeps the operation and posts
//	    it again after a later progress call.
//	C7  Errors are *Error: rail, peer, class of cause, native status, and the side that the
//	    evidence points to.
//	C8  Nothing that arrives from a peer is trusted: lengths, handles (slot and generation,
//	    never pointers) and epochs are checked before use.
//	C9  Tests inject faults by wrapping a module (btl/faults). Every endpoint also has
//	    SendStale, for tests.
//	C10 The memory of an accepted Send or Put can be taken back (Endpoint.Rebind). Where the
//	    BTL cannot release it at once, because a device was given its address, the operation
//	    is called back within the BTL's own deadline for operations that do not complete, and
//	    in any case before Drained.
//
// Fragments of one endpoint arrive in the order in which they were accepted, as long as the
// endpoint lives. Nothing is promised between endpoints. A peer may connect first: its fragments
// then arrive before this rank's Connect, or after Drained if they are of its next incarnation.
package btl

// Tag is the layer above's kind of a fragment. A BTL carries it and does not look at it.
type Tag uint8

// AllPeers in place of a peer's rank means the whole rail.
const AllPeers = -1

// Path names the other end of an endpoint: one module of one rank. Module is the number that the
// layer above has for it in Connect; a BTL knows modules by their addresses.
type Path struct {
	Peer   int // rank, or AllPeers with module 0
	Module uint8
}

// WholeRail is the path that stands for all endpoints of a module. Never written.
var WholeRail = Path{Peer: AllPeers}

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
	// PieceBytes is the longest fragment, header and payload, of a message that goes in several. 0:
	// MaxSendBytes.
	PieceBytes int
	// InlineBytes is the largest fragment, header and payload, that SendInline takes.
	InlineBytes int
	// RDMABytes is the shortest message that a Put or Get moves better than fragments do.
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

	// Connect makes the endpoint to a module of a peer from that module's address (its Address). It
	// does not wait for the peer: operations may be posted at once. For a module whose endpoint is
	// Drained it makes the next incarnation; while an endpoint is Up or Failed it returns that one.
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
	// endpoints to this rank fail (C4), also those on which nothing was ever sent: a receive may
	// wait there.
	Close() error
}

// Endpoint is a module's connection to one module of a peer, in one incarnation.
type Endpoint interface {
	// Path is the one that Connect was called with.
	Path() Path
	// Epoch of this incarnation: 1 for the first, and higher for each one after it.
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
	// true: op.Payload is payload. What the BTL still reads, it reads there, also for the rest of a
	// fragment that is half sent. It does not touch the old memory again: that may be overwritten
	// or unmapped.
	//
	// false: nothing has changed, because a device that was given the address of the old memory may
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

// ShortSender is an Inliner whose path for the header of a short message is shorter than by slices.
type ShortSender interface {
	Inliner
	// SendShort is SendInline of a header of 16 bytes, which are two little-endian words. If it
	// reports false, SendInline may still take the fragment. It calls no event.
	SendShort(tag Tag, first, second uint64, payload []byte) bool
}

// ShortReceiver is an endpoint that hands a fragment to a caller that knows its header, without
// Events.Arrived.
type ShortReceiver interface {
	// ReceiveShort looks up to polls times for the next fragment that Module.Progress would hand up
	// from this peer. If that has the tag, begins with the two little-endian words, and its rest
	// fits into buf, ReceiveShort copies the rest and returns its length: the fragment is handed
	// up. In any other case it takes nothing and returns −1. It does not wait for the polls that
	// are left when a fragment is there that it does not take.
	ReceiveShort(polls int, tag Tag, first, second uint64, buf []byte) int
}

// RunReceiver is a ShortReceiver that hands over several fragments in a row.
type RunReceiver interface {
	ShortReceiver
	// ReceiveRun calls ReceiveShort up to most times, in effect. The upper half of second is one
	// higher each time. to.Taken is told of each fragment, and returns the buffer of the next one.
	// ReceiveRun returns how many fragments it has handed up, or −1 if it cannot look now.
	ReceiveRun(polls, most int, tag Tag, first, second uint64, buf []byte, to Run) int
}

// Run takes the fragments of a ReceiveRun.
type Run interface {
	// Taken says that a fragment of n bytes is in the buffer. It returns the buffer of the next
	// one, or false to end the run.
	Taken(n int) (next []byte, more bool)
}

// DeliveryCounter is an endpoint whose device acknowledges messages that this rank has not looked
// at yet, and may break in between. The delivery counters of both ends then tell whether anything
// was lost.
type DeliveryCounter interface {
	// DeliveryCounters returns the delivery counters of this incarnation: how many messages the
	// peer's device has acknowledged, and how many of the peer's messages were taken here. The BTL
	// decides which messages count; both ends count alike. Both numbers are final once the endpoint
	// is Drained.
	DeliveryCounters() (delivered, taken uint32)
}

// Registrar is a module that can expose memory to its peers.
type Registrar interface {
	// Register makes mem reachable by this rail with the given access. mem must stay alive, and
	// where it is, until the region is released. An error that wraps ErrMemory says that this rail
	// cannot expose this memory, and never will; with AccessLocal alone any memory will do.
	Register(mem []byte, access Access) (Region, error)
}

// Allocator is a Registrar that can expose only memory which it has made itself, such as memory
// that processes share.
type Allocator interface {
	// Alloc returns at least so many zeroed bytes, page-aligned and outside of Go's heap. The
	// caller frees them, also after the module was closed.
	Alloc(bytes int) ([]byte, error)
	// Free takes back exactly what Alloc returned, once, after the last region of it was released.
	Free(mem []byte) error
}

// Sharer is a module that can give memory to peers of the same host, to read and to write. Every
// peer that has mapped it can write anything there at any time: what is read from it is not trusted
// (C8).
type Sharer interface {
	// Share makes at least so many zeroed bytes, page-aligned and outside of Go's heap where
	// processes share it. Peers that know the key map the memory by MapShared until Hide. The error
	// wraps ErrMemory if this rail can share none.
	Share(bytes int) (mem []byte, key Key, err error)
	// MapShared maps what a peer, to which this rail has an endpoint, has shared under a key. It
	// fails if that has less than so many bytes.
	MapShared(peer int, key Key, bytes int) ([]byte, error)
	// Hide lets no further peer map what Share has made. Peers that have mapped it keep it.
	Hide(mem []byte)
	// Unshare takes back exactly what Share or MapShared has returned, once, also after the module
	// was closed. The memory of other ranks stays.
	Unshare(mem []byte) error
	// WakePeer ends the sleep of a peer that may wait for a change of shared memory. The change is
	// made before, by an atomic operation.
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

// Key names a region to a peer. Only the BTL knows its meaning. It holds handles of slot and
// generation, never pointers, so that a stale key is refused (C8).
type Key [32]byte

// Region is registered memory.
type Region interface {
	Key() Key
	// Release revokes the key: after it returns, no peer can reach the memory by it.
	Release() error
}

// Putter is an endpoint with remote writes.
type Putter interface {
	// Put writes op.Payload into the peer's region op.Remote at op.RemoteOffset. The bytes are in
	// the peer's memory when Done is called with nil. The results are those of Send.
	Put(op *Op) error
}

// Getter is an endpoint with remote reads.
type Getter interface {
	// Get reads len(op.Payload) bytes of the peer's region op.Remote, from op.RemoteOffset, into
	// op.Payload. The results are those of Send.
	Get(op *Op) error
}

// Op is one operation. The caller owns it before it is accepted and again once Done is called; in
// between the operation, and the memory that it names, belong to the BTL. An Op is reused, not
// copied.
type Op struct {
	// Done is called exactly once for an accepted operation (C1). The caller sets it. The operation
	// is the caller's again when Done is called, and so are its buffers; after an error only from
	// Drained on (C4).
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

	// Next links the operation into a queue of its present owner.
	Next *Op
}

// Header is the part of Hdr that is sent.
func (op *Op) Header() []byte { return op.Hdr[:op.HdrLen] }

// Len is the length of the fragment in bytes, header and payload.
func (op *Op) Len() int { return int(op.HdrLen) + len(op.Payload) }

// Events is what a BTL tells the layer above. The package comment says when.
type Events interface {
	// Arrived hands up one fragment, header and payload in one piece. frag is valid, and may be
	// read, only inside the call. It may lie in memory that the peer can still write, so what is
	// checked must be a copy of what is used (C8).
	Arrived(m Module, peer int, tag Tag, frag []byte)

	// Failed says that the endpoint of a path, or with AllPeers the whole rail, takes no more
	// operations. Accepted operations are still to be called back. A BTL may also name a rank to
	// which the layer above has no endpoint, with module 0: nothing will come from there.
	Failed(m Module, to Path, err *Error)

	// Drained says that every operation of the endpoint or rail that Failed named was called back.
	Drained(m Module, to Path)
}
