package remote

import (
	"io"
	"sync"
	"time"
)

// link is the sending end of a channel. post never blocks. The streams' windows and the number of
// ranks bound the queues. Urgent frames overtake bulk frames.
type link struct {
	mu           sync.Mutex // guards all fields
	changed      sync.Cond
	out          io.WriteCloser // nil before start
	urgent, bulk []frame
	writing      bool
	closing      bool // close out when the queues are empty
	broken       bool // a write failed, or out is closed
}

// maxBulkBytes bounds the bulk frames in one write, because an urgent frame waits for the write.
const maxBulkBytes = 64 << 10

func newLink() *link {
	l := &link{}
	l.changed.L = &l.mu
	return l
}

// start begins to write the frames that are posted, including those from before.
func (l *link) start(out io.WriteCloser) {
	l.mu.Lock()
	l.out = out
	l.mu.Unlock()
	go l.write()
}

// post queues a frame. The link owns the frame's payload from then on.
func (l *link) post(f frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken || l.closing {
		return
	}
	if f.bulk() {
		l.bulk = append(l.bulk, f)
	} else {
		l.urgent = append(l.urgent, f)
	}
	l.changed.Broadcast()
}

func (l *link) write() {
	var buf []byte
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.out.Close()
	for {
		l.writing = false
		l.changed.Broadcast()
		for len(l.urgent) == 0 && len(l.bulk) == 0 && !l.closing && !l.broken {
			l.changed.Wait()
		}
		if l.broken || len(l.urgent) == 0 && len(l.bulk) == 0 {
			l.broken = true
			return
		}
		buf = l.take(buf[:0])
		l.writing = true
		l.mu.Unlock()
		_, err := l.out.Write(buf)
		l.mu.Lock()
		if cap(buf) > 1<<20 {
			buf = nil
		}
		if err != nil {
			l.discardQueue()
		}
	}
}

// take encodes the frames for the next write. The caller holds mu.
func (l *link) take(buf []byte) []byte {
	for _, f := range l.urgent {
		buf = appendFrame(buf, f)
	}
	l.urgent = nil
	for bulk := 0; len(l.bulk) > 0 && bulk < maxBulkBytes; {
		buf = appendFrame(buf, l.bulk[0])
		bulk += len(l.bulk[0].payload)
		if l.bulk = l.bulk[1:]; len(l.bulk) == 0 {
			l.bulk = nil
		}
	}
	return buf
}

// discardQueue discards the queued frames and all later ones. The caller holds mu.
func (l *link) discardQueue() {
	l.broken, l.urgent, l.bulk = true, nil, nil
	l.changed.Broadcast()
}

// finish closes the channel after the queued frames have been written.
func (l *link) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = true
	l.changed.Broadcast()
}

// close closes the channel and discards the queued frames.
func (l *link) close() {
	l.mu.Lock()
	l.discardQueue()
	out := l.out
	l.mu.Unlock()
	if out != nil {
		_ = out.Close() // this ends a blocked write
	}
}

// flush waits for at most d until all posted frames have been written.
func (l *link) flush(d time.Duration) {
	limit := time.Now().Add(d)
	wake := time.AfterFunc(d, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	})
	defer wake.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for (l.writing || len(l.urgent) > 0 || len(l.bulk) > 0) && !l.broken && time.Now().Before(limit) {
		l.changed.Wait()
	}
}
