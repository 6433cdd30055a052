package comm

import (
	"time"

	"github.com/mpigo/mpigo/progress"
)

// asyncProgress makes progress while the program computes, on a goroutine of its own:
//
//   - It makes a turn when a rail asks for one. So a peer that asks for a connection gets an answer
//     although no call waits. Turns go on while messages whose sends have returned are under way,
//     because the rank may have to send them again.
//   - While nonblocking collectives are under way, it sleeps until an event, as a waiting call does
//     (progress.Engine.Doze). While other goroutines make calls, it only polls from time to time.
type asyncProgress struct {
	eng *progress.Engine
	// more reports whether messages whose sends have returned are under way. live reports whether
	// nonblocking collectives are. Both are called with the engine's lock.
	more, live func() bool
	wake       chan struct{}
	end        chan struct{}
	over       chan struct{}
	// The engine's lock guards these.
	isLooking bool // it polls from time to time, whether or not collectives are under way
	isEnding  bool
}

const (
	// lookEvery is the time between two polls.
	lookEvery = time.Millisecond
	// idleLooks is the number of polls without a collective after which polling ends. Until then, a
	// collective that begins need not wake the goroutine. Waking takes longer than a short
	// collective.
	idleLooks = 20
	// soonBytes is the least number of bytes of a collective that wakes the goroutine at once.
	soonBytes = 64 << 10
)

func newAsyncProgress(eng *progress.Engine, more, live func() bool) *asyncProgress {
	p := &asyncProgress{
		eng: eng, more: more, live: live,
		wake: make(chan struct{}, 1), end: make(chan struct{}), over: make(chan struct{}),
	}
	go p.run()
	return p
}

// request asks for a turn. It may be called from any goroutine, and does not block.
func (p *asyncProgress) request() {
	select {
	case p.wake <- struct{}{}:
	default: // somebody has asked already
	}
}

// collective says that a nonblocking collective of about the given number of bytes is under way.
// Lock held.
func (p *asyncProgress) collective(bytes int) {
	if !p.isLooking || bytes >= soonBytes {
		p.request()
	}
}

func (p *asyncProgress) run() {
	defer close(p.over)
	look := time.NewTimer(lookEvery)
	for p.pause(look) {
		p.eng.Return(nil) // no call holds the lock
		p.eng.Turn()
		for idle := 0; !p.isEnding && (p.more() || p.live() || p.isLooking && idle < idleLooks); idle++ {
			p.isLooking = true
			if p.live() {
				if idle = 0; !p.eng.Doze() {
					continue
				}
			} else {
				p.eng.Turn()
			}
			p.eng.Unlock()
			look.Reset(lookEvery)
			if !p.pause(look) {
				return
			}
			p.eng.Return(nil)
		}
		p.isLooking = false
		p.eng.Unlock()
		look.Stop()
	}
}

// pause waits until there is something to do. It reports false at the end.
func (p *asyncProgress) pause(look *time.Timer) bool {
	select {
	case <-p.wake:
	case <-look.C:
	case <-p.end:
		return false
	}
	return true
}

// stop ends the asynchronous progress. The engine's lock must not be held.
func (p *asyncProgress) stop() {
	p.eng.Lock()
	p.isEnding = true
	p.eng.Undoze()
	p.eng.Unlock()
	close(p.end)
	<-p.over
}
