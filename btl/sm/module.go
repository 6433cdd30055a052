// Package sm is the BTL between ranks of one machine: rings in shared memory.
//
// Each rank has one segment of memory, in which it receives: a channel for each rank that
// may send to it, with a ring of its own, so that no sender ever waits for another one. A
// sender copies a fragment into its ring and is done; the receiver polls the rings that
// somebody has opened and hands fragments up from where they lie. No lock, no system call
// and no allocation is on that path.
//
// A fragment in the receiver's ring is delivered: if the receiver's end fails, what is in
// the ring is handed up before it is Drained.
//
// Through a ring every byte is copied twice. What lies in memory that the rail has made
// (Alloc) is read by the receiver from where it is, with one copy, because both processes
// have it mapped (Get). Nobody writes to another rank's memory: a read that comes too late
// harms nobody, and is told so. The kernel could copy from any memory of another process
// (process_vm_readv); where it was measured, two copies through rings that stay in the
// processors' caches are three times as fast, so it is not used.
//
// The parts: ring.go moves fragments through memory; segment.go says what is where in a
// segment; far.go opens a peer's; peer.go keeps the two directions of a connection in
// step; endpoint.go is what the layer above posts to; allocation.go makes memory that peers
// can read, region.go says which parts of it they may, view.go maps a peer's, and get.go
// reads; idle.go sleeps and wakes; death.go notices that a process has ended; faults.go
// fails on request.
package sm

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"os"
	"sync/atomic"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/progress"
)

// Config of a module. Zero means the default, but for Rank, Size and Events.
type Config struct {
	// Rank of this process and Size of the job: how many ranks might send to it.
	Rank, Size int
	Events     btl.Events
	// Bell is what this rank's engine sleeps on. Without one peers cannot wake it.
	Bell *progress.PipeBell
	// RingSlots is how many fragments from one peer can lie in its ring (256).
	RingSlots int
	// RingBytes is how many bytes of fragments that are too long for a slot can (1 MiB).
	// Both are rounded up to powers of two. All ranks must have the same.
	RingBytes int64
	// FragBytes is the longest fragment, header and payload (32 KiB and a header); RingBytes is raised
	// to four of these if it is less.
	FragBytes int64
}

const (
	// mostBurst bounds the fragments of one peer that one turn hands up.
	mostBurst = 8

	latencyNanos  = 100
	bandwidthMBps = 40000
	// As measured: up to here a message that is copied twice, at once, is there before one whose
	// receiver is asked first. One that is read with one copy takes as long at half of this, and a fifth
	// less here.
	eagerBytes = 32<<10 + btl.MaxHeaderBytes
	// A Get, with a fragment before it and one after, takes half to two thirds of the time that
	// the same message takes in fragments, from the shortest one that is not sent eagerly on.
	rdmaBytes = 32 << 10
)

// module is the rail of one rank.
type module struct {
	base.Rail[*endpoint]

	// What every turn reads, together.
	inbounds []*inbound
	notices  *uint32 // in our own header
	noticed  uint32  // of those, attended to
	fences   bool    // sleepers fence for those who publish, see idle.go
	turns    uint64
	burst    int // fragments of one peer that this turn hands up

	cfg   Config
	host  [16]byte
	own   *segment
	watch *watch
	peers []*peer // by rank; nil for whom nothing is known of

	watched int // processes
	blocked []*endpoint

	// What settle works on.
	ends []*peer // whose process has ended, or whose module was closed
	gets []longGet

	// Memory that Alloc gave, by address, and peers' of that kind.
	allocations     []*allocation
	mostAllocations int
	device          uint64 // that anonymous files are on
	views           map[viewID]*view
	mostViews       int
	readTurn        uint64 // of the last Get
	readBytes       uint64 // in that turn

	nobody uint32 // what notices points to once closed
}

// New makes the rail of a rank.
func New(cfg Config) (btl.Module, error) {
	m, err := newModule(cfg)
	if err != nil {
		return nil, fmt.Errorf("rail %s: %w", railName, err)
	}
	return m, nil
}

const railName = "sm"

func newModule(cfg Config) (*module, error) {
	l, err := layoutOf(cfg)
	if err != nil {
		return nil, err
	}
	m := &module{
		cfg: cfg, burst: 1, fences: registerBarrier(), peers: make([]*peer, cfg.Size),
		mostAllocations: mostAllocations(), views: map[viewID]*view{}, mostViews: mostViews,
	}
	if m.host, err = base.HostID("pid"); err != nil {
		return nil, err
	}
	c := card{
		host: m.host, rank: uint32(cfg.Rank), size: uint32(cfg.Size), pid: uint32(os.Getpid()), bell: noBell,
		slots: uint32(l.ring.slots), data: l.ring.dataBytes, longest: l.longest, fences: m.fences,
	}
	if cfg.Bell != nil {
		if c.bell, c.bellNode, err = bellOf(cfg.Bell.WriteFD()); err != nil {
			return nil, err
		}
	}
	if m.watch, err = newWatch(); err != nil {
		return nil, err
	}
	if m.own, err = newSegment(l, cfg.Rank); err != nil {
		return nil, errors.Join(err, m.watch.close())
	}
	if m.device, err = deviceOf(m.own.fd); err != nil {
		return nil, errors.Join(err, m.own.close(), m.watch.close())
	}
	c.nonce, c.segment = m.own.nonce, uint32(m.own.fd)
	m.notices = m.own.notices
	longest := int(l.longest)
	m.Init(m, cfg.Events, btl.Attrs{
		Name: railName, LatencyNanos: latencyNanos, BandwidthMBps: bandwidthMBps,
		EagerBytes: min(eagerBytes, longest), MaxSendBytes: longest, InlineBytes: min(eagerBytes, longest),
		RDMABytes: rdmaBytes,
		Caps:      btl.CapInline | btl.CapGet,
	}, c.encode())
	return m, nil
}

