package comm

import (
	"context"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// Recv receives the oldest message that matches source and tag, and returns when it is
// in buf (MPI 4.1, section 3.2.4). source may be AnySource or ProcNull, tag AnyTag.
//
// All receives: T is any type without pointers, and need not be the sender's, since
// types do not travel; a status counts whole elements of T, and bytes exactly. A message
// longer than buf fills it and is ErrTruncate, with what was delivered in the status;
// a shorter one leaves the rest of buf as it was. Goroutines may share c; the slice is the
// library's until the call returns or the request is complete. Errors: ErrType,
// ErrComm, ErrRank, ErrTag for the arguments; ErrUnreachable and ErrProcFailed for the
// peer; ErrFinalized.
func Recv[T any](c *Comm, buf []T, source, tag int) (request.Status, error) {
	return c.recv(checkElem[T](c), bytesOf(buf), int(sizeOf[T]()), source, tag, "recv")
}

// Irecv begins to receive into buf. Arguments and errors as for Recv.
func Irecv[T any](c *Comm, buf []T, source, tag int) (request.Request, error) {
	const op = "irecv"
	if err := c.enterRecv(checkElem[T](c), source, tag); err != nil {
		return request.Request{}, c.fail(op, source, tag, err)
	}
	defer c.leave()
	return c.job.pml.Irecv(c.p2p, bytesOf(buf), int(sizeOf[T]()), source, tag, op).Handle(), nil
}

// enterRecv checks what all receives and probes have in common, and holds the lock if all
// is well. bad is what was found wrong before.
func (c *Comm) enterRecv(bad error, source, tag int) error {
	if bad != nil {
		return bad
	}
	if err := c.enter(); err != nil {
		return err
	}
	err := c.checkSource(source)
	if err == nil {
		err = checkRecvTag(tag)
	}
	if err == nil {
		err = c.contextErr()
	}
	if err != nil {
		c.leave()
	}
	return err
}

func (c *Comm) recv(bad error, buf []byte, elem, source, tag int, op string) (request.Status, error) {
	if err := c.enterRecv(bad, source, tag); err != nil {
		return request.Empty(), c.fail(op, source, tag, err)
	}
	defer c.leave()
	st, r := c.job.pml.Recv(c.p2p, buf, elem, source, tag, op)
	if r == nil {
		return st, nil
	}
	return awaitRecv(c.ctx, r)
}

// awaitRecv finishes a blocking receive. If ctx ends, the receive is withdrawn; if it
// has matched by then, its message is on the way and it is waited for. Lock held.
func awaitRecv(ctx context.Context, r *pml.RecvRequest) (request.Status, error) {
	err := r.Await(ctx)
	if r.State() == request.Active {
		r.Cancel()
		if cause := r.Await(context.Background()); cause != nil {
			// The job has ended.
			r.Abandon()
			return request.Empty(), cause
		}
	}
	st, own := r.Take()
	if st.Cancelled {
		return request.Empty(), err
	}
	return st, own
}
