package pml

import (
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// PairRequest is a send and a receive that are one request. It completes when both are complete,
// with the status of the receive, and with the error of the receive or, if there is none, of the
// send. The PML makes pairs, and pools them.
type PairRequest struct {
	request.Object
	p *PML
	// The halves; nil once the pair has taken their outcome.
	send *SendRequest
	recv *RecvRequest
	// The results of the completed halves.
	status           request.Status
	recvErr, sendErr error
	// The arguments of the receive, for errors.
	ctx         *Context
	source, tag int
	op          string

	halves progress.Waiter // for the halves that are active
}

// Sendrecv has the arguments of the two halves of a pair.
type Sendrecv struct {
	Send          []byte
	Dest, SendTag int
	Recv          []byte
	Elem          int // size of an element of Recv
	Source        int
	RecvTag       int
	Op            string
}

// Isendrecv starts a send and a receive. The buffers, which do not overlap, belong to the library
// until the request is complete.
func (p *PML) Isendrecv(c *Context, a Sendrecv) *PairRequest {
	r := p.newPair(c, a)
	r.join(
		p.Irecv(c, a.Recv, a.Elem, a.Source, a.RecvTag, a.Op),
		p.Isend(c, a.Send, a.Dest, a.SendTag, Standard, a.Op),
	)
	return r
}

func (p *PML) newPair(c *Context, a Sendrecv) *PairRequest {
	r := p.freePairs.get()
	if r == nil {
		r = &PairRequest{p: p}
		r.Bind(p.eng, r)
	}
	r.ctx, r.source, r.tag, r.op, r.ElemBytes = c, a.Source, a.RecvTag, a.Op, a.Elem
	r.Activate()
	return r
}

// join makes two operations the halves of a pair.
func (r *PairRequest) join(recv *RecvRequest, send *SendRequest) {
	r.recv, r.send = recv, send
	r.recv.pair, r.send.pair = r, r
	r.advance()
}

// or returns the object of the user's request: the pair, or, without a pair, the operation itself.
func (r *PairRequest) or(half *request.Object) *request.Object {
	if r != nil {
		return &r.Object
	}
	return half
}

// Run implements progress.Task: a half has completed.
func (r *PairRequest) Run() {
	if r.State() == request.Active {
		r.unwatch()
		r.advance()
	}
}

// advance takes the results of completed halves, and completes the pair if both are complete.
func (r *PairRequest) advance() {
	active := 0
	if h := r.recv; h != nil {
		if h.State() == request.Complete {
			r.recv = nil
			r.status, r.recvErr = h.Take()
		} else {
			active++
		}
	}
	if h := r.send; h != nil {
		if h.State() == request.Complete {
			r.send = nil
			_, r.sendErr = h.Take()
		} else {
			active++
		}
	}
	if active > 0 {
		r.halves.ResetTask(active, r.p.eng, r)
		r.eachHalf(func(o *request.Object) { o.Watch(&r.halves) })
		return
	}
	err := r.recvErr
	if err == nil {
		err = r.sendErr
	}
	st := r.status
	r.status, r.recvErr, r.sendErr = request.Status{}, nil, nil
	r.Complete(st, err)
}

func (r *PairRequest) unwatch() {
	r.eachHalf(func(o *request.Object) { o.Unwatch(&r.halves) })
}

func (r *PairRequest) eachHalf(f func(o *request.Object)) {
	if r.recv != nil {
		f(&r.recv.Object)
	}
	if r.send != nil {
		f(&r.send.Object)
	}
}

// Start implements request.Operation. A pair is not persistent.
func (r *PairRequest) Start() { panic("pml: a pair is not persistent") }

// Cancel implements request.Operation. It withdraws the receive if no message has matched it. The
// send goes on.
func (r *PairRequest) Cancel() {
	if r.recv == nil {
		return
	}
	r.recv.Cancel()
	if r.recv.State() == request.Complete {
		r.unwatch()
		r.advance()
	}
}

// Release implements request.Operation.
func (r *PairRequest) Release() {
	r.ctx = nil
	if !r.p.freePairs.put(r) {
		r.Unbind()
	}
}

// Describe implements request.Operation.
func (r *PairRequest) Describe(err error) error {
	return r.ctx.caller.Describe(r.op, r.source, r.tag, err)
}
