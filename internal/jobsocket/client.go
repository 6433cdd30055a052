package jobsocket

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/internal/introspect"
)

// ErrNoJob means that no job of the user's on this machine has that name.
var ErrNoJob = errors.New("no such job")

// infoTimeout is the time that a job has to describe itself. A stopped launcher does not.
const infoTimeout = time.Second

// answerTimeout is the time that a job has to answer anything else: AnswerTimeout for its ranks,
// and time to carry the answers.
const answerTimeout = 2*introspect.AnswerTimeout + infoTimeout

// maxAnswerBytes bounds an answer. A report of a rank usually has a few kibibytes.
const maxAnswerBytes = 1 << 30

// staleAge is the age from which a socket without a listener is a leftover. A younger one may
// belong to a job that is just starting.
const staleAge = 10 * time.Second

// Jobs returns the user's jobs on this machine, the oldest first. It removes the sockets of
// processes that were killed. A job that does not answer has only a name.
func Jobs() []Info {
	var jobs []Info
	for _, path := range sockets() {
		c, err := dial(path)
		if err != nil {
			continue
		}
		a, err := c.Ask(WantJob, infoTimeout)
		c.Close()
		if err != nil {
			a.Job = Info{Name: jobOf(path)}
		}
		jobs = append(jobs, a.Job)
	}
	slices.SortStableFunc(jobs, func(a, b Info) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Name, b.Name))
	})
	return jobs
}

// Client is a connection to a job. Only one goroutine at a time may use it.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
}

// Dial connects to the job with a name, or the one whose name contains it, such as the ID of its
// launcher's process. The error Is ErrNoJob if there is none, or more than one.
func Dial(name string) (*Client, error) {
	var found []string
	for _, path := range sockets() {
		if job := jobOf(path); job == name {
			found = []string{path}
			break
		} else if slices.Contains(strings.Split(job, "-"), name) || strings.HasPrefix(job, name) {
			found = append(found, path)
		}
	}
	var clients []*Client
	for _, path := range found {
		if c, err := dial(path); err == nil {
			clients = append(clients, c)
		}
	}
	if len(clients) == 1 {
		return clients[0], nil
	}
	for _, c := range clients {
		c.Close()
	}
	if len(clients) > 1 {
		return nil, fmt.Errorf("%w: %s may be any of %d jobs", ErrNoJob, strconv.Quote(name), len(clients))
	}
	return nil, fmt.Errorf("%w: %s", ErrNoJob, strconv.Quote(name))
}

// dial connects to a socket. If no process listens there any more, it removes the socket.
func dial(path string) (*Client, error) {
	conn, err := net.DialTimeout("unix", path, infoTimeout)
	if errors.Is(err, syscall.ECONNREFUSED) {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > staleAge {
			_ = os.Remove(path)
		}
	}
	if err != nil {
		return nil, err
	}
	return &Client{conn, bufio.NewReaderSize(conn, 64<<10)}, nil
}

// Close closes the connection.
func (c *Client) Close() { _ = c.conn.Close() }

// Report asks for the full reports of the ranks.
func (c *Client) Report() (Answer, error) { return c.Ask(introspect.WantReport, answerTimeout) }

// traceTimeout is the time that a job has to make its trace, which may be large.
const traceTimeout = 3 * time.Minute

// Trace asks the job to make its trace so far. The answer has the result in one line, or, for a job
// with a TraceDir, the answers of the ranks.
func (c *Client) Trace() (Answer, error) { return c.Ask(introspect.WantTrace, traceTimeout) }

// Ask sends a request and waits for the answer, at most for the given time.
func (c *Client) Ask(want introspect.Want, limit time.Duration) (a Answer, err error) {
	_ = c.conn.SetDeadline(time.Now().Add(limit))
	text, err := json.Marshal(Request{Version: Version, Want: want})
	if err == nil {
		_, err = c.conn.Write(append(text, '\n'))
	}
	var line []byte
	if err == nil {
		line, err = introspect.ReadLine(c.in, maxAnswerBytes)
	}
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return a, fmt.Errorf("the job has not answered for %v: is its launcher stopped?", limit)
	case err != nil:
		return a, fmt.Errorf("the job has not answered: %w", err)
	case a.Version != Version:
		return Answer{}, fmt.Errorf("the job answers in version %d, and this command understands %d: use the mpirun-go that started it", a.Version, Version)
	case a.Error != "":
		return a, fmt.Errorf("the job answered: %q", a.Error)
	}
	return a, nil
}
