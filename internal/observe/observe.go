// Package observe lets package mpitest, and the programs of scripts, look into the ranks of a job.
// Package comm implements it. It is internal, so it is no part of the public API.
package observe

import "time"

// NewOption returns a comm.Option that changes the hook of a job. Package comm sets the variable
// when it is initialized, and it does not change afterwards. A variable is needed because comm
// imports this package.
var NewOption func(change func(*Hook)) any

// Hook has the requests of a test harness to RunLocal and Init.
type Hook struct {
	// HangAfter is for the harness alone: the time without progress after which the job counts as
	// hanging.
	HangAfter time.Duration
	// Attach is called with the ranks, before their bodies run.
	Attach func(hook Hook, ranks []Rank)
	// Devices, if not nil, replaces the layer of devices that a transport is about to use
	// (transport.Env), to make one of them fail.
	Devices func(devices any) any
}

// Rank is one rank of a job. Its methods may be called from any goroutine; they take the rank's
// lock.
type Rank interface {
	// Progress is a number that changes when a message was sent or received, or an operation has
	// completed.
	Progress() uint64
	// Snapshot lists the operations that are under way and the calls that wait for them.
	Snapshot() Snapshot
	// Leaks lists the requests, communicators and memory that the body of the rank should have
	// finished or freed.
	Leaks() Leaks
	// Unreceived lists the messages that have arrived and were not received, in checked mode also
	// those in freed communicators. It is called when all ranks have ended.
	Unreceived() []Message
	// Stop ends every call of the rank, present and future, with an error that wraps cause.
	Stop(cause error)
}

// Snapshot is the state of a rank at one moment.
type Snapshot struct {
	// Progress is the result of Rank.Progress.
	Progress uint64 `json:"progress"`
	// Ended says that no call of the rank can begin any more: the rank is in Finalize, or was
	// stopped.
	Ended bool `json:"ended,omitempty"`
	// Pending lists the operations that are under way.
	Pending []Pending `json:"pending,omitempty"`
	// Waits lists the calls that wait for some of Pending. It has no other waiting calls.
	Waits []Wait `json:"waits,omitempty"`
	// Collectives has the next collective of each communicator that is not freed.
	Collectives []Collective `json:"collectives,omitempty"`
	// Starts has each persistent collective that is not freed, with the number of its last start.
	Starts []Collective `json:"starts,omitempty"`
	// Channels has an entry for each peer that the rank has been in touch with.
	Channels []Channel `json:"channels,omitempty"`
}

// Wait is a call that waits.
type Wait struct {
	// Ops are the operations that it waits for, as indices into Snapshot.Pending. Need is the
	// number of them that have to complete.
	Ops  []int `json:"ops"`
	Need int   `json:"need"`
	// MayGiveUp says that the call may return earlier, because its Go context may end.
	MayGiveUp bool `json:"may_give_up,omitempty"`
	// Members, if it waits in a collective, are the ranks in the job of its communicator's members.
	// Each of them may end it with an error, by giving the collective up.
	Members []int `json:"members,omitempty"`
	// Collective, if not nil, is the collective, and no rank leaves it before all of Members have
	// called it.
	Collective *Collective `json:"collective,omitempty"`
	// Shared: it waits for a change of shared memory, in the only collective of In. Its Ops only
	// watch ranks. The call goes on by itself once these ranks have called the collective.
	Shared bool `json:"shared,omitempty"`
	// In are the collectives that it waits for.
	In []CollectiveCall `json:"in,omitempty"`
	// Call is the name of the call, such as "Recv", and Site the innermost line of the program.
	// They are known once the call sleeps; before, they are "" and nil. Nanos is the time since
	// then.
	Call  string `json:"call,omitempty"`
	Site  *Site  `json:"site,omitempty"`
	Nanos int64  `json:"nanos,omitempty"`
}

// Site is a line of the program.
type Site struct {
	Function string `json:"function"`
	File     string `json:"file"`
	Line     int    `json:"line"`
}

// CollectiveCall is a call of a collective.
type CollectiveCall struct {
	Collective
	Name     string `json:"name"`           // "allreduce", "ibarrier", "persistent bcast", …
	CommName string `json:"comm_name"`      // at this rank
	Root     int    `json:"root"`           // rank in the job, −1 if it has none
	Init     *Site  `json:"init,omitempty"` // of a start, the line of the Init call
	// Awaits are the ranks in the job that the call waits for: the peers of its operations, or all
	// members if it ends only when all have called it.
	Awaits []int `json:"awaits,omitempty"`
}

// Channel counts the fragments between a rank and a peer. Fragments are under way if one side has
// posted more than the other has taken.
type Channel struct {
	Peer   int    `json:"peer"`
	Posted uint64 `json:"posted"`
	Taken  uint64 `json:"taken"`
}

// Collective is a place in the sequence of collectives of a communicator.
type Collective struct {
	Comm   uint64 `json:"comm"`   // the communicator's id in the job
	Number int    `json:"number"` // the sequence number of the collective, or of the next one
	// Start is the number of a start of a persistent collective, from 1; 0 for any other call. All
	// starts have the sequence number of the Init call.
	Start uint64 `json:"start,omitempty"`
}

// SequenceNumbers is the number of collectives after which a sequence number is reused.
const SequenceNumbers = 1 << 27

// Reached reports whether a rank whose next collective is c has called the collective with a
// number.
func (c Collective) Reached(number int) bool {
	ahead := (c.Number - number) & (SequenceNumbers - 1)
	return ahead > 0 && ahead < SequenceNumbers/2
}

// Pending is an operation that is under way.
type Pending struct {
	// Op is the name of the call.
	Op string `json:"op"`
	// Sends: the operation is a send, else a receive or a probe. A call may have both.
	Sends bool `json:"sends,omitempty"`
	// Peer is a rank in the job, or −1 for any.
	Peer int `json:"peer"`
	// Tag is −1 for any. Users do not know the tags of collectives.
	Tag        int    `json:"tag"`
	Bytes      int64  `json:"bytes"`
	Phase      string `json:"phase"` // of the protocol
	Collective bool   `json:"collective,omitempty"`
	// By are the ranks in the job each of which can complete the operation by a call. It is empty
	// if the operation completes or fails without a call.
	By []int `json:"by,omitempty"`
	// Abandoned: its call has returned, or its request was freed, so no call waits for it.
	Abandoned bool `json:"abandoned,omitempty"`
	// MadeSynchronous, of a standard send that checked mode has made synchronous, is the setting
	// that repeats this.
	MadeSynchronous string `json:"made_synchronous,omitempty"`
	// Comm is the name of the communicator.
	Comm string `json:"comm"`
}

// Message is a message that was not received.
type Message struct {
	Source int    `json:"source"` // rank in the job
	Tag    int    `json:"tag"`
	Bytes  int64  `json:"bytes"`
	Comm   string `json:"comm"`
}

// Leaks lists resources that the body of a rank has not released.
type Leaks struct {
	// Requests has a line for each request that is active or was not waited for.
	Requests []string
	// Comms are the names of communicators that were not freed.
	Comms []string
	// Blocks are the sizes in bytes of memory from Alloc that was not given to FreeAlloc.
	Blocks []int64
}
