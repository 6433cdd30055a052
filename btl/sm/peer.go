package sm

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
)

// peer is what a module knows of one rank.
//
// Between two ranks there are two channels, one in each one's segment. Both carry sessions,
// and the sessions of one incarnation have the same epoch at both ends:
//
//   - Connect, after the last incarnation, takes the epoch that the peer is already sending
//     with, or else one that is higher than any seen in either channel.
//   - A rank that is sent to before it has called Connect makes its end by itself.
//   - An endpoint that fails ends both sessions: it sends no more, and closes the channel
//     that it receives on, having handed up what is in it. The peer notices, by the control
//     words, and its end fails too.
//   - A session whose epoch is not the endpoint's is none of this incarnation: one with a
//     lower epoch is ended, one with a higher epoch ends the endpoint.
//   - The producer of a channel begins its next session only when the consumer is done
//     with the one before, so that neither takes old contents for new ones.
type peer struct {
	rank int
	far  *farSegment // nil until its card is known
	in   *inbound    // what it sends, nil until it has sent
	ep   *endpoint   // the newest incarnation, nil before the first

	watched  bool // its process is
	dead     bool // its process has ended
	departed bool // its module was closed
}

// inbound is the channel, in our own segment, on which a peer sends.
type inbound struct {
	consumer
	rank int
	channel
	p *peer
	// reads is the epoch of the session that is read, 0 if none; ended that of the last
	// one that no more is read from. They are kept here, because the peer can write
	// what is in the channel.
	reads, ended uint32
	_            [2 * lineBytes]byte // modules of one process must not share lines
}

func (m *module) peer(rank int) *peer {
	p := m.peers[rank]
	if p == nil {
		p = &peer{rank: rank}
		m.peers[rank] = p
	}
	return p
}

// reach makes sure that the peer's segment is open. c is its card.
func (m *module) reach(p *peer, c card) error {
	if p.far != nil {
		if p.far.card.nonce == c.nonce {
			if p.dead || p.departed {
				return errGone
			}
			return nil
		}
		// The rank has a new segment. Nothing is left of the old one: its endpoint is Drained.
		m.forget(p)
	}
	f, err := openFar(c, m.own.layout, m.cfg.Rank, m.device)
	if err != nil {
		return err
	}
	if err := m.watch.add(f.pidfd, p.rank); err != nil {
		return errors.Join(err, f.close())
	}
	p.far, p.watched, p.dead, p.departed = f, true, false, false
	m.watched++
	return nil
}

// forget closes the peer's segment, and unmaps its allocations.
func (m *module) forget(p *peer) {
	if p.far != nil {
		m.dropViewsOf(p.rank)
		m.unwatch(p)
		_ = p.far.close()
		p.far = nil
	}
}

// listen maps the channel that the peer sends on.
func (m *module) listen(p *peer) error {
	if p.in != nil {
		return nil
	}
	ch, err := mapChannel(m.own.fd, m.own.layout, p.rank)
	if err != nil {
		return err
	}
	in := &inbound{channel: ch, p: p, rank: p.rank}
	in.ring = ch.ringOf(m.own.layout)
	in.longest = m.own.longest
	in.look()
	p.in = in
	return nil
}

// heed looks at what the peer's control words say.
func (m *module) heed(p *peer) int {
	n := 0
	if err := m.listen(p); err != nil {
		// Without memory for the channel there is no way to hear the peer.
		return m.deaf(p, err)
	}
	in := p.in
	s := loadSession(in.session)
	switch {
	case s == 0, s.epoch() <= in.ended:
	case s.epoch() == in.reads:
		n += m.follow(p, s)
	case p.ep != nil && p.ep.State() == btl.Failed, m.RailError() != nil:
		// The tear-down looks again.
	case p.ep != nil && p.ep.State() == btl.Up && s.epoch() < p.ep.Epoch():
		n += m.finish(p, s.epoch())
	case p.ep != nil && p.ep.State() == btl.Up && s.epoch() > p.ep.Epoch():
		m.FailEndpoint(p.ep, m.NewError(p.rank, btl.ClassPath, btl.SideRemote, "new incarnation", nil))
		n++
	default:
		if p.ep == nil || p.ep.State() == btl.Drained {
			if !m.accept(p, s.epoch()) {
				n += m.finish(p, s.epoch())
				break
			}
		}
		m.attach(p, s.epoch())
		n += m.follow(p, s)
	}
	// What we send may have been refused.
	if e := p.ep; e != nil && e.State() == btl.Up && e.isOpen && e.refused() {
		e.turnedAway()
	}
	return n
}

