package wireup

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Client is a process's connection to its process manager.
//
// Goroutines may share it: exchanges take place one after the other. Abort and Close do not wait
// for a pending Barrier.
//
// A time-out, a lost connection and a protocol error are final, because the next answer could
// belong to any request. Each later call except Abort returns that first error. A job can run
// without PublishModule and PublishedModules, so a time-out of one of them is final for these two
// only.
type Client struct {
	conn      net.Conn
	rank      int
	size      int
	kvsName   string
	limits    limits
	hasGetAll bool // the manager offers getAll
	// hasPublish: the manager offers publish.
	hasPublish bool

	// exchanging is held for a whole exchange, request and answer. It guards in and broken.
	exchanging sync.Mutex
	in         *lineReader
	seen       int   // how many published values were read
	broken     error // set once: why no exchange is possible any more
	// late: publish or published was not answered in time. The lines of that answer may still
	// arrive before the next answer. After that, neither is requested again.
	late bool

	// writing is held for the write of one line. Abort needs only this lock.
	writing sync.Mutex

	closed atomic.Bool

	secret secretState
	nodes  nodesState
}

// limits are the manager's limits, from its answer to get_maxes.
type limits struct{ keyBytes, valueBytes int }

// NewClient speaks PMI-1 over conn as the given rank of size: init, get_maxes, get_my_kvsname. It
// owns conn from then on, and closes it if it returns an error.
func NewClient(conn net.Conn, rank, size int) (*Client, error) {
	return start(newClient(conn), rank, size)
}

func newClient(conn net.Conn) *Client { return &Client{conn: conn, in: newLineReader(conn)} }

func start(c *Client, rank, size int) (*Client, error) {
	if err := checkRank(rank, size); err != nil {
		c.conn.Close()
		return nil, fmt.Errorf("wireup: %w", err)
	}
	c.rank, c.size = rank, size
	if err := c.handshake(); err != nil {
		c.conn.Close()
		return nil, err
	}
	return c, nil
}

func checkRank(rank, size int) error {
	if size < 1 || size > maxRanks || rank < 0 || rank >= size {
		return fmt.Errorf("rank %d of %d: %w", rank, size, ErrRank)
	}
	return nil
}

func (c *Client) handshake() error {
	init, err := c.exchange("init", "response_to_init", "pmi_version", "1", "pmi_subversion", "1")
	if err != nil {
		return err
	}
	if err := init.refusal("init"); err != nil {
		return err
	}
	maxes, err := c.exchange("get_maxes", "maxes")
	if err != nil {
		return err
	}
	kvsNameBytes, err := maxes.number("kvsname_max", 1, math.MaxInt32)
	if err != nil {
		return maxes.protocolError("get_maxes", err)
	}
	if c.limits.keyBytes, err = maxes.number("keylen_max", 16, math.MaxInt32); err != nil {
		return maxes.protocolError("get_maxes", err)
	}
	if c.limits.valueBytes, err = maxes.number("vallen_max", minPieceBytes+1, math.MaxInt32); err != nil {
		return maxes.protocolError("get_maxes", err)
	}
	_, c.hasGetAll = maxes.get(getAll)
	_, c.hasPublish = maxes.get(publish)
	name, err := c.exchange("get_my_kvsname", "my_kvsname")
	if err != nil {
		return err
	}
	c.kvsName, _ = name.get("kvsname")
	if c.kvsName == "" || len(c.kvsName) > min(kvsNameBytes, kvsNameMax) {
		return name.protocolError("get_my_kvsname", errors.New("no usable kvsname="))
	}
	return nil
}

// Rank is this process's rank in the job.
func (c *Client) Rank() int { return c.rank }

// Size is the number of ranks in the job.
func (c *Client) Size() int { return c.size }

// JobID identifies the job among all others. It is the name from the process manager. Under a
// launcher other than mpirun-go, it also has a few bytes that depend on the job's secret, once this
// rank knows the secret, because Slurm reruns a requeued job under the same name. The identity does
// not reveal the secret.
func (c *Client) JobID() string {
	tag := c.secret.tag()
	if c.HasOwnManager() || tag == "" {
		return c.kvsName
	}
	return c.kvsName + "-" + tag
}

// HasOwnManager reports whether the process manager is the Server of this package: mpirun-go, not
// another launcher.
func (c *Client) HasOwnManager() bool { return c.hasGetAll }

// Barrier returns when every rank of the job has called it. Values that were Put before are visible
// then. Barrier has no time-out, because it waits for the slowest rank; it returns an error when
// the connection ends. Under our own server it returns a *BarrierError when a rank has left, and so
// does each later call. The first Barrier also publishes the job's secret (see Secret).
func (c *Client) Barrier() error {
	if err := c.secret.publish(c); err != nil {
		return err
	}
	a, err := c.exchange("barrier_in", "barrier_out")
	if err != nil {
		return err
	}
	// Slurm reports here that it could not distribute the values.
	if _, given := a.get("rc"); given {
		if err := a.refusal("barrier_in"); err != nil {
			return err
		}
	}
	c.secret.barrierDone()
	return nil
}

// maxMessageBytes bounds an abort message before it is escaped, which may triple its length.
const maxMessageBytes = 256

func escapeMessage(s string) string { return url.QueryEscape(shorten(s, maxMessageBytes)) }

// shorten cuts s to at most limit bytes, which end with " ...". It cuts after a word if one ends in
// the second half.
func shorten(s string, limit int) string {
	const mark = " ..."
	if len(s) <= limit {
		return s
	}
	s = s[:limit-len(mark)+1]
	if end := strings.LastIndexByte(s, ' '); end > len(s)/2 {
		return s[:end] + mark
	}
	return strings.ToValidUTF8(s[:len(s)-1], "") + mark
}

