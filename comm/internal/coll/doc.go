// Package coll runs the collectives of a communicator at one rank. It knows ranks and contexts of
// package pml, and nothing of comm.Comm.
//
//	comm.Bcast ── checks arguments
//	   │
//	   ▼
//	Team.Begin ──▶ Schedule ◀── Schedule.Bcast, a builder: adds steps
//	                  │
//	                  ▼
//	            Schedule.Run ──▶ pml: sends and receives whose tag is the sequence number
//
// A Team is a communicator. It numbers its collectives. A Schedule is one collective: a list of
// steps that a builder makes, once, and that Run does. Builders know algorithms and no requests;
// Run knows requests and no algorithms. So one builder can serve blocking, nonblocking and
// persistent calls.
//
// A collective that fails at one rank fails at all ranks: the rank revokes it. Calls that do not
// belong together are found by mismatch probes. Both are control fragments of pml (pml/control.go),
// whose handler a Team is.
//
// # Files
//
//	team.go      a communicator
//	schedule.go  the steps of a collective, and how builders add them
//	run.go       what does the steps, and ends a collective that fails
//	sequence.go  which collectives are open, failed or finished
//	revoke.go    collectives that a rank gives up, and the fragments that say so
//	mismatch.go  signatures of calls, and probes for calls that do not belong together
//	errors.go    the errors of collectives
//	area.go      memory that the ranks of one host share
//	meeting.go   collectives through that memory, and waiting for it
//	combine.go   what they do there
//	hub.go       polls it
//	tuning.go    which algorithm is taken when
//	ranges.go    arithmetic of ranks and ranges of bytes
//
// The other files have one builder each, or several that belong together.
package coll
