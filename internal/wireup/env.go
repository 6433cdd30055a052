package wireup

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Environment variables in which a process manager says how a process reaches it.
const (
	EnvFD     = "PMI_FD"       // number of an inherited, connected stream socket
	EnvPort   = "PMI_PORT"     // host:port to connect to, without PMI_FD
	EnvID     = "PMI_ID"       // with PMI_PORT: the number to send in initack
	EnvRank   = "PMI_RANK"     // rank of this process
	EnvSize   = "PMI_SIZE"     // number of ranks
	EnvSecret = "MPIGO_SECRET" // the job's secret in hex, set by mpirun-go
)

// FromEnv joins the job that launched this process, by PMI_FD (mpirun-go, Hydra, Slurm's pmi2) or
// else PMI_PORT (Hydra with -pmi-port). If neither is set, the error Is ErrNoLauncher, or
// ErrLauncher if the environment of another launcher says that this process is one of several.
// Other errors: ErrEnv, ErrSecret, and those of NewClient.
//
// FromEnv takes over the inherited descriptor, and child processes do not inherit it further. So
// call it once in a process. A nil getenv means the environment of the process. FromEnv then
// removes from it the variables that child processes must not use. If a process has already joined
// as this rank, the error Is ErrJoined.
func FromEnv(getenv func(string) string) (*Client, error) {
	if getenv == nil {
		getenv = takeEnvironment()
	}
	join := fromFD
	if getenv(EnvFD) == "" {
		if join = fromPort; getenv(EnvPort) == "" {
			return nil, withoutPMI(getenv)
		}
	}
	secret, err := parseSecret(getenv(EnvSecret))
	if err != nil {
		return nil, err
	}
	c, err := join(getenv)
	if err != nil {
		return nil, err
	}
	c.secret.set(secret)
	return c, nil
}

func fromFD(getenv func(string) string) (*Client, error) {
	rank, size, err := rankFromEnv(getenv)
	if err != nil {
		return nil, err
	}
	conn, err := inheritedConn(getenv(EnvFD), rank)
	if err != nil {
		return nil, err
	}
	c, err := NewClient(conn, rank, size)
	if errors.Is(err, ErrLost) {
		err = fmt.Errorf("%w: the process manager has ended, or an earlier program has left the job as rank %d: a rank is one program", err, rank)
	}
	return c, err
}

func rankFromEnv(getenv func(string) string) (rank, size int, err error) {
	if rank, err = numberFromEnv(getenv, EnvRank); err != nil {
		return 0, 0, err
	}
	if size, err = numberFromEnv(getenv, EnvSize); err != nil {
		return 0, 0, err
	}
	return rank, size, nil
}

func numberFromEnv(getenv func(string) string, name string) (int, error) {
	n, err := strconv.Atoi(getenv(name))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("wireup: %s=%q: not a number: %w", name, clip(getenv(name)), ErrEnv)
	}
	return n, nil
}

// inheritedConn takes over a descriptor, but only if it is a connected stream socket: a stale
// PMI_FD may name any file of this process.
func inheritedConn(text string, rank int) (net.Conn, error) {
	bad := func(why string) error {
		return fmt.Errorf("wireup: %s=%q: %s (was Init called before, or did a parent process leave it set?): %w", EnvFD, clip(text), why, ErrEnv)
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd <= 2 {
		return nil, bad("not the number of a descriptor")
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return nil, bad("not an open stream socket")
	}
	if _, err := unix.Getpeername(fd); err != nil {
		return nil, bad("not a connected socket")
	}
	if err := claim(fd, rank); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), EnvFD)
	defer file.Close() // FileConn makes a duplicate, with close-on-exec
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("wireup: %s=%q: %w: %w", EnvFD, clip(text), err, ErrEnv)
	}
	return conn, nil
}

func fromPort(getenv func(string) string) (*Client, error) {
	address, introduce := getenv(EnvPort), getenv(EnvID) != ""
	var id, rank, size int
	var err error
	if introduce {
		id, err = numberFromEnv(getenv, EnvID)
	} else {
		rank, size, err = rankFromEnv(getenv)
	}
	if err != nil {
		return nil, err
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("wireup: %s=%q: not host:port: %w", EnvPort, clip(address), ErrEnv)
	}
	conn, err := dialPatiently(address)
	if err != nil {
		return nil, fmt.Errorf("wireup: process manager: %w: %w", ErrLost, err)
	}
	c := newClient(conn)
	if introduce {
		if rank, size, err = c.introduce(id); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return start(c, rank, size)
}

// introduce sends initack. The manager answers with initack and then, each in a line of its own,
// size, rank and debug.
func (c *Client) introduce(id int) (rank, size int, err error) {
	a, err := c.exchange("initack", "initack", "pmiid", strconv.Itoa(id))
	if err != nil {
		return 0, 0, err
	}
	values := map[string]int{}
	for _, key := range []string{"size", "rank", "debug"} {
		if a.line, err = c.read("initack"); err != nil {
			return 0, 0, fmt.Errorf("wireup: no answer to initack: %w", err)
		}
		if a.message, err = parseLine(a.line); err == nil && a.cmd != "set" {
			err = errors.New("not set")
		}
		if err == nil {
			values[key], err = a.number(key, 0, maxRanks)
		}
		if err != nil {
			return 0, 0, a.protocolError("initack", err)
		}
	}
	return values["rank"], values["size"], nil
}
