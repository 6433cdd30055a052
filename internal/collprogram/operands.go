package collprogram

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/request"
)

// Operands are the arguments of a call at one rank. They stay the same when a persistent collective
// is started again; only the contents of the buffers change.
type Operands struct {
	call    *Call
	rank, n int
	in, out []Affine // as they are passed
	// input is the contribution of this rank, and result is where its result will be. Both may be
	// parts of in or out.
	input, result    []Affine
	counts, displs   []int
	rcounts, rdispls []int // of alltoallv
	op               comm.Op[Affine]
	opts             []comm.CollOption
}

// Prepare makes the arguments of a call for a rank of n, with the contents of the call.
func (c *Call) Prepare(rank, n int) *Operands {
	o := &Operands{call: c, rank: rank, n: n, op: func(in, inout []Affine) {
		for i := range inout {
			inout[i] = c.op(in[i], inout[i])
		}
	}}
	if c.InOrder {
		o.opts = append(o.opts, comm.InRankOrder())
	}
	if c.ID.HasCounts() {
		o.prepareCounts()
	} else {
		o.prepare()
	}
	o.Load(c.Contents)
	return o
}

// prepare makes the buffers of a call in which the part of each rank has Count elements.
func (o *Operands) prepare() {
	c, isRoot := o.call, o.rank == o.call.Root
	one, all := c.Count, o.n*c.Count
	switch c.ID {
	case calls.Barrier:
	case calls.Bcast:
		o.out = make([]Affine, one)
		if isRoot {
			o.input = o.out
		}
		o.result = o.out
	case calls.Reduce:
		o.vectors(one, one, isRoot)
	case calls.Allreduce, calls.Scan, calls.Exscan:
		o.vectors(one, one, true)
	case calls.ReduceScatterBlock:
		o.vectors(all, one, true)
	case calls.Alltoall:
		o.vectors(all, all, true)
	case calls.Gather:
		o.gathering(one, all, o.rank*one, isRoot)
	case calls.Allgather:
		o.gathering(one, all, o.rank*one, true)
	case calls.Scatter:
		o.scattering(one, all, o.rank*one)
	default:
		panic("no call " + c.ID.String())
	}
}

// prepareCounts makes the buffers of a call in which each rank has a length of its own.
func (o *Operands) prepareCounts() {
	c, isRoot := o.call, o.rank == o.call.Root
	where, total := c.layout(c.Counts)
	one, at := c.Counts[o.rank], where[o.rank]
	o.counts, o.displs = c.Counts, c.displs(c.Counts)
	switch c.ID {
	case calls.ReduceScatter:
		_, total := place(c.Counts, 0, false)
		o.vectors(total, one, true)
	case calls.Gatherv:
		o.gathering(one, total, at, isRoot)
	case calls.Allgatherv:
		o.gathering(one, total, at, true)
	case calls.Scatterv:
		o.scattering(one, total, at)
	case calls.Alltoallv:
		sent, received := c.sent(o.n, o.rank), c.received(o.n, o.rank)
		_, in := c.layout(sent)
		_, out := c.layout(received)
		o.vectors(in, out, true)
		o.counts, o.displs, o.rcounts, o.rdispls = sent, c.displs(sent), received, c.displs(received)
		if c.InPlace {
			o.counts, o.displs = nil, nil
		}
	default:
		panic("no call " + c.ID.String())
	}
	if c.ID.IsRooted() && !isRoot {
		o.counts, o.displs = nil, nil
	}
}

// vectors makes two vectors, or, in place, one. A rank that gets no result has only the first.
func (o *Operands) vectors(in, out int, gets bool) {
	o.input = make([]Affine, in)
	switch {
	case !gets:
		o.in = o.input
	case o.call.InPlace:
		o.out, o.result = o.input, o.input[:out]
	default:
		o.in, o.out = o.input, make([]Affine, out)
		o.result = o.out
	}
}

// gathering makes the buffers of a rank that contributes one part, and gets all parts if gets is
// set.
func (o *Operands) gathering(one, all, at int, gets bool) {
	if gets {
		o.out = make([]Affine, all)
		o.result = o.out
	}
	if gets && o.call.InPlace {
		o.input = o.out[at:][:one]
		return
	}
	o.in = make([]Affine, one)
	o.input = o.in
}

// scattering makes the buffers of a rank that gets one part of the root's buffer.
func (o *Operands) scattering(one, all, at int) {
	if o.rank == o.call.Root {
		o.in = make([]Affine, all)
		o.input = o.in
		if o.call.InPlace {
			o.result = o.in[at:][:one]
			return
		}
	}
	o.out = make([]Affine, one)
	o.result = o.out
}

// Load sets the contents of the buffers. The library must not use them.
func (o *Operands) Load(contents uint64) {
	o.call.Contents = contents
	clear(o.out)
	if o.call.ID == calls.Exscan { // rank 0 keeps it
		o.call.fill(o.out, o.rank, 0)
	}
	o.call.fill(o.input, o.rank, 0)
}

// Check compares the result with the model, and checks that input and gaps are unchanged.
func (o *Operands) Check() error {
	c := o.call
	err := same("result", kinds[c.ID].result(c, o.n, o.rank), o.result)
	if !c.InPlace || !c.ID.Combines() && c.ID != calls.Alltoall && c.ID != calls.Alltoallv {
		err = errors.Join(err, same("input", c.elements(o.rank, 0, len(o.input)), o.input))
	}
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	return nil
}

// Make makes the call. The request is null for a blocking call.
func (o *Operands) Make(w *comm.Comm, form Form) (r request.Request, err error) {
	switch kind := kinds[o.call.ID]; form {
	case Blocking:
		err = kind.blocking(w, o)
	case Nonblocking:
		r, err = kind.nonblocking(w, o)
	case Persistent:
		r, err = kind.persistent(w, o)
	}
	if err != nil {
		err = fmt.Errorf("%v: %w", o.call, err)
	}
	return r, err
}

// Check makes a call once, in some form, and checks its result.
func (c *Call) Check(w *comm.Comm, form Form) error {
	own := *c
	o := own.Prepare(w.Rank(), w.Size())
	r, err := o.Make(w, form)
	if err != nil {
		return err
	}
	if form == Persistent {
		if err := r.Start(); err != nil {
			return err
		}
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	if form == Persistent {
		if err := r.Free(); err != nil {
			return err
		}
	}
	return o.Check()
}

// same returns an error unless got equals want.
func same(what string, want, got []Affine) error {
	if slices.Equal(want, got) {
		return nil
	}
	if len(want) != len(got) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}
