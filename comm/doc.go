// Package comm is what programs import: communicators, and the calls that send and
// receive through them. It is MPI (the Message Passing Interface, version 4.1) in Go:
// the same semantics under the same names, as generic functions over slices.
//
//	func main() {
//		comm.Run(func(world *comm.Comm) error {
//			if world.Rank() == 0 {
//				return comm.Send(world, []float64{1, 2, 3}, 1, 0)
//			}
//			buf := make([]float64, 3)
//			_, err := comm.Recv(world, buf, 0, 0)
//			return err
//		})
//	}
//
// mpirun-go (or Hydra, or Slurm) starts such a program as the ranks of a job. [Run], or
// [Init] and [Comm.Finalize], join it; without a launcher the job is a world of one.
// [RunLocal] runs ranks as goroutines of one process, for tests and for a try.
//
// # Elements
//
// What travels is the bytes of a slice's elements. Their type may be any without pointers:
// numbers, bool, arrays and structs of these. Other types are ErrType; [SendValue] takes
// any. Types are not on the wire, so what is received as another type is the same bytes,
// and machines of different byte order do not understand each other.
//
// # Buffers and goroutines
//
// A slice that is given to a call is the library's until the call returns, or until its
// request is complete: not to be written to if it is sent, not to be touched if it is
// received into. Everything may be called from any goroutine. Calls that wait make progress
// for all others of the rank: there is no thread that does it behind the program's back.
//
// # Errors
//
// Errors are returned, and never fatal. What the calls return are [*Error] values, which say which
// call failed on which communicator with which peer and tag; errors.Is finds the kind. Of several
// things wrong with the arguments the first counts of: type, communicator, rank, tag, root, counts
// and lengths. Calls that wait for a rank that is gone end with ErrProcFailed or ErrUnreachable,
// and so do calls that wait for one that is in Finalize, within about a second. One case is the
// launcher's to end: a receive or probe from AnySource does not notice the death of a rank that
// this one was never in touch with.
//
// # Collectives
//
// All ranks of a communicator call the same collectives in the same order, with roots and lengths
// that fit. What counts as a call is the same at every rank: a call that is refused because of its
// root, its operation, its lengths or its buffers counts as made, and the next one meets the
// others' next one. It does not count, and is as if it had not been made, when the type of the
// elements or the communicator is wrong, when another goroutine is in a collective of the
// communicator, or when the view's context had ended.
//
// When a collective is refused or fails at one rank, it ends at all: those that are not done with
// it get an error that Is [ErrComm] and says which rank gave up, and why; it also Is [ErrCount] if
// the lengths differ, and [ErrProcFailed] if a rank is gone. No call waits for a rank that has
// given up, or that has made another call: ranks that have waited for some tenths of a second
// without hearing anything ask each other what they are doing. Differences that leave no rank
// waiting may go unnoticed. Who waits for a rank that is in Finalize gets [ErrProcFailed].
//
// If it was only arguments, the communicator is as good as before. After any other failure it is
// unfit for collectives at the ranks where something failed: they refuse all further ones
// (ErrComm), and so those end at the other ranks too.
//
// # Memory
//
// Buffers may be anywhere; those from [Alloc] are outside of Go's heap, where every transport
// can use them without a copy or a registration per call.
package comm
