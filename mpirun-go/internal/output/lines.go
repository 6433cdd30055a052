package output

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// maxQueuedBytes bounds the lines that wait for a slow reader. It is enough for a report about all
// ranks of a job. A longer line is queued only if the queue is empty.
const maxQueuedBytes = 1 << 20

// lineQueue holds the launcher's own lines until they are written. Its lock is never held during a
// write.
type lineQueue struct {
	mu      sync.Mutex
	lines   []byte        // whole lines
	dropped int           // lines that found no room, since the last line in lines
	written chan struct{} // closed when the queue's writer ends; nil: no writer runs
}

// add adds a line, or drops it. start reports whether the caller has to start a writer.
func (q *lineQueue) add(text string) (start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped > 0 || len(q.lines) > 0 && len(q.lines)+len(text) > maxQueuedBytes {
		// A later, shorter line would hide that these are missing.
		q.dropped += strings.Count(text, "\n") + 1
		return false
	}
	q.lines = append(append(q.lines, text...), '\n')
	if q.written != nil {
		return false
	}
	q.written = make(chan struct{})
	return true
}

// take removes all lines from the queue, and returns them.
func (q *lineQueue) take() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines := q.lines
	if q.dropped > 0 {
		lines = fmt.Appendf(slices.Clip(lines), "mpirun-go: %d lines of the launcher are missing here, because the output was not read in time\n", q.dropped)
	}
	q.lines, q.dropped = nil, 0
	return lines
}

// end ends the writer if the queue is empty.
func (q *lineQueue) end() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) > 0 {
		return false
	}
	close(q.written)
	q.written = nil
	return true
}

// Line writes one line of the launcher itself, or several. It never blocks: another goroutine
// writes the line, in the order of the calls of Line, and before what ranks write after it. If
// maxQueuedBytes wait already, the line is dropped, and a line says so.
func (s *Sink) Line(text string) {
	if s.queue.add(text) {
		go s.writeLines()
	}
}

// Written returns a channel that is closed when the lines so far have been written, or dropped
// after an error.
func (s *Sink) Written() <-chan struct{} {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if s.queue.written == nil {
		return closedChannel()
	}
	return s.queue.written
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// writeLines writes the queued lines until none is left.
func (s *Sink) writeLines() {
	for {
		s.write(nil, nil, nil)
		if s.queue.end() {
			return
		}
	}
}
