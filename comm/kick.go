package comm

import (
	"time"

	"github.com/mpigo/mpigo/progress"
)

// kicker makes a turn of progress when a rail has news and the rank may be busy with something else: a peer that asks for
// a connection is answered though nobody waits for anything. While messages are on their way whose sends have returned it
// goes on with that, for they may have to be sent again.
type kicker struct {
	eng  *progress.Engine
	more func() bool // whether there are such; under the engine's lock
	wake chan struct{}
	end  chan struct{}
	over chan struct{}
}

// againAfter is how long after a turn the next one is made while there is more to be done.
const againAfter = time.Millisecond

func newKicker(eng *progress.Engine, more func() bool) *kicker {
	k := &kicker{eng: eng, more: more, wake: make(chan struct{}, 1), end: make(chan struct{}), over: make(chan struct{})}
	go k.run()
	return k
}

// kick asks for a turn. It may be called from anywhere, and does not block.
func (k *kicker) kick() {
	select {
	case k.wake <- struct{}{}:
	default: // asked for already
	}
}

func (k *kicker) run() {
	defer close(k.over)
	var again <-chan time.Time // nil: there is no more to be done
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

// stop ends it. The engine's lock must not be held.
func (k *kicker) stop() {
	close(k.end)
	<-k.over
}
