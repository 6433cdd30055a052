package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/mpirun-go/internal/output"
)

// console prints the launcher's own lines, on standard error. Printing a line never blocks, so the
// launcher handles signals even if its output is not read.
type console struct {
	stderr *output.Sink
	ends   chan os.Signal // has the first signal that ends the launcher; nil before catchSignals
}

// stuckOutputGrace is the time that a reader of the launcher's output has after such a signal.
const stuckOutputGrace = time.Second

func newConsole() *console { return &console{stderr: output.NewSink(os.Stderr)} }

// logf prints one line with the launcher's name.
func (c *console) logf(format string, args ...any) {
	c.stderr.Line("mpirun-go: " + fmt.Sprintf(format, args...))
}

// Write implements io.Writer, for whole lines.
func (c *console) Write(p []byte) (int, error) {
	c.stderr.Line(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// catchSignals returns the signals that the launcher handles. SIGHUP stays ignored under nohup.
// SIGPIPE is caught so that a write returns EPIPE. It catches signals rather than ignoring them,
// because the ranks would inherit ignored signals.
func (c *console) catchSignals() <-chan os.Signal {
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	c.ends = make(chan os.Signal, 1)
	signal.Notify(c.ends, ends...)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, append(ends, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH)...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals
}

// finish waits until all lines are written, and returns the launcher's exit status, which is status
// unless a signal ends the wait.
func (c *console) finish(status int) int {
	if err := c.await(c.stderr.Written()); err != nil && status == 0 {
		return err.status()
	}
	return status
}

// print calls f, which writes to standard output, and waits for it unless a signal ends the wait.
func (c *console) print(f func() error) error {
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = f()
	}()
	if interrupted := c.await(done); interrupted != nil {
		return interrupted
	}
	return err
}

// await waits until done is closed. If a signal that ends the launcher has come, or comes, it waits
// for at most stuckOutputGrace from then on.
func (c *console) await(done <-chan struct{}) *interruptedError {
	signal.Reset(syscall.SIGTSTP) // the ranks have ended, so SIGTSTP stops only the launcher
	select {
	case <-done:
		return nil
	case sig := <-c.ends:
		select {
		case c.ends <- sig: // for later calls
		default: // another one has come
		}
		select {
		case <-done:
			return nil
		case <-time.After(stuckOutputGrace):
			s, _ := sig.(syscall.Signal)
			return &interruptedError{s}
		}
	}
}
