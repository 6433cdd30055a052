package sm

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
)

// peer is what a module knows about one rank.
//
// Between two ranks there are two channels, one in the segment of each. Both carry sessions, and
// the sessions of one incarnation have the same epoch at both ends:
//
//   - After an incarnation, Connect takes the epoch with which the peer is already sending, or else
//     one that is higher than any seen in either channel.
//   - If a peer sends before this rank has called Connect, this rank makes its end by itself.
//   - An endpoint that fails ends both sessions. It stops sending, hands up what is in the channel
//     that it receives on, and closes that channel. The peer sees this in the control words, and
//     its end fails too.
//   - A session whose epoch differs from the endpoint's belongs to another incarnation. If its
//     epoch is lower, the session is ended. If it is higher, the endpoint fails.
//   - The producer of a channel begins its next session only when the consumer is done with the
//     previous one, so that neither takes old content for new.
type peer struct {
	rank   int
	remote *remoteSegment // nil until its address is known
	in     *inbound       // its channel, nil until it has sent
	ep     *endpoint      // the newest incarnation, nil before the first

	watched bool // its process is watched
	dead    bool // its process has ended
	closed  bool // its module was closed
}

// inbound is the channel, in this rank's segment, on which a peer sends.
type inbound struct {
	consumer
	rank int
	channel
	p *peer
	// reads is the epoch of the session that this rank reads, 0 if none. ended is the epoch of the
	// last session that it has stopped reading. Both are kept here, because the peer can write to
	// the channel.
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

// reach opens the peer's segment if it is not open. c is the peer's address.
func (m *module) reach(p *peer, c address) error {
	if p.remote != nil {
		if p.remote.address.nonce == c.nonce {
			if p.dead || p.closed {
				return errGone
			}
			return nil
		}
		// The rank has a new segment. The endpoint of the old one is Drained, so the old one can be
		// forgotten.
		m.forget(p)
	}
	f, err := openRemote(c, m.own.layout, m.cfg.Rank, m.device)
	if err != nil {
		return err
	}
	if err := m.watch.add(f.pidfd, p.rank); err != nil {
		return errors.Join(err, f.close())
	}
	p.remote, p.watched, p.dead, p.closed = f, true, false, false
	m.watched++
	return nil
}

// forget closes the peer's segment, and unmaps its allocations.
func (m *module) forget(p *peer) {
	if p.remote != nil {
		m.dropViewsOf(p.rank)
		m.unwatch(p)
		_ = p.remote.close()
		p.remote = nil
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

// checkControl acts on the peer's control words, and returns the number of events.
func (m *module) checkControl(p *peer) int {
	n := 0
	if err := m.listen(p); err != nil {
		// Without memory for the channel, this rank cannot receive from the peer.
		return m.notReceiving(p, err)
	}
	in := p.in
	s := loadSession(in.session)
	switch {
	case s == 0, s.epoch() <= in.ended:
	case s.epoch() == in.reads:
		n += m.follow(p, s)
	case p.ep != nil && p.ep.State() == btl.Failed, m.ModuleError() != nil:
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
	// The peer may have stopped reading this end's session.
	if e := p.ep; e != nil && e.State() == btl.Up && e.isOpen && e.refused() {
		e.rejected()
	}
	return n
}

// accept makes this rank's end of an incarnation that the peer has begun.
func (m *module) accept(p *peer, epoch uint32) bool {
	if p.ep != nil && epoch <= p.ep.Epoch() {
		return false
	}
	b := (*[addressBytes]byte)(unsafe.Pointer(&p.in.mem[ctlAddress]))
	theirs := *b // a copy, because the peer could change it
	c, err := m.parsePeer(p.rank, theirs[:])
	if err != nil {
		return false
	}
	p.ep = m.newEndpoint(p, epoch)
	if err := m.reach(p, c); err != nil {
		p.ep.failDeferred(m.unreachable(p, err), nil)
		return true
	}
	p.ep.remote = p.remote
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

// follow acts on the state of the session that is read.
func (m *module) follow(p *peer, s session) int {
	switch s.state() {
	case open:
		return 0
	case closed:
		p.closed = true
		m.unwatch(p)
		n := m.finish(p, s.epoch())
		m.FailEndpoint(p.ep, m.rejected(p)) // a receive may wait for a message that will not arrive
		return n + 1
	case failed:
		m.FailEndpoint(p.ep, m.NewError(p.rank, btl.ClassPath, btl.SideRemote, "the peer's end failed", nil))
	default:
		m.FailEndpoint(p.ep, m.NewError(p.rank, btl.ClassProtocol, btl.SideRemote, "control word", nil))
	}
	return 1
}

// finish ends the sessions of the peer with epochs up to this one: it hands up what is in the
// channel, and nothing later. The producer may be publishing, or beginning a session, at this
// moment. It then retracts the fragment that it published, unless this rank has claimed it.
func (m *module) finish(p *peer, epoch uint32) int {
	in := p.in
	m.ignore(in)
	in.keepLast()
	storeSession(in.reader, sessionOf(epoch, closing))
	atomic.AddUint32(m.own.attention, asleep<<1)
	s := loadSession(in.session)
	if m.fences && s.state() == open && !p.dead && !p.closed {
		slowBarrier()
	}
	reads := in.reads
	if s = loadSession(in.session); reads == 0 && s.epoch() > in.ended && s.epoch() <= epoch {
		reads = s.epoch() // the session began unnoticed
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

// drain hands up the remaining fragments of a session.
func (m *module) drain(in *inbound, epoch uint32) int {
	in.setEpoch(epoch)
	n := 0
	for range m.own.ring.slots {
		tag, frag, v, ok := in.claim()
		if !ok || v == corrupt {
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

// tell makes the peer check the control words of both channels.
func (m *module) tell(p *peer) {
	if p.remote != nil && !p.dead {
		p.remote.notify(m.cfg.Rank)
		p.remote.wake()
	}
}

// notReceiving reports that this rank cannot receive from a peer.
func (m *module) notReceiving(p *peer, cause error) int {
	err := m.NewError(p.rank, btl.ClassDevice, btl.SideLocal, "", cause)
	switch {
	case p.ep == nil || p.ep.State() == btl.Drained:
		m.Events.Failed(m, btl.Path{Peer: p.rank}, err)
		m.Events.Drained(m, btl.Path{Peer: p.rank})
	case p.ep.State() == btl.Up:
		m.FailEndpoint(p.ep, err)
	}
	return 1
}
