package remote

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// inbox is the receiving end of a stream. It stores received data, at most a window, so that the
// goroutine that handles the channel's frames never waits for the reader of a stream.
type inbox struct {
	window int
	credit func(n int) // allows the sender to send n more bytes

	mu             sync.Mutex // guards all below
	arrived        sync.Cond
	buf            []byte
	pendingCredits int   // bytes that were read, for which no credit has been sent
	err            error // result of Read once buf is empty; nil: more data may arrive
	discarding     bool  // the reader is gone, so received data are discarded
}

func newInbox(window int, credit func(int)) *inbox {
	b := &inbox{window: window, credit: credit}
	b.arrived.L = &b.mu
	return b
}

// put adds received data. If the sender exceeds the window, it returns a protocol error.
func (b *inbox) put(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.discarding:
		b.credit(len(p))
		return nil
	case b.err != nil:
		return nil // data after the end are ignored
	case len(b.buf)+b.pendingCredits+len(p) > b.window:
		return fmt.Errorf("%w: more data than the stream's window", ErrProtocol)
	}
	b.buf = append(b.buf, p...)
	b.arrived.Broadcast()
	return nil
}

// finish makes Read return err after the received data. Only the first call has an effect.
func (b *inbox) finish(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.arrived.Broadcast()
}

// Read implements io.Reader.
func (b *inbox) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.buf) == 0 && b.err == nil && !b.discarding {
		b.arrived.Wait()
	}
	switch {
	case b.discarding:
		return 0, os.ErrClosed
	case len(b.buf) == 0:
		return 0, b.err
	}
	n := copy(p, b.buf)
	if b.buf = b.buf[n:]; len(b.buf) == 0 {
		b.buf = nil
	}
	b.addCredits(n)
	return n, nil
}

// addCredits counts n bytes that the sender may send again. It sends a credit for at least half a
// window at once, to save messages. The caller holds mu.
func (b *inbox) addCredits(n int) {
	b.pendingCredits += n
	if b.pendingCredits >= b.window/2 && b.err == nil {
		b.credit(b.pendingCredits)
		b.pendingCredits = 0
	}
}

// discard ends the reading. Data that arrive later are discarded, so that the sender does not wait.
func (b *inbox) discard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.discarding {
		return
	}
	b.discarding = true
	if n := len(b.buf) + b.pendingCredits; n > 0 && b.err == nil {
		b.credit(n)
	}
	b.buf = nil
	b.arrived.Broadcast()
}

// outbox is the sending end of a stream. Write waits while the receiver has no room.
type outbox struct {
	window int
	data   func(p []byte) // sends p; it must not keep p
	end    func()         // tells the receiver that no more data follow

	mu       sync.Mutex // guards all below
	changed  sync.Cond
	credits  int
	err      error // result of Write from now on
	deadline time.Time
	timer    *time.Timer
}

func newOutbox(window int, data func([]byte), end func()) *outbox {
	o := &outbox{window: window, data: data, end: end, credits: window}
	o.changed.L = &o.mu
	return o
}

// Write implements io.Writer.
func (o *outbox) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	written := 0
	for len(p) > 0 {
		for o.credits == 0 && o.err == nil && !o.expired() {
			o.changed.Wait()
		}
		switch {
		case o.err != nil:
			return written, o.err
		case o.expired():
			return written, os.ErrDeadlineExceeded
		}
		n := min(len(p), o.credits, maxDataBytes)
		o.data(p[:n])
		o.credits -= n
		p = p[n:]
		written += n
	}
	return written, nil
}

func (o *outbox) expired() bool { return !o.deadline.IsZero() && !time.Now().Before(o.deadline) }

// SetWriteDeadline implements net.Conn.
func (o *outbox) SetWriteDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline = t
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	if !t.IsZero() && o.err == nil {
		// The timer wakes the writers that wait at the deadline.
		o.timer = time.AfterFunc(time.Until(t)+time.Millisecond, o.wake)
	}
	o.changed.Broadcast()
	return nil
}

func (o *outbox) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed.Broadcast()
}

// addCredits allows n more bytes to be sent.
func (o *outbox) addCredits(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n > o.window-o.credits {
		return fmt.Errorf("%w: more credits than bytes sent", ErrProtocol)
	}
	o.credits += n
	o.changed.Broadcast()
	return nil
}

// fail makes Write return err. It sends nothing to the receiver.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop(err)
}

// stop makes Write return err, and stops the timer. The caller holds mu.
func (o *outbox) stop(err error) {
	if o.err == nil {
		o.err = err
	}
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	o.changed.Broadcast()
}

// Close tells the receiver once that no more data follow.
func (o *outbox) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.end()
		o.stop(os.ErrClosed)
	}
	return nil
}

// isClosed reports whether nothing more is sent.
func (o *outbox) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}

// streamConn is the launcher's end of a stream that goes both ways.
type streamConn struct {
	*inbox
	*outbox
}

func (c streamConn) Close() error {
	err := c.outbox.Close()
	c.discard()
	return err
}

func (c streamConn) LocalAddr() net.Addr             { return pipeAddr{} }
func (c streamConn) RemoteAddr() net.Addr            { return pipeAddr{} }
func (c streamConn) SetReadDeadline(time.Time) error { return nil }
func (c streamConn) SetDeadline(t time.Time) error   { return c.SetWriteDeadline(t) }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "daemon" }
func (pipeAddr) String() string  { return "daemon" }

// outputPipe is the launcher's end of one of a remote rank's outputs. The pipe itself is at the
// daemon. So a read deadline in the past makes the daemon end the stream, with the data that the
// pipe holds; a deadline in the future has no effect.
type outputPipe struct {
	*inbox
	cut func() // makes the daemon end the stream
}

func (o outputPipe) Close() error {
	o.discard()
	return nil
}

func (o outputPipe) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && !time.Now().Before(t) {
		o.cut()
	}
	return nil
}

var _ io.WriteCloser = (*outbox)(nil)

// deliver passes a frame of a stream to in, if it carries data or the end of the stream, or to out,
// if it carries credits. in and out may be nil. delivered is false if the frame is for neither.
func deliver(in *inbox, out *outbox, f frame) (delivered bool, err error) {
	switch {
	case f.kind == kindCredit && out != nil:
		n, err := decodeNumber(f.payload, maxInt)
		if err != nil {
			return true, err
		}
		return true, out.addCredits(n)
	case f.kind == kindData && in != nil:
		return true, in.put(f.payload)
	case f.kind == kindEnd && in != nil:
		in.finish(io.EOF)
		return true, nil
	}
	return false, nil
}

// postFunc queues a frame about a stream of a rank or a file.
type postFunc func(k kind, s stream, number uint32, payload []byte)

// openInbox returns the receiving end of a stream between the launcher and a daemon.
func openInbox(post postFunc, s stream, number uint32) *inbox {
	return newInbox(s.windowBytes(), func(n int) { post(kindCredit, s, number, appendNumber(nil, n)) })
}

// openConn returns the launcher's end of a stream that goes both ways.
func openConn(post postFunc, s stream, number uint32) streamConn {
	return streamConn{openInbox(post, s, number), openOutbox(post, s, number)}
}

// openOutbox returns the sending end of a stream between the launcher and a daemon.
func openOutbox(post postFunc, s stream, number uint32) *outbox {
	return newOutbox(s.windowBytes(),
		func(p []byte) { post(kindData, s, number, append([]byte(nil), p...)) },
		func() { post(kindEnd, s, number, nil) })
}
