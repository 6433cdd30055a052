// Package simulation runs the production code of package pml, with that of a transport and of package request, under a virtual
// clock: random programs, random faults, healing, and then everything has to be as if nothing had happened. Same seed, same trace;
// over TCP nearly, as the system has a say in it.
//
// A seed makes a plan (plan.go): what the ranks and rails are like, and a list of actions, some of which are faults. A world (world.go) does
// them (act.go) on a network (network.go, verbs.go, tcp.go), and looks at every outcome (check.go). In the end all is mended, and what is left has
// to end and be gone (settle.go). A plan that fails can be shrunk (shrink.go) and drawn as a ladder between the ranks (ladder.go).
//
// # Invariants
//
//	bounded     every operation ends
//	outcome     without an error; or, if a peer died or parted, with one that says so
//	lost, twice each message is received exactly once
//	order       messages of one sender in one communicator do not overtake each other
//	match       the status is the message's
//	bytes       so are the bytes, and nobody writes to the buffer of a send
//	canary      nobody writes behind a buffer, or to one whose operation is complete
//	leak        nothing is left: requests, regions, queues, rails that are not up
//	transition  the tables of states hold
//	nonsense    no fragment makes no sense
//	request     package request says what is so
//	panic       nothing panics
//	trace       the same seed does the same again (test only)
package simulation

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/mpigo/mpigo/pml"
)

// Failure says which invariant does not hold.
type Failure struct {
	Invariant string
	What      string
}

func (f *Failure) Error() string { return f.Invariant + ": " + f.What }

// Hit is a fault at a kind of fragments, or of remote accesses.
type Hit struct{ Name, Fault string }

// Meeting is a fragment that arrives, and where what it is about stands at both sides then.
type Meeting struct{ Name, Sender, Receiver string }

func (m Meeting) String() string {
	return strings.TrimRight(fmt.Sprintf("%s | %s | %s", m.Name, m.Sender, m.Receiver), " |")
}

// Result is what a simulation saw.
type Result struct {
	Failure *Failure
	// Trace is a digest of all that happened, Events how much that was.
	Trace, Events uint64
	Messages      int
	// Rails counts rails that failed or came back, Lost pairs of ranks that lost each other.
	Rails, Lost int
	// Struck counts faults at kinds of fragments, Harms the actions that were faults, Fired what struck at all.
	Struck map[Hit]int
	Harms  map[string]int
	Fired  int
	// Lent counts the buffers of sends that had to be waited for when they were taken back.
	Lent int
	// Unregistered counts registrations that failed.
	Unregistered int
	// Freed counts receives that were freed before they were complete, and got a message.
	Freed int
	// Refused counts operations that rails refused because of their kind.
	Refused  int
	Meetings map[Meeting]int
	Ends     map[string]int
	Endings  map[Ending]int
	Stats    pml.Stats
}

func newResult(p *plan) *Result {
	return &Result{
		Struck: map[Hit]int{}, Harms: map[string]int{}, Meetings: map[Meeting]int{}, Ends: map[string]int{},
		Endings: map[Ending]int{p.setup.ending: 1},
	}
}

func (r *Result) add(st pml.Stats) {
	s := &r.Stats
	s.SentInline += st.SentInline
	s.Unexpected += st.Unexpected
	s.Withdrawn += st.Withdrawn
	s.SentEager += st.SentEager
	s.SentRendezvous += st.SentRendezvous
	s.SentGet += st.SentGet
	s.SentPut += st.SentPut
	s.Held += st.Held
	s.Deferred += st.Deferred
	s.Unread += st.Unread
	s.Unwritten += st.Unwritten
	s.Early += st.Early
	s.Duplicates += st.Duplicates
	s.Retries += st.Retries
	s.RailsFailed += st.RailsFailed
	s.RailsReturned += st.RailsReturned
	s.Resent += st.Resent
	s.Restarts += st.Restarts
	s.StaleFragments += st.StaleFragments
}

// Add adds another simulation's counts.
func (r *Result) Add(o *Result) {
	r.Events += o.Events
	r.Messages += o.Messages
	r.Rails += o.Rails
	r.Lost += o.Lost
	r.Fired += o.Fired
	r.Lent += o.Lent
	r.Unregistered += o.Unregistered
	r.Refused += o.Refused
	r.Freed += o.Freed
	addTo(&r.Struck, o.Struck)
	addTo(&r.Harms, o.Harms)
	addTo(&r.Meetings, o.Meetings)
	addTo(&r.Ends, o.Ends)
	addTo(&r.Endings, o.Endings)
	r.add(o.Stats)
}

func addTo[K comparable](to *map[K]int, from map[K]int) {
	if *to == nil {
		*to = map[K]int{}
	}
	for k, n := range from {
		(*to)[k] += n
	}
}

// Run simulates a seed.
func Run(seed uint64, t Transport) *Result { return draw(seed, t).run(nil) }

// RunTraced is Run that draws what happens.
func RunTraced(seed uint64, t Transport, to io.Writer) *Result { return draw(seed, t).run(to) }

func (p *plan) run(trace io.Writer) (result *Result) {
	w, err := newWorld(p, trace != nil)
	if err != nil {
		r := newResult(p)
		r.Failure = &Failure{"setup", err.Error()}
		return r
	}
	result = w.result
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failed:
			result.Failure = (*Failure)(&e)
			result.Failure.What += " (" + p.setup.ending.String() + ")"
		default:
			result.Failure = &Failure{"panic", fmt.Sprintf("%v\n%s", e, debug.Stack())}
		}
		result.Trace = w.hash.Sum64()
		if trace != nil {
			w.ladder.write(trace, result.Failure)
		}
		w.close()
	}()
	for _, a := range p.actions {
		w.act(a)
		w.observe()
	}
	w.heal()
	w.drain()
	for _, r := range w.ranks {
		for _, t := range r.taps {
			result.Fired += t.Module.(interface{ Fired() int }).Fired()
		}
	}
	result.Fired += w.net.fired()
	return result
}

// close gives back what the transports hold outside of Go's memory. What it says is of no interest any more.
func (w *world) close() {
	defer func() { _ = recover() }() // after a panic anything may be amiss
	for _, r := range w.ranks {
		for _, t := range r.taps {
			_ = t.Close()
		}
	}
	w.net.close()
}
