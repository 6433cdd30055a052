// Package simulation runs the production code of packages pml, bml and request, and of a transport,
// under a virtual clock: random programs and random faults. In the end everything is repaired, and
// the outcome must be as if there had been no fault. The same seed gives the same trace, except
// over TCP, where the system's scheduling has an influence.
//
// A seed determines a plan (plan.go): the ranks, the rails between their modules (links.go), and a
// list of actions, some of which are faults. A world (world.go) executes the actions (act.go) on a
// network (network.go, verbs.go, tcp.go), and checks every outcome (check.go). Then it repairs
// everything, except for rails that a plan breaks for good, and checks that all operations end and
// nothing is left (settle.go). A failing plan can be shrunk (shrink.go), and drawn as a ladder of
// messages between the ranks (ladder.go).
//
// # Invariants
//
//	bounded     every operation ends
//	outcome     without an error, or, if a peer died or parted, with an error that says so
//	lost        each message is received
//	twice       and only once
//	order       messages of a sender do not overtake each other in a communicator
//	match       a status describes the message
//	bytes       a message arrives with the bytes that were sent, and the buffer of a send is not
//	            written
//	buffer      Detach waits for a buffer exactly if a device still uses it
//	canary      nothing is written behind a buffer, or to a buffer whose operation is complete
//	leak        nothing is left: requests, regions, queues, rails that are not up, alternates that
//	            are needed and not up
//	transition  the tables of states hold
//	protocol    no fragment is malformed
//	request     calls of package request agree with each other
//	panic       nothing panics
//	trace       the same seed gives the same trace (test only)
package simulation

import (
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"strings"

	"github.com/mpigo/mpigo/pml"
)

// Failure says which invariant is broken, and how.
type Failure struct {
	Invariant string
	What      string
}

func (f *Failure) Error() string { return f.Invariant + ": " + f.What }

// Hit is a fault at an operation with a name: a kind of fragment, or a remote access.
type Hit struct{ Name, Fault string }

// Combination is the name of an arriving fragment, with the states, at both sides, of its request,
// rail or peer (Possible).
type Combination struct{ Name, Sender, Receiver string }

func (m Combination) String() string {
	return strings.TrimRight(fmt.Sprintf("%s | %s | %s", m.Name, m.Sender, m.Receiver), " |")
}

// Result is the outcome of one simulation, or the sum of several.
type Result struct {
	Failure *Failure
	// Trace is a digest of all events, Events their number.
	Trace, Events uint64
	Messages      int
	// Rails counts failures and returns of rails, Lost the pairs of ranks that lost each other.
	Rails, Lost int
	// Alternates counts the alternates that came up because they were needed.
	Alternates int
	// Hits counts aimed faults, FaultActions the actions that were faults, by kind, and Fired the
	// faults of transports that had an effect.
	Hits         map[Hit]int
	FaultActions map[string]int
	Fired        int
	// AwaitedBuffers counts detached buffers that a device was still using.
	AwaitedBuffers int
	// Unregistered counts registrations that failed.
	Unregistered int
	// Freed counts receives that were freed before they were complete, and got a message.
	Freed int
	// Refused counts operations that rails refused because of their kind.
	Refused      int
	Combinations map[Combination]int
	Ends         map[string]int
	Endings      map[Ending]int
	Stats        pml.Stats
}

func newResult(p *plan) *Result {
	return &Result{
		Hits: map[Hit]int{}, FaultActions: map[string]int{}, Combinations: map[Combination]int{}, Ends: map[string]int{},
		Endings: map[Ending]int{p.setup.ending: 1},
	}
}

// add adds the counters of a rank. They are the fields of type uint64. The other fields cannot be
// added.
func (r *Result) add(st pml.Stats) {
	sum, from := reflect.ValueOf(&r.Stats).Elem(), reflect.ValueOf(st)
	for i := range from.NumField() {
		if f := sum.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(f.Uint() + from.Field(i).Uint())
		}
	}
}

// Add adds the counts of another result.
func (r *Result) Add(o *Result) {
	r.Events += o.Events
	r.Messages += o.Messages
	r.Rails += o.Rails
	r.Alternates += o.Alternates
	r.Lost += o.Lost
	r.Fired += o.Fired
	r.AwaitedBuffers += o.AwaitedBuffers
	r.Unregistered += o.Unregistered
	r.Refused += o.Refused
	r.Freed += o.Freed
	addTo(&r.Hits, o.Hits)
	addTo(&r.FaultActions, o.FaultActions)
	addTo(&r.Combinations, o.Combinations)
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

// Run simulates the plan of a seed.
func Run(seed uint64, t Transport) *Result { return draw(seed, t).run(nil) }

// RunTraced is Run, and draws a ladder of all events.
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

// close releases the transports' resources outside of Go's memory. It ignores errors.
func (w *world) close() {
	defer func() { _ = recover() }() // after a broken invariant, Close may panic
	for _, r := range w.ranks {
		for _, t := range r.taps {
			_ = t.Close()
		}
	}
	w.net.close()
}
