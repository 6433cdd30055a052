package comm

import (
	"github.com/mpigo/mpigo/internal/calls"
)

// Nonblocking collectives (MPI 4.1, section 6.12). A call begins the operation, and its request is
// complete when this rank's part is done. Until then, the slices of elements belong to the library;
// counts and displacements may be used again at once. All ranks make the collective calls of a
// communicator in one order, blocking, nonblocking and persistent ones together. Any number may be
// under way, and they may end in any order.
//
// The call returns the errors of its arguments. The request returns all other errors, and the empty
// status. Cancel, and Free before the request is complete, are ErrRequest.

// Ibarrier is the nonblocking form of [Comm.Barrier]: the request is complete once every rank has
// called Ibarrier.
func (c *Comm) Ibarrier() (Request, error) { return c.barrier(nonblocking) }

// Ibcast is the nonblocking form of [Bcast].
func Ibcast[T any](c *Comm, buf []T, root int) (Request, error) {
	return c.bcast(nonblocking, bytesOf(buf), root, elemOf[T]())
}

// Ireduce is the nonblocking form of [Reduce].
func Ireduce[T any](c *Comm, in, out []T, op Op[T], root int, opts ...CollOption) (Request, error) {
	return c.reduce(nonblocking, bytesOf(in), bytesOf(out), reductionOf(op, opts), root, elemOf[T]())
}

// Iallreduce is the nonblocking form of [Allreduce].
func Iallreduce[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) (Request, error) {
	return c.allreduce(nonblocking, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
}

// Iscan is the nonblocking form of [Scan].
func Iscan[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) (Request, error) {
	return c.scan(nonblocking, calls.Scan, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
}

// Iexscan is the nonblocking form of [Exscan].
func Iexscan[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) (Request, error) {
	return c.scan(nonblocking, calls.Exscan, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
}

// IreduceScatter is the nonblocking form of [ReduceScatter].
func IreduceScatter[T any](c *Comm, in, out []T, counts []int, op Op[T], opts ...CollOption) (Request, error) {
	return c.reduceScatter(nonblocking, bytesOf(in), bytesOf(out), counts, reductionOf(op, opts), elemOf[T]())
}

// IreduceScatterBlock is the nonblocking form of [ReduceScatterBlock].
func IreduceScatterBlock[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) (Request, error) {
	return c.reduceScatterBlock(nonblocking, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
}

// Igather is the nonblocking form of [Gather].
func Igather[T any](c *Comm, in, out []T, root int) (Request, error) {
	return c.gather(nonblocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), root, elemOf[T]())
}

// Igatherv is the nonblocking form of [Gatherv].
func Igatherv[T any](c *Comm, in, out []T, counts, displs []int, root int) (Request, error) {
	return c.gatherv(nonblocking, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), root, elemOf[T]())
}

// Iscatter is the nonblocking form of [Scatter].
func Iscatter[T any](c *Comm, in, out []T, root int) (Request, error) {
	return c.scatter(nonblocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), root, elemOf[T]())
}

// Iscatterv is the nonblocking form of [Scatterv].
func Iscatterv[T any](c *Comm, in, out []T, counts, displs []int, root int) (Request, error) {
	return c.scatterv(nonblocking, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), root, elemOf[T]())
}

// Iallgather is the nonblocking form of [Allgather].
func Iallgather[T any](c *Comm, in, out []T) (Request, error) {
	return c.allgather(nonblocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
}

// Iallgatherv is the nonblocking form of [Allgatherv].
func Iallgatherv[T any](c *Comm, in, out []T, counts, displs []int) (Request, error) {
	return c.allgatherv(nonblocking, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), elemOf[T]())
}

// Ialltoall is the nonblocking form of [Alltoall].
func Ialltoall[T any](c *Comm, in, out []T) (Request, error) {
	return c.alltoall(nonblocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
}

// Ialltoallv is the nonblocking form of [Alltoallv].
func Ialltoallv[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) (Request, error) {
	return c.alltoallv(nonblocking, bytesOf(in), layoutOf[T](scounts, sdispls), bytesOf(out), layoutOf[T](rcounts, rdispls),
		elemOf[T]())
}

// IneighborAllgather is the nonblocking form of [NeighborAllgather].
func IneighborAllgather[T any](c *Comm, in, out []T) (Request, error) {
	return c.neighborAllgather(nonblocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
}

// IneighborAllgatherv is the nonblocking form of [NeighborAllgatherv].
func IneighborAllgatherv[T any](c *Comm, in, out []T, counts, displs []int) (Request, error) {
	return c.neighborAllgatherv(nonblocking, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), elemOf[T]())
}

// IneighborAlltoall is the nonblocking form of [NeighborAlltoall].
func IneighborAlltoall[T any](c *Comm, in, out []T) (Request, error) {
	return c.neighborAlltoall(nonblocking, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
}

// IneighborAlltoallv is the nonblocking form of [NeighborAlltoallv].
func IneighborAlltoallv[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) (Request, error) {
	return c.neighborAlltoallv(nonblocking, bytesOf(in), layoutOf[T](scounts, sdispls), bytesOf(out),
		layoutOf[T](rcounts, rdispls), elemOf[T]())
}
