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
	// maxWatched is the number of lanes that a module polls in every progress call.
	maxWatched = 8
	// maxIdleLooks is the number of empty polls after which such a lane makes room for another.
	maxIdleLooks = 64
	// laneBudget bounds the fragments of one lane that one progress call hands up.
	laneBudget = 16
	// turnBytes bounds approximately how many bytes a rank of a free-running fabric reads and
	// writes remotely between two progress calls, because its engine's lock is held meanwhile.
	// Further operations are refused until the next progress call.
	turnBytes = 1 << 20
)

// module is the part of a rail that only its rank touches, under its engine's lock.
type module struct {
	base.Module[*endpoint]
	port  *port
	f     *Fabric
	bufs  pool
	peers []*peer // by the place of the port; nil if nothing is known about it

	watched []*lane // looked at in every progress call
	victim  int     // index in watched of the lane that is next to make room

	inbox []notice // taken from the port, not yet handled
	spare []notice

	accessed int // bytes read and written remotely since the last progress call

	landed []*flight // of a virtual fabric: acknowledged, and not yet completed
}

// peer is what a module knows about one port.
type peer struct {
	port *port
	ep   *endpoint // the newest; nil before the first
	in   *lane     // the peer sends on it; nil if there is none
	next []*lane   // of newer incarnations, which wait for the end of older ones
}

func newModule(p *port, ev btl.Events) *module {
	f := p.fabric
	m := &module{port: p, f: f, peers: make([]*peer, f.places()), watched: make([]*lane, 0, maxWatched)}
	m.Init(m, ev, f.attrs[p.name.Rail], p.addr.append(nil))
	return m
}

func (m *module) peer(place int) *peer {
	p := m.peers[place]
	if p == nil {
		p = &peer{port: m.f.portAt(place, m.port.name.Rail)}
		m.peers[place] = p
	}
	return p
}

