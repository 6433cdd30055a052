package verbs

// Posting says what happens to a posted work request.
type Posting uint8

const (
	// PostRefused: the post returns an error.
	PostRefused Posting = iota
	// PostAccepted: the request is queued and executed in order.
	PostAccepted
	// PostPending: the request is queued and starts when the queue pair is in RTS again.
	PostPending
	// PostFlushed: the request completes with WR_FLUSH_ERR.
	PostFlushed
)

var postingNames = [...]string{"refused", "accepted", "pending", "flushed"}

func (p Posting) String() string { return enumName("posting", postingNames[:], p) }

// sendPosting and recvPosting are indexed by state (InfiniBand error model, 4.1). Some devices
// accept requests that the specification refuses.
var (
	sendPosting = [StateCount]Posting{
		StateReset: PostRefused, StateInit: PostRefused, StateRTR: PostRefused,
		StateRTS: PostAccepted, StateSQD: PostPending, StateSQE: PostFlushed, StateErr: PostFlushed,
	}
	recvPosting = [StateCount]Posting{
		StateReset: PostRefused, StateInit: PostAccepted, StateRTR: PostAccepted,
		StateRTS: PostAccepted, StateSQD: PostAccepted, StateSQE: PostAccepted, StateErr: PostFlushed,
	}
)

// SendPosting returns what PostSend does in the state. An unknown state refuses.
func (s QPState) SendPosting() Posting {
	if s < StateCount {
		return sendPosting[s]
	}
	return PostRefused
}

// RecvPosting returns what PostRecv does in the state. An unknown state refuses.
func (s QPState) RecvPosting() Posting {
	if s < StateCount {
		return recvPosting[s]
	}
	return PostRefused
}

// Receives reports whether a queue pair in the state accepts packets from its peer.
func (s QPState) Receives() bool { return s >= StateRTR && s <= StateSQE }
