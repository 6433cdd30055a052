package verbs

// Provider lists and opens devices.
type Provider interface {
	// Devices returns the names of the devices that exist now.
	Devices() ([]string, error)
	// Open opens a device by name; each call creates a context. The error wraps ErrNoDevice if no
	// device has that name.
	Open(name string) (Device, error)
}

// Device is an open device: ibv_context.
//
// The errors of all methods are *CallError (with the system's error number), *TransitionError, or
// wrap a sentinel of this package. Destroying an object in use returns ErrBusy and changes nothing.
// In use are a CQ with queue pairs, a PD with regions, and an object with an unacknowledged event.
type Device interface {
	Name() string
	Query() (DeviceAttr, error)
	// QueryPort returns the attributes of a port. Ports count from 1.
	QueryPort(port int) (PortAttr, error)
	// GIDs returns the nonempty entries of a port's GID table.
	GIDs(port int) ([]GIDEntry, error)
	// PKey returns an entry of a port's partition key table.
	PKey(port, index int) (uint16, error)

	AllocPD() (PD, error)
	CreateCompChannel() (CompChannel, error)
	// CreateCQ creates a completion queue with at least this number of entries. channel may be nil.
	CreateCQ(entries int, channel CompChannel) (CQ, error)

	// NextEvent takes the oldest asynchronous event; ok is false if there is none. It does not
	// block. The caller acknowledges each event once with AckEvent.
	NextEvent() (ev AsyncEvent, ok bool, err error)
	AckEvent(ev AsyncEvent)
	// Notify registers fn, which the device calls when asynchronous events may be available: at
	// least once for the first event after NextEvent returned none. The device calls fn from any
	// goroutine, even from inside other methods. fn must neither block nor call the device. A nil
	// fn removes the registration.
	Notify(fn func())

	// Close closes the context. It returns ErrBusy while an object made from the context exists.
	Close() error
}

// PD is a protection domain. Objects of different domains do not work together.
type PD interface {
	// RegMR registers mem, which must not be empty. The region keeps mem alive until Dereg; mem
	// must not move.
	RegMR(mem []byte, access Access) (MR, error)
	// CreateAH may block for a second, and so may a queue pair's Modify to RTR, if the system must
	// ask the RoCE network for the link-layer address of the path. Resolve does that in advance. It
	// calls done once: with nil when neither call blocks any more, or with the reason why there is
	// no path. It calls done before it returns, or later from any goroutine, even from inside other
	// methods. done must neither block nor call the device.
	CreateAH(attr AHAttr) (AH, error)
	Resolve(attr AHAttr, done func(err error))
	CreateSRQ(init SRQInit) (SRQ, error)
	// CreateQP creates a queue pair in RESET. Its Cap returns the granted capacities, which are at
	// least the requested ones.
	CreateQP(init QPInit) (QP, error)
	// Dealloc waits until done of every Resolve has been called.
	Dealloc() error
}

// MR is a registered memory region.
type MR interface {
	LKey() uint32
	RKey() uint32
	// Addr returns the start address of the memory, for SGE.Addr and SendWR.RemoteAddr.
	Addr() uint64
	// Dereg ends the registration. After it returns, nothing accesses the memory by its keys.
	Dereg() error
}

// AH is an address handle, for UD.
type AH interface {
	// Handle returns the value for SendWR.AH.
	Handle() uint64
	Destroy() error
}

// CQ is a completion queue.
type CQ interface {
	// Entries returns the capacity of the queue, at least the requested one. One completion more
	// overruns the queue, which then fails (CQ_ERR).
	Entries() int
	// Poll takes the oldest completions, at most len(wcs), and returns their number. If it is less
	// than len(wcs), the queue is empty.
	Poll(wcs []WC) (int, error)
	// ReqNotify arms the queue for one event on its channel, at the next completion or, with
	// solicitedOnly, at the next solicited or failed completion. Completions already in the queue
	// raise no event, so the caller arms the queue and then polls once more.
	ReqNotify(solicitedOnly bool) error
	// AckEvents acknowledges n events that CompChannel.NextEvent returned.
	AckEvents(n int)
	Destroy() error
}

// CompChannel is a completion channel: it delivers the events of armed CQs.
type CompChannel interface {
	// NextEvent takes the oldest event and returns its queue. It does not block.
	NextEvent() (cq CQ, ok bool, err error)
	// Notify works like Device.Notify, for the channel's events.
	Notify(fn func())
	Destroy() error
}

// QP is a queue pair.
type QP interface {
	// Num returns the number of the queue pair, 24 bits.
	Num() uint32
	Service() Services
	Cap() QPCap
	// Modify changes the state and attributes as CheckModify permits. mask always includes
	// AttrState. An error leaves the queue pair unchanged.
	Modify(attr *QPAttr, mask AttrMask) error
	Query() (QPAttr, error)
	// PostSend posts requests in order and returns the number of accepted requests. If it refuses a
	// request, it stops there and the error says why: ErrQueueFull (wrapped), a malformed request,
	// or a state that does not permit the post (Posting).
	PostSend(wrs []SendWR) (int, error)
	// PostRecv works like PostSend, for the receive queue. It fails for a queue pair with an SRQ.
	PostRecv(wrs []RecvWR) (int, error)
	// Destroy destroys the queue pair with its requests and completions. Drain the queue pair
	// first.
	Destroy() error
}

// SRQ is a shared receive queue.
type SRQ interface {
	PostRecv(wrs []RecvWR) (int, error)
	// SetLimit arms SRQ_LIMIT_REACHED again; 0 disarms it.
	SetLimit(limit int) error
	// Query returns the granted sizes, and the limit, which is 0 once it was reached. It does not
	// say how many receives the queue has.
	Query() (SRQAttr, error)
	Destroy() error
}
