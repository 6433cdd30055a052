package comm

import "github.com/mpigo/mpigo/progress"

// kicker makes a turn of progress when a rail has news and the rank may be busy with something else: a peer that asks for
// a connection is answered though nobody waits for anything.
type kicker struct {
	eng  *progress.Engine
	wake chan struct{}
	end  chan struct{}
	over chan struct{}
}

func newKicker(eng *progress.Engine) *kicker {
	k := &kicker{eng: eng, wake: make(chan struct{}, 1), end: make(chan struct{}), over: make(chan struct{})}
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
	for {
		select {
		case <-k.wake:
			k.eng.Lock()
			k.eng.Turn()
			k.eng.Unlock()
		case <-k.end:
			return
		}
	}
}

// stop ends it. The engine's lock must not be held.
func (k *kicker) stop() {
	close(k.end)
	<-k.over
}
