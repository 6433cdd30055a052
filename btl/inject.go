package btl

// FaultKind is a way for an operation, an endpoint or a rail to go wrong on request.
type FaultKind uint8

const (
	// FaultRefuse: the post returns ErrResource.
	FaultRefuse FaultKind = iota
	// FaultErrorDelivered: the endpoint fails at this operation, which the peer gets
	// all the same (the acknowledgement was lost).
	FaultErrorDelivered
	// FaultErrorLost: the endpoint fails at this operation, which the peer never gets.
	FaultErrorLost
	// FaultSilence: the operation is accepted and never completes and never arrives,
	// until the endpoint fails.
	FaultSilence
	// FaultLate: the operation is delivered, its completion comes only after Count
	// further turns of progress.
	FaultLate
	// FaultStale: after the endpoint's tear-down, a fragment of its old epoch arrives
	// at the peer (which must drop it, C5).
	FaultStale
	// FaultWrong: the operation is called wrong in itself, and the peer gets nothing: Send returns
	// ErrTooLong; a Put or Get ends alone, with an error of ClassUsage.
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
	// Peer whose endpoint it concerns, or AllPeers for the next to come by any.
	Peer int
	// After is how many operations of that endpoint still pass before it strikes.
	After int
	// Count is how many operations it strikes (0 means 1), for FaultLate how many turns.
	Count int
}

// Injector is a module that can be made to fail (C9). The effect is a function of the
// calls alone: same calls, same failures.
type Injector interface {
	Inject(f Fault)
	// Fired is the number of operations struck so far, so that a test can prove that
	// its fault happened.
	Fired() int
}
