// Package btl is the contract that every byte transfer layer (BTL) fulfils: the
// transports under the point-to-point layer.
//
// # The parts
//
// A [Module] is one rail: one port, one local address, one shared segment, one lane
// of the in-process fabric. An [Endpoint] is that rail's connection to one peer. The
// layer above (the PML) posts operations on endpoints and implements [Events] to be
// told of what arrives and what breaks.
//
// # Life of an endpoint
//
//	Connect ──▶ Up ──first error, or Fail──▶ Failed ──▶ Drained
//	                                                      │
//	                     Connect again: a new incarnation, its epoch one higher
//
// # Who calls what, and when
//
// A rank's modules are driven by one goroutine at a time: whoever holds the lock of
// the rank's progress engine. Every method of Module and Endpoint, every method of
// Events and every Op.Done runs under that lock. A BTL with threads of its own hands
// their news over inside Progress.
//
//   - Events.Arrived, Events.Failed, Events.Drained and a Done with an error are
//     called only from inside Module.Progress, Module.Fail and Endpoint.Fail, never
//     from inside Send, Put or Get.
//   - A Done with nil may come from inside Send, Put or Get as well: callers count
//     an operation before they post it.
//   - From inside any of these calls the layer above may post further operations
//     (Send, Put, Get), Rebind, Connect and Fail, but never call Progress or Close.
//
// # The contract
//
// The suite in btl/btltest holds every BTL to these.
//
//	C1  Every operation that a BTL accepted completes exactly once, by its Done, with
//	    nil or an error.
//	C2  Success means delivered: the peer's BTL has it. A local write is not delivery.
//	C3  An error means delivery unknown, never "not delivered".
//	C4  At the first error of an endpoint: it is Failed and refuses new posts; Failed
//	    is called once (for one peer, or for AllPeers if the rail is gone); then every
//	    outstanding and internally queued operation completes with an error; then
//	    Drained is called. Until Drained, buffers of accepted operations belong to the
//	    BTL; after it, nothing of that incarnation can touch local memory.
//	    A Get or Put that is wrong in itself (ClassUsage) may end alone in its error, where the
//	    transport can tell; the endpoint then stays Up.
//	    Between Failed and Drained operations may still complete with nil, and what the peer's
//	    BTL had taken before may still arrive.
//	C5  Every incarnation of an endpoint has an epoch, the same on both sides. What bears an
//	    old epoch is dropped. An end that learns of a newer incarnation than its own fails.
//	C6  ErrResource means not taken, nothing sent: the caller keeps the operation and
//	    posts it again after a later turn of progress.
//	C7  Errors are *Error: rail, peer, class of cause, native status, and which side the
//	    evidence points to.
//	C8  Nothing that arrives from a peer is trusted: lengths, handles (slot and
//	    generation, never pointers) and epochs are checked before use.
//	C9  Faults are a call, not a patch: a module that tests use is an Injector.
//	C10 The memory of an accepted Send or Put can be taken back (Endpoint.Rebind). Where the BTL
//	    cannot let go of it at once, because a device was given its address, the operation is
//	    called back within the BTL's own deadline for operations that do not complete, and in
//	    any case before Drained.
//
// Fragments of one endpoint arrive in the order in which they were accepted, as long
// as the endpoint lives. Nothing is promised between endpoints. A peer may connect first: its
// fragments then arrive before our own Connect, or after Drained if they are of its next
// incarnation.
package btl

// Tag says what a fragment is to the layer above; a BTL carries it and does not look.
type Tag uint8

// AllPeers in place of a peer's rank means the whole rail.
const AllPeers = -1

// MaxHeaderBytes bounds the header of an operation.
const MaxHeaderBytes = 64

// State of an endpoint. The legal transitions are Up → Failed → Drained.
type State uint8