// Connect implements btl.Module.
func (m *module) Connect(rank int, theirs []byte) (btl.Endpoint, error) {
	if m.Closed {
		return nil, btl.ErrClosed
	}
	c, err := parseCard(theirs)
	if err != nil {
		return nil, fmt.Errorf("rail %s: %w: %w", railName, btl.ErrUnreachable, err)
	}
	if err := m.admit(rank, &c); err != nil {
		return nil, err
	}
	p := m.peer(rank)
	if p.ep == nil || p.ep.State() == btl.Drained {
		if err := m.ConnectError(rank); err != nil {
			return nil, err
		}
		if err := m.reach(p, c); err != nil {
			return nil, m.unreachable(p, err)
		}
		epoch := m.nextEpoch(p)
		if epoch == 0 {
			return nil, m.NewError(rank, btl.ClassProtocol, btl.SideRemote, "", base.ErrEpochs)
		}
		p.ep = m.newEndpoint(p, epoch)
		p.ep.far = p.far
		// The peer may have told us before there was anybody to tell.
		m.own.notify(rank)
	}
	p.ep.begin()
	return p.ep, nil
}

// admit checks that a card is of a rank that we can share memory with.
func (m *module) admit(rank int, c *card) error {
	l := &m.own.layout
	switch {
	case c.host != m.host:
		return fmt.Errorf("rail %s: %w: rank %d is on another machine, or in another process number space", railName, btl.ErrUnreachable, rank)
	case rank < 0 || rank >= len(m.peers) || c.rank != uint32(rank):
		return fmt.Errorf("rail %s: %w: card of rank %d for rank %d", railName, btl.ErrUnreachable, c.rank, rank)
	case uint64(c.size) != l.ranks:
		return m.NewError(rank, btl.ClassUsage, btl.SideBoth, "", fmt.Errorf("a job of %d ranks there, of %d here", c.size, l.ranks))
	case uint64(c.slots) != l.ring.slots || c.data != l.ring.dataBytes || c.longest != l.longest:
		return m.NewError(rank, btl.ClassUsage, btl.SideBoth, "", fmt.Errorf(
			"rings of %d slots, %d bytes and fragments of %d there, of %d, %d and %d here",
			c.slots, c.data, c.longest, l.ring.slots, l.ring.dataBytes, l.longest))
	}
	return nil
}

// unreachable is the error for a peer whose segment could not be opened.
func (m *module) unreachable(p *peer, err error) *btl.Error {
	switch {
	case p.departed && errors.Is(err, errGone):
		return m.NewError(p.rank, btl.ClassClosed, btl.SideRemote, "", base.ErrPeerClosed)
	case errors.Is(err, errGone):
		return m.NewError(p.rank, btl.ClassPeerGone, btl.SideRemote, "", err)
	case errors.Is(err, os.ErrPermission):
		return m.NewError(p.rank, btl.ClassPath, btl.SideNone, "", fmt.Errorf("%w: %w", btl.ErrUnreachable, err))
	}
	return m.NewError(p.rank, btl.ClassDevice, btl.SideLocal, "", err)
}

// Progress implements btl.Module.
func (m *module) Progress() int {
	n := 0
	for _, in := range m.inbounds {
		for range m.burst {
			w, ok := in.ready()
			if !ok {
				break
			}
			n++
			if in.inSlot(w) {
				frag := in.slotted(w)
				m.Events.Arrived(m, in.rank, btl.Tag(w>>32), frag)
			} else if !m.receive(in, w) {
				break
			}
			if in.due() {
				m.release(in)
			}
		}
	}
	m.turns++
	// After a first fragment whoever waits for it may have what it wants, so the look at the next slot can
	// wait; where there were some, there will be more.
	m.burst = min(2*n+1, mostBurst)
	if atomic.LoadUint32(m.notices) != m.noticed || m.Unsettled || m.turns%lookEvery == 0 {
		n += m.attend()
	}
	return n
}

// receive hands up the next fragment, whose word is w. It reports false if the ring is of
// no more use.
func (m *module) receive(in *inbound, w uint64) bool {
	tag, frag, v := in.get(w)
	switch v {
	case good:
		m.Events.Arrived(m, in.rank, tag, frag)
	case stale:
		m.Stale++
	default:
		m.FailEndpoint(in.p.ep, m.NewError(in.rank, btl.ClassProtocol, btl.SideRemote, "descriptor", nil))
		return false
	}
	return true
}

