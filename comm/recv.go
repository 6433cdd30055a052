package comm

import (
	"context"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// Recv receives the oldest message that matches source and tag, and returns when it is in buf (MPI
// 4.1, section 3.2.4). source may be AnySource or ProcNull, and tag may be AnyTag.
//
// This holds for all receives:
//
//   - T is any type without pointers. It may differ from the sender's type, because messages carry
//     no types, except in checked mode (the tunable check). A status counts whole elements of T,
//     and exact bytes.
//   - A message that is longer than buf fills buf, and the error is ErrTruncate. The status says
//     how much was delivered. A shorter message does not change the rest of buf.
//   - Goroutines may share c. The slice belongs to the library until the call returns or the
//     request is complete.
//   - Errors: ErrType, ErrComm, ErrRank, ErrTag for the arguments; ErrUnreachable and ErrProcFailed
//     for the peer; ErrFinalized.
func Recv[T any](c *Comm, buf []T, source, tag int) (st Status, err error) {
	if c.enterNow(elemOf[T](), source, tag) {
		defer c.leave()
		if c.isTimed(calls.Recv, len(bytesOf(buf))) || !c.p2p.RecvShort(&st, bytesOf(buf), int(sizeOf[T]()), source, tag) {
			err = c.recvEntered(&st, bytesOf(buf), int(sizeOf[T]()), source, tag)
		}
		return st, err
	}
	err = c.recv(&st, elemOf[T](), bytesOf(buf), int(sizeOf[T]()), source, tag)
	return st, err
}

// Irecv begins to receive into buf. Arguments and errors as for Recv.
func Irecv[T any](c *Comm, buf []T, source, tag int) (Request, error) {
	return c.irecv(elemOf[T](), bytesOf(buf), int(sizeOf[T]()), source, tag)
}

// looksBeforeRecord is how often an untimed receive looks for its message before it makes a record.
// The looks take one or two microseconds.
const looksBeforeRecord = 24

func (c *Comm) irecv(elem elemType, buf []byte, size, source, tag int) (Request, error) {
	if !c.mayEnter(source, tag) || !c.job.elems.isGood(wordOf(elem)) || !c.job.eng.TryLock() {
		return c.irecvChecked(elem, buf, size, source, tag)
	}
	if !c.isOpen() {
		c.leave()
		return c.irecvChecked(elem, buf, size, source, tag)
	}
	defer c.leave()
	var r Request
	if !c.isTimed(calls.Irecv, len(buf)) {
		r = c.p2p.IrecvShort(buf, size, source, tag, calls.Irecv.String())
	}
	if r == (Request{}) {
		r = c.irecvEntered(buf, size, source, tag)
	}
	return r, nil
}

// irecvChecked is irecv with all checks of the arguments.
func (c *Comm) irecvChecked(elem elemType, buf []byte, size, source, tag int) (Request, error) {
	if err := c.enterRecv(c.checkElem(elem), source, tag); err != nil {
		return Request{}, c.fail(calls.Irecv, source, tag, err)
	}
	defer c.leave()
	if c.job.check != nil {
		return c.irecvAudited(elem, buf, size, source, tag), nil
	}
	c.count(calls.Irecv, len(buf))
	return c.irecvEntered(buf, size, source, tag), nil
}

// irecvEntered is irecv after the checks. The call was counted already. Lock held.
func (c *Comm) irecvEntered(buf []byte, size, source, tag int) Request {
	if rec := c.job.eng.Calls; rec != nil {
		defer rec.End(c.record(calls.Irecv, source, tag, len(buf)))
	}
	return c.job.pml.Irecv(c.p2p, buf, size, source, tag, calls.Irecv.String()).Handle()
}

// enterRecv checks the arguments that all receives and probes have. If it succeeds, it holds the
// lock. bad is the error of an earlier check.
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

// recv fills in st, which is zero.
func (c *Comm) recv(st *Status, elem elemType, buf []byte, size, source, tag int) error {
	if err := c.enterRecv(c.checkElem(elem), source, tag); err != nil {
		*st = request.Empty()
		return c.fail(calls.Recv, source, tag, err)
	}
	defer c.leave()
	if c.job.check != nil {
		var err error
		*st, err = c.recvAudited(elem, buf, size, source, tag)
		return err
	}
	c.count(calls.Recv, len(buf))
	return c.recvEntered(st, buf, size, source, tag)
}

// recvEntered is recv after the checks. The call was counted already. Lock held.
func (c *Comm) recvEntered(st *Status, buf []byte, size, source, tag int) (err error) {
	if rec := c.job.eng.Calls; rec != nil {
		// Mostly the message arrives at once. The call then needs no record unless it is timed.
		isTimed := rec.IsTimed(calls.Recv, len(buf))
		for looks := 0; !isTimed && looks < looksBeforeRecord && !c.job.pml.IsTurnDue(); looks++ {
			if c.p2p.RecvShort(st, buf, size, source, tag) {
				return nil
			}
		}
		defer rec.End(c.record(calls.Recv, source, tag, len(buf)))
		if isTimed && c.p2p.RecvShort(st, buf, size, source, tag) {
			return nil
		}
	}
	if r := c.job.pml.Recv(st, c.p2p, buf, size, source, tag, calls.Recv.String()); r != nil {
		*st, err = awaitRecv(c.ctx, r)
	}
	return err
}

// awaitRecv finishes a blocking receive. If ctx ends, it withdraws the receive, or waits for the
// message if one has already matched. Lock held.
func awaitRecv(ctx context.Context, r *pml.RecvRequest) (Status, error) {
	gaveUp, stopped := r.AwaitOrCancel(ctx)
	if stopped != nil {
		return request.Empty(), stopped
	}
	st, own := r.Take()
	if st.Cancelled {
		return request.Empty(), gaveUp
	}
	return st, own
}
