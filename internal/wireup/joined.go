package wireup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A rank is one process that joins once. But a shell may run several programs, a rank may start a
// child, and a process may execute another program. By two marks the second program detects that it
// is not the rank: a name for the socket that all of them inherit, and a variable.

// EnvJoined is the variable that FromEnv sets in place of the variables that it removes: the
// process ID of the rank.
const EnvJoined = "MPIGO_JOINED_PID"

// takeEnvironment removes the process manager's variables and the secret from the environment of
// this process, because child processes must not use them. It returns a getenv that still has them.
func takeEnvironment() (getenv func(string) string) {
	taken := make(map[string]string)
	for _, name := range []string{EnvFD, EnvPort, EnvSecret} {
		taken[name] = os.Getenv(name)
		_ = os.Unsetenv(name)
	}
	if taken[EnvFD] != "" || taken[EnvPort] != "" {
		_ = os.Setenv(EnvJoined, strconv.Itoa(os.Getpid()))
	}
	return func(name string) string {
		if value, isTaken := taken[name]; isTaken {
			return value
		}
		return os.Getenv(name)
	}
}

// joinedByParent returns the error of a process whose environment has EnvJoined, but no process
// manager.
func joinedByParent(pid string) error {
	return fmt.Errorf("wireup: process %s %w as this rank, and a program that it starts cannot be that rank too: start that program by mpirun-go, or unset %s to run it as a world of one rank",
		clip(pid), ErrJoined, EnvJoined)
}

// joinedPrefix begins the name of the socket of a rank that has joined. The process ID and random
// bytes follow.
const joinedPrefix = "@mpigo-rank-"

// claim makes this process the only one that joins through a socket, or returns an error if another
// process has joined through it. It binds the socket to a name in the abstract namespace (unix(7)),
// which the kernel allows only once. No process can connect to the name, because the socket does
// not listen.
func claim(fd, rank int) error {
	own := fmt.Sprintf("%s%d-%s", joinedPrefix, os.Getpid(), rand.Text())
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: own}); !errors.Is(err, unix.EINVAL) {
		return nil // claimed, or a socket that cannot be claimed
	}
	text, isJoined := strings.CutPrefix(nameOf(fd), joinedPrefix)
	if !isJoined {
		return nil // the process manager has named it
	}
	text, _, _ = strings.Cut(text, "-")
	pid, err := strconv.Atoi(text)
	if err != nil {
		return nil
	}
	state := ""
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		state = ", which has ended"
	}
	return fmt.Errorf("wireup: rank %d %w, as process %d%s: a rank is one program that calls Init once: start the other program in a job of its own",
		rank, ErrJoined, pid, state)
}

// nameOf returns the name of a Unix socket.
func nameOf(fd int) string {
	address, _ := unix.Getsockname(fd)
	if at, isUnix := address.(*unix.SockaddrUnix); isUnix {
		return at.Name
	}
	return ""
}
