package progress

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SystemClock is the monotonic clock of the system.
func SystemClock() Clock { return systemClock{time.Now()} }

type systemClock struct{ origin time.Time }

func (c systemClock) Now() int64 { return int64(time.Since(c.origin)) }

// ChanBell is a Bell for ranks of one process.
type ChanBell struct {
	rung  chan struct{}
	shut  atomic.Bool
	timer *time.Timer // the sleeper's, made at the first Sleep
}

// NewChanBell makes a ChanBell.
func NewChanBell() *ChanBell { return &ChanBell{rung: make(chan struct{}, 1)} }

// Ring implements Bell.
func (b *ChanBell) Ring() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// Sleep implements Bell.
func (b *ChanBell) Sleep(nanos int64) (rung bool) {
	if b.shut.Load() {
		return false
	}
	if b.timer == nil {
		b.timer = time.NewTimer(time.Duration(nanos))
	} else {
		b.timer.Reset(time.Duration(nanos))
	}
	select {
	case <-b.rung:
		b.timer.Stop()
		return true
	case <-b.timer.C:
		return false
	}
}

// Close implements Bell.
func (b *ChanBell) Close() error {
	b.shut.Store(true)
	b.Ring()
	return nil
}

// PipeBell is a Bell that other processes of the same user can ring: it is a pipe,
// and whoever may look into this process's /proc/PID/fd can open its other end. The
// sleeper waits in the runtime's network poller and holds no thread.
type PipeBell struct {
	r, w *os.File
	raw  syscall.RawConn // of w
	wfd  int
	shut atomic.Bool
	buf  [pipeBytes]byte // the sleeper's
}

// pipeBytes is what the pipe holds, if the system lets it be so small: one read empties
// it, so that any number of rings ends only one sleep.
const pipeBytes = 4096

// NewPipeBell makes a PipeBell.
func NewPipeBell() (*PipeBell, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe to sleep on: %w", err)
	}
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeBytes)
	b := &PipeBell{
		r:   os.NewFile(uintptr(fds[0]), "bell"),
		w:   os.NewFile(uintptr(fds[1]), "bell"),
		wfd: fds[1],
	}
	raw, err := b.w.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe to sleep on: %w", err), b.Close())
	}
	b.raw = raw
	return b, nil
}

// WriteFD is the descriptor, in this process, whose /proc/PID/fd entry peers open to ring.
func (b *PipeBell) WriteFD() int { return b.wfd }

var ring = []byte{1} // never written

// Ring implements Bell. A full pipe has been rung already.
func (b *PipeBell) Ring() {
	if b.shut.Load() {
		return
	}
	// Once and raw, because it must not wait for room. An error is that of a bell just closed.
	_ = b.raw.Write(func(fd uintptr) bool {
		_, _ = unix.Write(int(fd), ring)
		return true
	})
}

// Sleep implements Bell.
func (b *PipeBell) Sleep(nanos int64) (rung bool) {
	if b.shut.Load() {
		return false
	}
	if err := b.r.SetReadDeadline(time.Now().Add(time.Duration(nanos))); err != nil {
		return false // closed; without a deadline a read might never return
	}
	n, _ := b.r.Read(b.buf[:]) // a time-out and a closed pipe both end the sleep
	return n > 0
}

// Close implements Bell.
func (b *PipeBell) Close() error {
	if b.shut.Swap(true) {
		return nil
	}
	return errors.Join(b.r.Close(), b.w.Close())
}
