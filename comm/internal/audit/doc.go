// Package audit compares the calls of a job's ranks in checked mode. It knows element types and
// collectives, but neither communicators nor messages.
//
//	type.go        element types: what of them is compared, and what of them fits into a header
//	call.go        a collective call: its record on the wire, and how calls differ
//	lengths.go     the lengths of parts between pairs of ranks
//	buffer.go      checksums of buffers under way
//	op.go          names of reduction operations
//	line.go        the user's line that made a call
package audit