// Finalize tells the manager that this process leaves in order, and closes the connection in any
// case. All later calls return ErrClosed.
func (c *Client) Finalize() error {
	_, err := c.exchange("finalize", "finalize_ack")
	return errors.Join(err, c.Close())
}

// Close closes the connection without Finalize: to the manager, this process has died. Pending and
// later calls return ErrClosed. A second Close does nothing.
func (c *Client) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if err := c.conn.Close(); err != nil {
		return fmt.Errorf("wireup: close: %w", err)
	}
	return nil
}

// answer is the manager's answer to one request.
type answer struct {
	message
	line string
}

// protocolError returns the error of an answer that breaks the protocol.
func (a answer) protocolError(cmd string, why error) error {
	return fmt.Errorf("wireup: process manager answered %q to %s: %w: %w", clip(a.line), cmd, why, ErrProtocol)
}

// refusal returns an error unless the answer has rc=0.
func (a answer) refusal(cmd string) error {
	rc, err := a.number("rc", math.MinInt32, math.MaxInt32)
	switch {
	case err != nil:
		return a.protocolError(cmd, err)
	case rc != 0:
		return fmt.Errorf("wireup: process manager answered %q to %s: %w", clip(a.line), cmd, ErrRefused)
	}
	return nil
}

// exchange sends one request and returns the answer, whose command must be wantCmd.
func (c *Client) exchange(cmd, wantCmd string, pairs ...string) (answer, error) {
	c.exchanging.Lock()
	defer c.exchanging.Unlock()
	return c.request(cmd, wantCmd, pairs...)
}

// request is exchange for a caller that holds exchanging.
func (c *Client) request(cmd, wantCmd string, pairs ...string) (answer, error) {
	if c.broken != nil {
		return answer{}, fmt.Errorf("wireup: %s: %w", cmd, c.orClosed(c.broken))
	}
	if c.late && isOptional(cmd) {
		return answer{}, fmt.Errorf("wireup: %s: %w", cmd, ErrTimeout)
	}
	if err := c.write(formatLine(cmd, pairs...)); err != nil {
		c.broken = err
		return answer{}, fmt.Errorf("wireup: %s: %w", cmd, c.orClosed(err))
	}
	return c.readAnswer(cmd, wantCmd)
}

// readAnswer reads one line of the answer to cmd; the line's command must be wantCmd. The caller
// holds exchanging.
func (c *Client) readAnswer(cmd, wantCmd string) (answer, error) {
	for {
		line, err := c.read(cmd)
		if err != nil {
			return answer{}, c.noAnswer(cmd, err)
		}
		a := answer{line: line}
		a.message, err = parseLine(line)
		if err != nil || a.cmd == wantCmd || !c.late || !isLate(a.cmd) {
			return c.check(a, cmd, wantCmd, err)
		}
	}
}

// noAnswer handles an error of reading the answer to cmd. The caller holds exchanging.
func (c *Client) noAnswer(cmd string, err error) error {
	if isOptional(cmd) && errors.Is(err, ErrTimeout) && !errors.Is(err, errPartOfLine) {
		c.late = true
	} else {
		c.broken = err
	}
	return fmt.Errorf("wireup: no answer to %s: %w", cmd, c.orClosed(err))
}

// check returns an answer to cmd if it is wantCmd. err is the error of parsing it. The caller holds
// exchanging.
func (c *Client) check(a answer, cmd, wantCmd string, err error) (answer, error) {
	if err == nil && cmd == "barrier_in" && a.cmd == barrierFailed {
		var failure *BarrierError
		if failure, err = a.barrierError(c.size); err == nil {
			c.broken = failure
			return answer{}, fmt.Errorf("wireup: %w", failure)
		}
	}
	if err == nil && a.cmd != wantCmd {
		err = fmt.Errorf("not %s", wantCmd)
	}
	if err != nil {
		c.broken = a.protocolError(cmd, err)
		return answer{}, c.broken
	}
	return a, nil
}

// isOptional reports whether the job can go on without an answer to cmd.
func isOptional(cmd string) bool { return cmd == publish || cmd == published }

// isLate reports whether a line may belong to the answer to an optional request.
func isLate(cmd string) bool {
	return cmd == publishResult || cmd == publishedResult || cmd == getAllWord
}

// barrierError parses barrier_failed.
func (a answer) barrierError(size int) (*BarrierError, error) {
	rank, err := a.number("rank", 0, size-1)
	if err != nil {
		return nil, err
	}
	state, err := a.number("state", int(StateNeverInited), int(StateGone))
	if err != nil {
		return nil, err
	}
	return &BarrierError{Rank: rank, State: State(state)}, nil
}

// read reads one line of the answer to cmd. The caller holds exchanging, or has not shared c yet.
func (c *Client) read(cmd string) (string, error) {
	var line string
	var err error
	if cmd != "barrier_in" {
		line, err = readPatiently(c.conn, c.in)
	} else if err = c.conn.SetReadDeadline(time.Time{}); err == nil {
		line, err = c.in.readLine()
	}
	if err != nil {
		return "", connError(err)
	}
	return line, nil
}

// write sends one line with one write, because Slurm takes the bytes of one read for one line.
func (c *Client) write(line string) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := writePatiently(c.conn, line); err != nil {
		return connError(err)
	}
	return nil
}

// orClosed returns ErrClosed if Close or Finalize was called, else err.
func (c *Client) orClosed(err error) error {
	if c.closed.Load() {
		return ErrClosed
	}
	return err
}
