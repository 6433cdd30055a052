// Package mpigo is the root of an MPI-like message-passing library for Go, and contains no code. A
// parallel program runs as several processes, called ranks, which import package comm to send
// slices to each other. The command mpirun-go builds and starts them:
//
//	package main
//
//	import (
//		"fmt"
//
//		"github.com/mpigo/mpigo/comm"
//	)
//
//	func main() {
//		comm.Run(func(world *comm.Comm) error {
//			part, sum := []float64{float64(world.Rank() + 1)}, []float64{0}
//			if err := comm.Allreduce(world, part, sum, comm.Sum); err != nil {
//				return err
//			}
//			if world.Rank() == 0 {
//				fmt.Println("the sum over", world.Size(), "ranks is", sum[0])
//			}
//			return nil
//		})
//	}
//
// "mpirun-go -n 4 ." prints: the sum over 4 ranks is 10.
//
// # Packages
//
// For programs:
//
//   - [github.com/mpigo/mpigo/comm]: communicators, and all calls that send, receive and combine
//   - [github.com/mpigo/mpigo/request]: the types of requests and statuses, which comm exports too
//   - [github.com/mpigo/mpigo/mpitest]: for tests, ranks in one process, without a launcher
//
// For contributors to the library, from top to bottom:
//
//   - [github.com/mpigo/mpigo/pml]: matches messages with receives, and chooses protocols
//   - [github.com/mpigo/mpigo/bml]: stripes messages over rails, and replays what a rail lost
//   - [github.com/mpigo/mpigo/btl]: the contract of a transport; transports are below it
//   - [github.com/mpigo/mpigo/progress]: the engine that polls the transports
//
// # Compatibility
//
// Programs that use comm, request and mpitest as documented keep compiling, and keep their meaning,
// with later versions of the same major version, from version 1 on. All ranks of a job need the
// same version. Error texts are for people: programs use errors.Is and errors.As. Everything else
// may change with any version: the other packages, algorithms, and the wire format.
//
// README.md is the guide for users, ARCHITECTURE.md shows how the library is built. docs/mpi.md has
// every name of MPI, with the name here or what to do instead.
package mpigo

// With this import, "go get github.com/mpigo/mpigo" also gets what programs that import comm need.
import _ "github.com/mpigo/mpigo/comm"
