// Package comm is the package that programs import: communicators, and the calls that send and
// receive through them. It is MPI (the Message Passing Interface, version 4.1) in Go: the same
// semantics under the same names, as generic functions over slices.
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
// docs/mpi.md lists every name of MPI with the name here, or with what to do instead.
//
// mpirun-go (or Hydra, or Slurm) starts such a program as the ranks of a job. [Run], or [Init] and
// [Comm.Finalize], join the job. Without a launcher the job has one rank. [RunLocal] runs ranks as
// goroutines of one process, for tests and experiments.
//
// With Go 1.27, each generic function whose first parameter is a communicator is also a method:
//
//	err := world.Allreduce(in, out, comm.Sum)
//
// # Elements
//
// A message consists of the bytes of a slice's elements. Elements may have any type without
// pointers: numbers, bool, arrays and structs of these. Other types are ErrType; [SendValue] takes
// any type. Messages do not carry types. A receive with another type gets the same bytes, and
// machines of different byte orders cannot exchange numbers.
//
// # Buffers and goroutines
//
// A slice that is passed to a call belongs to the library until the call returns, or until its
// request is complete. Until then the program must not write to a slice that is sent, and must not
// touch a slice that is received into.
//
// All functions may be called from any goroutine. A call that waits makes progress for all other
// calls of the rank. No thread polls all the time. While nonblocking collectives are under way and
// the program computes, a goroutine of the library sleeps until a message arrives, and then
// continues them. A transport may ask for single progress calls.
//
// # Requests
//
// Isend, Irecv and similar calls begin an operation and return a [Request]. Its methods wait for
// the operation, test it, and cancel it. [WaitAll], [WaitAny], [Completed] and similar functions do
// this for several requests. [SendInit] and similar functions make a persistent request, which can
// be started any number of times ([StartAll]).
//
// # Errors
//
// Errors are returned and are never fatal. Calls return an [*Error]. It says which call failed on
// which communicator, at which line of the program, with which peer and tag; errors.Is finds the
// kind. If several arguments are wrong, the error is about the first wrong one in this order: type,
// communicator, rank, tag, root, counts and lengths.
//
// A call that waits for a rank that is gone ends with ErrProcFailed or ErrUnreachable. So does a
// call that waits for a rank in Finalize, within about a second. There is one exception: a receive
// or probe from AnySource does not notice the death of a rank that this rank was never in contact
// with. The launcher then ends the job.
//
// # Collectives
//
// All ranks of a communicator call the same collectives in the same order, with roots and lengths
// that agree. A call that is refused because of its root, operation, lengths or buffers counts, and
// so does a call whose context has ended ([ErrGivenUp]): this rank's next call matches the next
// call of the other ranks. A call does not count if the type of the elements or the communicator is
// wrong, or if another goroutine is in a collective of the communicator.
//
// A collective works in place (MPI_IN_PLACE) at a rank that passes nil, where the comment of the
// call says so. An empty slice that is not nil never means in place. A slice that append has built
// may be nil if it has no elements. It may be passed wherever the call expects no elements: the
// call then does the same in place or not. [Alltoallv] works in place only if the counts are nil
// too, because its counts may expect elements where the slice has none.
//
// Each collective has three forms. The calls of all forms on a communicator have one common order,
// and calls of different forms do not match.
//
//   - The blocking form, such as [Bcast], returns when this rank's part is done.
//   - The nonblocking form, [Ibcast], begins the operation and returns a request, which is complete
//     when this rank's part is done. Any number may be under way, and they may end in any order.
//   - The persistent form, [BcastInit], returns a request that runs the operation each time it is
//     started. The Init call waits until all ranks have made it. All ranks start the request
//     equally often; several requests may be started in another order at each rank.
//
// A request of a collective has the empty status. Cancel is [ErrRequest], and so is Free while the
// collective is under way. An operation that panics ends its collective, also at all ranks that
// still need this rank for it. A blocking call panics in turn; a request ends with a [PanicError].
//
// A collective that is refused or fails at one rank returns an error at every rank that has not
// finished it. The error says which rank gave up, and why. It Is [ErrCount] if the lengths differ,
// [ErrProcFailed] if a rank is gone or in Finalize, and [ErrComm] at ranks that learn of the
// failure from another rank.
//
// No call waits for a rank that has given up or that has made another call: ranks whose collective
// makes no progress for some tenths of a second compare their calls. A mismatch that leaves no rank
// waiting may go unnoticed. Checked mode compares the calls of all ranks each time, and says how
// they differ. If results are wrong, try --set check=true first.
//
// A persistent collective is a request. AllreduceInit and similar calls make it, with the buffers
// that all its starts use. Start and Wait of the request, or [StartAll] and [WaitAll], run it any
// number of times. Free ends it, and releases the memory that ranks of one host share for it, at
// most coll.shared.bytes a rank.
//
// Starts have no order. So a start waits for a rank that has not started the collective as long as
// that rank keeps the request, even if it makes other calls. The start fails, and Wait returns the
// error, once that rank has freed the request, is gone or is in Finalize. After a start has failed,
// all later starts fail.
//
// If only arguments were wrong, or the context had ended before the call began, the communicator
// can still be used. After any other failure it is unfit for collectives at the ranks where
// something failed. These ranks refuse all further collectives (ErrComm), which then fail at the
// other ranks too.
//
// # Communicators
//
// [Comm.Dup], [Comm.Split], [Comm.Create], [Comm.Cart], [Comm.Graph] and similar calls are
// collectives that make a communicator from another one. All ranks of the old one call them; only
// [Comm.CreateGroup] is called by the members of the new one alone. Ranks that pass different
// arguments, or make different calls, get errors as far as the library detects it.
//
// A [Group] is a set of ranks of the world, an [AttrKey] names values that a program keeps with a
// communicator, and [Comm.Neighbors] lists the neighbours of a rank in a topology.
//
// # Memory
//
// Buffers may be anywhere in memory. Buffers from [Alloc] are outside of Go's heap, so every
// transport can use them without a copy or a registration per call.
package comm
