package sm

import (
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

var _ btl.Getter = (*endpoint)(nil)

const (
	// turnBytes is how much a turn of progress reads from peers: the lock of the rank's engine
	// is held meanwhile.
	turnBytes = 1 << 20
	// pieceBytes is how much of one Get it reads before it goes on with the next one.
	pieceBytes = turnBytes / 4
)

// longGet is a Get that goes on in later turns, or ends in an error there. Its operation is
// among the held ones of its endpoint.
type longGet struct {
	e    *endpoint
	op   *btl.Op
	done int        // bytes
	err  *btl.Error // or nil
}

// Get implements btl.Getter. It reads at once what the turn may still read. If that is not
// all, the next turns read the rest.
func (e *endpoint) Get(op *btl.Op) error {
	if e.state != btl.Up {
		return btl.ErrFailed
	}
	if !e.plain {
		if !e.ready() {
			return btl.ErrResource
		}
		if hit, struck := e.m.injector.strike(e.p.rank, false); struck {
			return e.strike(hit, op, true, e.readAll)
		}
	}
	m := e.m
	n, err := e.read(op, 0, m.mayRead())
	switch {
	case err == btl.ErrResource:
		return err
	case err != nil:
		e.endGet(op, err)
	case n < len(op.Payload):
		e.held.Push(op)
		m.gets = append(m.gets, longGet{e: e, op: op, done: n})
		m.unsettled = true
	default:
		op.Done(op, nil)
	}
	return nil
}

// endGet takes a Get that has met an error, for the next turn to say so. One that was wrong in
// itself ends alone; at another one the endpoint fails.
func (e *endpoint) endGet(op *btl.Op, err error) {
	be := err.(*btl.Error)
	if be.Class != btl.ClassUsage {
		e.breakAt(op, be)
		return
	}
	e.held.Push(op)
	e.m.gets = append(e.m.gets, longGet{e: e, op: op, err: be})
	e.m.unsettled = true
}

// mayRead is how many bytes may still be read in this turn.
func (m *module) mayRead() int {
	if m.readTurn != m.turns {
		m.readTurn, m.readBytes = m.turns, 0
	}
	return max(turnBytes-int(m.readBytes), 0)
}

// settleGets goes on with what earlier turns have left, in turn.
func (m *module) settleGets() int {
	n := 0
	for range turnBytes / pieceBytes {
		if len(m.gets) == 0 {
			break
		}
		r := m.gets[0]
		m.gets = slices.Delete(m.gets, 0, 1)
		if r.e.state != btl.Up || r.e.doom != nil { // the tear-down completes it
			continue
		}
		n++
		if r.err == nil {
			more, err := r.e.read(r.op, r.done, min(m.mayRead(), pieceBytes))
			r.done += more
			if err == btl.ErrResource || err == nil && r.done < len(r.op.Payload) {
				m.gets = append(m.gets, r)
				continue
			}
			if err != nil {
				r.err = err.(*btl.Error)
			}
		}
		if r.err != nil && r.err.Class != btl.ClassUsage {
			r.e.condemn(r.err, r.op)
			continue
		}
		r.e.held.Remove(r.op)
		if r.err != nil {
			r.op.Done(r.op, r.err)
		} else {
			r.op.Done(r.op, nil)
		}
	}
	return n
}

// read reads for a Get, at most so many bytes after those that are done, and returns how
// many. The error is btl.ErrResource, if the endpoint is about to fail for another
// reason, or a *btl.Error.
func (e *endpoint) read(op *btl.Op, done, most int) (int, error) {
	m := e.m
	if err := e.checkLocal(op); err != nil {
		return 0, m.errorf(e.p.rank, btl.ClassUsage, btl.SideLocal, "", err)
	}
	var err error
	if !e.refused() {
		n := min(len(op.Payload)-done, most)
		if err = m.readFrom(e.p, op, op.Payload[done:done+n], uint64(done)); err == nil {
			return n, nil
		}
	}
	// A key of a peer that has gone is no error of use.
	switch {
	case e.refused():
		e.turnedAway()
		return 0, btl.ErrResource
	case e.p.dead || e.far.hasEnded():
		m.lookForEnds()
		return 0, btl.ErrResource
	case errors.Is(err, errKey), errors.Is(err, errBounds):
		return 0, m.errorf(e.p.rank, btl.ClassUsage, btl.SideNone, "", err)
	}
	return 0, m.errorf(e.p.rank, btl.ClassDevice, btl.SideLocal, "", err)
}

// readAll is read for a whole operation.
func (e *endpoint) readAll(op *btl.Op) error {
	_, err := e.read(op, 0, len(op.Payload))
	return err
}

// readFrom reads into b from where op says, and so many bytes further on.
func (m *module) readFrom(p *peer, op *btl.Op, b []byte, further uint64) error {
	k, ok := parseKey(&op.Remote)
	if !ok {
		return errKey
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
		return errBounds
	}
	copy(b, mem[op.RemoteOffset+further:])
	// As an atomic read-modify-write it also keeps the look at the generation after the copy,
	// where the processor would not do so by itself.
	atomic.AddUint64(&m.readBytes, uint64(len(b)))
	if !v.current(&k) {
		return errKey
	}
	return nil
}

// hasEnded finds out whether the peer's process has ended.
func (f *farSegment) hasEnded() bool {
	fds := []unix.PollFd{{Fd: int32(f.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
