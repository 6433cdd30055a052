// Package coll runs the collectives of a communicator at one rank. It knows ranks and contexts of
// package pml, and nothing of comm.Comm.
//
//	comm.Bcast ── checks arguments
//	   │
//	   ▼
//	Team.Begin ──▶ Schedule ◀── Schedule.Bcast, a builder: adds steps
//	                  │
//	                  ▼
//	            Schedule.Call ──▶ pml: sends and receives whose tag has the sequence number
//
// A Team is a communicator. It numbers its collectives. A Schedule is one collective: a list of
// steps that a builder makes, once. Builders know algorithms and no requests; what runs the steps
// knows requests and no algorithms. So one builder serves all forms of a call:
//
//   - A blocking call runs the steps in its goroutine (Schedule.Run). Where it has to wait for
//     messages, the goroutine drives the engine.
//   - A nonblocking call runs what it can (Schedule.Launch). Then what was posted signals the
//     Schedule, which the engine runs at the end of the turn in which the last of it has ended. So
//     the steps run in any goroutine that makes progress, and never inside a transport. A goroutine
//     that waits for the collective may also find its message itself (Schedule.Look).
//   - A persistent call (Schedule.Keep) keeps the steps. Each start runs them as a nonblocking call
//     does.
//
// In some collectives the ranks of one host exchange no messages, but meet in memory that they
// share, in blocking and persistent calls. Nonblocking calls go by messages, because any number of
// them may be under way, and memory for them would have to be found anew in each call.
//
// A collective that fails at one rank fails at all ranks: the rank revokes it. Calls that do not
// belong together are found by mismatch probes. Both are control fragments of pml (pml/control.go),
// whose handler a Team is.
//
// # Files
//
//	team.go          a communicator
//	schedule.go      the steps of a collective, and how builders add them
//	phase.go         the forms of a call, and the states of a schedule
//	steps.go         what does the steps
//	run.go           blocking calls: waiting, and the end of one that fails
//	launch.go        nonblocking calls, which run in turns of progress
//	persistent.go    persistent ones
//	sequence.go      which collectives are under way, failed or over
//	revoke.go        collectives that a rank gives up, and the fragments that say so
//	tell.go          telling them without flooding a rank that makes no progress
//	checked.go       checked mode: what the ranks compare before a collective
//	mismatch.go      signatures of calls, and probes for calls that do not belong together
//	errors.go        the errors of collectives
//	area_setup.go    making the memory that the ranks of one host share (package area)
//	area_persistent.go
//	                 the memory of a persistent collective
//	meeting.go       collectives through that memory
//	meeting_kinds.go the table of what they do there
//	meeting_wait.go  how a rank waits in one
//	combine.go       what they copy and combine there
//	short.go         short collectives through it, without a schedule
//	hub.go           polls it
//	hosts.go         collectives of ranks on several hosts
//	tuning.go        which algorithm is taken when
//	ranges.go        arithmetic of ranks and ranges of bytes
//
// The other files have one builder each, or several that belong together.
package coll
