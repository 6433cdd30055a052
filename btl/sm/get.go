package sm

import (
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

var _ btl.Getter = (*endpoint)(nil)

const (
	// turnBytes bounds how much one progress call reads from peers, because the lock of the rank's
	// engine is held meanwhile.
	turnBytes = 1 << 20
	// pieceBytes is how much a progress call reads of one Get before it goes on with the next.
	pieceBytes = turnBytes / 4
)

// longGet is a Get that goes on in later progress calls. Its operation is pending.
type longGet struct {
	e    *endpoint
	op   *btl.Op
	done int // bytes
}

// Get implements btl.Getter. It reads at once what this progress call may still read. If that is
// not all, later calls read the rest.
func (e *endpoint) Get(op *btl.Op) error {
	if e.State() != btl.Up {
		return btl.ErrFailed
	}
	if !e.plain && !e.ready() {
		return btl.ErrResource
	}
	m := e.m
	n, err := e.read(op, 0, m.mayRead())
	switch {
	case err == btl.ErrResource:
		return err
	case err != nil:
		e.endGet(op, err)
	case n < len(op.Payload):
		e.Pending.Push(op)
		m.gets = append(m.gets, longGet{e: e, op: op, done: n})
		m.Unsettled = true
	default:
		op.Done(op, nil)
	}
	return nil
}

// endGet accepts a Get that has met an error, which the next progress call reports. A Get that was
// wrong in itself ends alone; at another error the endpoint fails. The Get is not pending.
func (e *endpoint) endGet(op *btl.Op, err error) {
	be := err.(*btl.Error)
	if be.Class == btl.ClassUsage {
		e.m.Refuse(e, op, be)
		return
	}
	e.Pending.Push(op)
	e.failDeferred(be, op)
}

// mayRead is how many bytes may still be read before the next progress call.
func (m *module) mayRead() int {
	if m.readTurn != m.turns {
		m.readTurn, m.readBytes = m.turns, 0
	}
	return max(turnBytes-int(m.readBytes), 0)
}

// settleGets continues the Gets that earlier progress calls have left, one after the other.
func (m *module) settleGets() int {
	n := 0
	for range turnBytes / pieceBytes {
		if len(m.gets) == 0 {
			break
		}
		r := m.gets[0]
		m.gets = slices.Delete(m.gets, 0, 1)
		if r.e.State() != btl.Up || r.e.Deferred() != nil { // the tear-down completes it
			continue
		}
		n++
		more, err := r.e.read(r.op, r.done, min(m.mayRead(), pieceBytes))
		r.done += more
		if err == btl.ErrResource || err == nil && r.done < len(r.op.Payload) {
			m.gets = append(m.gets, r)
			continue
		}
		r.e.Pending.Remove(r.op)
		if err != nil {
			r.e.endGet(r.op, err)
		} else {
			r.op.Done(r.op, nil)
		}
	}
	return n
}

// read reads at most so many bytes for a Get, after those that are done, and returns how many. The
// error is btl.ErrResource if the endpoint is about to fail for another reason, or a *btl.Error.
func (e *endpoint) read(op *btl.Op, done, most int) (int, error) {
	m := e.m
	if err := e.checkLocal(op); err != nil {
		return 0, m.NewError(e.p.rank, btl.ClassUsage, btl.SideLocal, "", err)
	}
	var err error
	if !e.refused() {
		n := min(len(op.Payload)-done, most)
		if err = m.readFrom(e.p, op, op.Payload[done:done+n], uint64(done)); err == nil {
			return n, nil
		}
	}
	// A stale key of a peer that is gone is not an error of use.
	switch {
	case e.refused():
		e.rejected()
		return 0, btl.ErrResource
	case e.p.dead || e.remote.hasEnded():
		m.lookForEnds()
		return 0, btl.ErrResource
	case errors.Is(err, base.ErrKey), errors.Is(err, base.ErrBounds):
		return 0, m.NewError(e.p.rank, btl.ClassUsage, btl.SideNone, "", err)
	}
	return 0, m.NewError(e.p.rank, btl.ClassDevice, btl.SideLocal, "", err)
}

// readFrom reads into b from the place that op names, further bytes on.
func (m *module) readFrom(p *peer, op *btl.Op, b []byte, further uint64) error {
	k, ok := parseKey(&op.Remote)
	if !ok {
		return base.ErrKey
	}
	v, err := m.view(p, &k)
	if err != nil {
		return err
	}
	mem, err := v.region(&k)
	if err != nil {
		return err
	}
	if at := op.RemoteOffset; at > uint64(len(mem)) || uint64(len(op.Payload)) > uint64(len(mem))-at {
		return base.ErrBounds
	}
	copy(b, mem[op.RemoteOffset+further:])
	// The atomic read-modify-write also keeps the load of the generation behind the copy, where the
	// processor would not do so by itself.
	atomic.AddUint64(&m.readBytes, uint64(len(b)))
	if !v.current(&k) {
		return base.ErrKey
	}
	return nil
}

// hasEnded finds out whether the peer's process has ended.
func (f *remoteSegment) hasEnded() bool {
	fds := []unix.PollFd{{Fd: int32(f.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
