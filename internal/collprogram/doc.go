// Package collprogram makes random programs of collectives and messages, and checks every result
// against a naive model. It uses the public API only.
//
// A program follows from a seed and the number of ranks. It is a list of steps, which is the same
// at all ranks: collectives in all three forms, starts of persistent ones, messages, new
// communicators. Each rank begins its part of the steps in this order. It chooses at random when
// and by which call it waits for its operations, and in which order it starts several persistent
// collectives. No program can deadlock: a rank only waits for operations that all ranks begin in
// earlier steps.
//
//	call.go       one collective, and the model of its result
//	operands.go   its arguments at one rank
//	forms.go      the calls
//	program.go    the steps of a program
//	generate.go   random programs
//	run.go        a program at one rank
//	complete.go   the ways to wait
package collprogram
