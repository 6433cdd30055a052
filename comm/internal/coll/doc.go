// Package coll runs the collectives of a communicator at one rank. It knows ranks and contexts of
// package pml, but not comm.Comm.
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
// steps that a builder makes, once. Builders know only algorithms, and the code that runs the steps
// knows only requests. So one builder serves all forms of a call:
//
//   - A blocking call runs the steps in its goroutine (Schedule.Run). Where it has to wait for
//     messages, the goroutine drives the engine.
//   - A nonblocking call runs steps until one has to wait (Schedule.Launch). When the last posted
//     operation ends, the engine runs the Schedule at the end of that progress call. So any
//     goroutine that makes progress runs the steps, but never inside a transport. A goroutine that
//     waits for the collective may also find its message itself (Schedule.Look).
//   - A persistent call (Schedule.Keep) keeps the steps. Each start runs them as a nonblocking call
//     does.
//
// In some blocking and persistent collectives, the ranks of one host meet in shared memory instead
// of exchanging messages. Nonblocking calls use messages: any number of them may be under way, and
// each would need new shared memory.
//
// A rank whose collective fails revokes it, so it fails at all ranks. Mismatch probes find calls
// that do not match. Both are control fragments of pml (pml/control.go), and a Team handles them.
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
