// Package sm is the BTL between ranks of one machine: rings in shared memory.
//
// Each rank has one segment of memory, in which it receives: a channel for each rank that may send
// to it, with a ring of its own, so that no sender ever waits for another. A sender only copies a
// fragment into its ring. The receiver polls the rings that peers have opened, and hands fragments
// up in place. This path has no lock, no system call and no allocation.
//
// A fragment in the receiver's ring is delivered: if the receiver's end fails, the receiver hands
// up what is in the ring before the endpoint is Drained.
//
// A ring copies every byte twice. If a message lies in memory from Alloc, both processes have it
// mapped, and the receiver reads it with one copy (Get). No rank writes to another rank's memory,
// so a read that comes too late does no harm, and ends with an error. The kernel could copy from
// any memory of another process (process_vm_readv). It is not used: on an AMD Zen, two copies
// through rings that stay in the processors' caches take a third of the time. On an Intel Ice Lake
// they take between half and five quarters of it, depending on the length of the message.
//
// The parts:
//
//   - ring.go moves fragments through memory, and segment.go lays out a segment
//   - address.go has the address that a rank publishes, and remote.go opens a peer's segment
//   - peer.go keeps the two directions of a connection in step
//   - endpoint.go takes the posts of the layer above
//   - allocation.go makes memory that peers can read, region.go says which parts of it they may
//     read, view.go maps a peer's memory, and get.go reads it
//   - share.go makes memory that several ranks read and write
//   - idle.go sleeps and wakes, and death.go notices that a process has ended
package sm

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/memcopy"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/progress"
)

// Config of a module. A field that is zero has its default, except Rank, Size and Events.
type Config struct {
	// Rank of this process, and Size of the job: the number of ranks that might send to it.
	Rank, Size int
	Events     btl.Events
	// Wakeup is the pipe on which this rank's engine sleeps. Without one, peers cannot wake it.
	Wakeup *progress.PipeWakeup
	// RingSlots is the number of fragments that the ring of one peer holds (256).
	RingSlots int
	// RingBytes is the number of bytes in the ring for fragments that are too long for a slot (1
	// MiB). Both are rounded up to powers of two. All ranks must have the same values.
	RingBytes int64
	// FragBytes is the longest fragment, header and payload (64 KiB and a header). RingBytes is
	// raised to four times FragBytes if it is less.
	FragBytes int64
}

const (
	// maxBurst bounds the fragments of one peer that one progress call hands up.
	maxBurst = 8

	latencyNanos  = 100
	bandwidthMBps = 40000
	// Measured: up to this length, a message that is copied twice at once arrives sooner than by
	// rendezvous.
	eagerCopyBytes = 64<<10 + btl.MaxHeaderBytes
	// Measured: at half of eagerBytes, reading the message with one copy takes as long as sending
	// it eagerly. At eagerBytes, it takes a fifth less time.
	eagerBytes = 32<<10 + btl.MaxHeaderBytes
	// In two fragments, a message of 128 KiB takes a fifth longer than in four. If FragBytes is
	// above its default, pieces are as long as FragBytes.
	messagePieceBytes = 32<<10 + btl.MaxHeaderBytes
	// From the shortest message that is not sent eagerly, a Get, with one fragment before it and
	// one after, takes half to two thirds of the time of the same message in fragments.
	rdmaBytes = 32 << 10
)

