package introspect

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestInheritedTakesConnectedSocketOnly(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	launcher := os.NewFile(uintptr(pair[0]), "launcher")
	defer launcher.Close()
	t.Setenv(FDVariable, strconv.Itoa(pair[1]))
	conn := Inherited()
	require.NotNil(t, conn)
	defer conn.Close()
	_, set := os.LookupEnv(FDVariable)
	assert.False(t, set, "a child process must not see the variable")
	_, err = unix.Getpeername(pair[1])
	assert.Error(t, err, "the inherited descriptor, which a child would inherit, is closed")
	_, err = launcher.WriteString("x")
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.NoError(t, err)
	assert.Nil(t, Inherited(), "without the variable")
}

func TestInheritedLeavesOtherDescriptorsAlone(t *testing.T) {
	file, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer file.Close()
	listener, err := net.Listen("unix", t.TempDir()+"/socket")
	require.NoError(t, err)
	defer listener.Close()
	unconnected, err := listener.(*net.UnixListener).File()
	require.NoError(t, err)
	defer unconnected.Close()
	datagrams, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(datagrams[0])
	defer unix.Close(datagrams[1])
	for _, fd := range []int{int(file.Fd()), int(unconnected.Fd()), datagrams[0], 2, 1 << 20} {
		t.Setenv(FDVariable, strconv.Itoa(fd))
		assert.Nil(t, Inherited(), fd)
	}
	for _, open := range []int{int(file.Fd()), int(unconnected.Fd()), datagrams[0]} {
		_, err := unix.FcntlInt(uintptr(open), unix.F_GETFD, 0)
		assert.NoError(t, err, "it stays open")
	}
	t.Setenv(FDVariable, "four")
	assert.Nil(t, Inherited())
}
