package verbs

import "strconv"

// Posting is what becomes of a work request that is posted.
type Posting uint8

const (
	// PostRefused: the post fails at once.
	PostRefused Posting = iota
	// PostTaken: it is queued, and done in its turn.
	PostTaken
	// PostHeld: it is queued, and begins when the queue pair is RTS again.
	PostHeld
	// PostFlushed: it completes with WR_FLUSH_ERR.
	PostFlushed
)

var postingNames = [...]string{"refused", "taken", "held", "flushed"}

func (p Posting) String() string {
	if int(p) < len(postingNames) {
		return postingNames[p]
	}
	return "posting " + strconv.Itoa(int(p))
}

// sendPosting and recvPosting are indexed by state (InfiniBand error model, 4.1). Some devices take what the
// specification refuses.
var (
	sendPosting = [StateCount]Posting{
		StateReset: PostRefused, StateInit: PostRefused, StateRTR: PostRefused,
		StateRTS: PostTaken, StateSQD: PostHeld, StateSQE: PostFlushed, StateErr: PostFlushed,
	}
	recvPosting = [StateCount]Posting{
		StateReset: PostRefused, StateInit: PostTaken, StateRTR: PostTaken,
		StateRTS: PostTaken, StateSQD: PostTaken, StateSQE: PostTaken, StateErr: PostFlushed,
	}
)

// SendPosting is what PostSend does in the state; refused in what is no state.
func (s QPState) SendPosting() Posting {
	if s < StateCount {
		return sendPosting[s]
	}
	return PostRefused
}

// RecvPosting is what PostRecv does in the state; refused in what is no state.
func (s QPState) RecvPosting() Posting {
	if s < StateCount {
		return recvPosting[s]
	}
	return PostRefused
}

// Receives reports whether packets from the peer are taken in the state.
func (s QPState) Receives() bool { return s >= StateRTR && s <= StateSQE }

// Sends reports whether new send requests are begun in the state.
func (s QPState) Sends() bool { return s == StateRTS }
