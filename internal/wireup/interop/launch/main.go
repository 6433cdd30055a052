// Launch starts a program as the ranks of a job under the wireup server, on this machine. run.sh
// uses it, instead of mpirun-go, to check the server with programs of other libraries.
//
//	launch [-n N] [-port] [-nodes 0,0,1,1] PROGRAM [ARG…]
//
// With -port the processes get PMI_PORT and PMI_ID instead of PMI_FD. When a rank fails or aborts,
// Launch kills the others. It prints how each rank's connection ended, and exits with the code of
// the first failure or abort.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/wireup"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "launch:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

type job struct {
	server *wireup.Server
	size   int

	mu    sync.Mutex
	cmds  []*exec.Cmd // those started so far
	code  int         // of the first failure or abort
	ended bool        // a rank has failed or aborted
	lines []string    // how each rank's connection ended
}

func run() (int, error) {
	n := flag.Int("n", 1, "number of ranks")
	port := flag.Bool("port", false, "let processes connect to a port")
	nodes := flag.String("nodes", "", "node of each rank, comma separated")
	flag.Parse()
	if flag.NArg() == 0 {
		return 2, errors.New("no program")
	}
	j := &job{size: *n, lines: make([]string, *n)}
	cfg := wireup.ServerConfig{Size: *n, JobID: fmt.Sprintf("launch-%d", os.Getpid()), OnAbort: func(rank, code int, message string) {
		j.end(code, fmt.Sprintf("rank %d aborts: code %d %q", rank, code, message))
	}}
	if *nodes != "" {
		for word := range strings.SplitSeq(*nodes, ",") {
			node, err := strconv.Atoi(word)
			if err != nil {
				return 2, err
			}
			cfg.NodeOf = append(cfg.NodeOf, node)
		}
	}
	var err error
	if j.server, err = wireup.NewServer(cfg); err != nil {
		return 2, err
	}
	connect := j.viaFD
	if *port {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 1, err
		}
		defer listener.Close()
		connect = func(rank int, cmd *exec.Cmd) (func(), error) { return j.viaPort(listener, rank, cmd) }
	}
	var running sync.WaitGroup
	for rank := range *n {
		cmd := exec.Command(flag.Arg(0), flag.Args()[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		serve, err := connect(rank, cmd)
		if err != nil {
			return 1, err
		}
		if err := cmd.Start(); err != nil {
			return 1, err
		}
		for _, f := range cmd.ExtraFiles {
			f.Close()
		}
		j.mu.Lock()
		j.cmds = append(j.cmds, cmd)
		j.mu.Unlock()
		running.Go(serve)
		running.Go(func() {
			if err := cmd.Wait(); err != nil {
				j.end(max(cmd.ProcessState.ExitCode(), 1), fmt.Sprintf("rank %d: %v", rank, err))
			}
		})
	}
	running.Wait()
	for _, line := range j.lines {
		fmt.Print(line)
	}
	return j.code, nil
}

// end kills all ranks at the first call.
func (j *job) end(code int, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	j.code, j.ended = code, true
	fmt.Println("launch:", why)
	for _, cmd := range j.cmds {
		_ = cmd.Process.Kill()
	}
}

// serve serves the connection of one rank. process is the rank that the output names.
func (j *job) serve(process string, rank int, conn net.Conn) {
	err := j.server.Serve(rank, conn)
	state := ""
	if rank != wireup.AnyRank {
		state = ", " + j.server.State(rank).String()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	at, _ := strconv.Atoi(process)
	j.lines[at] = fmt.Sprintf("launch: served %s%s: %v\n", process, state, err)
}

// viaFD gives the process one end of a socket pair as descriptor 3.
func (j *job) viaFD(rank int, cmd *exec.Cmd) (func(), error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours := os.NewFile(uintptr(fds[0]), "ours")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(fds[1]), "theirs")}
	cmd.Env = append(os.Environ(), wireup.EnvFD+"=3",
		fmt.Sprintf("%s=%d", wireup.EnvRank, rank), fmt.Sprintf("%s=%d", wireup.EnvSize, j.size))
	return func() { j.serve(strconv.Itoa(rank), rank, conn) }, nil
}

// viaPort gives the process an address to connect to.
func (j *job) viaPort(l net.Listener, rank int, cmd *exec.Cmd) (func(), error) {
	cmd.Env = append(os.Environ(), wireup.EnvPort+"="+l.Addr().String(), fmt.Sprintf("%s=%d", wireup.EnvID, rank))
	return func() {
		conn, err := l.Accept()
		if err != nil {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.lines[rank] = fmt.Sprintf("launch: accept: %v\n", err)
			return
		}
		j.serve(strconv.Itoa(rank), wireup.AnyRank, conn)
	}, nil
}
