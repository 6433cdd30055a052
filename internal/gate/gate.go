// Package gate bounds the number of open connections from unauthenticated peers. Any host that
// reaches a port can connect and send nothing. Such connections must not keep real peers out, and
// must not use up the descriptors of the process.
//
// A Gate accepts every connection. When too many are open, it closes the oldest one. A real peer
// authenticates itself quickly, so the oldest connection is unlikely to belong to one.
package gate

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// grace is the time for which a connection is kept although others wait to be accepted. The
	// others wait in the system's queue meanwhile, so each real peer among them gets its turn.
	grace = 20 * time.Millisecond
	// retryPause is the pause after a failed accept, in case descriptors are free again soon.
	retryPause = 100 * time.Millisecond
	// warnEvery is the time between two warnings about failed accepts.
	warnEvery = time.Minute
)

// Gate limits the connections of one or several listeners. Goroutines may share it.
type Gate struct {
	most int
	warn func(error)

	mu     sync.Mutex
	open   []*Conn // connections that count, the oldest first
	warned time.Time
	// changed has capacity 1, and holds an element if open may have become shorter.
	changed chan struct{}
}

// New makes a gate for up to most connections. warn, unless it is nil, is called for failed
// accepts, at most once a minute.
func New(most int, warn func(error)) *Gate {
	return &Gate{most: most, warn: warn, changed: make(chan struct{}, 1)}
}

// Conn is a connection. It counts until it is closed or let in.
type Conn struct {
	net.Conn
	g      *Gate
	since  time.Time
	isKept bool // guarded by g.mu
}

// Accept accepts the next connection. If too many are open, it first closes the oldest one that is
// not kept. Accept fails when the listener is closed; after any other error it goes on.
func (g *Gate) Accept(l net.Listener) (*Conn, error) {
	for {
		accepted, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, err
		case err != nil:
			g.failed(err)
			time.Sleep(retryPause)
			continue
		}
		for !g.makeRoom() {
			select {
			case <-g.changed:
			case <-time.After(grace):
			}
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		c := &Conn{Conn: accepted, g: g, since: time.Now()}
		g.open = append(g.open, c)
		return c, nil
	}
}

// makeRoom reports whether a further connection may be open. If there are too many, it closes the
// oldest one that it may close.
func (g *Gate) makeRoom() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.open) < g.most {
		return true
	}
	i := slices.IndexFunc(g.open, func(c *Conn) bool { return !c.isKept })
	if i < 0 || time.Since(g.open[i].since) < grace {
		return false
	}
	_ = g.open[i].Conn.Close()
	g.open = slices.Delete(g.open, i, i+1)
	return true
}

// failed warns of a failed accept.
func (g *Gate) failed(err error) {
	g.mu.Lock()
	isTold := !g.warned.IsZero() && time.Since(g.warned) < warnEvery
	if !isTold {
		g.warned = time.Now()
	}
	g.mu.Unlock()
	if g.warn != nil && !isTold {
		go g.warn(err) // it may block on a pipe that is not read
	}
}

// remove stops counting a connection.
func (g *Gate) remove(c *Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.open, c); i >= 0 {
		g.open = slices.Delete(g.open, i, i+1)
		select {
		case g.changed <- struct{}{}:
		default:
		}
	}
}

// LetIn removes the connection of an authenticated peer from the gate, so it no longer counts.
func (c *Conn) LetIn() { c.g.remove(c) }

// Keep sets whether the gate must not close the connection, because a request of its peer is being
// answered. The connection still counts. After the answer it is the newest one.
func (c *Conn) Keep(isKept bool) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	i := slices.Index(c.g.open, c)
	if i < 0 {
		return
	}
	c.isKept = isKept
	if !isKept {
		c.since = time.Now()
		c.g.open = append(slices.Delete(c.g.open, i, i+1), c)
	}
}

// Close closes the connection.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.g.remove(c)
	return err
}

// Listener returns a listener whose connections, of type *Conn, have passed the gate.
func (g *Gate) Listener(l net.Listener) net.Listener { return listener{l, g} }

type listener struct {
	net.Listener
	g *Gate
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.g.Accept(l.Listener)
	if err != nil {
		return nil, err // no nil *Conn in the interface
	}
	return c, nil
}
