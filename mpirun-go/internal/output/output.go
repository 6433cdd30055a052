// Package output copies the ranks' output to the launcher's output, in whole lines. Memory is
// bounded: a stream keeps at most one unfinished line of up to MaxLineBytes. A slow reader of the
// launcher's output blocks the ranks, not the launcher: its own lines wait in a queue.
package output

import (
	"bytes"
	"io"
	"strconv"
	"sync"
	"time"

	"go.uber.org/atomic"
)

// MaxLineBytes is the length up to which a line is kept until its end arrives. A longer line is
// written in pieces. 64 KiB is the capacity of a pipe, so a larger buffer would save no reads.
const MaxLineBytes = 64 << 10

// Style selects the prefix of each line.
type Style struct {
	Tag       bool             // "[rank] "
	Timestamp bool             // the time at which the launcher read the line, in microseconds
	Now       func() time.Time // nil: time.Now
}

const timestampLayout = "2006-01-02T15:04:05.000000"

// Sink is a destination that several streams write to, such as the launcher's standard output. It
// is safe for concurrent use.
type Sink struct {
	failed atomic.Pointer[func()] // called at a stream's first error, without mu; nil: ignored
	err    atomic.Error           // that error; all later output is dropped
	queue  lineQueue

	mu      sync.Mutex // held during a write to w, which may block
	w       io.Writer
	last    *Stream // the last writer
	midLine bool    // the last write ended within a line
	scratch []byte  // buffer for lines with prefixes, reused
}

// prefixFunc appends the prefix of the line that begins at the start of rest.
type prefixFunc func(b, rest []byte) []byte

// NewSink returns a sink that writes to w. It ignores errors of w until OnError is called.
func NewSink(w io.Writer) *Sink {
	return &Sink{w: w}
}

// OnError makes the sink call failed at the next error of w in the output of a stream, on any
// goroutine, and then drop all later output silently.
func (s *Sink) OnError(failed func()) { s.failed.Store(&failed) }

// Err returns the error at which failed was called. It never blocks, not even during a write.
func (s *Sink) Err() error { return s.err.Load() }

// write writes the queued lines, and then p, which comes from stream from. Only an error of p
// counts: an error while writing the launcher's own lines must not fail the job.
func (s *Sink) write(from *Stream, p []byte, prefix prefixFunc) {
	s.mu.Lock()
	_ = s.writeLocked(nil, s.queue.take(), nil)
	err := s.writeLocked(from, p, prefix)
	tell := s.failed.Load()
	if err == nil || tell == nil {
		s.mu.Unlock()
		return
	}
	s.err.Store(err)
	s.mu.Unlock()
	(*tell)()
}

// writeLocked writes p, which comes from stream from (nil: the launcher). If another stream left a
// line unfinished, it ends that line first: no line contains bytes of two ranks. After an error
// that counts, it writes nothing. The caller holds mu.
func (s *Sink) writeLocked(from *Stream, p []byte, prefix prefixFunc) error {
	if len(p) == 0 || s.err.Load() != nil {
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
				out = prefix(out, p)
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
	return err
}

// Stream carries one of a rank's two outputs to a Sink. It belongs to the goroutine that calls
// Copy.
type Stream struct {
	sink      *Sink
	rank      int
	style     Style
	exclusive bool   // no other stream writes to sink, so unfinished lines need not wait
	buf       []byte // buf[:pending] is the unfinished line
	pending   int
	tagPanics bool
	panics    panicText
	prefix    prefixFunc
}

// NewStream returns a stream of a rank's output. With exclusive, no other stream writes to sink, so
// unfinished lines (prompts) are written at once, unless lines have prefixes.
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

// TagPanics makes the stream begin each line of a panic, and of the stacks that follow it, with its
// rank, unless Style.Tag does so already: several ranks may panic at once. Other lines stay as they
// are. It must be called before Copy, and only if the stream is not exclusive.
func (s *Stream) TagPanics() {
	if !s.style.Tag {
		s.tagPanics = true
		s.prefix = s.appendPrefix
	}
}

func (s *Stream) appendPrefix(b, rest []byte) []byte {
	if s.style.Timestamp {
		b = s.style.Now().AppendFormat(b, timestampLayout)
		b = append(b, ' ')
	}
	if s.style.Tag {
		b = append(b, '[')
		b = strconv.AppendInt(b, int64(s.rank), 10)
		b = append(b, "] "...)
	}
	if s.tagPanics && s.panics.contains(rest) {
		b = append(b, "rank "...)
		b = strconv.AppendInt(b, int64(s.rank), 10)
		b = append(b, ": "...)
	}
	return b
}

// initialBufferBytes is a stream's initial buffer. It is small because most ranks write little, and
// grows to MaxLineBytes.
const initialBufferBytes = 4 << 10

// Copy writes all of src to the sink, including a last unfinished line. It returns the error of
// src, or nil at the end of src.
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

// consume writes the whole lines among buf[:pending+n], of which the last n bytes have just been
// read.
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
		s.grow() // the line is longer than the buffer
		return
	}
	s.flush(whole)
	if full {
		s.grow() // reads fill the buffer, so larger reads are cheaper
	}
}

func (s *Stream) grow() {
	if len(s.buf) < MaxLineBytes {
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	}
}

// flush writes buf[:n], which is either all of buf[:pending] or ends with a line, and keeps the
// rest.
func (s *Stream) flush(n int) {
	if n > 0 {
		s.sink.write(s, s.buf[:n], s.prefix)
	}
	s.pending = copy(s.buf, s.buf[n:s.pending])
}

// Close writes the unfinished line.
func (s *Stream) Close() { s.flush(s.pending) }