// release gives the peer its room back, and wakes it if it sleeps until then.
func (m *module) release(in *inbound) {
	in.release()
	if atomic.LoadUint32(in.want) != 0 {
		atomic.StoreUint32(in.want, 0)
		if f := in.p.far; f != nil {
			f.wake()
		}
	}
}

// takeAll hands up all that a peer has sent which sends no more.
func (m *module) takeAll(p *peer) int {
	if p.in == nil || p.in.reads == 0 {
		return 0
	}
	for n := range int(m.own.ring.slots) {
		w, ok := p.in.ready()
		if !ok || p.ep.State() != btl.Up || !m.receive(p.in, w) {
			return n
		}
	}
	return int(m.own.ring.slots)
}

// attend does what is not for every turn.
func (m *module) attend() int {
	if m.Closed {
		return 0
	}
	n := 0
	if m.turns%lookEvery == 0 {
		m.lookForEnds()
		m.dropDead()
	}
	if v := atomic.LoadUint32(m.notices); v != m.noticed {
		m.noticed = v
		for i := range (len(m.peers) + 63) / 64 {
			if atomic.LoadUint64(m.own.bits(uint64(i))) == 0 {
				continue
			}
			for w := atomic.SwapUint64(m.own.bits(uint64(i)), 0); w != 0; w &= w - 1 {
				if rank := i<<6 + bits.TrailingZeros64(w); rank < len(m.peers) {
					n += m.heed(m.peer(rank))
				}
			}
		}
	}
	if m.Unsettled {
		n += m.settle()
	}
	return n
}

// settle does what could not be done where it came up. What comes up meanwhile is for the
// next turn, so that a turn ends whatever peers do.
func (m *module) settle() int {
	n := 0
	ends := m.ends
	m.ends = nil
	for _, p := range ends {
		n += m.bury(p)
	}
	n += m.EndRefused()
	if len(m.gets) > 0 {
		n += m.settleGets()
	}
	for _, e := range m.TakeFailing() {
		if c := e.Deferred().Class; c == btl.ClassPeerGone || c == btl.ClassClosed {
			n += m.takeAll(e.p)
		}
		m.FailEndpoint(e, e.Deferred())
		n++
	}
	n += m.DrainEndpoints(m.tearDown, func(e *endpoint) int { return m.heed(e.p) })
	if m.DrainRail() {
		n++
		for _, p := range m.peers {
			if p != nil { // its control words may have changed while the rail was failing
				n += m.heed(p)
			}
		}
	}
	m.Unsettled = len(m.ends)+len(m.gets) > 0 || m.Waiting()
	return n
}

// Endpoints implements base.Owner.
func (m *module) Endpoints() iter.Seq[*endpoint] {
	return func(yield func(*endpoint) bool) {
		for _, p := range m.peers {
			if p != nil && p.ep != nil && !yield(p.ep) {
				return
			}
		}
	}
}

// Close implements btl.Module.
func (m *module) Close() error {
	if m.Closed {
		return nil
	}
	m.Closed = true
	for _, in := range m.inbounds {
		in.keepLast()
	}
	atomic.StoreUint32(m.own.closed, 1)
	atomic.AddUint32(m.own.attention, asleep<<1) // also for peers that we have not heard of yet
	for _, p := range m.peers {
		if p != nil {
			m.leave(p)
		}
	}
	m.inbounds, m.blocked, m.ends, m.gets = nil, nil, nil, nil
	m.Forget()
	m.notices, m.noticed = &m.nobody, 0

	var err error
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		m.forget(p)
		if p.in != nil {
			err = errors.Join(err, p.in.unmap())
		}
	}
	for _, a := range m.allocations {
		err = errors.Join(err, a.retire())
	}
	return errors.Join(err, m.own.close(), m.watch.close())
}

// leave says good-bye to a peer.
func (m *module) leave(p *peer) {
	if e := p.ep; e != nil && e.State() != btl.Drained {
		if e.isOpen {
			storeSession(e.far.out.session, sessionOf(e.Epoch(), closed))
		}
		m.CloseEndpoint(e)
		m.Flush(e, &e.Pending)
		m.Drained(e)
	}
	if p.in != nil && p.in.reads != 0 {
		storeSession(p.in.reader, sessionOf(p.in.reads, closing))
	}
	m.tell(p)
}

// nextEpoch is the epoch for the next incarnation, or 0 if there is none: the one that the
// peer is sending with already, or else one that was not seen in either channel yet.
func (m *module) nextEpoch(p *peer) uint32 {
	last := loadSession(p.far.out.reader).epoch()
	if p.ep != nil {
		last = max(last, p.ep.Epoch())
	}
	if m.listen(p) == nil {
		last = max(last, p.in.ended)
		s := loadSession(p.in.session)
		if s.state() == open && s.epoch() > last {
			return s.epoch()
		}
		last = max(last, s.epoch())
	}
	if last == math.MaxUint32 {
		return 0
	}
	return last + 1
}
