// Package hangreport explains why a job hangs, from the reports of its ranks.
//
// # Input
//
// A Rank has the report of one rank, or the reason why there is none. The collector asks all ranks
// for reports. When all have answered, it asks each again for its progress (After). Ranks whose
// progress has not changed since, nor since before their stacks were taken (Report.Stale), were all
// in the reported state at the moment between. So the reports show one state of the job. Only then
// a deadlock is certain.
//
// # Output
//
// Analyze makes a Finding. Its causes are in the order of importance, and the first lines of its
// text are the first causes. A Finding never calls a rank deadlocked that might go on:
//
//   - A rank with a goroutine outside of the calls that wait may go on, unless the goroutine itself
//     waits for another goroutine, in sync.WaitGroup.Wait or sync.Mutex.Lock. A function of
//     time.AfterFunc that would release it is not detected: it has no goroutine before it runs.
//   - A rank may go on if its progress has changed, or a message to it is in flight.
//   - An operation completes by itself if only the network or the other library has to act.
//
// Such ranks can at most "may be" deadlocked.
package hangreport

import (
	"github.com/mpigo/mpigo/internal/introspect"
)

// Version is the version of a Finding. It changes when the meaning of a field does.
const Version = 1

// Rank is what is known of one rank of the job.
type Rank struct {
	// Report of the rank, nil if there is none.
	Report *introspect.Report
	// Missing is why there is no report.
	Missing Missing
	// PID and Host of the process if there is no report, 0 and "" if they are not known. Process is
	// its state in a few words, such as "running", "" if that is not known.
	PID     int
	Host    string
	Process string
	// Left says that the body of the rank has returned or called Finalize, even if Report does not
	// say so. The rank makes no more calls.
	Left bool
	// After is the progress of the rank, asked for when all ranks had reported; nil if it did not
	// answer.
	After *uint64
}

// Missing is why a rank has no report.
type Missing string

const (
	// NoAnswer: the rank did not answer in time, and nothing else is known.
	NoAnswer Missing = "no answer"
	// NoReport: it has answered, without a report.
	NoReport Missing = "no report"
	// NotConnected: it has not connected to the collector. Foreign: it has joined the job, but has
	// not connected.
	NotConnected Missing = "not connected"
	Foreign      Missing = "cannot be asked"
	// OtherVersion: it was built with another version of this library.
	OtherVersion Missing = "another version of mpigo"
	// Stopped: its process was stopped by a signal.
	Stopped Missing = "stopped"
	// Finalized: it has left the job by Finalize. Exited: its process has ended.
	Finalized Missing = "finalized"
	Exited    Missing = "exited"
	// Leaving: its connection ended while it was asked.
	Leaving Missing = "leaving"
	// NotStarted: its process has not been started. NotInited: it has not called Init.
	NotStarted Missing = "not started"
	NotInited  Missing = "has not called Init"
	// HostLost: its host does not answer.
	HostLost Missing = "host lost"
)

// Finding is the result of the analysis.
type Finding struct {
	Version int `json:"version"`
	Size    int `json:"size"` // of the job
	// Causes in the order of importance, at least one.
	Causes []Cause `json:"causes"`
	// Groups of ranks that do the same. Each rank is in one group.
	Groups []Group `json:"groups"`
	// Notes are facts that may not be causes, such as a rail that is down while others are up.
	Notes []string `json:"notes,omitempty"`
}

// Kind is the kind of a cause.
type Kind string

// Kinds of causes, in the order of importance.
const (
	KindStopped      Kind = "stopped"       // a process was stopped, or a host is lost
	KindUnreachable  Kind = "unreachable"   // all rails to a rank are down
	KindMismatch     Kind = "mismatch"      // collectives that do not match
	KindOrder        Kind = "order"         // collectives in different order
	KindNearMiss     Kind = "near miss"     // a message that nearly matches
	KindDeadlock     Kind = "deadlock"      // nothing can release the ranks
	KindFinalized    Kind = "finalized"     // ranks wait for ranks that have left
	KindLate         Kind = "late"          // ranks that have not called a collective
	KindMayDeadlock  Kind = "may deadlock"  // no rank of the job is known to release the ranks
	KindNoAnswer     Kind = "no answer"     // a rank did not answer
	KindComputes     Kind = "computes"      // a rank that others wait for is in its own code
	KindUnderWay     Kind = "under way"     // a message was sent and has not arrived
	KindAwaitsOthers Kind = "awaits others" // ranks wait for ranks that are in no call that waits
	KindUnknown      Kind = "unknown"
)

// Cause is one cause.
type Cause struct {
	Kind Kind `json:"kind"`
	// Ranks have the cause. Waiting are the ranks that wait because of it, as far as they are
	// known.
	Ranks   []int `json:"ranks,omitempty"`
	Waiting []int `json:"waiting,omitempty"`
	// Cycle, for a deadlock: each rank waits for the next one, and the last for the first.
	Cycle []int `json:"cycle,omitempty"`
	// Text describes the cause in one line.
	Text string `json:"text"`
}

// HasCycle reports whether ranks certainly wait for each other in a cycle, so that waiting longer
// brings no news. Calls of collectives that do not match wait in a cycle too, but the library ends
// them with an error.
func (f *Finding) HasCycle() bool {
	has := false
	for _, c := range f.Causes {
		if c.Kind == KindMismatch {
			return false
		}
		has = has || c.Kind == KindDeadlock && len(c.Cycle) > 0
	}
	return has
}

// Group is ranks that do the same.
type Group struct {
	Ranks []int `json:"ranks"`
	// Lines say what they do, each a call that waits or a goroutine.
	Lines []string `json:"lines"`
}

// Analyze explains the state of a job. The index of a rank is its rank in the job.
func Analyze(ranks []Rank) Finding {
	v := newView(ranks)
	f := Finding{Version: Version, Size: len(ranks), Causes: v.causes(), Groups: v.groups(), Notes: v.notes()}
	if len(f.Causes) == 0 {
		f.Causes = []Cause{{Kind: KindUnknown, Text: "no cause found: no rank waits for a rank that is known not to act"}}
	}
	return f
}
