package loop

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

var (
	_ btl.Endpoint = (*endpoint)(nil)
	_ btl.Inliner  = (*endpoint)(nil)
	_ btl.Putter   = (*endpoint)(nil)
	_ btl.Getter   = (*endpoint)(nil)

	_ btl.StaleSender = (*endpoint)(nil)
)

// endpoint is a rank's end of one incarnation of a link. On a virtual fabric, its Pending queue has
// all operations that were accepted and not yet called back. Otherwise operations complete in the
// post.
type endpoint struct {
	base.Endpoint
	m    *module
	peer *peer
	inc  *incarnation
	end  int   // its number in inc
	out  *lane // nil if no lane leads to the peer

	flights []*flight // of a virtual fabric: the operations that are in flight
	// With wires: the time of the last known arrival, and whether a timer watches it.
	heardAt   int64
	isWatched bool
}

type verb uint8

const (
	send verb = iota
	put
	get
)

func (v verb) String() string { return [...]string{"send", "put", "get"}[v] }

// isPlain reports whether a Send can go straight into the lane.
func (e *endpoint) isPlain() bool {
	return e.out != nil && e.out.slots != nil && e.Deferred() == nil
}

// Send implements btl.Endpoint.
func (e *endpoint) Send(op *btl.Op) error {
	if e.State() != btl.Up {
		return btl.ErrFailed
	}
	if op.HdrLen > btl.MaxHeaderBytes || op.Len() > e.m.Attrs().MaxSendBytes {
		return btl.ErrTooLong
	}
	if !e.isPlain() {
		return e.post(send, op)
	}
	switch e.out.publish(&e.m.bufs, e.Epoch(), op.Tag, op.Hdr[:op.HdrLen], op.Payload) {
	case laneFull:
		return btl.ErrResource
	case laneClosed:
		e.m.DeferFailure(e, e.noAnswer(), nil)
		return btl.ErrResource
	}
	op.Done(op, nil)
	return nil
}

// SendInline implements btl.Inliner.
func (e *endpoint) SendInline(tag btl.Tag, hdr, payload []byte) bool {
	if e.State() != btl.Up || len(hdr)+len(payload) > e.m.Attrs().InlineBytes || !e.isPlain() {
		return false
	}
	switch e.out.publish(&e.m.bufs, e.Epoch(), tag, hdr, payload) {
	case laneFull:
		return false
	case laneClosed:
		e.m.DeferFailure(e, e.noAnswer(), nil)
		return false
	}
	return true
}

// Put implements btl.Putter.
func (e *endpoint) Put(op *btl.Op) error { return e.postRemote(put, op) }

// Get implements btl.Getter.
func (e *endpoint) Get(op *btl.Op) error { return e.postRemote(get, op) }

func (e *endpoint) postRemote(v verb, op *btl.Op) error {
	if e.State() != btl.Up {
		return btl.ErrFailed
	}
	return e.post(v, op)
}

// post accepts an operation that does not go straight into the lane.
func (e *endpoint) post(v verb, op *btl.Op) error {
	switch {
	case e.Deferred() != nil:
		return btl.ErrResource
	case e.m.f.sim != nil:
		return e.launch(v, op)
	case e.out == nil:
		e.m.DeferFailure(e, e.noAnswer(), nil)
		return btl.ErrResource
	case e.m.accessed >= turnBytes:
		return btl.ErrResource
	}
	if err := e.reach(v, op); err != nil {
		e.reject(op, err)
		return nil
	}
	op.Done(op, nil)
	return nil
}

// reject accepts an operation that has met an error. The next progress call ends the operation, and
// fails the endpoint too unless the operation was wrong in itself.
func (e *endpoint) reject(op *btl.Op, err *btl.Error) {
	if err.Class == btl.ClassUsage {
		e.m.Refuse(e, op, err)
		return
	}
	e.Pending.Push(op)
	e.m.DeferFailure(e, err, op)
}

// Rebind implements btl.Endpoint. A fragment is copied when it is accepted. The bytes of a Put that
// is in flight on a virtual fabric are read when they arrive, as by a device.
func (e *endpoint) Rebind(op *btl.Op, payload []byte) bool {
	for _, f := range e.flights {
		if f.op == op && f.v == put && !f.over {
			return false
		}
	}
	op.Payload = payload
	return true
}

// Fail implements btl.Endpoint.
func (e *endpoint) Fail(cause error) { e.m.FailBecause(e, cause) }

// Stop implements base.Incarnation.
func (e *endpoint) Stop() {
	e.m.f.tracef("failed %s %d>%d epoch %d: %v", e.m.Attrs().Name, e.m.port.name.Rank, e.Peer(), e.Epoch(), e.Cause())
}

// noAnswer is the error of a post that found the peer's end dead.
func (e *endpoint) noAnswer() *btl.Error {
	return e.m.NewError(e.Peer(), btl.ClassPath, btl.SideBoth, "no answer", nil)
}

// flush calls back outstanding operations, and returns their number.
func (e *endpoint) flush() int {
	for _, f := range e.flights {
		if !f.over {
			f.readPut()
		}
		f.op = nil // no operation waits for it any more
	}
	e.flights = nil
	for op := range e.Pending.All() {
		e.m.f.tracef("error %s %d>%d epoch %d: %v", e.m.Attrs().Name, e.m.port.name.Rank, e.Peer(), e.Epoch(), e.m.FlushError(e, op))
	}
	return e.m.Flush(e, &e.Pending)
}

// SendStale implements btl.StaleSender. It is for tests.
func (e *endpoint) SendStale(epoch uint32, tag btl.Tag, frag []byte) bool {
	if !e.Accepts() || e.out == nil {
		return false
	}
	if e.m.f.sim != nil {
		f := &flight{e: e, v: send, epoch: epoch, tag: tag, data: append([]byte(nil), frag...)}
		f.depart()
		return true
	}
	return e.out.publish(&e.m.bufs, epoch, tag, frag, nil) == published
}
