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

// Devices returns what Init takes in place of the devices that a transport is about to use.
func (h Hook) Devices(devices any) any {
	if provider, ok := devices.(verbs.Provider); ok && h.Verbs != nil {
		return h.Verbs(provider)
	}
	return devices
}

// Rank is one rank of a job. Its methods may be called from any goroutine; they take the
// rank's lock.
type Rank interface {
	// Progress is a number that changes when a message was sent or has come, or an
	// operation has completed.
	Progress() uint64
	// Snapshot says what is under way, and who waits for it.
	Snapshot() Snapshot
	// Leaks lists what the rank's body should have finished or given back.
	Leaks() Leaks
	// Unreceived lists the messages that have arrived and that nobody has received. It is
	// for when all ranks have ended.
	Unreceived() []Message
	// Stop ends every call of the rank, present and future, with an error that
	// wraps cause.
	Stop(cause error)
}

// Snapshot is where a rank stands at one moment.
type Snapshot struct {
	// Progress as the method gives it.
	Progress uint64
	// Ended says that no call of the rank can begin any more: it is in Finalize, or was stopped.
	Ended bool
	// Pending lists what is under way.
	Pending []Pending
	// Waits are the calls that wait for some of that. Calls that wait for something else are not
	// among them.
	Waits []Wait
	// Collectives says where the rank stands in each communicator that is not freed.
	Collectives []Collective
}

// Wait is a call that waits.
type Wait struct {
	// Ops are what it waits for, as indices into Pending. Need is how many of them have to
	// complete.
	Ops  []int
	Need int
	// MayGiveUp says that it may end without that, since it has a context that may.
	MayGiveUp bool
	// Members, if it waits in a collective, are the ranks in the job of its communicator. Each of
	// them may end it with an error, by giving the collective up.
	Members []int
	// Collective, if not nil, is that one, and no rank leaves it before all of Members have called
	// it.
	Collective *Collective
}

// Collective is a place in the sequence of collectives of a communicator.
type Collective struct {
	Comm uint64 // its id in the job
	Next int    // sequence number of the one that the rank is in, or comes to next
	In   bool   // it is in it
}

// sequenceNumbers is how many collectives later a sequence number comes again.
const sequenceNumbers = 1 << 30

// Reached reports whether a rank that stands at c has called the collective with a sequence
// number.
func (c Collective) Reached(number int) bool {
	ahead := (c.Next - number) & (sequenceNumbers - 1)
	return ahead == 0 && c.In || ahead > 0 && ahead < sequenceNumbers/2
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
	// By are the ranks in the job any of which may, by a call, let it complete. It is empty if it
	// completes or fails without.
	By []int
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
	// Comms are the names of communicators that were not freed.
	Comms []string
	// Blocks are the sizes in bytes of what Alloc gave and FreeAlloc has not taken back.
	Blocks []int64
}
