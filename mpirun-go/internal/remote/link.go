package remote

import (
	"io"
	"sync"
	"time"
)

// link is one end of a channel. Post never waits: what is queued is bounded by the streams' windows and by how
// many ranks there are, and what is urgent passes what is bulk.
type link struct {
	mu           sync.Mutex // guards all of it
	changed      sync.Cond
	out          io.WriteCloser // nil before start
	urgent, bulk []frame
	writing      bool
	closing      bool // close out when all is written
	broken       bool // nothing can be written any more
}

// bulkBytes is how much bulk is written at once: what becomes urgent meanwhile waits for it.
const maxBulkBytes = 64 << 10

func newLink() *link {
	l := &link{}
	l.changed.L = &l.mu
	return l
}

// start begins to write what was posted, and will be.
func (l *link) start(out io.WriteCloser) {
	l.mu.Lock()
	l.out = out
	l.mu.Unlock()
	go l.write()
}

// post queues a frame. Its payload is the link's from now on.
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

// take encodes what is to be written next. The caller holds mu.
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

// abandon throws away what is queued, and all that comes. The caller holds mu.
func (l *link) discardQueue() {
	l.broken, l.urgent, l.bulk = true, nil, nil
	l.changed.Broadcast()
}

// finish closes the channel once all that is queued is written.
func (l *link) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = true
	l.changed.Broadcast()
}

// close closes the channel. What is queued is lost.
func (l *link) close() {
	l.mu.Lock()
	l.discardQueue()
	out := l.out
	l.mu.Unlock()
	if out != nil {
		_ = out.Close() // a write that waits ends
	}
}

// flush waits until all that was posted is written, for up to d.
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
