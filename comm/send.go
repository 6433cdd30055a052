package comm

import (
	"bytes"
	"context"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// Send sends buf to dest under tag. It returns when buf may be used again; the message need not
// have been received then (MPI 4.1, section 3.4). But Send may block until the message is received,
// whatever its length: no size is promised at which it returns earlier. So two ranks that both call
// Send and then Recv may wait for each other for ever; use [Sendrecv] or [Isend]. dest may be
// ProcNull.
//
// The library may send a short message from a copy after Send has returned. If the message cannot
// be delivered, later calls to dest fail, and so does Finalize. If the process ends without
// Finalize, the message may be lost.
//
// This holds for all sends:
//
//   - T is any type without pointers.
//   - Goroutines may share c. The slice belongs to the library until the call returns or the
//     request is complete. The program must not write to it before.
//   - Errors: ErrType, ErrComm, ErrRank, ErrTag for the arguments; ErrUnreachable and ErrProcFailed
//     for the peer; ErrComm also if the peer has freed the communicator without receiving the
//     message; ErrFinalized.
func Send[T any](c *Comm, buf []T, dest, tag int) error {
	if c.enterNow(elemOf[T](), dest, tag) {
		defer c.leave()
		if !c.isTimed(calls.Send, len(bytesOf(buf))) && c.p2p.SendShort(bytesOf(buf), dest, tag) {
			return nil
		}
		return c.sendEntered(bytesOf(buf), dest, tag, pml.Standard, sendCalls[sendStandard])
	}
	return c.send(elemOf[T](), bytesOf(buf), dest, tag, sendStandard)
}

// Ssend is Send that returns when the message has been matched by a receive.
func Ssend[T any](c *Comm, buf []T, dest, tag int) error {
	return c.send(elemOf[T](), bytesOf(buf), dest, tag, sendSynchronous)
}

// Bsend is Send from a copy: it never waits. There is no buffer to attach, and the memory for
// copies is not bounded.
func Bsend[T any](c *Comm, buf []T, dest, tag int) error {
	return c.send(elemOf[T](), bytesOf(buf), dest, tag, sendBuffered)
}

// Rsend is Send for a receive that the caller knows is posted.
func Rsend[T any](c *Comm, buf []T, dest, tag int) error {
	return c.send(elemOf[T](), bytesOf(buf), dest, tag, sendReady)
}

// Isend begins to send buf to dest under tag. buf may be used again when the request is complete.
// Arguments and errors as for Send.
func Isend[T any](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.isendStandard(elemOf[T](), bytesOf(buf), dest, tag)
}

// Issend is Isend that completes when the message has been matched by a receive.
func Issend[T any](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.isend(elemOf[T](), bytesOf(buf), dest, tag, sendSynchronous)
}

// Ibsend is Isend from a copy: the request is complete at once.
func Ibsend[T any](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.isend(elemOf[T](), bytesOf(buf), dest, tag, sendBuffered)
}

// Irsend is Isend for a receive that the caller knows is posted.
func Irsend[T any](c *Comm, buf []T, dest, tag int) (Request, error) {
	return c.isend(elemOf[T](), bytesOf(buf), dest, tag, sendReady)
}

// sendKind is the kind of a send.
type sendKind uint8

const (
	sendStandard sendKind = iota
	sendSynchronous
	sendBuffered
	sendReady
)

// Never written.
var sendModes = [...]pml.Mode{pml.Standard, pml.Synchronous, pml.Buffered, pml.Ready}

// The calls by kind, never written.
var (
	sendCalls  = [...]calls.ID{calls.Send, calls.Ssend, calls.Bsend, calls.Rsend}
	isendCalls = [...]calls.ID{calls.Isend, calls.Issend, calls.Ibsend, calls.Irsend}
)

// enterNow is the fast path of enterSend and enterRecv. It takes the lock for a call to or from a
// peer if the lock is free and the arguments that all such calls have are valid. It reports whether
// it took the lock.
func (c *Comm) enterNow(elem elemType, peer, tag int) bool {
	if !c.mayEnter(peer, tag) || !c.job.elems.isGood(wordOf(elem)) || !c.job.eng.TryLock() {
		return false
	}
	if c.isOpen() {
		return true
	}
	c.job.eng.Unlock()
	return false
}

// mayEnter and isOpen are the checks of enterNow before and after it takes the lock, except the
// check of the element type. They are short enough to be inlined.
func (c *Comm) mayEnter(peer, tag int) bool {
	return !c.isNull() && c.done == nil && uint(peer) < uint(len(c.group)) && uint(tag) <= tagUB
}

func (c *Comm) isOpen() bool { return c.job.ended == nil && !c.freed }

// enterSend checks the arguments that all sends have. If it succeeds, it holds the lock. bad is the
// error of an earlier check.
func (c *Comm) enterSend(bad error, dest, tag int) error {
	if bad != nil {
		return bad
	}
	if err := c.enter(); err != nil {
		return err
	}
	err := c.checkDest(dest)
	if err == nil {
		err = checkSendTag(tag)
	}
	if err == nil {
		err = c.contextErr()
	}
	if err != nil {
		c.leave()
	}
	return err
}

func (c *Comm) send(elem elemType, buf []byte, dest, tag int, kind sendKind) error {
	if !c.enterNow(elem, dest, tag) {
		if err := c.enterSend(c.checkElem(elem), dest, tag); err != nil {
			return c.fail(sendCalls[kind], dest, tag, err)
		}
		if c.job.check != nil {
			defer c.leave()
			return c.sendAudited(elem, buf, dest, tag, sendModes[kind], sendCalls[kind])
		}
	}
	defer c.leave()
	c.count(sendCalls[kind], len(buf))
	return c.sendEntered(buf, dest, tag, sendModes[kind], sendCalls[kind])
}

// sendEntered is a blocking send after the checks. The call was counted already. Lock held.
func (c *Comm) sendEntered(buf []byte, dest, tag int, mode pml.Mode, op calls.ID) error {
	if rec := c.job.eng.Calls; rec != nil {
		defer rec.End(c.record(op, dest, tag, len(buf)))
		if mode == pml.Standard && c.p2p.SendShort(buf, dest, tag) {
			return nil
		}
	}
	if r := c.job.pml.Send(c.p2p, buf, dest, tag, mode, op.String()); r != nil {
		return awaitSend(c.ctx, r)
	}
	return nil
}

func (c *Comm) isend(elem elemType, buf []byte, dest, tag int, kind sendKind) (Request, error) {
	if !c.enterNow(elem, dest, tag) {
		if err := c.enterSend(c.checkElem(elem), dest, tag); err != nil {
			return Request{}, c.fail(isendCalls[kind], dest, tag, err)
		}
		if c.job.check != nil {
			defer c.leave()
			return c.isendAudited(elem, buf, dest, tag, sendModes[kind], isendCalls[kind]), nil
		}
	}
	defer c.leave()
	c.count(isendCalls[kind], len(buf))
	return c.isendEntered(buf, dest, tag, kind), nil
}

// isendStandard is isend for a standard send.
func (c *Comm) isendStandard(elem elemType, buf []byte, dest, tag int) (Request, error) {
	if !c.mayEnter(dest, tag) || !c.job.elems.isGood(wordOf(elem)) || !c.job.eng.TryLock() {
		return c.isend(elem, buf, dest, tag, sendStandard)
	}
	if !c.isOpen() {
		c.leave()
		return c.isend(elem, buf, dest, tag, sendStandard)
	}
	defer c.leave()
	var r Request
	if !c.isTimed(calls.Isend, len(buf)) {
		r = c.p2p.IsendShort(buf, dest, tag, calls.Isend.String())
	}
	if r == (Request{}) {
		r = c.isendEntered(buf, dest, tag, sendStandard)
	}
	return r, nil
}

// isendEntered is isend after the checks. The call was counted already. Lock held.
func (c *Comm) isendEntered(buf []byte, dest, tag int, kind sendKind) Request {
	if rec := c.job.eng.Calls; rec != nil {
		defer rec.End(c.record(isendCalls[kind], dest, tag, len(buf)))
	}
	return c.job.pml.Isend(c.p2p, buf, dest, tag, sendModes[kind], isendCalls[kind].String()).Handle()
}

// awaitSend finishes a blocking send. If ctx ends, the send continues in the background. Lock held.
func awaitSend(ctx context.Context, r *pml.SendRequest) error {
	err := r.Await(ctx)
	if r.State() != request.Complete {
		r.Abandon()
		return err
	}
	_, err = r.Take()
	return err
}

// Sendrecv sends and receives at the same time, so ranks that all call it do not wait for each
// other. Both halves match ordinary sends and receives. The buffers must not overlap.
func Sendrecv[T, U any](c *Comm, send []T, dest, sendtag int, recv []U, source, recvtag int) (Status, error) {
	return c.sendrecv(elemOf[T](), bytesOf(send), dest, sendtag, elemOf[U](), bytesOf(recv), int(sizeOf[U]()), source, recvtag,
		calls.Sendrecv, false)
}

// SendrecvReplace is Sendrecv with one buffer: the received message replaces the sent one.
func SendrecvReplace[T any](c *Comm, buf []T, dest, sendtag, source, recvtag int) (Status, error) {
	b := bytesOf(buf)
	return c.sendrecv(elemOf[T](), b, dest, sendtag, elemOf[T](), b, int(sizeOf[T]()), source, recvtag, calls.SendrecvReplace, true)
}

func (c *Comm) sendrecv(sent elemType, send []byte, dest, sendtag int, received elemType, recv []byte, elem, source, recvtag int, op calls.ID, replace bool) (Status, error) {
	bad := c.checkElem(sent)
	if bad == nil {
		bad = c.checkElem(received)
	}
	if bad == nil {
		bad = c.enter()
	}
	if bad != nil {
		return request.Empty(), c.fail(op, dest, sendtag, bad)
	}
	defer c.leave()
	if err := c.checkDest(dest); err != nil {
		return request.Empty(), c.fail(op, dest, sendtag, err)
	}
	if err := c.checkSource(source); err != nil {
		return request.Empty(), c.fail(op, source, recvtag, err)
	}
	if err := checkSendTag(sendtag); err != nil {
		return request.Empty(), c.fail(op, dest, sendtag, err)
	}
	if err := checkRecvTag(recvtag); err != nil {
		return request.Empty(), c.fail(op, source, recvtag, err)
	}
	if err := c.contextErr(); err != nil {
		return request.Empty(), c.fail(op, source, recvtag, err)
	}
	defer c.endCall(c.beginCall(op, dest, sendtag, len(send)))
	if c.job.check != nil {
		return c.sendrecvAudited(pml.Sendrecv{
			Send: send, Dest: dest, SendTag: sendtag, Recv: recv, Elem: elem, Source: source, RecvTag: recvtag, Op: op.String(),
		}, sent, received, replace)
	}
	var s *pml.SendRequest
	// The received message must not overwrite the buffer before it is sent. Only a message that is
	// sent at once needs no copy.
	if !replace || !c.job.pml.SendNow(c.p2p, send, dest, sendtag) {
		if replace {
			send = bytes.Clone(send)
		}
		s = c.job.pml.Send(c.p2p, send, dest, sendtag, pml.Standard, op.String())
	}
	var st Status
	var err error
	if r := c.job.pml.Recv(&st, c.p2p, recv, elem, source, recvtag, op.String()); r != nil {
		st, err = awaitRecv(c.ctx, r)
	}
	if s != nil {
		if serr := awaitSend(c.ctx, s); err == nil {
			err = serr
		}
	}
	return st, err
}
