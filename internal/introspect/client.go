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

const (
	// maxAnswerBytes bounds an answer. A report with the stacks of a thousand goroutines has about
	// a mebibyte.
	maxAnswerBytes = 8 << 20
	// bufferBytes is the size of the buffer that a connection keeps. It is small, because a job may
	// have thousands of ranks.
	bufferBytes = 4 << 10
	// maxUnanswered is the number of questions that a rank may leave unanswered. A stopped rank
	// gets no more, because it would answer all of them when it goes on.
	maxUnanswered = 4
	// maxGoodbyeBytes bounds a goodbye.
	maxGoodbyeBytes = 256
)

// ErrVersion means that the rank speaks another version of this protocol: it was built with another
// version of the library than the asker. Its answers are not used.
var ErrVersion = errors.New("another version of mpigo")

// ErrGone means that the connection to the rank has ended: the rank has called Finalize or ended,
// or it does not use mpigo.
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
	// unanswered is the number of questions that were written and are not answered. Questions whose
	// caller has given up count too.
	unanswered int
	greeted    bool
	other      error // ErrVersion, once the rank has shown another version
	goodbye    bool  // the rank has said goodbye
	orderly    bool  // the connection ended after a whole answer, without an error
	ended      error // set once, when gone is closed
	gone       chan struct{}
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

// HasEnded reports whether the connection of a rank that uses the library has ended in order: with
// Finalize, or with the rank's process. It has not if an error or ErrProtocol ended it.
func (c *Conn) HasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.greeted && c.orderly
}

// HasSaidGoodbye reports whether the rank has said goodbye.
func (c *Conn) HasSaidGoodbye() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goodbye
}

// Ask asks the rank a question and waits for the answer until ctx ends. A stopped rank does not
// answer, so ctx should have a deadline. If the answer comes later, it is dropped. Errors: the
// error of ctx, ErrGone, ErrVersion, ErrProtocol.
func (c *Conn) Ask(ctx context.Context, want Want) (Answer, error) {
	answer := make(chan Answer, 1)
	c.mu.Lock()
	if err := c.other; err != nil {
		c.mu.Unlock()
		return Answer{}, err
	}
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
		if a.Version != Version {
			return Answer{}, otherVersion(a.Version)
		}
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
	if !c.mayWrite() {
		return
	}
	text, err := json.Marshal(q)
	if err == nil {
		_, _ = c.conn.Write(append(text, '\n')) // if it fails, reading fails too
	}
}

// mayWrite reports whether one more question may be written, and counts it as unanswered.
func (c *Conn) mayWrite() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unanswered >= maxUnanswered {
		return false
	}
	c.unanswered++
	return true
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
	in := bufio.NewReaderSize(c.conn, bufferBytes)
	for {
		line, err := ReadLine(in, maxAnswerBytes)
		switch {
		case errors.Is(err, ErrTooLong):
			return fmt.Errorf("an answer of more than %d bytes: %w", maxAnswerBytes, ErrProtocol)
		case err != nil:
			c.mu.Lock()
			c.orderly = errors.Is(err, io.EOF) && len(line) == 0
			c.mu.Unlock()
			return ErrGone
		}
		if err := c.take(line); err != nil {
			return err
		}
	}
}

// take takes a line from the rank. It does not decode a long answer whose caller has given up.
func (c *Conn) take(line []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.greeted && len(c.waiting) == 0 && len(line) > maxGoodbyeBytes {
		c.unanswered = max(c.unanswered-1, 0)
		return nil
	}
	var head struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return fmt.Errorf("%w: %w", err, ErrProtocol)
	}
	c.greeted = true
	if head.Version != Version { // the rest may mean anything
		c.other = otherVersion(head.Version)
		for id, answer := range c.waiting {
			answer <- Answer{Version: head.Version} // has room, as below
			delete(c.waiting, id)
		}
		return nil
	}
	var a greeting
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("%w: %w", err, ErrProtocol)
	}
	if a.ID == greetingID {
		c.goodbye = c.goodbye || a.Goodbye
		return nil
	}
	c.unanswered = max(c.unanswered-1, 0)
	if answer := c.waiting[a.ID]; answer != nil {
		answer <- a.Answer // has room, because its ID is deleted here
		delete(c.waiting, a.ID)
	}
	return nil
}

func otherVersion(v int) error {
	return fmt.Errorf("introspect: the rank answers in version %d, and this end understands %d: %w", v, Version, ErrVersion)
}

// ErrTooLong means that a line is longer than its limit.
var ErrTooLong = errors.New("the line is too long")

// ReadLine reads a line of at most limit bytes, which the caller owns.
func ReadLine(in *bufio.Reader, limit int) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, ErrTooLong
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}
