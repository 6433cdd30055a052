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
	// turnBytes bounds the bytes that one progress call reads from peers, because it holds the lock
	// of the rank's engine.
	turnBytes = 1 << 20
	// pieceBytes is the number of bytes that a progress call reads for one Get before it continues
	// with the next.
	pieceBytes = turnBytes / 4
)

// longGet is a Get that later progress calls continue. Its operation is pending.
type longGet struct {
	e    *endpoint
	op   *btl.Op
	done int // bytes
}

// Get implements btl.Getter. It reads at once as many bytes as it may before the next progress
// call. Later progress calls read the rest.
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

// endGet accepts a Get that has met an error, which the next progress call reports. If the Get
// itself was invalid, it ends alone. Any other error makes the endpoint fail. The Get is not
// pending.
func (e *endpoint) endGet(op *btl.Op, err error) {
	be := err.(*btl.Error)
	if be.Class == btl.ClassUsage {
		e.m.Refuse(e, op, be)
		return
	}
	e.Pending.Push(op)
	e.failDeferred(be, op)
}

// mayRead returns how many bytes may still be read before the next progress call.
func (m *module) mayRead() int {
	if m.readTurn != m.turns {
		m.readTurn, m.readBytes = m.turns, 0
	}
	return max(turnBytes-int(m.readBytes), 0)
}

// settleGets continues unfinished Gets, one after the other.
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

// read reads up to most bytes for a Get, after the done bytes that were already read, and returns
// their number. The error is btl.ErrResource if the endpoint is about to fail for another reason,
// or a *btl.Error.
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
	// If the peer is gone, a stale key is not a usage error.
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

// readFrom reads into b from the place that op names, plus further bytes.
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
	// The atomic read-modify-write also keeps the load of the generation behind the copy, on
	// processors that could reorder them.
	atomic.AddUint64(&m.readBytes, uint64(len(b)))
	if !v.current(&k) {
		return base.ErrKey
	}
	return nil
}

// hasEnded checks whether the peer's process has ended.
func (f *remoteSegment) hasEnded() bool {
	fds := []unix.PollFd{{Fd: int32(f.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
