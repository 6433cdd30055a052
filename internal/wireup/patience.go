package wireup

import (
	"errors"
	"net"
	"os"
	"time"
)

// A process waits for the other end of its connection for patience, in looks. So the time in which
// the process itself was stopped counts as one look. The patience is long because a user may have
// stopped the other end: a launcher that was stopped for a while fails no job.
const (
	lookEvery = 5 * time.Second
	maxLooks  = 60
	patience  = maxLooks * lookEvery

	// dialLooks is for how many looks a process tries to connect. A manager that was stopped does
	// not matter, because the system accepts for it.
	dialLooks = 6
)

// readPatiently reads the next line.
func readPatiently(conn net.Conn, in *lineReader) (line string, err error) {
	for range maxLooks {
		if err := conn.SetReadDeadline(time.Now().Add(lookEvery)); err != nil {
			return "", err
		}
		if line, err = in.readLine(); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return line, err
}

// writePatiently writes a text. It gives up if the other end reads nothing for patience.
func writePatiently(conn net.Conn, text string) error {
	rest := []byte(text)
	for left := maxLooks; ; {
		if err := conn.SetWriteDeadline(time.Now().Add(lookEvery)); err != nil {
			return err
		}
		n, err := conn.Write(rest)
		rest = rest[n:]
		if left--; n > 0 {
			left = maxLooks
		}
		if left == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// dialPatiently connects to a manager.
func dialPatiently(address string) (conn net.Conn, err error) {
	for range dialLooks {
		if conn, err = net.DialTimeout("tcp", address, lookEvery); err == nil || !os.IsTimeout(err) {
			break
		}
	}
	return conn, err
}
