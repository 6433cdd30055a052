package output

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOnClosedReportsClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	closed := make(chan struct{})
	stop := OnClosed(w, func() { close(closed) })
	_, err = w.WriteString("not read yet") // unread data does not count as closed
	require.NoError(t, err)
	select {
	case <-closed:
		t.Fatal("closed was called while the pipe has a reader")
	default:
	}
	require.NoError(t, r.Close())
	<-closed
	stop()
	stop()
}

func TestOnClosedReportsClosedSocket(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	w := os.NewFile(uintptr(pair[0]), "socket")
	defer w.Close()
	other := os.NewFile(uintptr(pair[1]), "other")
	reader, err := net.FileConn(other)
	require.NoError(t, err)
	require.NoError(t, other.Close())
	closed := make(chan struct{})
	defer OnClosed(w, func() { close(closed) })()
	require.NoError(t, reader.Close())
	<-closed
}

// Neither a regular file nor a pipe with a reader ever reports a closed end. The stop function
// returns anyway.
func TestOnClosedStopWithoutEvent(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer file.Close()
	for _, f := range []*os.File{w, file} {
		stop := OnClosed(f, func() { assert.Fail(t, "closed was called") })
		stop()
	}
}
