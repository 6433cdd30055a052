package wireup

import (
	"errors"
	"net"
	"os"
	"time"
)

// A process waits for the other end of its connection for a number of intervals. The time for which
// the process itself was stopped counts as one interval. The limit is long because a user may have
// stopped the other end: a launcher that was stopped for a while must not fail the job.
const (
	lookEvery = 5 * time.Second
	maxLooks  = 60
	patience  = maxLooks * lookEvery

	// dialLooks is the number of intervals for which a process tries to connect. It may be small,
	// because the system accepts connections for a stopped manager.
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

// writePatiently writes a text. It gives up if the other end does not read for that time.
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
