package tcp

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// mostBurst bounds the frames of one connection that one turn looks at.
const mostBurst = 32

// receive takes what the connection has, and returns the number of events.
func (e *endpoint) receive() int {
	if e.more {
		return 0 // it has its turn anyway
	}
	got, errno := recv(e.fd, e.buf[e.w:])
	if errno != 0 {
		if errno == unix.EAGAIN || errno == unix.EINTR {
			return 0
		}
		e.lost(errno)
		return 1
	}
	if got == 0 {
		e.ended()
		return 1
	}
	e.w += got
	return e.parse() + 1
}

// parse hands up what lies whole in the buffer. It counts fragments and completions.
func (e *endpoint) parse() int {
	m := e.m
	n := 0
	e.more = false
	for frames := 0; e.State() == btl.Up && e.w-e.r >= headBytes; frames++ {
		h, ok := parseHead(e.buf[e.r:], uint32(m.cfg.FragBytes))
		if !ok || h.epoch > e.Epoch() {
			e.nonsense("head of a frame")
			return n
		}
		end := e.r + headBytes + int(h.length)
		if end > e.w {
			break
		}
		if frames == mostBurst {
			e.more = true
			m.leftover = append(m.leftover, e)
			return n
		}
		frag := e.buf[e.r+headBytes : end : end]
		e.r = end
		if h.epoch < e.Epoch() {
			m.Stale++
			continue
		}
		done, ok := e.acknowledged(h.ack)
		n += done
		if !ok {
			e.nonsense("acknowledgement")
			return n
		}
		if e.State() != btl.Up {
			return n
		}
		switch h.kind {
		case frameFrag:
			e.owe(len(frag))
			n++
			m.Events.Arrived(m, e.p.rank, h.tag, frag)
		case frameBye:
			e.fail(m.NewError(e.p.rank, btl.ClassClosed, btl.SideRemote, "", base.ErrPeerClosed))
			return n + 1
		}
	}
	if e.State() == btl.Up {
		e.makeRoom()
	}
	return n
}

// makeRoom sees to it that the frame which has begun fits behind what was read of it. The buffer holds two of the longest, so
// this moves only now and then less than half of it.
func (e *endpoint) makeRoom() {
	have := e.w - e.r
	switch {
	case have == 0:
		e.r, e.w = 0, 0
	case len(e.buf)-e.r < headBytes+e.m.cfg.FragBytes:
		copy(e.buf, e.buf[e.r:e.w])
		e.r, e.w = 0, have
	}
}

// nonsense fails the endpoint for what the peer has sent (C8).
func (e *endpoint) nonsense(what string) {
	e.fail(e.m.NewError(e.p.rank, btl.ClassProtocol, btl.SideRemote, "", fmt.Errorf("%w: %s", errNonsense, what)))
}

// lost fails the endpoint because the system has lost its connection.
func (e *endpoint) lost(errno unix.Errno) {
	e.fail(e.m.pathError(e.p.rank, errno, "connection"))
}

// ended fails the endpoint because the peer has ended the connection without a good-bye: its end has failed, or its process.
func (e *endpoint) ended() {
	if e.writeErr != 0 {
		e.lost(e.writeErr)
		return
	}
	e.fail(e.m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "EOF", base.ErrPeerFailed))
}

// readUnwritable goes on reading connections that cannot be written to any more, for what the peer has sent says best why, and fails them
// when there is nothing left.
func (m *module) readUnwritable() int {
	n := 0
	list := m.unwritable
	m.unwritable = nil
	for _, e := range list {
		if e.State() == btl.Up && !e.more {
			got := e.receive()
			if n += got; got == 0 {
				e.lost(e.writeErr)
				n++
			}
		}
		if e.State() == btl.Up {
			m.unwritable = append(m.unwritable, e)
		}
	}
	return n
}

// takeLeftovers goes on with the frames that the last turn has not looked at.
func (m *module) takeLeftovers() int {
	n := 0
	list := m.leftover
	m.leftover = m.spare[:0]
	for _, e := range list {
		if e.State() == btl.Up {
			n += e.parse()
		}
	}
	clear(list)
	m.spare = list[:0]
	return n
}

// takeBuffer gives memory to read into.
func (m *module) takeBuffer() ([]byte, error) {
	if last := len(m.buffers) - 1; last >= 0 {
		buf := m.buffers[last]
		m.buffers = m.buffers[:last]
		return buf, nil
	}
	buf, err := unix.Mmap(-1, 0, m.cfg.BufferBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map a buffer: %w", err)
	}
	return buf, nil
}

// mostBuffers is how many buffers are kept for connections to come.
const mostBuffers = 4

// giveBuffer takes it back. It may be in use until the turn is over.
func (m *module) giveBuffer(buf []byte) { m.buffers = append(m.buffers, buf) }

// freeBuffers frees all but so many.
func (m *module) freeBuffers(keep int) {
	for len(m.buffers) > keep {
		last := len(m.buffers) - 1
		_ = unix.Munmap(m.buffers[last]) // it fails only for what is none
		m.buffers = m.buffers[:last]
	}
}
