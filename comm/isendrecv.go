package comm

import (
	"fmt"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// Isendrecv begins to send and to receive at the same time, under one request (MPI 4.1, section
// 3.10). Both halves match ordinary sends and receives. The request is complete when both are; its
// status is that of the receive. Cancel withdraws the receive if no message has matched it. The
// send continues: the request is complete when the send is, with a cancelled status.
//
// Errors as for Sendrecv; ErrBuffer if the slices overlap.
func Isendrecv[T, U any](c *Comm, send []T, dest, sendtag int, recv []U, source, recvtag int) (Request, error) {
	return c.isendrecv(elemOf[T](), elemOf[U](), pml.Sendrecv{
		Send: bytesOf(send), Dest: dest, SendTag: sendtag,
		Recv: bytesOf(recv), Elem: int(sizeOf[U]()), Source: source, RecvTag: recvtag, Op: calls.Isendrecv.String(),
	})
}

func (c *Comm) isendrecv(sent, received elemType, a pml.Sendrecv) (Request, error) {
	bad := c.checkElem(sent)
	if bad == nil {
		bad = c.checkElem(received)
	}
	if bad == nil {
		bad = c.enter()
	}
	if bad != nil {
		return Request{}, c.fail(calls.Isendrecv, a.Dest, a.SendTag, bad)
	}
	defer c.leave()
	if err := c.checkDest(a.Dest); err != nil {
		return Request{}, c.fail(calls.Isendrecv, a.Dest, a.SendTag, err)
	}
	if err := c.checkSource(a.Source); err != nil {
		return Request{}, c.fail(calls.Isendrecv, a.Source, a.RecvTag, err)
	}
	if err := checkSendTag(a.SendTag); err != nil {
		return Request{}, c.fail(calls.Isendrecv, a.Dest, a.SendTag, err)
	}
	if err := checkRecvTag(a.RecvTag); err != nil {
		return Request{}, c.fail(calls.Isendrecv, a.Source, a.RecvTag, err)
	}
	if coll.Overlap(a.Send, a.Recv) {
		return Request{}, c.fail(calls.Isendrecv, a.Dest, a.SendTag, fmt.Errorf("%w: the buffers overlap", ErrBuffer))
	}
	if err := c.contextErr(); err != nil {
		return Request{}, c.fail(calls.Isendrecv, a.Source, a.RecvTag, err)
	}
	defer c.endCall(c.beginCall(calls.Isendrecv, a.Dest, a.SendTag, len(a.Send)))
	if c.job.check != nil {
		return c.isendrecvAudited(a, sent, received), nil
	}
	return c.job.pml.Isendrecv(c.p2p, a).Handle(), nil
}
