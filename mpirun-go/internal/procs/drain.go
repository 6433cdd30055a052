package procs

import (
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Tail reads what is in a pipe now and then ends, whether or not somebody could
// still write to it. It is for a stream whose deadline has passed: the
// deadline is taken away.
func Drain(stream Output) io.Reader {
	_ = stream.SetReadDeadline(time.Time{})
	file, ok := stream.(*os.File)
	if !ok { // who holds the pipe itself does this
		return strings.NewReader("")
	}
	raw, err := file.SyscallConn()
	if err != nil { // closed
		return strings.NewReader("")
	}
	return io.LimitReader(nonblockingReader{raw}, maxPipeBytes)
}

// maxPipeBytes bounds what Tail reads: a pipe holds 64 KiB, and up to this if an
// unprivileged process asks for more (fs.pipe-max-size).
const maxPipeBytes = 1 << 20

// nowReader never waits: nothing to read is the end.
type nonblockingReader struct{ raw syscall.RawConn }

func (r nonblockingReader) Read(p []byte) (n int, err error) {
	rawErr := r.raw.Read(func(fd uintptr) bool {
		for {
			n, err = unix.Read(int(fd), p)
			if err != unix.EINTR {
				return true
			}
		}
	})
	if rawErr != nil || err != nil || n <= 0 {
		return 0, io.EOF
	}
	return n, nil
}
