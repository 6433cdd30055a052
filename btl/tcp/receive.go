package tcp

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

// maxBurst bounds the frames of one connection that one progress call parses.
const maxBurst = 32

// receive reads from the connection, and returns the number of events.
func (e *endpoint) receive() int {
	if e.moreFrames {
		return 0 // the next progress call parses them first
	}
	got, errno := recv(e.fd, e.buf[e.w:])
	if errno != 0 {
		if errno == unix.EAGAIN || errno == unix.EINTR {
			return 0
		}
		e.connectionLost(errno)
		return 1
	}
	if got == 0 {
		e.peerEnded()
		return 1
	}
	e.w += got
	return e.parse() + 1
}

// parse hands up the complete frames in the buffer, and returns the number of fragments and
// completions.
func (e *endpoint) parse() int {
	m := e.m
	n := 0
	e.moreFrames = false
	for frames := 0; e.State() == btl.Up && e.w-e.r >= headBytes; frames++ {
		h, ok := parseHead(e.buf[e.r:], uint32(m.cfg.FragBytes))
		if !ok || h.epoch > e.Epoch() {
			e.protocolError("head of a frame")
			return n
		}
		end := e.r + headBytes + int(h.length)
		if end > e.w {
			break
		}
		if frames == maxBurst {
			e.moreFrames = true
			m.unparsed = append(m.unparsed, e)
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
			e.protocolError("acknowledgement")
			return n
		}
		if e.State() != btl.Up {
			return n
		}
		switch h.kind {
		case frameFrag:
			e.noteTaken(len(frag))
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

// makeRoom ensures that an incomplete frame fits into the buffer. The buffer holds two of the
// longest frames, so makeRoom moves less than half of it, and only occasionally.
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

// protocolError fails the endpoint because the peer has broken the protocol (C8).
func (e *endpoint) protocolError(what string) {
	e.fail(e.m.NewError(e.p.rank, btl.ClassProtocol, btl.SideRemote, "", fmt.Errorf("%w: %s", errProtocol, what)))
}

// connectionLost fails the endpoint because the system has lost its connection.
func (e *endpoint) connectionLost(errno unix.Errno) {
	e.fail(e.m.pathError(e.p.rank, errno, e.connection()))
}

// connection names the connection for errors.
func (e *endpoint) connection() string {
	return fmt.Sprintf("connection from %v to %v", e.local, e.remote)
}

// peerEnded fails the endpoint because the peer has ended the connection without a good-bye. The
// peer's end has failed, or its process has ended.
func (e *endpoint) peerEnded() {
	if e.writeErr != 0 {
		e.connectionLost(e.writeErr)
		return
	}
	e.fail(e.m.NewError(e.p.rank, btl.ClassPath, btl.SideRemote, "EOF", fmt.Errorf("%s: %w", e.connection(), base.ErrPeerFailed)))
}

// readUnwritable continues to read connections that cannot be written to any more, because the
// peer's last bytes may explain why. It fails them when nothing is left to read.
func (m *module) readUnwritable() int {
	n := 0
	list := m.unwritable
	m.unwritable = nil
	for _, e := range list {
		if e.State() == btl.Up && !e.moreFrames {
			got := e.receive()
			if n += got; got == 0 {
				e.connectionLost(e.writeErr)
				n++
			}
		}
		if e.State() == btl.Up {
			m.unwritable = append(m.unwritable, e)
		}
	}
	return n
}

// parseUnparsed continues with the frames that the last progress call did not parse.
func (m *module) parseUnparsed() int {
	n := 0
	list := m.unparsed
	m.unparsed = m.spare[:0]
	for _, e := range list {
		if e.State() == btl.Up {
			n += e.parse()
		}
	}
	clear(list)
	m.spare = list[:0]
	return n
}

// takeBuffer returns memory to read into.
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

// maxBuffers is the number of free buffers that are kept for later connections.
const maxBuffers = 4

// giveBuffer takes a buffer back. The buffer may be in use until the progress call is over.
func (m *module) giveBuffer(buf []byte) { m.buffers = append(m.buffers, buf) }

// freeBuffers frees all but keep buffers.
func (m *module) freeBuffers(keep int) {
	for len(m.buffers) > keep {
		last := len(m.buffers) - 1
		_ = unix.Munmap(m.buffers[last]) // it fails only for memory that is not mapped
		m.buffers = m.buffers[:last]
	}
}
