package rails

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/wireup"
)

// This file exchanges addresses that come, or change, after the start.
//
// Process managers exchange cards at the start only. mpirun-go also takes addresses later, and
// sends them to ranks that ask (wireup.Client.PublishModule). A rank publishes a module's new
// address. A rank that reopens a rail asks for the peers' new addresses until the rail is up, so
// ranks find each other even if all addresses change at the same time. A rank that makes new
// connections asks once.
//
// With other managers, ErrUnsupported ends the exchange. Then a rail joins or comes back only if
// one of its ends still has the address in its card, to which the other end can connect.

const (
	// askPeriod is the least time between two requests to the manager, and askMost the most, for a
	// rail that stays down. Both grow by askPerRank for each rank, so that the ranks of a large job
	// do not overload the manager.
	askPeriod  = 250 * time.Millisecond
	askMost    = 4 * time.Second
	askPerRank = 250 * time.Microsecond
	// askNew is the delay of the request after a new connection was begun. Most are up by then.
	askNew = time.Second
	// askFor is how long a rank asks after it has reopened a rail. It is longer than the time until
	// package bml reopens a rail that does not come up.
	askFor = 4 * time.Second
)

// exchange talks to the manager on its own goroutine, because the layers below must not block. The
// engine's lock guards the fields that change.
type exchange struct {
	wake chan struct{} // signals work; has room for one
	done chan struct{} // closed by Close

	askUntil time.Time     // addresses of peers are needed until then
	askAt    time.Time     // time of the next request
	wait     time.Duration // from that request to the following one
	isLazy   bool          // only for new connections: one request is enough
	hasMoved bool          // an address of this rank has changed
	noAnswer error         // why the exchange has ended
}

// readdressed is a module that uses a peer's new address at once, also for a connection that is
// being made. Other modules get it at the next Connect.
type readdressed interface {
	PeerMoved(peer int, address []byte)
}

// moved is Env.Moved: the address of a module has come or changed. Lock held.
func (r *Rails) moved() {
	if r.published == nil { // the card will have it
		return
	}
	if x := r.exchanging(); x != nil {
		x.hasMoved = true
		x.askAt, x.wait = time.Time{}, 0 // peers may have moved at the same time
		x.wakeUp()
	}
}

// ask starts requests for peers' new addresses, because a rail is reopened. Lock held.
func (r *Rails) ask() {
	x := r.exchanging()
	if x == nil {
		return
	}
	now := time.Now()
	if x.isLazy || now.After(x.askUntil) {
		x.askAt, x.wait, x.isLazy = time.Time{}, 0, false
	}
	x.askUntil = now.Add(askFor)
	x.wakeUp()
}

// askLater schedules one request for new addresses, because a new connection uses an address that
// the peer may have lost. Lock held.
func (r *Rails) askLater() {
	x, now := r.exchanging(), time.Now()
	switch {
	case x == nil || now.Before(x.askUntil):
	case x.hasMoved:
		r.ask()
	default:
		x.isLazy, x.askAt = true, now.Add(askNew)
		x.askUntil = x.askAt.Add(askFor)
		x.wakeUp()
	}
}

// exchanging returns the exchange, and starts it if need be. It returns nil if there can be none.
// Lock held.
func (r *Rails) exchanging() *exchange {
	if r.cfg.Client == nil || r.closed {
		return nil
	}
	if r.exchange == nil {
		r.exchange = &exchange{wake: make(chan struct{}, 1), done: make(chan struct{})}
		go r.runExchange(r.exchange)
	}
	return r.exchange
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

// Untold is why this rank could not publish a changed address; nil if it could, or no address has
// changed. It may be called with the lock or without.
func (r *Rails) Untold() error {
	if why := r.untold.Load(); why != nil {
		return *why
	}
	return nil
}

func (r *Rails) runExchange(x *exchange) {
	for {
		select {
		case <-x.done:
			return
		case <-x.wake: // also after Close: the select may take either
		}
		if r.publishMoved() != nil {
			return // the manager does not support it, or its connection has ended
		}
		r.readMoved(x)
		select {
		case <-x.done:
			return
		case <-time.After(r.scaled(askPeriod)):
		}
	}
}

// scaled adapts a time between requests to the manager to the size of this job.
func (r *Rails) scaled(period time.Duration) time.Duration {
	return period + time.Duration(r.cfg.Env.Size)*askPerRank
}

// publishMoved publishes the addresses that have changed, unless Close was called: the
// goroutine must not outlive Finalize.
func (r *Rails) publishMoved() error {
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	if r.told == nil {
		r.told = slices.Clone(r.published)
	}
	for i := range r.told {
		if r.closed {
			return btl.ErrClosed
		}
		m := r.list[i].module
		address := m.Address()
		if bytes.Equal(address, r.told[i]) {
			continue
		}
		r.cfg.Lock.Unlock()
		err := r.cfg.Client.PublishModule(i, address)
		r.cfg.Lock.Lock()
		if err != nil {
			err = fmt.Errorf("the other ranks do not learn that rail %s has another address now: %w", m.Attrs().Name, err)
			if errors.Is(err, wireup.ErrUnsupported) {
				err = fmt.Errorf("%w (mpirun-go tells them)", err)
			}
			r.untold.Store(&err)
			return err
		}
		r.told[i] = address
	}
	return nil
}

// readMoved reads the peers' new addresses, if they are needed and Close was not called.
func (r *Rails) readMoved(x *exchange) {
	if !r.isToAsk(x) {
		return
	}
	moved, err := r.cfg.Client.PublishedModules()
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	x.noAnswer = err
	for _, m := range moved {
		card := r.cards[m.Rank]
		if m.Rank == r.cfg.Env.Rank || m.Number >= len(card.Modules) {
			continue // the peer may have written anything
		}
		r.movedTo[peerModule{m.Rank, m.Number}] = m.Address
		for _, l := range r.list {
			if to, ok := l.module.(readdressed); ok && l.transport == card.Modules[m.Number].BTL && !r.closed {
				to.PeerMoved(m.Rank, m.Address)
			}
		}
		x.askAt, x.wait = time.Time{}, 0 // more may follow
	}
	if len(moved) > 0 && r.cfg.Env.Wakeup != nil {
		r.cfg.Env.Wakeup.Wake()
	}
}

// isToAsk reports whether a request is due now. If one is due later, the exchange looks again after
// a period.
func (r *Rails) isToAsk(x *exchange) bool {
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	now := time.Now()
	if r.closed || x.noAnswer != nil || now.After(x.askUntil) {
		return false
	}
	x.wakeUp()
	if now.Before(x.askAt) {
		return false
	}
	if x.isLazy {
		x.isLazy, x.askUntil = false, time.Time{}
	}
	x.wait = min(max(2*x.wait, r.scaled(askPeriod)), r.scaled(askMost))
	x.askAt = now.Add(x.wait)
	return true
}