// Connect implements btl.Module.
func (m *module) Connect(to btl.Path, address []byte) (btl.Endpoint, error) {
	rank := to.Peer
	a, ok := parseAddress(address)
	switch {
	case m.Closed:
		return nil, btl.ErrClosed
	case !ok:
		return nil, fmt.Errorf("rail %s: %w: not an address of this kind", m.Attrs().Name, btl.ErrUnreachable)
	case a.fabric != m.f.id:
		return nil, fmt.Errorf("rail %s: %w: address of another fabric", m.Attrs().Name, btl.ErrUnreachable)
	case a.rail >= uint32(m.f.cfg.Rails) || a.rail != uint32(m.port.name.Rail) && !m.f.cfg.Switched:
		return nil, fmt.Errorf("rail %s: %w: address of rail %d", m.Attrs().Name, btl.ErrUnreachable, a.rail)
	case rank < 0 || rank >= m.f.cfg.Ranks || a.rank != uint32(rank):
		return nil, fmt.Errorf("rail %s: %w: address of rank %d for rank %d", m.Attrs().Name, btl.ErrUnreachable, a.rank, rank)
	}
	p := m.peer(m.f.place(Port{rank, int(a.rail)}))
	if p.ep != nil && p.ep.State() != btl.Drained {
		p.ep.Return(to)
		return p.ep, nil
	}
	if err := m.ConnectError(rank); err != nil {
		return nil, err
	}
	if down := m.port.downError(); down != nil {
		return nil, m.ErrorAbout(rank, down)
	}
	l := m.f.link(m.port, p.port)
	end := l.end(m.port)
	inc, out, closed := l.join(end)
	p.ep = &endpoint{Endpoint: base.MakeEndpoint(rank, inc.epoch), m: m, peer: p, inc: inc, end: end, out: out}
	p.ep.Return(to)
	m.f.tracef("connect %s %d>%d epoch %d", m.Attrs().Name, m.port.name.Rank, rank, inc.epoch)
	if closed {
		// Connect does not fail, because fragments that the peer sent before must be handed up
		// first.
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
	for _, l := range m.watched {
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
	if m.port.wakeup == nil || m.Unsettled || m.accessed >= turnBytes {
		return false
	}
	m.port.armed.Store(1)
	return true
}

// Disarm implements progress.Idler.
func (m *module) Disarm() { m.port.armed.Store(0) }

// attend handles notices, and lanes that are not watched.
func (m *module) attend() int {
	if m.Closed {
		return 0
	}
	n := 0
	m.port.attention.Store(0)
	m.takeNotices()
	for i := 0; i < len(m.inbox); i++ {
		n += m.handleNotice(m.inbox[i])
	}
	clear(m.inbox)
	m.inbox = m.inbox[:0]
	for i := range m.port.flags {
		if m.port.flags[i].Load() == 0 {
			continue
		}
		for w := m.port.flags[i].Swap(0); w != 0; w &= w - 1 {
			place := i<<6 + bits.TrailingZeros64(w)
			// If there is no lane, its notice has not arrived yet. Handling that notice will poll
			// the lane.
			if p := m.peers[place]; p != nil && p.in != nil && p.in.watched.Load() == 0 {
				n += m.pollUnwatched(p.in)
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

func (m *module) handleNotice(n notice) int {
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
				m.FailEndpoint(p.ep, m.ErrorAbout(p.port.name.Rank, n.err))
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

// advance moves on to the peer's newer incarnations once the older ones have ended.
func (m *module) advance(p *peer) int {
	n := 0
	for len(p.next) > 0 && m.ModuleError() == nil {
		l := p.next[0]
		if p.ep != nil && p.ep.Epoch() < l.inc.epoch && p.ep.State() != btl.Drained {
			if p.ep.State() == btl.Up {
				m.FailEndpoint(p.ep, m.NewError(p.port.name.Rank, btl.ClassPath, btl.SideRemote, "new incarnation", nil))
				n++
			}
			return n // continues when that endpoint is Drained
		}
		if p.in != nil {
			n += m.endPassive(p, p.in.inc.epoch)
		}
		p.next = slices.Delete(p.next, 0, 1)
		p.in = l
		m.port.flag(l.fromPlace) // for fragments published while this rank did not poll
	}
	return n
}

// endPassive ends the incarnations up to an epoch that the peer is part of.
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

// pollUnwatched polls a lane that is not watched, and begins to watch it if there is room.
func (m *module) pollUnwatched(l *lane) int {
	if l.slots != nil && m.makeRoom() {
		m.watched = append(m.watched, l)
		l.idle = 0
		l.watched.Store(1)
		return 0 // the same progress call polls it
	}
	n := m.poll(l)
	if l.ready() {
		m.port.flag(l.fromPlace)
	}
	return n
}

// makeRoom makes room to watch one more lane. If necessary, it stops watching a lane that has been
// idle for long.
func (m *module) makeRoom() bool {
	if len(m.watched) < maxWatched {
		return true
	}
	m.victim = (m.victim + 1) % len(m.watched)
	old := m.watched[m.victim]
	if old.idle < maxIdleLooks {
		return false
	}
	m.unwatch(old)
	if old.ready() { // published before the sender could see that it must set the flag
		m.port.flag(old.fromPlace)
	}
	return true
}

func (m *module) unwatch(l *lane) {
	m.watched = without(m.watched, l)
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
		m.Stale++
		m.f.tracef("stale %s %d>%d epoch %d", m.Attrs().Name, l.fromRank, m.port.name.Rank, epoch)
		return
	}
	if m.f.sim != nil { // the arguments of a trace are allocated
		m.f.tracef("arrive %s %d>%d epoch %d tag %d bytes %d", m.Attrs().Name, l.fromRank, m.port.name.Rank, epoch, tag, len(frag))
	}
	m.Events.Arrived(m, l.fromRank, tag, frag)
}

// finish closes a lane and hands up the fragments published on it. This ends, because a sender can
// fill only slots that are empty at this point.
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
