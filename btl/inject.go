package btl

// FaultKind is a way in which an operation goes wrong on request.
type FaultKind uint8

const (
	// FaultRefuse: the post returns ErrResource.
	FaultRefuse FaultKind = iota
	// FaultErrorDelivered: the endpoint fails at this operation, which the peer gets
	// nevertheless: the acknowledgement was lost.
	FaultErrorDelivered
	// FaultErrorLost: the endpoint fails at this operation, which the peer never gets.
	FaultErrorLost
	// FaultSilence: the operation is accepted, never arrives, and does not complete until the
	// endpoint fails.
	FaultSilence
	// FaultLate: the operation is delivered, and completes only after Count further progress
	// calls.
	FaultLate
	// FaultStale: a copy of the fragment, with its old epoch, arrives in the endpoint's next
	// incarnation. The peer must drop it (C5). It strikes Sends only.
	FaultStale
	// FaultWrong: the operation is refused as wrong in itself, and the peer gets nothing: Send
	// returns ErrTooLong, and a Put or Get ends alone with an error of ClassUsage.
	FaultWrong
)

var faultNames = [...]string{"refuse", "error-delivered", "error-lost", "silence", "late", "stale", "wrong"}

func (k FaultKind) String() string {
	if int(k) < len(faultNames) {
		return faultNames[k]
	}
	return "invalid"
}

// Fault is a request to an Injector.
type Fault struct {
	Kind FaultKind
	// Peer whose endpoint it concerns, or AllPeers for any endpoint.
	Peer int
	// After is how many operations of that endpoint pass before the fault strikes one.
	After int
	// Count is how many operations the fault strikes (0 means 1). For FaultLate, which strikes
	// one operation, it is the number of progress calls.
	Count int
}

// Injector is a module whose operations fail on request (C9): package btl/faults makes one of any
// module. The effect depends on the calls alone: the same calls give the same failures.
type Injector interface {
	// Inject arms a fault.
	Inject(f Fault)
	// Fired is the number of operations struck so far. A test uses it to prove that its fault
	// happened.
	Fired() int
}

// StaleSender is an endpoint that can send a fragment of an earlier incarnation, so that a test can
// see that the peer drops it (C5). Every transport's endpoint is one.
type StaleSender interface {
	// SendStale sends a fragment with the given epoch, which is older than the endpoint's, and
	// reports whether it did. If it did not, for lack of room or of a connection, the caller
	// tries again after a progress call. frag is the caller's again on return.
	SendStale(epoch uint32, tag Tag, frag []byte) bool
}
