package verbs

// Provider finds and opens devices.
type Provider interface {
	// Devices are the names of those that are there now.
	Devices() ([]string, error)
	// Open opens a device by name: a context of its own. ErrNoDevice (wrapped) if there is none of that name.
	Open(name string) (Device, error)
}

// Device is an open device: ibv_context.
//
// Errors of all methods are *CallError (with the system's error number), *TransitionError, or wrap a sentinel of this
// package. Destroying what is still in use is ErrBusy, and changes nothing: a CQ with queue pairs, a PD with
// regions, an object with an event that was not acknowledged.
type Device interface {
	Name() string
	Query() (DeviceAttr, error)
	// QueryPort tells of a port, counted from 1.
	QueryPort(port int) (PortAttr, error)
	// GIDs are the used entries of a port's table, as they are now.
	GIDs(port int) ([]GIDEntry, error)
	// PKey is an entry of a port's table of partition keys.
	PKey(port, index int) (uint16, error)

	AllocPD() (PD, error)
	CreateCompChannel() (CompChannel, error)
	// CreateCQ makes a completion queue of at least so many entries. channel may be nil.
	CreateCQ(entries int, channel CompChannel) (CQ, error)

	// NextEvent takes the oldest asynchronous event; ok is false if there is none. It does not wait. Whoever
	// takes one acknowledges it once, by AckEvent.
	NextEvent() (ev AsyncEvent, ok bool, err error)
	AckEvent(ev AsyncEvent)
	// Notify has fn called when there may be asynchronous events: at least once after each time that NextEvent said
	// that there is none and one came. fn is called from any goroutine, also from inside other methods, and must
	// neither block nor call the device. nil ends it.
	Notify(fn func())

	// Close closes the context. ErrBusy while anything made from it lives.
	Close() error
}

// PD is a protection domain: what was made in different ones does not work together.
type PD interface {
	// RegMR registers mem, which must not be empty and stays where it is and alive until Dereg.
	RegMR(mem []byte, access Access) (MR, error)
	CreateAH(attr AHAttr) (AH, error)
	CreateSRQ(init SRQInit) (SRQ, error)
	// CreateQP makes a queue pair in RESET; its Cap says what was granted, which is at least what was asked for.
	CreateQP(init QPInit) (QP, error)
	Dealloc() error
}

// MR is registered memory.
type MR interface {
	LKey() uint32
	RKey() uint32
	// Addr is where the memory begins, as SGE.Addr and SendWR.RemoteAddr count.
	Addr() uint64
	// Dereg ends the registration: nothing uses the memory by its keys once it returned.
	Dereg() error
}

// AH is a way to a port, for UD.
type AH interface {
	// Handle is what SendWR.AH takes.
	Handle() uint64
	Destroy() error
}

// CQ is a completion queue.
type CQ interface {
	// Entries is how many completions it holds, at least what was asked for. One more and it is broken (CQ_ERR).
	Entries() int
	// Poll takes the oldest completions, at most len(wcs), and returns how many. Fewer than len(wcs) means that there are
	// no more.
	Poll(wcs []WC) (int, error)
	// ReqNotify asks for one event on the channel at the next completion that is put into the queue, or the next
	// solicited or failed one. What is in the queue already does not count: arm, then poll once more.
	ReqNotify(solicitedOnly bool) error
	// AckEvents acknowledges events that CompChannel.NextEvent gave.
	AckEvents(n int)
	Destroy() error
}

// CompChannel carries the events of armed CQs.
type CompChannel interface {
	// NextEvent takes the oldest event and names its queue. It does not wait.
	NextEvent() (cq CQ, ok bool, err error)
	// Notify is Device.Notify for this channel's events.
	Notify(fn func())
	Destroy() error
}

// QP is a queue pair.
type QP interface {
	// Num is its number, of 24 bits.
	Num() uint32
	Service() Services
	Cap() QPCap
	// Modify changes state and attributes; CheckModify is its rule, and AttrState is always given. After an error nothing has changed.
	Modify(attr *QPAttr, mask AttrMask) error
	Query() (QPAttr, error)
	// PostSend posts requests in order and returns how many were taken. If that is not all, the error is of the first that was
	// not: ErrQueueFull (wrapped), or the request is malformed, or the state does not permit it (Posting).
	PostSend(wrs []SendWR) (int, error)
	// PostRecv is PostSend for the receive queue. Not with an SRQ.
	PostRecv(wrs []RecvWR) (int, error)
	// Destroy takes its requests and completions along. Drain first.
	Destroy() error
}

// SRQ is a receive queue that queue pairs share.
type SRQ interface {
	PostRecv(wrs []RecvWR) (int, error)
	// SetLimit arms SRQ_LIMIT_REACHED anew; 0 disarms it.
	SetLimit(limit int) error
	Destroy() error
}
