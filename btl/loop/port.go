package loop

import (
	"sync"
	"sync/atomic"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// port is the part of a module that other ranks may touch, from their own goroutines.
type port struct {
	fabric  *Fabric
	name    Port
	place   int // among the ports that a module may lead to, see Fabric.place
	addr    address
	regions regionTable

	_ [cacheLine]byte
	// armed says that the rank may be asleep. Then another rank that publishes something for it
	// wakes it. The rank sets it; the rank or the one that wakes it clears it.
	armed atomic.Uint32

	_ [cacheLine]byte
	// attention says that there is something in flags or notices. It is set after them, and cleared
	// by the rank before it looks.
	attention atomic.Uint32
	// flags has one bit for each port, by its place. A bit is set if the port's lane holds
	// something and is not watched.
	flags []atomic.Uint64

	mu      sync.Mutex
	wakeup  progress.Wakeup // set by open, before armed is ever set
	opened  bool
	closed  bool
	down    *btl.Error // why the device does not work; nil if it does
	notices []notice
}

// notice is a message of another rank to a port, outside of its lanes.
type notice struct {
	kind noticeKind
	lane *lane      // laneJoined; nil once the module has collected it
	peer int        // laneJoined, peerFailed: the place of its port
	upTo uint32     // peerFailed: the newest epoch that it concerns
	err  *btl.Error // peerFailed, railFailed
}

type noticeKind uint8

const (
	laneJoined noticeKind = iota // peer joined an incarnation and may send on lane
	peerFailed                   // the endpoint to peer is to fail
	railFailed                   // the whole rail is to fail
)

func newPort(f *Fabric, rank, rail int) *port {
	return &port{
		fabric: f, name: Port{rank, rail}, place: f.place(Port{rank, rail}), addr: address{f.id, uint32(rank), uint32(rail)},
		flags: make([]atomic.Uint64, (f.places()+63)/64),
	}
}

// place numbers the ports that a module may lead to: those of its rail, or all.
func (f *Fabric) place(p Port) int {
	if f.cfg.Switched {
		return p.Rank*f.cfg.Rails + p.Rail
	}
	return p.Rank
}

func (f *Fabric) places() int {
	if f.cfg.Switched {
		return f.cfg.Ranks * f.cfg.Rails
	}
	return f.cfg.Ranks
}

// portAt is the port at a place, for a module of a rail.
func (f *Fabric) portAt(place, rail int) *port {
	if f.cfg.Switched {
		return f.ports[place%f.cfg.Rails][place/f.cfg.Rails]
	}
	return f.ports[rail][place]
}

// open makes p the port of a module. Only the first call counts.
func (p *port) open(wakeup progress.Wakeup) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened {
		return false
	}
	p.opened, p.wakeup = true, wakeup
	return true
}

// flag records that the port at a place has published something.
func (p *port) flag(from int) {
	p.flags[from>>6].Or(1 << (from & 63))
	p.attention.Store(1)
}

// notify adds a notice. It reports false if the port is closed.
func (p *port) notify(n notice) bool {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	p.notices = append(p.notices, n)
	p.mu.Unlock()
	p.attention.Store(1)
	p.wake()
	return true
}

// take returns the notices so far, and collects later ones in spare.
func (p *port) take(spare []notice) []notice {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.notices
	p.notices = spare[:0]
	return got
}

// wake wakes the rank if it may be asleep. One wakeup is enough.
func (p *port) wake() {
	if p.armed.Load() != 0 && p.armed.CompareAndSwap(1, 0) {
		p.wakeNow()
	}
}

// wakeNow wakes the rank. Only a rank that was asked to wake it may call wakeNow, because the
// request orders the call after open.
func (p *port) wakeNow() {
	if p.wakeup != nil {
		p.wakeup.Wake()
	}
}

// downError returns why the device does not work, or nil.
func (p *port) downError() *btl.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

func (p *port) setDown(err *btl.Error) {
	p.mu.Lock()
	p.down = err
	p.mu.Unlock()
}
