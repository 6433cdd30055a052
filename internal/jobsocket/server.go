package jobsocket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/introspect"
)

// Version is the version of requests and answers.
const Version = 2

// WantJob in a request asks for Answer.Job alone, which needs no rank.
const WantJob introspect.Want = "job"

// Request is what a command sends.
type Request struct {
	Version int `json:"v"`
	// Want is WantJob, or what the ranks are asked for.
	Want introspect.Want `json:"want"`
}

// Answer is what the job answers.
type Answer struct {
	Version int                 `json:"v"`
	Job     Info                `json:"job"`
	Members []introspect.Member `json:"members,omitempty"` // one for each rank, in order
	// Trace is the answer to introspect.WantTrace, unless Job has a TraceDir.
	Trace string `json:"trace,omitempty"`
	Error string `json:"error,omitempty"`
}

// Info describes a job.
type Info struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"` // of the process that listens
	Host    string    `json:"host"`
	Size    int       `json:"size"`    // number of ranks
	Command string    `json:"command"` // the program of the first ranks, with its arguments
	Started time.Time `json:"started"`
	Traces  bool      `json:"traces,omitempty"` // introspect.WantTrace has an answer
	// TraceDir is the directory in which each rank writes its trace, if the command and not the job
	// has to merge them.
	TraceDir string `json:"trace_dir,omitempty"`
	// TraceJob is the identity of the job in these files.
	TraceJob string `json:"trace_job,omitempty"`
}

// Tracer is a job that records a trace, if its Info says so.
type Tracer interface {
	// Trace makes the trace of the job so far, and returns the result in one line. It returns soon
	// after ctx ends.
	Trace(ctx context.Context) string
}

// Job is a job that answers requests. Goroutines may share it.
type Job interface {
	Info() Info
	// Ask asks all ranks. It returns after a bounded time, and when ctx ends.
	Ask(ctx context.Context, want introspect.Want) []introspect.Member
}

const (
	// maxRequestBytes bounds a request.
	maxRequestBytes = 4 << 10
	// maxConns is the number of commands that are served at a time.
	maxConns = 16
	// writeTimeout is the time after which a command that does not read its answer is dropped.
	writeTimeout = 30 * time.Second
	// requestTimeout is the time after which a command that sends no request is dropped. A command
	// that is suspended would occupy a connection for ever.
	requestTimeout = time.Minute
)

// Server listens on a job's socket.
type Server struct {
	job      Job
	path     string
	listener *net.UnixListener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup
	slots    chan struct{} // has an element for each connection

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil after Close
}

// Listen makes the socket of a job, in the first of the user's directories in which that is
// possible, and serves it until Close.
func Listen(job Job) (*Server, error) {
	var errs []error
	for _, dir := range directories() {
		listener, path, err := listenIn(dir, job.Info().Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s := &Server{job: job, path: path, listener: listener, conns: map[net.Conn]struct{}{}, slots: make(chan struct{}, maxConns)}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.running.Go(s.accept)
		return s, nil
	}
	return nil, errs[len(errs)-1]
}

func listenIn(dir, job string) (*net.UnixListener, string, error) {
	path, err := pathOf(dir, job)
	if err != nil {
		return nil, "", err
	}
	if err := makeDirectory(dir); err != nil {
		return nil, "", err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	return l, path, err
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// Close removes the socket, and ends all connections.
func (s *Server) Close() {
	_ = s.listener.Close() // removes the file
	s.cancel()
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.running.Wait()
}

func (s *Server) accept() {
	for {
		s.slots <- struct{}{}
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			<-s.slots
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select { // no descriptors are left, perhaps for a moment only
			case <-time.After(time.Second):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		if !s.add(conn) {
			_ = conn.Close()
			return
		}
		s.running.Go(func() {
			defer func() { <-s.slots }()
			defer s.remove(conn)
			if isUsers(conn) {
				s.serve(conn)
			}
		})
	}
}

func (s *Server) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

func (s *Server) remove(conn net.Conn) {
	_ = conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// isUsers reports whether a process of the user, or of root, is at the other end.
func isUsers(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ok = err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Getuid())
	})
	return err == nil && ok
}

// serve answers the requests of one connection until it ends.
func (s *Server) serve(conn net.Conn) {
	in := bufio.NewReaderSize(conn, maxRequestBytes)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
		line, err := in.ReadSlice('\n')
		if err != nil {
			return // the connection ended, or no request came in time, or one was too long
		}
		a := Answer{Version: Version, Job: s.job.Info()}
		var r Request
		switch err := json.Unmarshal(line, &r); {
		case err != nil:
			a.Error = "not a request: " + err.Error()
		case r.Version != Version:
			a.Error = fmt.Sprintf("the request has version %d, and this job understands %d", r.Version, Version)
		case r.Want == introspect.WantTrace:
			tracer, traces := s.job.(Tracer)
			if traces {
				a.Trace = tracer.Trace(s.ctx)
			}
			switch {
			case a.Trace != "":
			case a.Job.TraceDir != "":
				a.Members = s.job.Ask(s.ctx, r.Want)
			default:
				a.Error = "the job makes no trace, or ends"
			}
		case r.Want != WantJob:
			a.Members = s.job.Ask(s.ctx, r.Want)
		}
		text, err := json.Marshal(a)
		if err != nil {
			return
		}
		_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := conn.Write(append(text, '\n')); err != nil {
			return
		}
	}
}
