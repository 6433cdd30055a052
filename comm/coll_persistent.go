package comm

import (
	"github.com/mpigo/mpigo/internal/calls"
)

// Persistent collectives (MPI 4.1, section 6.13). The Init call is a collective: all ranks make it,
// in order with their other collective calls, and it waits for the others to make it. Each Start of
// the request then runs the collective. All ranks start it equally often, and may start several in
// any order.
//
// Every start uses the slices that were passed to Init. They belong to the library from Start until
// the request is complete. Counts and displacements may be used again after Init. If a start fails,
// all later starts fail. Cancel, and Free while the request is active, are ErrRequest.
//
// Free is local: starts at other ranks that wait for this rank fail (ErrComm).
//
// Between ranks of one host, a barrier, Bcast, Reduce, Allreduce, Allgather or Alltoall keeps
// memory that they share until Free: for each rank about four times its contribution, and at most
// the setting coll.shared.bytes.

// BarrierInit is the persistent form of [Comm.Barrier].
func (c *Comm) BarrierInit() (Request, error) { return c.barrier(persistent) }

// BcastInit is the persistent form of [Bcast].
func BcastInit[T any](c *Comm, buf []T, root int) (Request, error) {
	return c.bcast(persistent, bytesOf(buf), root, elemOf[T]())
}

// ReduceInit is the persistent form of [Reduce].
func ReduceInit[T any](c *Comm, in, out []T, op Op[T], root int, opts ...CollOption) (Request, error) {
	return c.reduce(persistent, bytesOf(in), bytesOf(out), reductionOf(op, opts), root, elemOf[T]())
}

// AllreduceInit is the persistent form of [Allreduce].
func AllreduceInit[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) (Request, error) {
	return c.allreduce(persistent, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
}

// ScanInit is the persistent form of [Scan].
func ScanInit[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) (Request, error) {
	return c.scan(persistent, calls.Scan, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
}

// ExscanInit is the persistent form of [Exscan].
func ExscanInit[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) (Request, error) {
	return c.scan(persistent, calls.Exscan, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
}

// ReduceScatterInit is the persistent form of [ReduceScatter].
func ReduceScatterInit[T any](c *Comm, in, out []T, counts []int, op Op[T], opts ...CollOption) (Request, error) {
	return c.reduceScatter(persistent, bytesOf(in), bytesOf(out), counts, reductionOf(op, opts), elemOf[T]())
}

// ReduceScatterBlockInit is the persistent form of [ReduceScatterBlock].
func ReduceScatterBlockInit[T any](c *Comm, in, out []T, op Op[T], opts ...CollOption) (Request, error) {
	return c.reduceScatterBlock(persistent, bytesOf(in), bytesOf(out), reductionOf(op, opts), elemOf[T]())
}

// GatherInit is the persistent form of [Gather].
func GatherInit[T any](c *Comm, in, out []T, root int) (Request, error) {
	return c.gather(persistent, bytesOf(in), bytesOf(out), int(sizeOf[T]()), root, elemOf[T]())
}

// GathervInit is the persistent form of [Gatherv].
func GathervInit[T any](c *Comm, in, out []T, counts, displs []int, root int) (Request, error) {
	return c.gatherv(persistent, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), root, elemOf[T]())
}

// ScatterInit is the persistent form of [Scatter].
func ScatterInit[T any](c *Comm, in, out []T, root int) (Request, error) {
	return c.scatter(persistent, bytesOf(in), bytesOf(out), int(sizeOf[T]()), root, elemOf[T]())
}

// ScattervInit is the persistent form of [Scatterv].
func ScattervInit[T any](c *Comm, in, out []T, counts, displs []int, root int) (Request, error) {
	return c.scatterv(persistent, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), root, elemOf[T]())
}

// AllgatherInit is the persistent form of [Allgather].
func AllgatherInit[T any](c *Comm, in, out []T) (Request, error) {
	return c.allgather(persistent, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
}

// AllgathervInit is the persistent form of [Allgatherv].
func AllgathervInit[T any](c *Comm, in, out []T, counts, displs []int) (Request, error) {
	return c.allgatherv(persistent, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), elemOf[T]())
}

// AlltoallInit is the persistent form of [Alltoall].
func AlltoallInit[T any](c *Comm, in, out []T) (Request, error) {
	return c.alltoall(persistent, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
}

// AlltoallvInit is the persistent form of [Alltoallv].
func AlltoallvInit[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) (Request, error) {
	return c.alltoallv(persistent, bytesOf(in), layoutOf[T](scounts, sdispls), bytesOf(out), layoutOf[T](rcounts, rdispls),
		elemOf[T]())
}

// NeighborAllgatherInit is the persistent form of [NeighborAllgather].
func NeighborAllgatherInit[T any](c *Comm, in, out []T) (Request, error) {
	return c.neighborAllgather(persistent, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
}

// NeighborAllgathervInit is the persistent form of [NeighborAllgatherv].
func NeighborAllgathervInit[T any](c *Comm, in, out []T, counts, displs []int) (Request, error) {
	return c.neighborAllgatherv(persistent, bytesOf(in), bytesOf(out), layoutOf[T](counts, displs), elemOf[T]())
}

// NeighborAlltoallInit is the persistent form of [NeighborAlltoall].
func NeighborAlltoallInit[T any](c *Comm, in, out []T) (Request, error) {
	return c.neighborAlltoall(persistent, bytesOf(in), bytesOf(out), int(sizeOf[T]()), elemOf[T]())
}

// NeighborAlltoallvInit is the persistent form of [NeighborAlltoallv].
func NeighborAlltoallvInit[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) (Request, error) {
	return c.neighborAlltoallv(persistent, bytesOf(in), layoutOf[T](scounts, sdispls), bytesOf(out),
		layoutOf[T](rcounts, rdispls), elemOf[T]())
}
