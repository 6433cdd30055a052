//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watcher calls a function when a file descriptor of the library becomes readable. Its goroutine
// runs from the first call of set until close. It waits in the runtime's network poller and holds
// no thread.
//
// The poller is edge-triggered, and the kernel raises an edge for every event that it queues, even
// if earlier events are unread. The watcher calls the function once per edge that it sees; it sees
// edges that arrive during a call afterwards. So the first event after NextEvent found none causes
// a call without further synchronization, and an unread event does not cause calls forever. Events
// queued before set have had their edge, so set checks for them.
type watcher struct {
	file *os.File // a duplicate: closing it does not close the library's descriptor
	fd   int      // descriptor of file; file.Fd would make it blocking

	mu   sync.Mutex // held while fn runs, so fn does not run after set(nil) returns
	fn   func()
	done chan struct{} // closed by the goroutine; nil before it starts
}

// watch makes fd non-blocking for all its readers and returns a watcher of it.
func watch(fd int, name string) (*watcher, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s: non-blocking: %w", name, err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: duplicate: %w", name, err)
	}
	file := os.NewFile(uintptr(dup), name) // non-blocking, so the poller watches it
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s: the descriptor cannot be polled: %w", name, err)
	}
	return &watcher{file: file, fd: dup}, nil
}

// set registers fn, and calls it if the descriptor is readable. A nil fn removes the registration:
// the previous function does not run after set returns.
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
		w.callIfReadable()
	}
}

func (w *watcher) run() {
	defer close(w.done)
	raw, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	// A single Read lasts until close: entering Read drops edges, waiting in it does not. Read
	// calls the function on entry and after every edge; the function never reports that it is done.
	_ = raw.Read(func(uintptr) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.callIfReadable()
		return false
	})
	// Read returns after close or if the descriptor failed. The next NextEvent finds out which.
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fn != nil {
		w.fn()
	}
}

// callIfReadable calls fn if the descriptor is readable.
func (w *watcher) callIfReadable() {
	if w.fn != nil && w.readable() {
		w.fn()
	}
}

func (w *watcher) readable() bool {
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err != nil || n > 0
}

// close ends the goroutine and closes the duplicate descriptor, not the library's.
func (w *watcher) close() {
	w.set(nil)
	_ = w.file.Close() // waits until the poller no longer uses it
	if w.done != nil {
		<-w.done
	}
}
