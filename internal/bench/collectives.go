package bench

import (
	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/request"
)

// row describes one collective of the table.
type row struct {
	id   calls.ID // of the blocking form
	unit int      // bytes of an element
	// One function for each form: open is nil for the barrier, which has a benchmark of its own.
	open, openNonblocking, openPersistent func(j *job) (exercise, error)
}

const floatBytes = 4

func newRow[T element](id calls.ID, unit int, c collective[T]) row {
	r := row{id: id, unit: unit, openNonblocking: openNonblocking(c), openPersistent: openPersistentCollective(c)}
	if c.call != nil {
		r.open = openCollective(c)
	}
	return r
}

// collectives lists the collectives. A size is the size of one rank's buffer. If a buffer has a
// part for each rank, it is the size of a part. For a reducescatter it is the size of the whole
// vector.
func collectives() []row {
	return []row{
		newRow(calls.Barrier, 0, collective[byte]{
			synchronizes: true, in: none, out: none,
			begin:   func(c *comm.Comm, _ shape, _, _ []byte) (request.Request, error) { return c.Ibarrier() },
			prepare: func(c *comm.Comm, _ shape, _, _ []byte) (request.Request, error) { return c.BarrierInit() },
		}),
		newRow(calls.Bcast, 1, collective[byte]{
			in:  rootOnly(one),
			out: func(s shape) int { return one(s) - rootOnly(one)(s) },
			call: func(c *comm.Comm, s shape, in, out []byte) error {
				return comm.Bcast(c, s.bcastBuffer(in, out), 0)
			},
			begin: func(c *comm.Comm, s shape, in, out []byte) (request.Request, error) {
				return comm.Ibcast(c, s.bcastBuffer(in, out), 0)
			},
			prepare: func(c *comm.Comm, s shape, in, out []byte) (request.Request, error) {
				return comm.BcastInit(c, s.bcastBuffer(in, out), 0)
			},
			origin: func(s shape, i int) (int, int) { return 0, i },
		}),
		newRow(calls.Reduce, floatBytes, collective[float32]{
			in: one, out: rootOnly(one), origin: sumOf,
			call: func(c *comm.Comm, _ shape, in, out []float32) error {
				return comm.Reduce(c, in, out, comm.Sum, 0)
			},
			begin: func(c *comm.Comm, _ shape, in, out []float32) (request.Request, error) {
				return comm.Ireduce(c, in, out, comm.Sum, 0)
			},
			prepare: func(c *comm.Comm, _ shape, in, out []float32) (request.Request, error) {
				return comm.ReduceInit(c, in, out, comm.Sum, 0)
			},
		}),
		newRow(calls.Allreduce, floatBytes, collective[float32]{
			in: one, out: one, origin: sumOf,
			call: func(c *comm.Comm, _ shape, in, out []float32) error {
				return comm.Allreduce(c, in, out, comm.Sum)
			},
			begin: func(c *comm.Comm, _ shape, in, out []float32) (request.Request, error) {
				return comm.Iallreduce(c, in, out, comm.Sum)
			},
			prepare: func(c *comm.Comm, _ shape, in, out []float32) (request.Request, error) {
				return comm.AllreduceInit(c, in, out, comm.Sum)
			},
		}),
		newRow(calls.ReduceScatter, floatBytes, collective[float32]{
			in:  one,
			out: func(s shape) int { return s.shares[s.rank] },
			call: func(c *comm.Comm, s shape, in, out []float32) error {
				return comm.ReduceScatter(c, in, out, s.shares, comm.Sum)
			},
			begin: func(c *comm.Comm, s shape, in, out []float32) (request.Request, error) {
				return comm.IreduceScatter(c, in, out, s.shares, comm.Sum)
			},
			prepare: func(c *comm.Comm, s shape, in, out []float32) (request.Request, error) {
				return comm.ReduceScatterInit(c, in, out, s.shares, comm.Sum)
			},
			origin: func(s shape, i int) (int, int) {
				for _, n := range s.shares[:s.rank] {
					i += n
				}
				return all, i
			},
		}),
		newRow(calls.Gather, 1, collective[byte]{
			in: one, out: rootOnly(forEach), origin: partOf,
			call: func(c *comm.Comm, _ shape, in, out []byte) error { return comm.Gather(c, in, out, 0) },
			begin: func(c *comm.Comm, _ shape, in, out []byte) (request.Request, error) {
				return comm.Igather(c, in, out, 0)
			},
			prepare: func(c *comm.Comm, _ shape, in, out []byte) (request.Request, error) {
				return comm.GatherInit(c, in, out, 0)
			},
		}),
		newRow(calls.Scatter, 1, collective[byte]{
			in: rootOnly(forEach), out: one,
			origin: func(s shape, i int) (int, int) { return 0, s.rank*s.count + i },
			call:   func(c *comm.Comm, _ shape, in, out []byte) error { return comm.Scatter(c, in, out, 0) },
			begin: func(c *comm.Comm, _ shape, in, out []byte) (request.Request, error) {
				return comm.Iscatter(c, in, out, 0)
			},
			prepare: func(c *comm.Comm, _ shape, in, out []byte) (request.Request, error) {
				return comm.ScatterInit(c, in, out, 0)
			},
		}),
		newRow(calls.Allgather, 1, collective[byte]{
			in: one, out: forEach, origin: partOf,
			call: func(c *comm.Comm, _ shape, in, out []byte) error { return comm.Allgather(c, in, out) },
			begin: func(c *comm.Comm, _ shape, in, out []byte) (request.Request, error) {
				return comm.Iallgather(c, in, out)
			},
			prepare: func(c *comm.Comm, _ shape, in, out []byte) (request.Request, error) {
				return comm.AllgatherInit(c, in, out)
			},
		}),
		newRow(calls.Alltoall, 1, collective[byte]{
			in: forEach, out: forEach,
			origin: func(s shape, i int) (int, int) { return i / s.count, s.rank*s.count + i%s.count },
			call:   func(c *comm.Comm, _ shape, in, out []byte) error { return comm.Alltoall(c, in, out) },
			begin: func(c *comm.Comm, _ shape, in, out []byte) (request.Request, error) {
				return comm.Ialltoall(c, in, out)
			},
			prepare: func(c *comm.Comm, _ shape, in, out []byte) (request.Request, error) {
				return comm.AlltoallInit(c, in, out)
			},
		}),
	}
}

func none(shape) int      { return 0 }
func one(s shape) int     { return s.count }
func forEach(s shape) int { return s.count * s.ranks }

func rootOnly(n func(s shape) int) func(s shape) int {
	return func(s shape) int {
		if s.rank != 0 {
			return 0
		}
		return n(s)
	}
}

// bcastBuffer returns the buffer of a broadcast: the root sends from in, the others receive in out.
func (s shape) bcastBuffer(in, out []byte) []byte {
	if s.rank == 0 {
		return in
	}
	return out
}

func sumOf(_ shape, i int) (int, int)  { return all, i }
func partOf(s shape, i int) (int, int) { return i / s.count, i % s.count }
