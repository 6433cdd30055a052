// Package output carries what ranks write to where the user reads it, in whole
// lines. Memory is bounded: a stream keeps at most one unfinished line of up to
// MaxLineBytes, and a reader that is slow holds up the ranks, not the launcher.
package output

import (
	"bytes"
	"io"
	"strconv"
	"sync"
	"time"

	"go.uber.org/atomic"
)

// MaxLineBytes is how much of a line is held back until its end comes. A longer
// one is passed on in pieces.
const MaxLineBytes = 64 << 10

// Style says what stands before each line.
type Style struct {
	Tag       bool             // "[rank] "
	Timestamp bool             // when the launcher read it, to the microsecond
	Now       func() time.Time // nil: time.Now
}

const timestampLayout = "2006-01-02T15:04:05.000000"

// Sink is one destination that several streams write to: the launcher's
// standard output, say. Goroutines share it.
type Sink struct {
	failed func()       // called once, outside of mu
	err    atomic.Error // the first error of w; from then on all is dropped

	mu      sync.Mutex // held while w is written to, however long that takes
	w       io.Writer
	last    *Stream // who wrote last
	midLine bool    // and whether that was an unfinished line
	scratch []byte  // lines with their prefixes, reused
}

// NewSink writes to w. failed, if not nil, is called at the first error of w;
// after it whatever is written is dropped without a word.
func NewSink(w io.Writer, failed func()) *Sink {
	return &Sink{w: w, failed: failed}
}

// Err is the first error of the sink's writer. It does not wait, not even for a
// write that is under way.
func (s *Sink) Err() error { return s.err.Load() }

// Line writes one line of the launcher's own.
func (s *Sink) Line(text string) {
	s.write(nil, []byte(text+"\n"), nil)
}

// write writes p, which came from stream. If another stream left a line
// unfinished, that is ended first: no line ever holds bytes of two ranks.
func (s *Sink) write(from *Stream, p []byte, prefix func([]byte) []byte) {
	if len(p) == 0 {
		return
	}
	s.mu.Lock()
	err := s.writeLocked(from, p, prefix)
	s.mu.Unlock()
	if err != nil && s.failed != nil {
		s.failed()
	}
}

// writeLocked returns w's error the first time only.
func (s *Sink) writeLocked(from *Stream, p []byte, prefix func([]byte) []byte) error {
	if s.err.Load() != nil {
		return nil
	}
	continues := s.midLine && s.last == from
	out := p
	if prefix != nil || s.midLine && !continues {
		out = s.scratch[:0]
		if s.midLine && !continues {
			out = append(out, '\n')
		}
		for len(p) > 0 {
			if prefix != nil && !continues {
				out = prefix(out)
			}
			end := bytes.IndexByte(p, '\n') + 1
			if end == 0 {
				end = len(p)
			}
			out = append(out, p[:end]...)
			p = p[end:]
			continues = false
		}
		s.scratch = out
	}
	_, err := s.w.Write(out)
	s.last, s.midLine = from, out[len(out)-1] != '\n'
	if err != nil {
		s.err.Store(err)
	}
	return err
}

// Stream is one of a rank's two outputs on its way to a Sink. It belongs to the
// goroutine that copies.
type Stream struct {
	sink      *Sink
	rank      int
	style     Style
	exclusive bool   // nobody else writes to sink: nothing need be held back
	buf       []byte // buf[:held] is the unfinished line
	pending   int
	prefix    func([]byte) []byte
}

// NewStream makes the stream of a rank. alone says that no other stream shares
// the sink; then unfinished lines (prompts) pass at once, if they bear no tag.
func NewStream(sink *Sink, rank int, style Style, exclusive bool) *Stream {
	s := &Stream{sink: sink, rank: rank, style: style, exclusive: exclusive}
	if s.style.Now == nil {
		s.style.Now = time.Now
	}
	if style.Tag || style.Timestamp {
		s.prefix = s.appendPrefix
		s.exclusive = false
	}
	return s
}

func (s *Stream) appendPrefix(b []byte) []byte {
	if s.style.Timestamp {
		b = s.style.Now().AppendFormat(b, timestampLayout)
		b = append(b, ' ')
	}
	if s.style.Tag {
		b = append(b, '[')
		b = strconv.AppendInt(b, int64(s.rank), 10)
		b = append(b, "] "...)
	}
	return b
}

// smallBuffer is what a stream begins with: most write little.
const initialBufferBytes = 4 << 10

// Copy passes on what src yields until it ends, and then the last line even if
// it is unfinished. The error is src's, nil at its end.
func (s *Stream) Copy(src io.Reader) error {
	if s.buf == nil {
		s.buf = make([]byte, initialBufferBytes)
	}
	for {
		n, err := src.Read(s.buf[s.pending:])
		s.consume(n)
		if err == io.EOF {
			s.flush(s.pending)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take passes on the whole lines among what is held and the n bytes after it.
func (s *Stream) consume(n int) {
	end := bytes.LastIndexByte(s.buf[s.pending:s.pending+n], '\n') + 1
	whole := 0
	if end > 0 {
		whole = s.pending + end
	}
	s.pending += n
	full := s.pending == len(s.buf)
	switch {
	case s.exclusive, whole == 0 && s.pending == MaxLineBytes:
		whole = s.pending
	case whole == 0 && full:
		s.grow() // a line that is longer than the buffer
		return
	}
	s.flush(whole)
	if full {
		s.grow() // reads come faster than small pieces are worth
	}
}

func (s *Stream) grow() {
	if len(s.buf) < MaxLineBytes {
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	}
}

// flush writes buf[:n], which is all that is held or ends with a line, and keeps the rest.
func (s *Stream) flush(n int) {
	s.sink.write(s, s.buf[:n], s.prefix)
	s.pending = copy(s.buf, s.buf[n:s.pending])
}

// Close passes on what is still held.
func (s *Stream) Close() { s.flush(s.pending) }
