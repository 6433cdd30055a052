// Package railsim runs jobs over rails whose networks change, in virtual time: the production code
// of packages pml and bml, and a transport's endpoints, over the links and TCP connections of
// package network. Rails are slow, swap their rates, carry the traffic of others, lose packets, are
// silent for a while, or break.
//
// A job (job.go) makes progress all the time, and sleeps until something arrives. The tests have
// scenarios with figures. A seed (seed.go, run.go) determines rails, faults, and messages that go
// one after another.
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
//	again       rails carry again what failed rails had in the air, 2 % of what was delivered, and
//	            256 KiB for each sender and receiver, and no more
//	restart     no transfer goes on in another way: a rail is always up that it can use
//	failure     no rail fails that was not broken or silent
//	time        no message takes longer than a multiple of what the fluid model takes
//	abort       no message fails: in each plan some rail always delivers
package railsim
