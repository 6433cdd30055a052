package introspect

import (
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Inherited takes over the rank's end of its connection, from the descriptor that FDVariable names,
// and unsets the variable. Child processes then inherit neither. It returns nil if there is none: a
// variable that another process has left may name any descriptor, so only a connected Unix socket
// is taken.
func Inherited() net.Conn {
	fd, err := strconv.Atoi(os.Getenv(FDVariable))
	if err != nil || fd <= 2 {
		return nil
	}
	_ = os.Unsetenv(FDVariable)
	if peer, err := unix.Getpeername(fd); err != nil || !isUnix(peer) {
		return nil
	}
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return nil
	}
	file := os.NewFile(uintptr(fd), FDVariable)
	defer file.Close() // FileConn makes a duplicate, with close-on-exec
	conn, err := net.FileConn(file)
	if err != nil {
		return nil
	}
	return conn
}

func isUnix(address unix.Sockaddr) bool {
	_, ok := address.(*unix.SockaddrUnix)
	return ok
}