// module is the rail of one rank.
type module struct {
	base.Module[*endpoint]

	// The fields that every progress call reads are together.
	inbounds []*inbound
	notices  *uint32 // in the header of this rank's segment
	noticed  uint32  // the notices that were handled
	fences   bool    // sleeping ranks issue the fence for senders, see idle.go
	turns    uint64
	burst    int // fragments of one peer that this progress call hands up

	cfg   Config
	host  [16]byte
	own   *segment
	watch *watch
	peers []*peer // by rank; nil if nothing is known about the rank

	watched int // processes that are watched
	blocked []*endpoint

	// The work of settle.
	ends []*peer // peers whose process has ended, or whose module was closed
	gets []longGet

	// Memory from Alloc, by address, and the views of peers' allocations.
	allocations    []*allocation
	maxAllocations int
	freeRegions    []*region
	device         uint64 // the device of anonymous files
	shared         []*shared
	views          map[viewID]*view
	maxViews       int
	readTurn       uint64 // progress call of the last Get
	readBytes      uint64 // bytes read since that progress call

	nobody uint32 // notices points here once the module is closed
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
		maxAllocations: maxAllocations(), views: map[viewID]*view{}, maxViews: maxViews,
	}
	if m.host, err = base.HostID("pid"); err != nil {
		return nil, err
	}
	c := address{
		host: m.host, rank: uint32(cfg.Rank), size: uint32(cfg.Size), pid: uint32(os.Getpid()), wakeup: noWakeup,
		slots: uint32(l.ring.slots), data: l.ring.dataBytes, longest: l.longest, fences: m.fences,
	}
	if cfg.Wakeup != nil {
		if c.wakeup, c.wakeupNode, err = wakeupOf(cfg.Wakeup.WriteFD()); err != nil {
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
	piece := min(messagePieceBytes, longest)
	if longest > defaultFragBytes {
		piece = longest
	}
	m.Init(m, cfg.Events, btl.Attrs{
		Name: railName, LatencyNanos: latencyNanos, BandwidthMBps: bandwidthMBps,
		EagerBytes: min(eagerBytes, longest), MaxSendBytes: longest, InlineBytes: min(eagerBytes, longest),
		EagerCopyBytes: min(eagerCopyBytes, longest), PieceBytes: piece,
		RDMABytes: rdmaBytes,
		Caps:      btl.CapInline | btl.CapGet,
	}, c.encode())
	return m, nil
}

// Connect implements btl.Module.
func (m *module) Connect(to btl.Path, theirs []byte) (btl.Endpoint, error) {
	if m.Closed {
		return nil, btl.ErrClosed
	}
	rank := to.Peer
	c, err := m.parsePeer(rank, theirs)
	if err != nil {
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
		p.ep.remote = p.remote
		// The peer may have set its control words before this rank could handle them.
		m.own.notify(rank)
	}
	p.ep.Return(to)
	p.ep.begin()
	return p.ep, nil
}

// parsePeer decodes and checks the address of a rank that this rank can share memory with.
func (m *module) parsePeer(rank int, theirs []byte) (address, error) {
	c, ok := parseAddress(theirs)
	if err := m.CheckOwner(rank, c.owner(), ok, base.AddressOwner{Rank: uint32(m.cfg.Rank), Size: uint32(m.cfg.Size)}); err != nil {
		return c, err
	}
	if c.host != m.host {
		return c, fmt.Errorf("rail %s: %w: rank %d is on another machine, or in another process number space", railName, btl.ErrUnreachable, rank)
	}
	if err := m.differ(rank, &c); err != nil {
		return c, m.NewError(rank, btl.ClassUsage, btl.SideBoth, "", err)
	}
	return c, nil
}

// differ returns an error if the layout of the peer's rings differs from this rank's. It compares
// the rounded sizes. It compares fragments first, because longer fragments may make rings longer.
func (m *module) differ(rank int, c *address) error {
	l := &m.own.layout
	switch {
	case c.longest != l.longest:
		return transport.DifferInFragments(fragKey, m.cfg.Rank, int64(l.longest), rank, int64(c.longest))
	case uint64(c.slots) != l.ring.slots:
		return transport.Differ(slotsKey, m.cfg.Rank, strconv.FormatUint(l.ring.slots, 10), rank, strconv.FormatUint(uint64(c.slots), 10))
	case c.data != l.ring.dataBytes:
		return transport.Differ(ringKey, m.cfg.Rank, tunable.FormatBytes(int64(l.ring.dataBytes)), rank, tunable.FormatBytes(int64(c.data)))
	}
	return nil
}

// unreachable makes the error for a peer whose segment could not be opened.
func (m *module) unreachable(p *peer, err error) *btl.Error {
	switch {
	case p.closed && errors.Is(err, errGone):
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
	// The first fragment may be the one that this rank waits for, so the next slot is polled later.
	// After several fragments in a row, more are likely.
	m.burst = min(2*n+1, maxBurst)
	if atomic.LoadUint32(m.notices) != m.noticed || m.Unsettled || m.turns%lookEvery == 0 {
		n += m.attend()
	}
	return n
}

// receive hands up the next fragment, whose word is w. It reports false if the ring is corrupt.
func (m *module) receive(in *inbound, w uint64) bool {
	read, timed := in.dataRead(), in.timed()
	tag, frag, v := in.get(w)
	switch v {
	case good:
		if ep := in.p.ep; ep != nil && ep.Epoch() == in.reads && len(frag) > slotData {
			ep.out.freeData(read)
		}
		if timed == 0 || len(frag) <= slotData {
			m.Events.Arrived(m, in.rank, tag, frag)
		} else {
			begin := memcopy.Ticks()
			m.Events.Arrived(m, in.rank, tag, frag)
			in.answerTimed(timed, memcopy.Ticks()-begin)
		}
		in.dataDone = in.dataTail
	case stale:
		m.Stale++
	default:
		m.FailEndpoint(in.p.ep, m.NewError(in.rank, btl.ClassProtocol, btl.SideRemote, "descriptor", nil))
		return false
	}
	return true
}

// release gives the peer its room back, and wakes the peer if it sleeps because its ring was full.
func (m *module) release(in *inbound) {
	in.release()
	if atomic.LoadUint32(in.want) != 0 {
		atomic.StoreUint32(in.want, 0)
		if f := in.p.remote; f != nil {
			f.wake()
		}
	}
}

// takeAll hands up all remaining fragments of a peer that sends no more.
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

// attend does the work that not every progress call needs.
func (m *module) attend() int {
	if m.Closed {
		return 0
	}
	n := 0
	if m.turns%lookEvery == 0 {
		m.lookForEnds()
		m.dropFreedViews()
	}
	if v := atomic.LoadUint32(m.notices); v != m.noticed {
		m.noticed = v
		for i := range (len(m.peers) + 63) / 64 {
			if atomic.LoadUint64(m.own.bits(uint64(i))) == 0 {
				continue
			}
			for w := atomic.SwapUint64(m.own.bits(uint64(i)), 0); w != 0; w &= w - 1 {
				if rank := i<<6 + bits.TrailingZeros64(w); rank < len(m.peers) {
					n += m.checkControl(m.peer(rank))
				}
			}
		}
	}
	if m.Unsettled {
		n += m.settle()
	}
	return n
}

// settle does the deferred work. Work that arises meanwhile is left to the next call, so that each
// call ends, whatever peers do.
func (m *module) settle() int {
	n := 0
	ends := m.ends
	m.ends = nil
	for _, p := range ends {
		n += m.endPeer(p)
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
	n += m.DrainEndpoints(m.tearDown, func(e *endpoint) int { return m.checkControl(e.p) })
	if m.DrainModule() {
		n++
		for _, p := range m.peers {
			if p != nil { // its control words may have changed while the rail was failing
				n += m.checkControl(p)
			}
		}
	}
	m.Unsettled = len(m.ends)+len(m.gets) > 0 || m.Waiting()
	return n
}

// Endpoints implements base.AddressOwner.
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
	// Peers that this rank does not know yet see it too.
	atomic.AddUint32(m.own.attention, asleep<<1)
	for _, p := range m.peers {
		if p != nil {
			m.disconnect(p)
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
	for _, s := range m.shared {
		s.hide()
	}
	return errors.Join(err, m.own.close(), m.watch.close())
}

// disconnect ends the sessions with a peer, and notifies it.
func (m *module) disconnect(p *peer) {
	if e := p.ep; e != nil && e.State() != btl.Drained {
		if e.isOpen {
			storeSession(e.remote.out.session, sessionOf(e.Epoch(), closed))
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

// nextEpoch returns the epoch for the next incarnation, or 0 if none is left. It is the epoch with
// which the peer is already sending. Otherwise it is an epoch that neither channel has seen.
func (m *module) nextEpoch(p *peer) uint32 {
	last := loadSession(p.remote.out.reader).epoch()
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
