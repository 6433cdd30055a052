package introspect

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxAnswerBytes bounds an answer. A report with the stacks of a thousand goroutines has about a
// mebibyte.
const maxAnswerBytes = 64 << 20

// ErrGone means that the connection to the rank has ended: the rank has called Finalize or ended,
// or it is no mpigo program.
var ErrGone = errors.New("the rank has left")

// Conn is the launcher's end of a connection to a rank. Goroutines may share it.
type Conn struct {
	conn io.ReadWriteCloser
	// writing has an element while a question is being written. A rank that does not read holds up
	// one goroutine; the others give up with their contexts.
	writing chan struct{}

	mu      sync.Mutex
	last    uint64                   // ID of the last question
	waiting map[uint64]chan<- Answer // by the ID of the question, each with room for the answer
	greeted bool
	ended   error // set once, when gone is closed
	gone    chan struct{}
}

// NewConn makes a Conn, which owns conn from then on, and starts the goroutine that reads answers.
// Close ends both.
func NewConn(conn io.ReadWriteCloser) *Conn {
	c := &Conn{
		conn: conn, writing: make(chan struct{}, 1), waiting: make(map[uint64]chan<- Answer), gone: make(chan struct{}),
	}
	go c.read()
	return c
}

// Close closes the connection. Calls of Ask under way, and later ones, return ErrGone.
func (c *Conn) Close() error { return c.conn.Close() }

// HasGreeted reports whether the rank serves its end: it uses the library, and has called Init.
func (c *Conn) HasGreeted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.greeted
}

// IsGone reports whether the connection has ended.
func (c *Conn) IsGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// Ask asks the rank a question and waits for the answer until ctx ends. A stopped rank does not
// answer, so ctx should have a deadline. If the answer comes later, it is dropped. Errors: that of
// ctx, ErrGone, ErrProtocol.
func (c *Conn) Ask(ctx context.Context, want Want) (Answer, error) {
	answer := make(chan Answer, 1)
	c.mu.Lock()
	c.last++
	q := Question{Version: Version, ID: c.last, Want: want}
	c.waiting[q.ID] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, q.ID)
		c.mu.Unlock()
	}()
	// On a goroutine, because a stopped rank does not read, so that the write may block.
	go c.send(ctx, q)
	select {
	case a := <-answer:
		if a.Error != "" {
			return a, fmt.Errorf("introspect: %s", a.Error)
		}
		return a, nil
	case <-c.gone:
		return Answer{}, fmt.Errorf("introspect: %w", c.ended)
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("introspect: no answer: %w", context.Cause(ctx))
	}
}

func (c *Conn) send(ctx context.Context, q Question) {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-c.gone:
		return
	case <-ctx.Done():
		return
	}
	text, err := json.Marshal(q)
	if err == nil {
		_, _ = c.conn.Write(append(text, '\n')) // if it fails, reading fails too
	}
}

// read reads answers until the connection ends.
func (c *Conn) read() {
	err := c.readAll()
	c.mu.Lock()
	c.ended = err
	c.mu.Unlock()
	close(c.gone)
	_ = c.conn.Close()
}

func (c *Conn) readAll() error {
	in := bufio.NewScanner(c.conn)
	in.Buffer(make([]byte, 0, 64<<10), maxAnswerBytes)
	for in.Scan() {
		var a Answer
		if err := json.Unmarshal(in.Bytes(), &a); err != nil {
			return fmt.Errorf("%w: %w", err, ErrProtocol)
		}
		c.mu.Lock()
		c.greeted = true
		if answer := c.waiting[a.ID]; answer != nil {
			answer <- a // has room, because its ID is deleted here
			delete(c.waiting, a.ID)
		}
		c.mu.Unlock()
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("an answer of more than %d bytes: %w", maxAnswerBytes, ErrProtocol)
	}
	return ErrGone
}
