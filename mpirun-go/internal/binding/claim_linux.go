package binding

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// socketClaim is a claim to a core: a socket with a name in the abstract namespace (unix(7)). Only
// one socket of a network namespace can have a name, whatever user owns it, so two launchers that
// start at the same moment cannot claim the same core. The kernel frees the name when the launcher
// has ended, in whatever way.
type socketClaim int

// claimCore claims the core with a processor. It fails if another launcher has it, and if no socket
// can be opened.
func claimCore(cpu int) (claim, bool) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@mpigo/core/%d", cpu)}); err != nil {
		_ = unix.Close(fd)
		return nil, false
	}
	return socketClaim(fd), true
}

func (c socketClaim) release() { _ = unix.Close(int(c)) }
