package main

import "github.com/mpigo/mpigo/comm"

// row describes one collective of the table.
type row struct {
	name string
	unit int // bytes of an element
	open func(j *job) (exercise, error)
}

const floatBytes = 4

// collectives lists the collectives. A size is that of one rank's buffer. Where a buffer has a part
// for each rank, it is that of a part. The size of a reducescatter is that of the whole vector.
func collectives() []row {
	return []row{
		{"bcast", 1, openCollective(collective[byte]{
			in:  rootOnly(one),
			out: func(s shape) int { return one(s) - rootOnly(one)(s) },
			call: func(c *comm.Comm, s shape, in, out []byte) error {
				if s.rank == 0 {
					out = in
				}
				return comm.Bcast(c, out, 0)
			},
			origin: func(s shape, i int) (int, int) { return 0, i },
		})},
		{"reduce", floatBytes, openCollective(collective[float32]{
			in: one, out: rootOnly(one), origin: sumOf,
			call: func(c *comm.Comm, _ shape, in, out []float32) error {
				return comm.Reduce(c, in, out, comm.Sum, 0)
			},
		})},
		{"allreduce", floatBytes, openCollective(collective[float32]{
			in: one, out: one, origin: sumOf,
			call: func(c *comm.Comm, _ shape, in, out []float32) error {
				return comm.Allreduce(c, in, out, comm.Sum)
			},
		})},
		{"reducescatter", floatBytes, openCollective(collective[float32]{
			in:  one,
			out: func(s shape) int { return s.shares[s.rank] },
			call: func(c *comm.Comm, s shape, in, out []float32) error {
				return comm.ReduceScatter(c, in, out, s.shares, comm.Sum)
			},
			origin: func(s shape, i int) (int, int) {
				for _, n := range s.shares[:s.rank] {
					i += n
				}
				return all, i
			},
		})},
		{"gather", 1, openCollective(collective[byte]{
			in: one, out: rootOnly(forEach), origin: partOf,
			call: func(c *comm.Comm, _ shape, in, out []byte) error { return comm.Gather(c, in, out, 0) },
		})},
		{"scatter", 1, openCollective(collective[byte]{
			in: rootOnly(forEach), out: one,
			origin: func(s shape, i int) (int, int) { return 0, s.rank*s.count + i },
			call:   func(c *comm.Comm, _ shape, in, out []byte) error { return comm.Scatter(c, in, out, 0) },
		})},
		{"allgather", 1, openCollective(collective[byte]{
			in: one, out: forEach, origin: partOf,
			call: func(c *comm.Comm, _ shape, in, out []byte) error { return comm.Allgather(c, in, out) },
		})},
		{"alltoall", 1, openCollective(collective[byte]{
			in: forEach, out: forEach,
			origin: func(s shape, i int) (int, int) { return i / s.count, s.rank*s.count + i%s.count },
			call:   func(c *comm.Comm, _ shape, in, out []byte) error { return comm.Alltoall(c, in, out) },
		})},
	}
}

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

func sumOf(_ shape, i int) (int, int)  { return all, i }
func partOf(s shape, i int) (int, int) { return i / s.count, i % s.count }
