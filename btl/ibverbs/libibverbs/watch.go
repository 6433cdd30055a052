//go:build ibverbs && cgo && linux

package libibverbs

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watcher calls a function when a descriptor of the library becomes readable. Its goroutine, which there is from the first
// set to close, waits in the runtime's network poller and so holds no thread.
//
// The poller is edge-triggered, and the kernel raises an edge for every event that it queues, whether or not the ones before
// were read. The function is called once for each edge that is seen, and edges that come while it runs are seen after it. So
// an event that comes after NextEvent has found none is told, without any word between the two; and one that nobody reads is
// told once, not for ever. What is there before the function is set has had its edge: set looks for it.
type watcher struct {
	file *os.File // a duplicate: closing it is not closing the library's
	fd   int      // its number; file.Fd would make it blocking

	mu   sync.Mutex // held while fn runs, so that nothing is called once set(nil) has returned
	fn   func()
	done chan struct{} // closed by the goroutine; nil before it starts
}

// watch makes fd non-blocking, for whoever reads it, and watches it.
func watch(fd int, name string) (*watcher, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s: non-blocking: %w", name, err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: duplicate: %w", name, err)
	}
	file := os.NewFile(uintptr(dup), name) // non-blocking, and so given to the poller
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s: the descriptor cannot be polled: %w", name, err)
	}
	return &watcher{file: file, fd: dup}, nil
}

// set has fn called from now on, at once if there is something to read. nil ends it: fn does not run any more when set returns.
func (w *watcher) set(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fn = fn
	switch {
	case fn == nil:
	case w.done == nil:
		w.done = make(chan struct{})
		go w.run()
	default:
		w.tell()
	}
}

func (w *watcher) run() {
	defer close(w.done)
	raw, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	// One Read for good: entering it forgets edges, waiting in it does not. The function is called on entry and after every
	// edge; it never says that it is done.
	_ = raw.Read(func(uintptr) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.tell()
		return false
	})
	// It ends by close, or because the descriptor broke: whoever reads next learns which.
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fn != nil {
		w.fn()
	}
}

// tell calls fn if there is something to read.
func (w *watcher) tell() {
	if w.fn != nil && w.readable() {
		w.fn()
	}
}

func (w *watcher) readable() bool {
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err != nil || n > 0
}

// close ends the goroutine and closes the descriptor, not the library's.
func (w *watcher) close() {
	w.set(nil)
	_ = w.file.Close() // waits until the poller has let go of it
	if w.done != nil {
		<-w.done
	}
}
