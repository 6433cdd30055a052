package procs

import (
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Drain returns a reader of the data that is in the pipe now. The reader ends after these data,
// even if a process could still write to the pipe. Drain is for a stream whose read deadline has
// passed, and removes that deadline.
func Drain(stream Output) io.Reader {
	_ = stream.SetReadDeadline(time.Time{})
	file, ok := stream.(*os.File)
	if !ok { // a remote rank's stream: its daemon drains the pipe
		return strings.NewReader("")
	}
	raw, err := file.SyscallConn()
	if err != nil { // the file is closed
		return strings.NewReader("")
	}
	return io.LimitReader(nonblockingReader{raw}, maxPipeBytes)
}

// maxPipeBytes bounds the data that Drain reads. A pipe holds 64 KiB, or up to 1 MiB if an
// unprivileged process asks for that (fs.pipe-max-size).
const maxPipeBytes = 1 << 20

// nonblockingReader reads without waiting: an empty pipe is the end.
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