const (
	// Up: operations are accepted.
	Up State = iota
	// Failed: no operation is accepted; outstanding ones are being called back.
	Failed
	// Drained: every operation was called back; the endpoint is of no more use.
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

// Caps says what a module can do beyond Send.
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
	// Name of the rail, unique within a rank: "sm", "loop0", "tcp:eth0".
	Name string
	// LatencyNanos is the expected one-way latency of a small fragment.
	LatencyNanos int64
	// BandwidthMBps (10^6 bytes a second) is the weight for striping.
	BandwidthMBps int64
	// EagerBytes is the largest fragment, header and payload, that is best sent
	// without asking the receiver first.
	EagerBytes int
	// MaxSendBytes is the largest fragment, header and payload, that Send takes.
	MaxSendBytes int
	// InlineBytes is the largest fragment, header and payload, that SendInline takes.
	InlineBytes int
	// RDMABytes is the shortest message that a Put or Get moves better than fragments do.
	RDMABytes int
	Caps      Caps
}

// Module is one rail of one rank.
type Module interface {
	// Attrs describes the rail. The result is shared and not to be changed.
	Attrs() *Attrs

	// Card is the address that this rail publishes for its peers, opaque to all but
	// modules of the same kind. The caller must not change it.
	Card() []byte

	// Connect makes the endpoint to a peer from that peer's card. It does not wait for
	// the peer: operations may be posted at once. Called again for a peer whose
	// endpoint is Drained it makes the next incarnation; while one is Up or Failed it
	// returns that one.
	//
	// Errors: ErrUnreachable (wrapped) if this rail does not lead to that peer; *Error
	// for what went wrong on the way.
	Connect(peer int, card []byte) (Endpoint, error)

	// Progress polls once, hands up what arrived and completes what finished, and
	// returns the number of such events. It never blocks. The number of fragments
	// handled in one call is bounded.
	Progress() int

	// Fail brings the whole rail down as if the device had reported cause (C4, with
	// AllPeers). Every endpoint is Drained, and Events.Drained was called with
	// AllPeers, by the time a few more turns of progress have run.
	Fail(cause error)

	// Close releases the rail. Operations still outstanding are completed with an
	// error before it returns; Events is not called afterwards. A second Close is a
	// no-op that returns nil. Peers' endpoints to it fail (C4), also those by which nothing
	// was ever sent: somebody may wait for what will not come.
	Close() error
}

// Endpoint is a rail's connection to one peer, in one incarnation.
type Endpoint interface {
	// Peer is the rank at the other end.
	Peer() int
	// Epoch of this incarnation: 1 for the first, and higher for each one after it.
	Epoch() uint32
	State() State

	// Send posts op as an active message: op.Tag and the bytes of op.Hdr and
	// op.Payload arrive at the peer as one fragment.
	//
	// nil: accepted (C1). ErrResource: not taken (C6). ErrFailed: not taken, the
	// endpoint is down. ErrTooLong: not taken, over MaxSendBytes.
	Send(op *Op) error

	// Rebind makes payload the payload of op in place of the memory that it was posted with, and
	// reports whether the BTL is done with that memory (C10). op is a Send or a Put that this
	// endpoint has accepted, in this incarnation, and has not called back; payload is a copy of
	// op.Payload, of the same length.
	//
	// true: op.Payload is payload. What the BTL still reads it reads there, also for the rest of a
	// fragment that is half sent and for an operation that an injected fault holds. The old
	// memory is not touched again: it may be overwritten or unmapped.
	//
	// false: nothing has changed, since a device that was given the address of the old memory may
	// still read it. The caller waits for op's Done.
	Rebind(op *Op, payload []byte) bool

	// Fail brings this endpoint down as if the transport had reported cause (C4).
	// It does nothing if the endpoint is not Up.
	Fail(cause error)
}

// Inliner is an endpoint that can take a small fragment without an operation to call
// back: when SendInline returns true, the fragment is delivered in the sense of C2.
type Inliner interface {
	// SendInline sends hdr and payload, together at most Attrs.InlineBytes, and reports
	// whether it was taken. It copies; both slices are the caller's again on return.
	SendInline(tag Tag, hdr, payload []byte) bool
}

