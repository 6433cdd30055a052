package collprogram

import (
	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// forms are the three forms of a collective.
type forms struct {
	blocking    func(w *comm.Comm, o *Operands) error
	nonblocking func(w *comm.Comm, o *Operands) (request.Request, error)
	persistent  func(w *comm.Comm, o *Operands) (request.Request, error)
}

var (
	barrier = forms{
		func(w *comm.Comm, _ *Operands) error { return w.Barrier() },
		func(w *comm.Comm, _ *Operands) (request.Request, error) { return w.Ibarrier() },
		func(w *comm.Comm, _ *Operands) (request.Request, error) { return w.BarrierInit() },
	}
	bcast = forms{
		func(w *comm.Comm, o *Operands) error { return comm.Bcast(w, o.out, o.call.Root) },
		func(w *comm.Comm, o *Operands) (request.Request, error) { return comm.Ibcast(w, o.out, o.call.Root) },
		func(w *comm.Comm, o *Operands) (request.Request, error) { return comm.BcastInit(w, o.out, o.call.Root) },
	}
	reduce = forms{
		func(w *comm.Comm, o *Operands) error {
			return comm.Reduce(w, o.in, o.out, o.op, o.call.Root, o.opts...)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.Ireduce(w, o.in, o.out, o.op, o.call.Root, o.opts...)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.ReduceInit(w, o.in, o.out, o.op, o.call.Root, o.opts...)
		},
	}
	allreduce = forms{
		func(w *comm.Comm, o *Operands) error { return comm.Allreduce(w, o.in, o.out, o.op, o.opts...) },
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.Iallreduce(w, o.in, o.out, o.op, o.opts...)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.AllreduceInit(w, o.in, o.out, o.op, o.opts...)
		},
	}
	scan = forms{
		func(w *comm.Comm, o *Operands) error { return comm.Scan(w, o.in, o.out, o.op, o.opts...) },
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.Iscan(w, o.in, o.out, o.op, o.opts...)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.ScanInit(w, o.in, o.out, o.op, o.opts...)
		},
	}
	exscan = forms{
		func(w *comm.Comm, o *Operands) error { return comm.Exscan(w, o.in, o.out, o.op, o.opts...) },
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.Iexscan(w, o.in, o.out, o.op, o.opts...)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.ExscanInit(w, o.in, o.out, o.op, o.opts...)
		},
	}
	reduceScatter = forms{
		func(w *comm.Comm, o *Operands) error {
			return comm.ReduceScatter(w, o.in, o.out, o.counts, o.op, o.opts...)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.IreduceScatter(w, o.in, o.out, o.counts, o.op, o.opts...)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.ReduceScatterInit(w, o.in, o.out, o.counts, o.op, o.opts...)
		},
	}
	reduceScatterBlock = forms{
		func(w *comm.Comm, o *Operands) error { return comm.ReduceScatterBlock(w, o.in, o.out, o.op, o.opts...) },
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.IreduceScatterBlock(w, o.in, o.out, o.op, o.opts...)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.ReduceScatterBlockInit(w, o.in, o.out, o.op, o.opts...)
		},
	}
	gather = forms{
		func(w *comm.Comm, o *Operands) error { return comm.Gather(w, o.in, o.out, o.call.Root) },
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.Igather(w, o.in, o.out, o.call.Root)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.GatherInit(w, o.in, o.out, o.call.Root)
		},
	}
	gatherv = forms{
		func(w *comm.Comm, o *Operands) error {
			return comm.Gatherv(w, o.in, o.out, o.counts, o.displs, o.call.Root)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.Igatherv(w, o.in, o.out, o.counts, o.displs, o.call.Root)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.GathervInit(w, o.in, o.out, o.counts, o.displs, o.call.Root)
		},
	}
	scatter = forms{
		func(w *comm.Comm, o *Operands) error { return comm.Scatter(w, o.in, o.out, o.call.Root) },
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.Iscatter(w, o.in, o.out, o.call.Root)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.ScatterInit(w, o.in, o.out, o.call.Root)
		},
	}
	scatterv = forms{
		func(w *comm.Comm, o *Operands) error {
			return comm.Scatterv(w, o.in, o.out, o.counts, o.displs, o.call.Root)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.Iscatterv(w, o.in, o.out, o.counts, o.displs, o.call.Root)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.ScattervInit(w, o.in, o.out, o.counts, o.displs, o.call.Root)
		},
	}
	allgather = forms{
		func(w *comm.Comm, o *Operands) error { return comm.Allgather(w, o.in, o.out) },
		func(w *comm.Comm, o *Operands) (request.Request, error) { return comm.Iallgather(w, o.in, o.out) },
		func(w *comm.Comm, o *Operands) (request.Request, error) { return comm.AllgatherInit(w, o.in, o.out) },
	}
	allgatherv = forms{
		func(w *comm.Comm, o *Operands) error { return comm.Allgatherv(w, o.in, o.out, o.counts, o.displs) },
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.Iallgatherv(w, o.in, o.out, o.counts, o.displs)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.AllgathervInit(w, o.in, o.out, o.counts, o.displs)
		},
	}
	alltoall = forms{
		func(w *comm.Comm, o *Operands) error { return comm.Alltoall(w, o.in, o.out) },
		func(w *comm.Comm, o *Operands) (request.Request, error) { return comm.Ialltoall(w, o.in, o.out) },
		func(w *comm.Comm, o *Operands) (request.Request, error) { return comm.AlltoallInit(w, o.in, o.out) },
	}
	alltoallv = forms{
		func(w *comm.Comm, o *Operands) error {
			return comm.Alltoallv(w, o.in, o.counts, o.displs, o.out, o.rcounts, o.rdispls)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.Ialltoallv(w, o.in, o.counts, o.displs, o.out, o.rcounts, o.rdispls)
		},
		func(w *comm.Comm, o *Operands) (request.Request, error) {
			return comm.AlltoallvInit(w, o.in, o.counts, o.displs, o.out, o.rcounts, o.rdispls)
		},
	}
)
