// Package stdin hands the launcher's standard input to ranks through pipes. It is
// for input that ranks cannot share by inheriting it: a terminal, since a rank
// is in a background process group and would be stopped for reading, and any input
// that goes to several ranks.
package stdin

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// IsTerminal is whether f is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Copy writes all of src to each of the targets and closes them at its end. A
// target that fails (its rank has ended, or closed its input) is left out from
// then on; Copy returns when none is left. One that does not read holds up the
// others: nothing is stored.
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

// writeAll returns the targets that took p.
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

// backgroundPoll is how often a launcher in the background looks whether it has
// been brought to the foreground.
const foregroundPoll = 200 * time.Millisecond

// Terminal reads a terminal as long as this process is in its foreground. In the
// background it waits instead: to read would stop the launcher (SIGTTIN).
type Terminal struct{ File *os.File }

// Read is io.Reader's.
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

// foreground is whether the terminal's foreground process group is ours. A
// terminal that does not tell, not being the controlling one, stops nobody.
func isForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// Source is how to read f: with care if it is a terminal.
func Source(f *os.File) io.Reader {
	if IsTerminal(f) {
		return Terminal{File: f}
	}
	return f
}
