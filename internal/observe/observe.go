// Package observe is how package mpitest looks into the ranks of comm.RunLocal. It is
// internal, so that nothing of this is anybody else's business.
package observe

import (
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// Hook is what a test harness asks of RunLocal and Init.
type Hook struct {
	// HangAfter is for the harness alone: how long no progress is a hang.
	HangAfter time.Duration
	// Attach is called with the ranks, before their bodies run.
	Attach func(hook Hook, ranks []Rank)
	// Verbs, if not nil, gives what Init takes in place of the devices that are there: for whoever has one fail.
	Verbs func(verbs.Provider) verbs.Provider
}

// Rank is one rank of a job. Its methods may be called from any goroutine; they take the
// rank's lock.
type Rank interface {
	// Progress is a number that changes when a message was sent or has come, or an
	// operation has completed.
	Progress() uint64
	// Pending lists what is under way.
	Pending() []Pending
	// Leaks lists what the rank's body should have finished or given back.
	Leaks() Leaks
	// Unreceived lists the messages that have arrived and that nobody has received. It is
	// for when all ranks have ended.
	Unreceived() []Message
	// Stop ends every call of the rank, present and future, with an error that
	// wraps cause.
	Stop(cause error)
}

// Pending is an operation that is under way.
type Pending struct {
	// Op is the call.
	Op string
	// Peer is the rank in the job, −1 if that is any.
	Peer int
	// Tag, −1 if any. The tag of a collective's message says nothing to users.
	Tag        int
	Bytes      int64
	Phase      string // of the protocol
	Collective bool
	// Comm is the communicator, if it is not the world.
	Comm string
}

// Message is one that nobody has received.
type Message struct {
	Source int // rank in the job
	Tag    int
	Bytes  int64
	Comm   string
}

// Leaks is what a rank has left behind.
type Leaks struct {
	// Requests that are active: each described by what its call was about.
	Requests []string
	// Blocks are the sizes in bytes of what Alloc gave and FreeAlloc has not taken back.
	Blocks []int64
}
