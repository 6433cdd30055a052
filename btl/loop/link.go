package loop

import (
	"cmp"
	"runtime"
	"sync"
	"sync/atomic"
)

// Port names the module of a rank on a rail.
type Port struct{ Rank, Rail int }

func (p Port) compare(o Port) int {
	return cmp.Or(cmp.Compare(p.Rank, o.Rank), cmp.Compare(p.Rail, o.Rail))
}

// link joins two ports, or one to itself.
type link struct {
	ports [2]*port // the lower name first

	mu    sync.Mutex
	epoch uint32       // of the newest incarnation; 0 before the first
	cur   *incarnation // the newest
	cut   bool         // by FailLink
	// loses selects the packets that are lost, set by SetLoss. Only of a virtual fabric. nil: none.
	loses    func(p Packet) bool
	flights  []*flight  // of a virtual fabric: what is in flight, oldest first
	impaired Impairment // of a virtual fabric
}

// incarnation is one life of a link. An end is numbered as its port is in the link.
type incarnation struct {
	link  *link
	epoch uint32
	dead  [2]bool // guarded by link.mu; a dead end stays dead

	// gate guards the memory of each end against remote reads and writes.
	gate [2]gate
	// wires carry what each end sends; nil without wires.
	wires [2]*wired
}

func (f *Fabric) link(a, b *port) *link {
	if a.name.compare(b.name) > 0 {
		a, b = b, a
	}
	name := [2]Port{a.name, b.name}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.links[name]
	if l == nil {
		l = &link{ports: [2]*port{a, b}}
		f.links[name] = l
	}
	return l
}

// end is the number of p's end.
func (l *link) end(p *port) int {
	if l.ports[0] == p {
		return 0
	}
	return 1
}

// other is the opposite end; a port's link to itself has one end.
func (l *link) other(end int) int {
	if l.ports[0] == l.ports[1] {
		return end
	}
	return 1 - end
}

// join makes an end part of the current incarnation, or of the next one if an end of the current
// one is dead. It returns the lane to send on, which is nil if no path leads to the peer. closed
// says that there will never be a path.
func (l *link) join(end int) (inc *incarnation, out *lane, closed bool) {
	from, to := l.ports[end], l.ports[l.other(end)]
	l.mu.Lock()
	defer l.mu.Unlock()
	inc = l.cur
	if inc == nil || inc.dead[0] || inc.dead[1] {
		inc = &incarnation{link: l, epoch: l.epoch + 1}
		inc.dial()
	}
	if !l.cut && to.downError() == nil {
		out = newLane(inc, from, to)
		// Under the lock, so that a rank which marks an end dead knows every lane to it.
		if !to.notify(notice{kind: laneJoined, peer: from.place, lane: out}) {
			out, closed = nil, true
		}
	}
	l.cur, l.epoch = inc, inc.epoch
	return inc, out, closed
}

// markDead marks an end dead. No end joins the incarnation any more. Once markDead returns, nothing
// of the incarnation reaches the memory of that end.
func (inc *incarnation) markDead(end int) {
	inc.link.mu.Lock()
	inc.dead[end] = true
	inc.link.mu.Unlock()
	inc.gate[end].close()
}

func (inc *incarnation) isDead(end int) bool {
	inc.link.mu.Lock()
	defer inc.link.mu.Unlock()
	return inc.dead[end]
}

// gate counts the goroutines that have entered, and can be closed.
type gate struct{ v atomic.Uint64 }

const gateClosed = uint64(1) << 63

// enter reports whether the gate is open; if so, the caller calls leave later.
func (g *gate) enter() bool {
	if g.v.Add(1)&gateClosed == 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() { g.v.Add(^uint64(0)) }

// close returns when all goroutines have left. A goroutine inside copies memory and does nothing
// else, so the wait is short.
func (g *gate) close() {
	g.v.Or(gateClosed)
	for g.v.Load() != gateClosed {
		runtime.Gosched()
	}
}

func (g *gate) closed() bool { return g.v.Load()&gateClosed != 0 }
