package wireup

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// An Option changes what FromEnv and NewClient do.
type Option func(*options)

type options struct{ timeout time.Duration }

// WithTimeout bounds each exchange with the process manager except Barrier,
// and the connecting. The default is 30 s.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

func makeOptions(opts []Option) options {
	o := options{timeout: 30 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Client is a process's connection to its process manager.
//
// Goroutines may share it: one request at a time is on the wire, the others
// wait for their turn. Abort and Close do not wait for a pending Barrier.
//
// A time-out, a lost connection and nonsense from the manager are final, since
// nobody knows what the next answer would answer: each later call but Abort
// returns that first error.
type Client struct {
	conn    net.Conn
	timeout time.Duration
	rank    int
	size    int
	kvsName string
	limits  limits
	getsAll bool // the manager knows getAll

	// turn is held for a whole exchange, request and answer.
	turn   sync.Mutex
	in     lineReader // by the holder of turn
	broken error      // set once by the holder of turn: why no exchange is possible any more

	// writing is held for one write of one line; it is what Abort needs.
	writing sync.Mutex

	closed atomic.Bool

	secret secretState
	nodes  nodesState
}

// limits are what the manager takes, from its answer to get_maxes.
type limits struct{ keyBytes, valueBytes int }

// NewClient speaks PMI-1 over conn as the given rank of size: init, get_maxes,
// get_my_kvsname. It owns conn from then on and has closed it if it returns an error.
func NewClient(conn net.Conn, rank, size int, opts ...Option) (*Client, error) {
	return start(newClient(conn, opts), rank, size)
}

func newClient(conn net.Conn, opts []Option) *Client {
	return &Client{conn: conn, timeout: makeOptions(opts).timeout, in: newLineReader(conn)}
}

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
		return maxes.nonsense("get_maxes", err)
	}
	if c.limits.keyBytes, err = maxes.number("keylen_max", 16, math.MaxInt32); err != nil {
		return maxes.nonsense("get_maxes", err)
	}
	if c.limits.valueBytes, err = maxes.number("vallen_max", minPieceBytes+1, math.MaxInt32); err != nil {
		return maxes.nonsense("get_maxes", err)
	}
	_, c.getsAll = maxes.get(getAll)
	name, err := c.exchange("get_my_kvsname", "my_kvsname")
	if err != nil {
		return err
	}
	c.kvsName, _ = name.get("kvsname")
	if c.kvsName == "" || len(c.kvsName) > min(kvsNameBytes, kvsNameMax) {
		return name.nonsense("get_my_kvsname", errors.New("no usable kvsname="))
	}
	return nil
}

// Rank is this process's rank in the job.
func (c *Client) Rank() int { return c.rank }

// Size is the number of ranks in the job.
func (c *Client) Size() int { return c.size }

// KVSName is the name of the job at its process manager.
func (c *Client) KVSName() string { return c.kvsName }

// UniverseSize is how many processes the manager has room for, -1 if it does not say.
func (c *Client) UniverseSize() (int, error) {
	return c.askNumber("get_universe_size", "universe_size", "size")
}

// AppNum is the index of this process's program in a launch of several, -1 if
// the manager does not say.
func (c *Client) AppNum() (int, error) { return c.askNumber("get_appnum", "appnum", "appnum") }

func (c *Client) askNumber(cmd, answer, key string) (int, error) {
	a, err := c.exchange(cmd, answer)
	if err != nil {
		return 0, err
	}
	n, err := a.number(key, math.MinInt32, math.MaxInt32)
	if err != nil {
		return 0, a.nonsense(cmd, err)
	}
	return max(n, -1), nil
}

// Barrier returns when every rank of the job has called it; what was Put before
// is visible then. It has no time-out, since the slowest rank sets the pace: it
// ends with an error when the connection does. Under our own server it ends with a
// *BarrierError when a rank has left, and so does each later call. The first Barrier also
// publishes the job's secret (see Secret).
func (c *Client) Barrier() error {
	if err := c.secret.publish(c); err != nil {
		return err
	}
	a, err := c.exchangeWithin(0, "barrier_in", "barrier_out")
	if err != nil {
		return err
	}
	// Slurm says here if it could not distribute what was put.
	if _, said := a.get("rc"); said {
		if err := a.refusal("barrier_in"); err != nil {
			return err
		}
	}
	c.secret.passedBarrier()
	return nil
}

// Abort asks the manager to end the job with code as its exit status. The
// message is for people; not every manager shows it. Abort does not wait for an
// answer (there is none): the manager is about to kill this process. Should it
// not, exit with code.
func (c *Client) Abort(code int, message string) error {
	pairs := []string{"exitcode", strconv.Itoa(code)}
	if message != "" {
		pairs = append(pairs, "message", escapeMessage(message))
	}
	if err := c.write(formatLine("abort", pairs...)); err != nil {
		return fmt.Errorf("wireup: abort: %w", c.orClosed(err))
	}
	return nil
}

