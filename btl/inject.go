package btl

// FaultKind is the way in which a test makes an operation fail.
type FaultKind uint8

const (
	// FaultRefuse: the post returns ErrResource.
	FaultRefuse FaultKind = iota
	// FaultErrorDelivered: the endpoint fails at this operation, but the peer gets it, as if the
	// acknowledgement were lost.
	FaultErrorDelivered
	// FaultErrorLost: the endpoint fails at this operation, and the peer never gets it.
	FaultErrorLost
	// FaultSilence: the operation is accepted, never arrives, and does not complete until the
	// endpoint fails.
	FaultSilence
	// FaultLate: the operation is delivered, and completes only after Count further progress
	// calls.
	FaultLate
	// FaultStale: a copy of the fragment, with its old epoch, arrives in the endpoint's next
	// incarnation. The peer must drop it (C5). It applies to Sends only.
	FaultStale
	// FaultWrong: the operation is refused as invalid, and the peer gets nothing: Send returns
	// ErrTooLong, and a Put or Get ends alone with an error of ClassUsage.
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
	// Peer selects the endpoint to that rank; AllPeers selects any endpoint.
	Peer int
	// After is the number of operations of that endpoint that pass before the fault strikes one.
	After int
	// Count is the number of operations that the fault strikes (0 means 1). For FaultLate, which
	// strikes one operation, it is the number of progress calls.
	Count int
}

// Injector is a module whose operations fail on request (C9): package btl/faults makes one from any
// module. The effect depends only on the calls: the same calls give the same failures.
type Injector interface {
	// Inject arms a fault.
	Inject(f Fault)
	// Fired is the number of operations struck so far. A test uses it to prove that its fault
	// happened.
	Fired() int
}

// StaleSender is an endpoint that can send a fragment of an earlier incarnation, so that a test can
// see that the peer drops it (C5). Every transport's endpoint implements it.
type StaleSender interface {
	// SendStale sends a fragment with the given epoch, which is older than the endpoint's, and
	// reports whether it did. If it did not, because there was no room or no connection, the caller
	// tries again after a progress call. The caller owns frag again on return.
	SendStale(epoch uint32, tag Tag, frag []byte) bool
}
