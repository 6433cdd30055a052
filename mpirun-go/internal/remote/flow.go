package remote

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// inbox is the receiving end of a stream. What has arrived waits in it, at most a window's worth,
// so that who takes frames from the channel never waits for who reads the stream.
type inbox struct {
	window int
	credit func(n int) // tells the sender that it may send so much more

	mu             sync.Mutex // guards all below
	arrived        sync.Cond
	buf            []byte
	pendingCredits int   // read, and the sender not told yet
	err            error // what Read gives once buf is empty; nil: there may come more
	discarding     bool  // nobody reads any more
}

func newInbox(window int, credit func(int)) *inbox {
	b := &inbox{window: window, credit: credit}
	b.arrived.L = &b.mu
	return b
}

// put adds what has arrived. A sender that sends more than it may breaks the protocol.
func (b *inbox) put(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.discarding:
		b.credit(len(p))
		return nil
	case b.err != nil:
		return nil // late, behind the end
	case len(b.buf)+b.pendingCredits+len(p) > b.window:
		return fmt.Errorf("%w: more of a stream than its window", ErrProtocol)
	}
	b.buf = append(b.buf, p...)
	b.arrived.Broadcast()
	return nil
}

// finish ends the stream: err, once what has arrived is read. Only the first counts.
func (b *inbox) finish(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.arrived.Broadcast()
}

// Read is io.Reader's.
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

// owe counts what the sender may send again, and tells it now and then. The caller holds mu.
func (b *inbox) addCredits(n int) {
	b.pendingCredits += n
	if b.pendingCredits >= b.window/2 && b.err == nil {
		b.credit(b.pendingCredits)
		b.pendingCredits = 0
	}
}

// drop ends the reading: what comes is thrown away, so that the sender does not wait.
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

// outbox is the sending end of a stream. Write waits as long as the receiver has no room.
type outbox struct {
	window int
	data   func(p []byte) // sends; p is the caller's again when it returns
	end    func()

	mu       sync.Mutex // guards all below
	changed  sync.Cond
	credits  int
	err      error // what Write gives from now on
	deadline time.Time
	timer    *time.Timer
}

func newOutbox(window int, data func([]byte), end func()) *outbox {
	o := &outbox{window: window, data: data, end: end, credits: window}
	o.changed.L = &o.mu
	return o
}

// Write is io.Writer's.
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

// SetWriteDeadline is net.Conn's.
func (o *outbox) SetWriteDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline = t
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	if !t.IsZero() && o.err == nil {
		o.timer = time.AfterFunc(time.Until(t)+time.Millisecond, o.wake) // who waits by then
	}
	o.changed.Broadcast()
	return nil
}

func (o *outbox) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed.Broadcast()
}

// grant lets more be sent.
func (o *outbox) addCredits(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n > o.window-o.credits {
		return fmt.Errorf("%w: more credit than was used", ErrProtocol)
	}
	o.credits += n
	o.changed.Broadcast()
	return nil
}

// fail ends the stream without a word to the receiver.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop(err)
}

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

// Close tells the receiver that no more comes, once.
func (o *outbox) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.end()
		o.stop(os.ErrClosed)
	}
	return nil
}

// conn is a rank's PMI connection, at the launcher's end.
type pmiConn struct {
	*inbox
	*outbox
}

func (c pmiConn) Close() error {
	err := c.outbox.Close()
	c.discard()
	return err
}

func (c pmiConn) LocalAddr() net.Addr             { return pipeAddr{} }
func (c pmiConn) RemoteAddr() net.Addr            { return pipeAddr{} }
func (c pmiConn) SetReadDeadline(time.Time) error { return nil }
func (c pmiConn) SetDeadline(t time.Time) error   { return c.SetWriteDeadline(t) }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "daemon" }
func (pipeAddr) String() string  { return "daemon" }

// output is one of a rank's outputs, at the launcher's end. It has no deadlines of its own: one in the past has
// the daemon, which holds the pipe, end the stream with what is in it.
type outputPipe struct {
	*inbox
	cut func()
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

// passTo gives a frame to the half of a stream that it is for: in takes bytes and their end, out takes credit. Either may be nil.
func deliver(in *inbox, out *outbox, f frame) (taken bool, err error) {
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

// openOutbox returns the sending end of a stream between the launcher and a daemon.
func openOutbox(post postFunc, s stream, number uint32) *outbox {
	return newOutbox(s.windowBytes(),
		func(p []byte) { post(kindData, s, number, append([]byte(nil), p...)) },
		func() { post(kindEnd, s, number, nil) })
}