// maxMessageBytes bounds an abort message before it is escaped to at most three times that.
const maxMessageBytes = 256

func escapeMessage(s string) string { return url.QueryEscape(shorten(s, maxMessageBytes)) }

// shorten cuts what is longer than most bytes behind a word, if there is one that does not take up all of the second half, and says so.
func shorten(s string, most int) string {
	const mark = " ..."
	if len(s) <= most {
		return s
	}
	s = s[:most-len(mark)+1]
	if end := strings.LastIndexByte(s, ' '); end > len(s)/2 {
		return s[:end] + mark
	}
	return strings.ToValidUTF8(s[:len(s)-1], "") + mark
}

// Finalize tells the manager that this process leaves in order, and closes the
// connection whatever the answer. All other calls end with ErrClosed from then on.
func (c *Client) Finalize() error {
	_, err := c.exchange("finalize", "finalize_ack")
	return errors.Join(err, c.Close())
}

// Close ends the connection without a word: to the manager, this process has
// died. Pending and later calls end with ErrClosed. Closing again does nothing.
func (c *Client) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if err := c.conn.Close(); err != nil {
		return fmt.Errorf("wireup: close: %w", err)
	}
	return nil
}

// answer is what the manager said to one request.
type answer struct {
	message
	line string
}

// nonsense is the error for an answer that makes no sense.
func (a answer) nonsense(cmd string, why error) error {
	return fmt.Errorf("wireup: process manager answered %q to %s: %w: %w", clip(a.line), cmd, why, ErrProtocol)
}

// refusal is nil if the answer says rc=0.
func (a answer) refusal(cmd string) error {
	rc, err := a.number("rc", math.MinInt32, math.MaxInt32)
	switch {
	case err != nil:
		return a.nonsense(cmd, err)
	case rc != 0:
		return fmt.Errorf("wireup: process manager answered %q to %s: %w", clip(a.line), cmd, ErrRefused)
	}
	return nil
}

// exchange sends one request and returns the answer, whose command has to be wantCmd.
func (c *Client) exchange(cmd, wantCmd string, pairs ...string) (answer, error) {
	return c.exchangeWithin(c.timeout, cmd, wantCmd, pairs...)
}

// exchangeWithin is exchange with a time-out of its own; 0 waits for ever.
func (c *Client) exchangeWithin(timeout time.Duration, cmd, wantCmd string, pairs ...string) (answer, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.ask(timeout, cmd, wantCmd, pairs...)
}

// ask is exchangeWithin for who holds turn.
func (c *Client) ask(timeout time.Duration, cmd, wantCmd string, pairs ...string) (answer, error) {
	if c.broken != nil {
		return answer{}, fmt.Errorf("wireup: %s: %w", cmd, c.orClosed(c.broken))
	}
	if err := c.write(formatLine(cmd, pairs...)); err != nil {
		c.broken = err
		return answer{}, fmt.Errorf("wireup: %s: %w", cmd, c.orClosed(err))
	}
	return c.hear(timeout, cmd, wantCmd)
}

// hear takes one line of the answer to cmd, whose command has to be wantCmd. The caller holds turn.
func (c *Client) hear(timeout time.Duration, cmd, wantCmd string) (answer, error) {
	line, err := c.read(timeout)
	if err != nil {
		c.broken = err
		return answer{}, fmt.Errorf("wireup: no answer to %s: %w", cmd, c.orClosed(err))
	}
	a := answer{line: line}
	a.message, err = parseLine(line)
	if err == nil && cmd == "barrier_in" && a.cmd == barrierFailed {
		var left *BarrierError
		if left, err = a.barrierError(c.size); err == nil {
			c.broken = left
			return answer{}, fmt.Errorf("wireup: %w", left)
		}
	}
	if err == nil && a.cmd != wantCmd {
		err = fmt.Errorf("not %s", wantCmd)
	}
	if err != nil {
		c.broken = a.nonsense(cmd, err)
		return answer{}, c.broken
	}
	return a, nil
}

// barrierError reads barrier_failed.
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

// read takes one line; the caller holds turn, or is the only one to know c.
func (c *Client) read(timeout time.Duration) (string, error) {
	var deadline time.Time
	if timeout > 0 {
		deadline = time.Now().Add(timeout)
	}
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return "", connError(err)
	}
	line, err := c.in.readLine()
	if err != nil {
		return "", connError(err)
	}
	return line, nil
}

// write sends one line with one write: Slurm takes what one read gives it for one line.
func (c *Client) write(line string) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return connError(err)
	}
	if _, err := c.conn.Write([]byte(line)); err != nil {
		return connError(err)
	}
	return nil
}

// orClosed replaces err if it is our own doing.
func (c *Client) orClosed(err error) error {
	if c.closed.Load() {
		return ErrClosed
	}
	return err
}
