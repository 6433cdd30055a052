// Package railsim runs jobs over rails whose networks change, in virtual time: the production code
// of packages pml and bml, and a transport's endpoints, over the links and TCP connections of
// package network. Rails are slow, swap their rates, carry the traffic of others, lose packets, are
// silent for a while, or break.
//
// A job (job.go) makes progress all the time, and sleeps until something arrives. The tests have
// scenarios with figures. A seed (seed.go, run.go) determines the rails, the faults, and sequences
// of messages.
//
// # Invariants
//
//	bounded     every message ends
//	bytes       each arrives once, with the bytes that were sent, and nothing behind them
//	canary      nothing is written to the buffer of a complete receive
//	transition  the tables of states hold
//
// With Options.CarriesOn also:
//
//	again       rails resend at most the bytes in flight on failed rails, 2 % of the delivered
//	            bytes, and 256 KiB for each sender and receiver
//	restart     no transfer restarts in another way, because a rail that it can use is always up
//	failure     only rails that were broken or silent fail
//	time        no message takes longer than a multiple of the time of the fluid model
//	abort       no message fails: in each plan some rail always delivers
package railsim
