package comm

import (
	"time"

	"github.com/mpigo/mpigo/progress"
)

// kicker makes a turn of progress when a rail asks for one, because the program may be busy: so a
// peer that asks for a connection is answered although no call waits. It goes on while messages are
// under way whose sends have returned, because they may have to be sent again.
type kicker struct {
	eng  *progress.Engine
	more func() bool // reports whether such messages are under way; called with the engine's lock
	wake chan struct{}
	end  chan struct{}
	over chan struct{}
}

// againAfter is the time from one turn to the next while such messages are under way.
const againAfter = time.Millisecond

func newKicker(eng *progress.Engine, more func() bool) *kicker {
	k := &kicker{eng: eng, more: more, wake: make(chan struct{}, 1), end: make(chan struct{}), over: make(chan struct{})}
	go k.run()
	return k
}

// kick asks for a turn. It may be called from any goroutine, and does not block.
func (k *kicker) kick() {
	select {
	case k.wake <- struct{}{}:
	default: // a turn is asked for already
	}
}

func (k *kicker) run() {
	defer close(k.over)
	var again <-chan time.Time // nil if no such message is under way
	for {
		select {
		case <-k.wake:
		case <-again:
		case <-k.end:
			return
		}
		k.eng.Lock()
		k.eng.Turn()
		more := k.more()
		k.eng.Unlock()
		again = nil
		if more {
			again = time.After(againAfter)
		}
	}
}

// stop ends the kicker. The engine's lock must not be held.
func (k *kicker) stop() {
	close(k.end)
	<-k.over
}