// accept makes our end of an incarnation that the peer has begun.
func (m *module) accept(p *peer, epoch uint32) bool {
	if p.ep != nil && epoch <= p.ep.Epoch() {
		return false
	}
	b := (*[cardBytes]byte)(unsafe.Pointer(&p.in.mem[ctlCard]))
	theirs := *b // a copy, because the peer could change it
	c, err := parseCard(theirs[:])
	if err != nil || m.admit(p.rank, &c) != nil {
		return false
	}
	p.ep = m.newEndpoint(p, epoch)
	if err := m.reach(p, c); err != nil {
		p.ep.failDeferred(m.unreachable(p, err), nil)
		return true
	}
	p.ep.far = p.far
	return true
}

// attach begins to read a session.
func (m *module) attach(p *peer, epoch uint32) {
	in := p.in
	in.reads = epoch
	in.setEpoch(epoch)
	storeSession(in.reader, sessionOf(epoch, reading))
	m.inbounds = append(m.inbounds, in)
}

// follow does what the state of the session that is read asks for.
func (m *module) follow(p *peer, s session) int {
	switch s.state() {
	case open:
		return 0
	case closed:
		p.departed = true
		m.unwatch(p)
		n := m.finish(p, s.epoch())
		m.FailEndpoint(p.ep, m.turnedAway(p)) // somebody may wait for what will not come
		return n + 1
	case failed:
		m.FailEndpoint(p.ep, m.NewError(p.rank, btl.ClassPath, btl.SideRemote, "the peer's end failed", nil))
	default:
		m.FailEndpoint(p.ep, m.NewError(p.rank, btl.ClassProtocol, btl.SideRemote, "control word", nil))
	}
	return 1
}

// finish ends what the peer sends with epochs up to this one: nothing of them is handed up
// any more once what is in the channel has been. The producer may be publishing, or
// beginning, at this moment: what it has published it retracts, unless it was claimed.
func (m *module) finish(p *peer, epoch uint32) int {
	in := p.in
	m.ignore(in)
	in.keepLast()
	storeSession(in.reader, sessionOf(epoch, closing))
	atomic.AddUint32(m.own.attention, asleep<<1)
	s := loadSession(in.session)
	if m.fences && s.state() == open && !p.dead && !p.departed {
		slowBarrier()
	}
	reads := in.reads
	if s = loadSession(in.session); reads == 0 && s.epoch() > in.ended && s.epoch() <= epoch {
		reads = s.epoch() // has begun, but was not noticed before
	}
	n := 0
	if reads != 0 {
		n = m.drain(in, reads)
	}
	in.reset()
	in.ended, in.reads = epoch, 0
	storeSession(in.reader, sessionOf(epoch, done))
	m.tell(p)
	return n
}

// drain hands up what is left of a session.
func (m *module) drain(in *inbound, epoch uint32) int {
	in.setEpoch(epoch)
	n := 0
	for range m.own.ring.slots {
		tag, frag, v, ok := in.claim()
		if !ok || v == nonsense {
			break
		}
		if v == good {
			m.Events.Arrived(m, in.rank, tag, frag)
			n++
		} else {
			m.Stale++
		}
	}
	return n
}

// ignore stops polling a channel.
func (m *module) ignore(in *inbound) {
	for i, other := range m.inbounds {
		if other == in {
			m.inbounds = append(m.inbounds[:i], m.inbounds[i+1:]...)
			return
		}
	}
}

// tell makes the peer look at its channel's control words, and at ours.
func (m *module) tell(p *peer) {
	if p.far != nil && !p.dead {
		p.far.notify(m.cfg.Rank)
		p.far.wake()
	}
}

// deaf reports that a peer cannot be heard.
func (m *module) deaf(p *peer, cause error) int {
	err := m.NewError(p.rank, btl.ClassDevice, btl.SideLocal, "", cause)
	switch {
	case p.ep == nil || p.ep.State() == btl.Drained:
		m.Events.Failed(m, p.rank, err)
		m.Events.Drained(m, p.rank)
	case p.ep.State() == btl.Up:
		m.FailEndpoint(p.ep, err)
	}
	return 1
}
