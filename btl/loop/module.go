package loop

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/progress"
)

var (
	_ btl.Module     = (*module)(nil)
	_ btl.Registrar  = (*module)(nil)
	_ progress.Idler = (*module)(nil)
)

const (
	// hotLanes is how many lanes a module looks at in every turn without being told.
	hotLanes = 8
	// idleLooks is after how many empty looks such a lane makes way for another one.
	idleLooks = 64
	// laneBudget bounds the fragments of one lane that one turn hands up.
	laneBudget = 16
	// turnBytes is about how much a rank reads and writes remotely from one turn to the next, if the
	// fabric is free-running: the lock of its engine is held meanwhile. The rest is refused until then.
	turnBytes = 1 << 20
)

// module is the part of a rail that only its rank touches, under its engine's lock.
type module struct {
	base.Rail[*endpoint]
	port  *port
	f     *Fabric
	bufs  pool
	peers []*peer // by rank; nil for whom nothing is known of

	hot    []*lane // looked at in every turn
	victim int     // index in hot that is next to be asked to make way

	inbox []notice // taken from the port, not yet attended to
	spare []notice

	accessed int // bytes read and written remotely since the last progress call

	landed []*flight // of a virtual fabric: acknowledged, and not yet completed
}

// peer is what a module knows of one rank.
type peer struct {
	rank int
	ep   *endpoint // the newest; nil before the first
	in   *lane     // what the peer sends on; nil if nothing
	next []*lane   // of newer incarnations, which wait for the end of older ones
}

func newModule(p *port, ev btl.Events) *module {
	f := p.fabric
	m := &module{port: p, f: f, peers: make([]*peer, f.cfg.Ranks), hot: make([]*lane, 0, hotLanes)}
	m.Init(m, ev, f.attrs[p.rail], p.addr.append(nil))
	return m
}

func (m *module) peer(rank int) *peer {
	p := m.peers[rank]
	if p == nil {
		p = &peer{rank: rank}
		m.peers[rank] = p
	}
	return p
}

// Connect implements btl.Module.
func (m *module) Connect(rank int, card []byte) (btl.Endpoint, error) {
	a, ok := parseCard(card)
	switch {
	case m.Closed:
		return nil, btl.ErrClosed
	case !ok:
		return nil, fmt.Errorf("rail %s: %w: not a card of this kind", m.Attrs().Name, btl.ErrUnreachable)
	case a.fabric != m.f.id:
		return nil, fmt.Errorf("rail %s: %w: card of another fabric", m.Attrs().Name, btl.ErrUnreachable)
	case a.rail != uint32(m.port.rail):
		return nil, fmt.Errorf("rail %s: %w: card of rail %d", m.Attrs().Name, btl.ErrUnreachable, a.rail)
	case rank < 0 || rank >= len(m.peers) || a.rank != uint32(rank):
		return nil, fmt.Errorf("rail %s: %w: card of rank %d for rank %d", m.Attrs().Name, btl.ErrUnreachable, a.rank, rank)
	}
	p := m.peer(rank)
	if p.ep != nil && p.ep.State() != btl.Drained {
		return p.ep, nil
	}
	if err := m.ConnectError(rank); err != nil {
		return nil, err
	}
	if down := m.port.trouble(); down != nil {
		return nil, m.ErrorAbout(rank, down)
	}
	l := m.f.link(m.port.rail, m.port.rank, rank)
	end := l.end(m.port)
	inc, out, closed := l.join(end)
	p.ep = &endpoint{Endpoint: base.MakeEndpoint(rank, inc.epoch, true), m: m, inc: inc, end: end, out: out}
	m.f.tracef("connect %s %d>%d epoch %d", m.Attrs().Name, m.port.rank, rank, inc.epoch)
	if closed {
		// No error of Connect: what the peer has sent before is handed up first.
		m.DeferFailure(p.ep, m.NewError(rank, btl.ClassClosed, btl.SideRemote, "", base.ErrPeerClosed), nil)
	}
	return p.ep, nil
}

// Progress implements btl.Module.
func (m *module) Progress() int {
	n := 0
	m.accessed = 0
	if m.port.attention.Load() != 0 {
		n += m.attend()
	}
	for _, l := range m.hot {
		if l.ready() {
			l.idle = 0
			n += m.poll(l)
		} else {
			l.idle++
		}
	}
	if m.Unsettled {
		n += m.settle()
	}
	return n
}

// Arm implements progress.Idler.
func (m *module) Arm() bool {
	if m.port.bell == nil || m.Unsettled || m.accessed >= turnBytes {
		return false
	}
	m.port.armed.Store(1)
	return true
}

// Disarm implements progress.Idler.
func (m *module) Disarm() { m.port.armed.Store(0) }

// attend looks at what the port was told.
func (m *module) attend() int {
	if m.Closed {
		return 0
	}
	n := 0
	m.port.attention.Store(0)
	m.takeNotices()
	for i := 0; i < len(m.inbox); i++ {
		n += m.heed(m.inbox[i])
	}
	clear(m.inbox)
	m.inbox = m.inbox[:0]
	for i := range m.port.flags {
		if m.port.flags[i].Load() == 0 {
			continue
		}
		for w := m.port.flags[i].Swap(0); w != 0; w &= w - 1 {
			rank := i<<6 + bits.TrailingZeros64(w)
			// Without a lane, its notice is not here yet; it will be looked at then.
			if p := m.peers[rank]; p != nil && p.in != nil && p.in.watched.Load() == 0 {
				n += m.visit(p.in)
			}
		}
	}
	return n
}

