package tcp

import (
	"encoding/gob"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Tests that need more processes start this test program again, with the name of a role in the
// environment. The child runs that role in place of the tests, and talks with its parent over a
// socket.

const roleVariable = "MPIGO_TCP_TEST_ROLE"

// roles of child processes, by name.
func roles() map[string]func(conn *net.UnixConn) error {
	return map[string]func(conn *net.UnixConn) error{
		"serve": serveRole,
		"echo":  echoRole,
	}
}

func TestMain(m *testing.M) {
	name := os.Getenv(roleVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	conn, err := socket(3)
	if err == nil {
		err = roles()[name](conn)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func socket(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// child is a process that plays a role.
type child struct {
	*net.UnixConn
	cmd *exec.Cmd
	enc *gob.Encoder
	dec *gob.Decoder
}

// start starts a child, which ends with the test at the latest.
func start(t testing.TB, role string, extra ...*os.File) *child {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	defer theirs.Close()
	conn, err := socket(fds[0])
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.ExtraFiles = append([]*os.File{theirs}, extra...)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	c := &child{UnixConn: conn, cmd: cmd, enc: gob.NewEncoder(conn), dec: gob.NewDecoder(conn)}
	t.Cleanup(func() { c.kill() })
	return c
}

// kill kills the child if it still runs.
func (c *child) kill() {
	_ = c.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// tell and ask exchange values with the child.
func (c *child) tell(t testing.TB, v any) { require.NoError(t, c.enc.Encode(v)) }
func (c *child) ask(t testing.TB, v any)  { require.NoError(t, c.dec.Decode(v)) }
