package comm

import (
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// SendInit makes a persistent request to send buf to dest under tag. The request is inactive: each
// Start sends the contents of buf at that time (MPI 4.1, section 3.9). The slice belongs to the
// library while the request is active. The library keeps it alive until Free. Arguments and errors
// as for Send.
func SendInit[T any](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.sendInit(elemOf[T](), bytesOf(buf), dest, tag, pml.Standard, calls.SendInit)
}

// SsendInit is SendInit for synchronous sends, like Ssend.
func SsendInit[T any](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.sendInit(elemOf[T](), bytesOf(buf), dest, tag, pml.Synchronous, calls.SsendInit)
}

// BsendInit is SendInit for buffered sends, like Bsend.
func BsendInit[T any](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.sendInit(elemOf[T](), bytesOf(buf), dest, tag, pml.Buffered, calls.BsendInit)
}

// RsendInit is SendInit for ready sends, like Rsend.
func RsendInit[T any](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.sendInit(elemOf[T](), bytesOf(buf), dest, tag, pml.Ready, calls.RsendInit)
}

// RecvInit makes a persistent request to receive into buf. The request is inactive: each Start
// posts the receive. The slice belongs to the library while the request is active. The library
// keeps it alive until Free. Arguments and errors as for Recv.
func RecvInit[T any](c *Comm, buf []T, source, tag int) (Request, error) {
	const op = calls.RecvInit
	if err := c.enterRecv(checkElem[T](c), source, tag); err != nil {
		return Request{}, c.fail(op, source, tag, err)
	}
	defer c.leave()
	r := c.job.pml.RecvInit(c.p2p, bytesOf(buf), int(sizeOf[T]()), source, tag, op.String())
	if c.job.check != nil {
		return c.auditRecv(r, elemOf[T](), bytesOf(buf)), nil
	}
	return r.Handle(), nil
}

func (c *Comm) sendInit(typ elemType, buf []byte, dest, tag int, mode pml.Mode, op calls.ID) (Request, error) {
	if err := c.enterSend(c.checkElem(typ), dest, tag); err != nil {
		return Request{}, c.fail(op, dest, tag, err)
	}
	defer c.leave()
	r := c.job.pml.SendInit(c.p2p, buf, dest, tag, mode, op.String())
	if c.job.check != nil {
		return c.auditSend(r, typ, buf, mode), nil
	}
	return r.Handle(), nil
}
