package comm

import (
	"time"

	"github.com/mpigo/mpigo/progress"
)

// asyncProgress makes a turn of progress when a rail asks for one, because the program may compute:
// a peer that asks for a connection is answered although no call waits. It continues while messages
// whose sends have returned are under way, because they may have to be sent again.
type asyncProgress struct {
	eng  *progress.Engine
	more func() bool // reports whether such messages are under way; called with the engine's lock
	wake chan struct{}
	end  chan struct{}
	over chan struct{}
}

// againAfter is the time from one turn to the next while such messages are under way.
const againAfter = time.Millisecond

func newAsyncProgress(eng *progress.Engine, more func() bool) *asyncProgress {
	p := &asyncProgress{eng: eng, more: more, wake: make(chan struct{}, 1), end: make(chan struct{}), over: make(chan struct{})}
	go p.run()
	return p
}

// request asks for a turn. It may be called from any goroutine, and does not block.
func (p *asyncProgress) request() {
	select {
	case p.wake <- struct{}{}:
	default: // a turn is asked for already
	}
}

func (p *asyncProgress) run() {
	defer close(p.over)
	var again <-chan time.Time // nil if no such message is under way
	for {
		select {
		case <-p.wake:
		case <-again:
		case <-p.end:
			return
		}
		p.eng.Lock()
		p.eng.Turn()
		more := p.more()
		p.eng.Unlock()
		again = nil
		if more {
			again = time.After(againAfter)
		}
	}
}

// stop ends the asynchronous progress. The engine's lock must not be held.
func (p *asyncProgress) stop() {
	close(p.end)
	<-p.over
}
