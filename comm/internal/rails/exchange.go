package rails

import (
	"bytes"
	"time"

	"github.com/mpigo/mpigo/btl"
)

// Addresses that come after the start.
//
// The process manager exchanges cards at the start only. Our own manager also takes addresses
// later, and tells them to ranks that ask (wireup.Client.PublishRail). A rank that gets an address
// publishes it; a rank that needs the address of a peer's rail, and whose own has come late, asks
// from time to time. Under other managers ErrUnsupported ends that: then a rail joins only if one
// of its ends had an address at the start, because that one need not connect.

// askPeriod is the least time between two requests to the manager.
const askPeriod = 250 * time.Millisecond

// exchange talks to the manager, on a goroutine of its own: the layers below wait for nothing.
type exchange struct {
	wake chan struct{} // something is to be done; has room for one
	done chan struct{} // closed by Close
	asks bool          // addresses of peers are needed; under the engine's lock
}

// moved is Env.Moved: the address of a module has come or changed. Lock held.
func (r *Rails) moved() {
	if r.published == nil || r.cfg.Client == nil || r.closed {
		return // the card will have it
	}
	if r.exchange == nil {
		r.exchange = &exchange{wake: make(chan struct{}, 1), done: make(chan struct{})}
		go r.runExchange(r.exchange)
	}
	r.exchange.wakeUp()
}

// ask has the addresses of peers' rails asked for that have come, for a rail of this rank. A peer
// that knows this rail's address connects itself. Lock held.
func (r *Rails) ask(local int) {
	if x := r.exchange; x != nil && !bytes.Equal(r.published[local], r.list[local].module.Address()) {
		x.asks = true
		x.wakeUp()
	}
}

func (x *exchange) wakeUp() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Close ends the exchange of addresses. Lock held.
func (r *Rails) Close() {
	if r.exchange != nil && !r.closed {
		close(r.exchange.done)
	}
	r.closed = true
}

func (r *Rails) runExchange(x *exchange) {
	told := map[int][]byte{} // what was published, by place in the list
	for {
		select {
		case <-x.done:
			return
		case <-x.wake: // also after Close: the select may take either
		}
		if r.publishMoved(told) != nil || r.readMoved(x) != nil {
			return // this manager does not exchange them, or the connection to it has ended
		}
		select {
		case <-x.done:
			return
		case <-time.After(askPeriod):
		}
	}
}

// publishMoved publishes the addresses that have changed, unless Close was called: the
// goroutine must not outlive Finalize.
func (r *Rails) publishMoved(told map[int][]byte) error {
	r.cfg.Lock.Lock()
	if r.closed {
		r.cfg.Lock.Unlock()
		return btl.ErrClosed
	}
	news := map[int][]byte{}
	for i, l := range r.list {
		if a := l.module.Address(); !bytes.Equal(a, r.published[i]) && !bytes.Equal(a, told[i]) {
			news[i] = a
		}
	}
	r.cfg.Lock.Unlock()
	for i, a := range news {
		if err := r.cfg.Client.PublishRail(i, a); err != nil {
			return err
		}
		told[i] = a
	}
	return nil
}

// readMoved reads what peers have published since, if it is needed and Close was not called.
func (r *Rails) readMoved(x *exchange) error {
	r.cfg.Lock.Lock()
	asks := x.asks && !r.closed
	x.asks = false
	r.cfg.Lock.Unlock()
	if !asks {
		return nil
	}
	moved, err := r.cfg.Client.PublishedRails()
	if err != nil {
		return err
	}
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	for _, m := range moved {
		if m.Rank == r.cfg.Env.Rank || m.Number >= len(r.cards[m.Rank].Rails) {
			continue // the peer may have written anything
		}
		r.movedTo[peerRail{m.Rank, m.Number}] = m.Address
	}
	return nil
}