func (m *module) takeNotices() {
	got := m.port.take(m.spare)
	m.inbox = append(m.inbox, got...)
	clear(got)
	m.spare = got[:0]
}

func (m *module) heed(n notice) int {
	switch n.kind {
	case laneJoined:
		p := m.peer(n.peer)
		if n.lane != nil {
			p.next = append(p.next, n.lane)
		}
		return m.advance(p)
	case peerFailed:
		p := m.peer(n.peer)
		switch {
		case p.ep != nil && p.ep.State() != btl.Drained:
			if p.ep.State() == btl.Up && p.ep.Epoch() <= n.upTo {
				m.FailEndpoint(p.ep, m.ErrorAbout(p.rank, n.err))
				return 1
			}
		case p.in != nil && p.in.inc.epoch <= n.upTo:
			return m.endPassive(p, n.upTo)
		}
	case railFailed:
		return m.failRail(m.ErrorAbout(btl.AllPeers, n.err))
	}
	return 0
}

// advance moves on to the peer's newer incarnations, as far as older ones have ended.
func (m *module) advance(p *peer) int {
	n := 0
	for len(p.next) > 0 && m.RailError() == nil {
		l := p.next[0]
		if p.ep != nil && p.ep.Epoch() < l.inc.epoch && p.ep.State() != btl.Drained {
			if p.ep.State() == btl.Up {
				m.FailEndpoint(p.ep, m.NewError(p.rank, btl.ClassPath, btl.SideRemote, "new incarnation", nil))
				n++
			}
			return n // goes on when that is Drained
		}
		if p.in != nil {
			n += m.endPassive(p, p.in.inc.epoch)
		}
		p.next = slices.Delete(p.next, 0, 1)
		p.in = l
		m.port.flag(l.fromRank) // for what was published when nobody could look at it
	}
	return n
}

// endPassive ends the incarnations up to an epoch as far as the peer is part of them.
func (m *module) endPassive(p *peer, upTo uint32) int {
	n := 0
	for {
		if p.in == nil && len(p.next) > 0 && p.next[0].inc.epoch <= upTo {
			p.in = p.next[0]
			p.next = slices.Delete(p.next, 0, 1)
		}
		l := p.in
		if l == nil || l.inc.epoch > upTo {
			return n
		}
		p.in = nil
		l.inc.markDead(l.inc.link.end(m.port))
		n += m.finish(l)
	}
}

// visit looks at a lane that is not watched, and begins to watch it if there is room.
func (m *module) visit(l *lane) int {
	if l.slots != nil && m.makeRoom() {
		m.hot = append(m.hot, l)
		l.idle = 0
		l.watched.Store(1)
		return 0 // comes up in this very turn
	}
	n := m.poll(l)
	if l.ready() {
		m.port.flag(l.fromRank)
	}
	return n
}

// makeRoom makes sure that one more lane can be watched, if need be by no longer watching
// one that has been idle for long.
func (m *module) makeRoom() bool {
	if len(m.hot) < hotLanes {
		return true
	}
	m.victim = (m.victim + 1) % len(m.hot)
	old := m.hot[m.victim]
	if old.idle < idleLooks {
		return false
	}
	m.unwatch(old)
	if old.ready() { // published before the sender could know that it has to tell
		m.port.flag(old.fromRank)
	}
	return true
}

func (m *module) unwatch(l *lane) {
	if i := slices.Index(m.hot, l); i >= 0 {
		m.hot = slices.Delete(m.hot, i, i+1)
	}
	l.watched.Store(0)
}

// poll hands up fragments of a lane.
func (m *module) poll(l *lane) int {
	if l.slots == nil {
		return m.pollVirtual(l, laneBudget)
	}
	n := 0
	for n < laneBudget && l.ready() {
		s, tag, frag := l.fragment()
		m.arrived(l, s.epoch, tag, frag)
		l.pass(s, slotEmpty)
		n++
	}
	return n
}

func (m *module) arrived(l *lane, epoch uint32, tag btl.Tag, frag []byte) {
	if epoch != l.inc.epoch {
		m.f.stale.Add(1)
		m.f.tracef("stale %s %d>%d epoch %d", m.Attrs().Name, l.fromRank, m.port.rank, epoch)
		return
	}
	if m.f.sim != nil { // also because the arguments of a trace are allocated
		m.f.tracef("arrive %s %d>%d epoch %d tag %d bytes %d", m.Attrs().Name, l.fromRank, m.port.rank, epoch, tag, len(frag))
	}
	m.Events.Arrived(m, l.fromRank, tag, frag)
}

// finish closes a lane and hands up what had been published on it. A sender can fill
// what is empty now and not more, so this ends.
func (m *module) finish(l *lane) int {
	if l.slots == nil {
		return m.pollVirtual(l, len(l.queue))
	}
	m.unwatch(l)
	n := 0
	for !l.seal() {
		s, tag, frag := l.fragment()
		m.arrived(l, s.epoch, tag, frag)
		l.pass(s, slotClosed)
		n++
	}
	return n
}
