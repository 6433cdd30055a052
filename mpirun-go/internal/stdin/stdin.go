// Package stdin copies the launcher's standard input to ranks through pipes. It serves input that
// ranks cannot share by inheriting it:
//
//   - a terminal: a rank is in a background process group, so the kernel would stop it for reading;
//   - any input that goes to several ranks.
package stdin

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Copy writes all of src to each target, and closes the targets at the end of src. Copy drops a
// target whose Write fails (the rank has exited, or has closed its input), and returns when no
// target is left. Copy stores nothing, so a target that does not read blocks the others.
func Copy(src io.Reader, targets []io.WriteCloser) error {
	defer func() {
		for _, t := range targets {
			_ = t.Close()
		}
	}()
	buf := make([]byte, 32<<10)
	for len(targets) > 0 {
		n, err := src.Read(buf)
		targets = writeAll(targets, buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeAll writes p to each target and returns the targets whose Write succeeded.
func writeAll(targets []io.WriteCloser, p []byte) []io.WriteCloser {
	if len(p) == 0 {
		return targets
	}
	kept := targets[:0]
	for _, t := range targets {
		if _, err := t.Write(p); err != nil {
			_ = t.Close()
			continue
		}
		kept = append(kept, t)
	}
	return kept
}

// foregroundPoll is the interval at which a launcher in the background checks whether it has moved
// to the foreground. A user does not notice a delay of 0.2 s after fg.
const foregroundPoll = 200 * time.Millisecond

// Terminal reads a terminal while this process is in the terminal's foreground process group. In
// the background Read waits instead, because reading would stop the launcher (SIGTTIN).
type Terminal struct{ File *os.File }

// Read implements io.Reader.
func (t Terminal) Read(p []byte) (int, error) {
	fd := int(t.File.Fd())
	for {
		if isForeground(fd) {
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(ready, int(foregroundPoll.Milliseconds()))
			if err != nil && err != unix.EINTR {
				return 0, err
			}
			if n > 0 && isForeground(fd) {
				return t.File.Read(p)
			}
			continue
		}
		time.Sleep(foregroundPoll)
	}
}

// isForeground reports whether this process is in the terminal's foreground process group. It
// returns true for a terminal that is not the controlling terminal: the kernel stops no process for
// reading such a terminal.
func isForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// Source returns a reader of f: a Terminal if f is a terminal, otherwise f itself.
func Source(f *os.File) io.Reader {
	if IsTerminal(f) {
		return Terminal{File: f}
	}
	return f
}
