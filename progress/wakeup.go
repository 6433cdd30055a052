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

// ChanWakeup is a Wakeup for ranks of one process.
type ChanWakeup struct {
	woken  chan struct{} // has room for one
	closed atomic.Bool
	timer  *time.Timer // the sleeper's, made at the first Sleep
}

// NewChanWakeup makes a ChanWakeup.
func NewChanWakeup() *ChanWakeup { return &ChanWakeup{woken: make(chan struct{}, 1)} }

// Wake implements Wakeup.
func (u *ChanWakeup) Wake() {
	select {
	case u.woken <- struct{}{}:
	default:
	}
}

// Sleep implements Wakeup.
func (u *ChanWakeup) Sleep(nanos int64) (woken bool) {
	if u.closed.Load() {
		return false
	}
	if u.timer == nil {
		u.timer = time.NewTimer(time.Duration(nanos))
	} else {
		u.timer.Reset(time.Duration(nanos))
	}
	select {
	case <-u.woken:
		u.timer.Stop()
		return true
	case <-u.timer.C:
		return false
	}
}

// Close implements Wakeup.
func (u *ChanWakeup) Close() error {
	u.closed.Store(true)
	u.Wake()
	return nil
}

// PipeWakeup is a Wakeup that other processes can use too. It is a pipe. Another process opens the
// pipe's write end in this process's /proc/PID/fd, which processes of the same user may do, and
// writes a byte. The sleeper waits in the runtime's network poller and holds no thread.
type PipeWakeup struct {
	r, w   *os.File
	raw    syscall.RawConn // of w
	wfd    int
	closed atomic.Bool
	buf    [pipeBytes]byte // the sleeper's
}

// pipeBytes is the capacity of the pipe, if the system permits such a small one. One read empties
// it, so any number of wake-ups ends only one sleep.
const pipeBytes = 4096

// NewPipeWakeup makes a PipeWakeup.
func NewPipeWakeup() (*PipeWakeup, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe to sleep on: %w", err)
	}
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeBytes)
	u := &PipeWakeup{
		r:   os.NewFile(uintptr(fds[0]), "wakeup"),
		w:   os.NewFile(uintptr(fds[1]), "wakeup"),
		wfd: fds[1],
	}
	raw, err := u.w.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe to sleep on: %w", err), u.Close())
	}
	u.raw = raw
	return u, nil
}

// WriteFD returns the descriptor of the write end in this process. Peers open its entry in
// /proc/PID/fd.
func (u *PipeWakeup) WriteFD() int { return u.wfd }

var wakeByte = []byte{1} // never written

// Wake implements Wakeup. If the pipe is full, the next Sleep returns at once anyway.
func (u *PipeWakeup) Wake() {
	if u.closed.Load() {
		return
	}
	// One raw write, because os.File.Write would wait for room. It fails only on a closed pipe.
	_ = u.raw.Write(func(fd uintptr) bool {
		_, _ = unix.Write(int(fd), wakeByte)
		return true
	})
}

// Sleep implements Wakeup.
func (u *PipeWakeup) Sleep(nanos int64) (woken bool) {
	if u.closed.Load() {
		return false
	}
	if err := u.r.SetReadDeadline(time.Now().Add(time.Duration(nanos))); err != nil {
		return false // closed; without a deadline a read might never return
	}
	n, _ := u.r.Read(u.buf[:]) // a time-out and a closed pipe both end the sleep
	return n > 0
}

// Close implements Wakeup.
func (u *PipeWakeup) Close() error {
	if u.closed.Swap(true) {
		return nil
	}
	return errors.Join(u.r.Close(), u.w.Close())
}