// Tallier is an endpoint of a rail whose device acknowledges what this rank has yet to look at, and may break in between. What
// both ends have counted tells then whether anything was lost.
type Tallier interface {
	// Tally is how many messages of this incarnation the peer's device has acknowledged, and how many of the peer's were
	// taken here. What a message is, and which count, is the BTL's; both ends count alike. Both numbers are final once the endpoint
	// is Drained.
	Tally() (delivered, taken uint32)
}

// Registrar is a module that can expose memory to its peers.
type Registrar interface {
	// Register makes mem reachable for this rail with the given access. mem must stay
	// alive, and where it is, until the region is released. ErrMemory (wrapped) says that
	// this rail cannot expose this memory, and never will; with AccessLocal alone any
	// memory will do.
	Register(mem []byte, access Access) (Region, error)
}

// Allocator is a Registrar that can expose only memory which it has made itself, such as
// memory that processes share.
type Allocator interface {
	// Alloc gives at least so many zeroed bytes, page-aligned and outside of Go's heap.
	// Freeing it is the caller's, also after the module was closed.
	Alloc(bytes int) ([]byte, error)
	// Free takes back exactly what Alloc gave, once, after the last region of it was
	// released.
	Free(mem []byte) error
}

// Access is what a region permits.
type Access uint8

const (
	// AccessLocal: source of a Put or target of a Get of our own.
	AccessLocal Access = 1 << iota
	// AccessRemoteRead: peers may Get from it.
	AccessRemoteRead
	// AccessRemoteWrite: peers may Put into it.
	AccessRemoteWrite
)

// Key names a region to a peer. Its meaning is the BTL's; it holds handles of slot and
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
	// Put writes op.Payload into the peer's region op.Remote at op.RemoteOffset. The
	// bytes are in the peer's memory when Done is called with nil. Results as Send's.
	Put(op *Op) error
}

// Getter is an endpoint with remote reads.
type Getter interface {
	// Get reads len(op.Payload) bytes of the peer's region op.Remote from
	// op.RemoteOffset into op.Payload. Results as Send's.
	Get(op *Op) error
}

// Op is one operation. The caller owns it before it is accepted and again once Done is
// called; in between it and the memory it names belong to the BTL. An Op is reused,
// not copied.
type Op struct {
	// Done is called exactly once for an accepted operation (C1). Set by the caller.
	// Op and buffers are the caller's again when it is called.
	Done func(op *Op, err error)
	// Owner is the caller's and untouched by a BTL.
	Owner any

	Tag Tag
	// HdrLen is how much of Hdr is sent.
	HdrLen uint8
	Hdr    [MaxHeaderBytes]byte
	// Payload follows the header (Send), is the source (Put) or the target (Get).
	Payload []byte

	// Local is the registration of Payload, for Put and Get.
	Local Region
	// Remote and RemoteOffset say where, for Put and Get.
	Remote       Key
	RemoteOffset uint64

	// Next links the operation into a queue of whoever owns it.
	Next *Op
	// Cookie is free for the BTL's use while it owns the operation.
	Cookie uint64
}

// Header is the part of Hdr that is sent.
func (op *Op) Header() []byte { return op.Hdr[:op.HdrLen] }

// Len is the length of the fragment in bytes, header and payload.
func (op *Op) Len() int { return int(op.HdrLen) + len(op.Payload) }

// Events is what a BTL tells the layer above. See the package comment for when.
type Events interface {
	// Arrived hands up one fragment, header and payload in one piece. frag is valid,
	// and may be read, only inside the call; it may lie in memory that the peer can
	// still write, so what is checked must be a copy of what is used (C8).
	Arrived(m Module, peer int, tag Tag, frag []byte)

	// Failed says that the endpoint to peer, or with AllPeers the whole rail, takes no
	// more operations. Operations that were accepted are still to be called back.
	Failed(m Module, peer int, err *Error)

	// Drained says that every operation of what Failed named was called back.
	Drained(m Module, peer int)
}
