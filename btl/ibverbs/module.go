package ibverbs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/btl/transport"
)

const (
	// pollBatch bounds the completions of a queue that one progress call takes.
	pollBatch = 16
	// pollEvery: if a progress call finds one fragment in a ring, it is probably the one that this
	// rank waits for. Then the call polls completions only if it is every 4th one.
	pollEvery = 4
	// attendEvery: every 64th progress call reads datagrams and the clock, and does other work that
	// can wait.
	attendEvery = 64

	// yieldEveryNanos is how long a goroutine polls before it calls Go's scheduler. After 10 ms
	// without that, the runtime takes the processor away at the next call of the device, and
	// watches the goroutine closely for a while. On soft-RoCE under emulation, that took half of a
	// message's time.
	yieldEveryNanos = 4e6

	latencyNanos = 1500
	// rdmaBytes: from this length on, a read or write is faster than fragments.
	rdmaBytes = 8 << 10
	// mbpsUnknown is for ports that do not report their speed.
	mbpsUnknown = 10000
)

// module is the rail of one rank on one port.
type module struct {
	base.Module[*endpoint]

	// Fields that every progress call reads, next to each other.
	h        *hca // nil after the device was lost, until it is opened again
	turns    uint64
	signals  atomic.Uint32 // eventSignal and completionSignal; set from any goroutine
	portUp   bool
	toSettle []*endpoint // with receives to post, or credits to give back
	rings    []*endpoint // with a ring
	wcs      [pollBatch]verbs.WC
	udWCs    [pollBatch]verbs.WC // of datagrams

	sendWR [1]verbs.SendWR
	recvWR [repostBatch]verbs.RecvWR

	cfg Config
	// publishedAddress is the address of the datagram queue pair when the module was made; zero if
	// there was none.
	publishedAddress address
	absent           error // why the device could not be used so far; nil once it was usable
	me               nonce
	codec            *codec // nil until the secret is known
	random           *rand.Rand
	now              int64 // the clock at the last call of attend

	peers     base.Peers[peer]
	eps       []*endpoint // by number
	byQPN     map[uint32]*endpoint
	freeSlots []uint32

	asking          []*endpoint      // without a connection yet
	unackedFailures []*failureNotice // repeated until they are acknowledged
	toDestroy       []*endpoint      // Drained, with queue pairs that still exist
	behind          []*endpoint      // ready, with earlier sends that are not posted yet
	lookups         []*lookup        // paths that are being resolved
	// stale: the port's address or partition has changed, and the next progress call queries it.
	stale  bool
	reopen bool  // the device is closed once the rail is drained
	downAt int64 // when the port went down; 0 while its grace period does not run
	// When to reopen a lost device unless Connect does so before, and the delay after that.
	reopenAt, reopenWait int64
	madeAt               int64  // when the module was made
	checkAt, checked     int64  // when deadlines are checked next, and were checked last
	portCheckAt          int64  // when awaitPort checks next
	made                 uint32 // endpoints so far

	yieldedAt int64 // when this goroutine last called Go's scheduler here

	ahead int // fragments that were delivered before their completions
}

// peer is what a module knows about another rank's module, once that module's address or an
// authenticated message has arrived.
type peer struct {
	rank    int
	nonce   nonce
	address address  // from the last message, or the last published address
	told    address  // the last published address; zero before the first
	ah      verbs.AH // nil, or a handle of the open device for ahTo
	ahTo    address
	// resolvedFor is the latest incarnation for which the path to ahTo was resolved. lookup is the
	// path that is being resolved, nil if there is none.
	resolvedFor uint32
	lookup      *lookup

	reached address // this end's address when it last reached the peer
	epoch   uint32  // the latest of any incarnation, of either end
	// noRoute is the error of the last datagram that could not be sent, noRouteTries the number of
	// such datagrams in a row.
	noRoute      error
	noRouteTries int
	ep           *endpoint
}

// learn takes the address that the peer has published. The first published address is older than an
// address in a message of the peer.
func (p *peer) learn(at address) {
	if at.isZero() || at == p.told {
		return
	}
	if p.address.isZero() || !p.told.isZero() {
		p.address = at
	}
	p.told = at
}

// dropHandle destroys the address handle, if there is one.
func (p *peer) dropHandle() error {
	if p.ah == nil {
		return nil
	}
	ah := p.ah
	p.ah = nil
	return ah.Destroy()
}

// New opens the device and makes the rail of a rank. The error says in one line what is missing.
func New(cfg Config) (btl.Module, error) {
	m, err := newModule(cfg)
	if err != nil {
		return nil, fmt.Errorf("rail %s: %w", cfg.Rail, err)
	}
	return m, nil
}

func newModule(cfg Config) (*module, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	h, err := openHCA(&cfg, true)
	var absent error
	if cfg.MayCome && errors.As(err, new(absence)) {
		absent, err = err, nil
	}
	if err != nil {
		return nil, err
	}
	m := &module{cfg: cfg, h: h, portUp: h != nil, absent: absent, peers: base.MakePeers[peer](cfg.Size), byQPN: map[uint32]*endpoint{}, now: cfg.Clock.Now()}
	m.madeAt, m.reopenAt, m.reopenWait = m.now, m.now+reopenFirst, 2*reopenFirst
	var seed [32]byte
	_, err = io.ReadFull(cfg.Random, seed[:])
	if err == nil {
		_, err = io.ReadFull(cfg.Random, m.me[:])
	}
	if err != nil {
		if h != nil {
			err = errors.Join(err, h.close())
		}
		return nil, err
	}
	m.random = rand.New(rand.NewChaCha8(seed))
	if cfg.Secret != nil {
		m.codec = newCodec(cfg.Secret)
	}
	mbps, caps := 0, btl.CapPut
	if h != nil {
		m.keepPKey()
		m.listen()
		m.publishedAddress = h.address()
		mbps = h.port.Mbps
		if _, asks := h.reads(); cfg.Reads.on(h.attr) && asks > 0 {
			caps |= btl.CapGet
		}
	}
	if mbps == 0 {
		mbps = mbpsUnknown
	}
	attrs := btl.Attrs{
		LatencyNanos: latencyNanos, BandwidthMBps: int64(mbps) / 8,
		EagerBytes: cfg.FragBytes, MaxSendBytes: cfg.FragBytes, RDMABytes: rdmaBytes,
		Caps: caps,
	}
	if list := m.cfg.Siblings.modules; h == nil && len(list) > 0 {
		attrs = *list[0].Attrs() // a guess
	}
	attrs.Name = cfg.Rail
	m.FlushNative = verbs.StatusWRFlushErr.Native()
	m.Init(m, cfg.Events, attrs, m.encodeAddress())
	m.cfg.Siblings.add(m)
	return m, nil
}

// keepPKey keeps the module in the partition that it had when first opened, even if the key moves
// in the port's table.
func (m *module) keepPKey() { m.cfg.PKey = uint16(m.h.pkey) }

// encodeAddress returns the address that the module publishes.
func (m *module) encodeAddress() []byte {
	c := railAddress{rank: uint32(m.cfg.Rank), size: uint32(m.cfg.Size), nonce: m.me, frag: uint32(m.cfg.FragBytes)}
	if m.h != nil {
		c.address, c.pkey = m.h.address(), m.h.pkey
	}
	return c.encode()
}

// Absent is transport.Module's Absent.
func (m *module) Absent(bool) error {
	if m.absent != nil {
		m.reopenInTime(m.cfg.Clock.Now())
	}
	return m.absent
}

// Signals that a device may have.
const (
	eventSignal      = 1 << iota // asynchronous events
	completionSignal             // completions in a queue that was armed
	lookupSignal                 // paths that are resolved
)

// listen makes the device call wakeup when it may have such signals.
func (m *module) listen() {
	m.h.dev.Notify(func() { m.wakeup(eventSignal) })
	m.h.wakes.Notify(func() { m.wakeup(completionSignal) })
	m.signals.Store(eventSignal | completionSignal)
}

// wakeup asks for a progress call soon. It may be called from any goroutine.
func (m *module) wakeup(what uint32) {
	m.signals.Or(what)
	if m.cfg.Wakeup != nil {
		m.cfg.Wakeup.Wake()
	}
	if m.cfg.AsyncProgress != nil {
		m.cfg.AsyncProgress()
	}
}

// SetSecret gives the job's secret to a module that was made without it.
func (m *module) SetSecret(secret []byte) {
	m.codec = newCodec(secret)
	m.Unsettled = true
}

// parsePeer decodes and checks the address of a rank's module.
func (m *module) parsePeer(rank int, theirs []byte) (railAddress, error) {
	c, ok := parseRailAddress(theirs)
	if err := m.CheckOwner(rank, c.owner(), ok, base.AddressOwner{Rank: uint32(m.cfg.Rank), Size: uint32(m.cfg.Size)}); err != nil {
		return c, err
	}
	if rank == m.cfg.Rank {
		return c, fmt.Errorf("rail %s: %w: the rank itself", m.cfg.Rail, btl.ErrUnreachable)
	}
	if int(c.frag) != m.cfg.FragBytes {
		return c, m.NewError(rank, btl.ClassUsage, btl.SideBoth, "", transport.DifferInFragments(fragKey, m.cfg.Rank, int64(m.cfg.FragBytes), rank, int64(c.frag)))
	}
	return c, nil
}

// Connect implements btl.Module.
func (m *module) Connect(to btl.Path, theirs []byte) (btl.Endpoint, error) {
	if m.Closed {
		return nil, btl.ErrClosed
	}
	rank := to.Peer
	c, err := m.parsePeer(rank, theirs)
	switch {
	case err != nil:
		return nil, err
	case m.codec == nil:
		return nil, m.NewError(rank, btl.ClassUsage, btl.SideLocal, "", base.ErrNoSecret)
	}
	p := m.peer(rank, c.nonce, c.address)
	if p == nil {
		return nil, m.NewError(rank, btl.ClassProtocol, btl.SideRemote, "", base.ErrModules)
	}
	p.learn(c.address)
	if p.ep != nil && p.ep.State() != btl.Drained {
		p.ep.Return(to)
		return p.ep, nil
	}
	if err := m.Absent(true); err != nil {
		return nil, m.NewError(rank, btl.ClassDevice, btl.SideLocal, "", err)
	}
	if m.reopen {
		return nil, m.NewError(rank, btl.ClassDevice, btl.SideLocal, "", btl.ErrFailed)
	}
	if err := m.ConnectError(rank); err != nil {
		return nil, err
	}
	if err := m.reopenDevice(); err != nil {
		return nil, m.NewError(rank, btl.ClassDevice, btl.SideLocal, "", err)
	}
	if !m.portUp {
		up, moved := m.h.upAgain(&m.cfg)
		if up {
			// Its event has not arrived yet, or there is none because the query failed when the
			// port went down.
			m.downAt = 0
			m.setPort(true)
		}
		m.stale = m.stale || moved
		m.Unsettled = m.Unsettled || moved
	}
	if !m.portUp {
		return nil, m.portIsDown(rank, verbs.EventPortErr.Native())
	}
	if p.address.isZero() && (m.h.address() == m.publishedAddress || !m.hasSiblingTo(rank)) {
		// If the peer knows this end's address, it asks once it has an address. Otherwise a sibling
		// asks.
		return nil, m.NewError(rank, btl.ClassPath, btl.SideRemote, "", btl.ErrNoAddress)
	}
	if !p.address.isZero() && (p.address.link == linkRoCE) != m.h.roce {
		return nil, fmt.Errorf("rail %s: %w: one end is InfiniBand, the other Ethernet", m.cfg.Rail, btl.ErrUnreachable)
	}
	if c.pkey != 0 && c.pkey.partition() != m.h.pkey.partition() {
		return nil, fmt.Errorf("rail %s: %w: partition key %v here, %v there", m.cfg.Rail, btl.ErrUnreachable, m.h.pkey, c.pkey)
	}
	e, err := m.newEndpoint(p, p.epoch+1)
	if err != nil {
		return nil, m.NewError(rank, btl.ClassDevice, btl.SideLocal, "", err)
	}
	e.Return(to)
	e.ask()
	return e, nil
}

const (
	reopenFirst = 10e6
	reopenMost  = 1e9
	// For a device that was absent so far: in the first minute, and later. Opening a device holds
	// the engine's lock for a while, and this device may never appear.
	absentMost      = 500e6
	absentLong      = 60e9
	absentLaterMost = 10e9
)

// reopenInTime reopens a lost device even if Connect is not called, because peers may ask for
// connections.
func (m *module) reopenInTime(now int64) {
	if m.h != nil || m.reopen || now < m.reopenAt {
		return
	}
	if m.reopenDevice() != nil { // the device is not back yet
		most := int64(reopenMost)
		switch {
		case m.absent != nil && now-m.madeAt < absentLong:
			most = absentMost
		case m.absent != nil:
			most = absentLaterMost
		}
		m.reopenAt, m.reopenWait = now+m.reopenWait, min(2*m.reopenWait, most)
	}
}

// reopenDevice opens the device again if it was lost, and queries the port's state.
func (m *module) reopenDevice() error {
	if m.h != nil {
		return nil
	}
	h, err := openHCA(&m.cfg, m.absent != nil)
	if err != nil {
		if m.absent != nil {
			m.absent = err
		}
		return err
	}
	m.h, m.portUp = h, h.port.State.Up()
	m.listen()
	if m.absent != nil {
		m.absent = nil
		m.keepPKey()
	}
	m.publish()
	return nil
}

// publish publishes the current address if it has changed. The device is open. A port that is down
// may have no address, because no subnet manager has given it a LID.
func (m *module) publish() {
	a := m.encodeAddress()
	if _, ok := parseRailAddress(a); ok && !bytes.Equal(a, m.Address()) {
		m.SetAddress(a)
		if m.cfg.Moved != nil {
			m.cfg.Moved()
		}
	}
}

// PeerMoved gives the module the new address of a peer's module. Connect will get it too. An
// unanswered request for a connection is sent there at once.
func (m *module) PeerMoved(rank int, theirs []byte) {
	c, err := m.parsePeer(rank, theirs)
	if err != nil || c.address.isZero() {
		return
	}
	for _, p := range m.peers.Of(rank) {
		if p.nonce != c.nonce || p.told == c.address {
			continue
		}
		p.address, p.told = c.address, c.address
		if e := p.ep; e != nil && e.State() == btl.Up && e.phase == phaseAsking {
			e.askAt, e.askWait = 0, askFirst
			m.Unsettled = true
		}
	}
}

// peer returns the peer for the module of a rank with a nonce. A new peer gets the address at. The
// result is nil if the rank has too many modules.
func (m *module) peer(rank int, n nonce, at address) *peer {
	for _, p := range m.peers.Of(rank) {
		if p.nonce == n {
			return p
		}
	}
	p := &peer{rank: rank, nonce: n, address: at}
	if !m.peers.Add(rank, p) {
		return nil
	}
	return p
}

// Progress implements btl.Module.
func (m *module) Progress() int {
	n := 0
	if len(m.rings) > 0 {
		n = m.pollRings()
	}
	if m.h != nil && (n != 1 || m.turns%pollEvery == 0) {
		for _, g := range m.h.groups {
			n += m.poll(g)
		}
	}
	if len(m.toSettle) > 0 {
		m.giveCredits()
	}
	m.turns++
	if m.Unsettled || m.turns%attendEvery == 0 || m.signals.Load() != 0 {
		n += m.attend()
	}
	return n
}

// poll handles completions of one queue, a batch at most.
func (m *module) poll(g *group) int {
	if g.broken {
		return 0
	}
	n, err := g.cq.Poll(m.wcs[:])
	for i := range n {
		m.complete(&m.wcs[i], m.wcs[i+1:n])
	}
	if err != nil && !m.reopen {
		m.breakGroup(g, err)
		n++
	}
	return n
}

// attend does the work that not every progress call needs.
func (m *module) attend() int {
	if m.Closed {
		return 0
	}
	n := 0
	before := m.now
	m.now = m.cfg.Clock.Now()
	m.extendDeadlines(before)
	if m.now-m.yieldedAt >= yieldEveryNanos {
		m.yieldedAt = m.now
		runtime.Gosched()
	}
	m.Unsettled = false
	m.reopenInTime(m.now)
	if m.stale {
		m.stale = false
		m.requery(m.NewError(btl.AllPeers, btl.ClassPath, btl.SideLocal, "", fmt.Errorf("%s: the port's address or partition has changed", m.cfg.Device)))
		n++
	}
	signals := m.signals.Load()
	if signals&completionSignal != 0 {
		m.takeWakes()
	}
	if signals&eventSignal != 0 {
		n += m.readEvents()
	}
	if signals&lookupSignal != 0 {
		n += m.takeLookups()
	}
	if m.h != nil && m.codec != nil {
		n += m.pollDatagrams()
	}
	n += m.settle()
	m.Unsettled = m.Unsettled || len(m.asking)+len(m.unackedFailures) > 0 || m.downAt != 0 || m.Waiting()
	return n
}

// settle does work that was deferred to a progress call, or is due at a time.
func (m *module) settle() int {
	n := 0
	if m.downAt != 0 && m.now-m.downAt >= int64(m.cfg.PortGrace) {
		m.downAt = 0
		m.FailModule(m.portIsDown(btl.AllPeers, verbs.EventPortErr.Native()))
		n++
	}
	m.awaitPort()
	n += m.drainUD()
	if m.h != nil && m.h.shared != nil {
		n += m.refill()
		m.postShared()
	}
	n += m.failDeferredEndpoints()
	n += m.EndRefused()
	m.catchUpAll()
	n += m.askAgain()
	n += m.checkDeadlines()
	n += m.drain()
	return n
}

// Endpoints implements base.AddressOwner.
func (m *module) Endpoints() iter.Seq[*endpoint] {
	return func(yield func(*endpoint) bool) {
		for p := range m.peers.All() {
			if p.ep != nil && !yield(p.ep) {
				return
			}
		}
	}
}

// goodbyeNanos bounds how long Close waits for the acknowledgements of the GOODBYEs.
const goodbyeNanos = 100e6

// Close implements btl.Module.
func (m *module) Close() error {
	if m.Closed {
		return nil
	}
	m.sayGoodbye()
	m.Closed = true
	m.cfg.Siblings.remove(m)
	var errs []error
	var ending []*endpoint
	if m.h != nil {
		m.destroyDue(true)
	}
	for p := range m.peers.All() {
		if e := p.ep; e != nil && e.State() != btl.Drained {
			m.CloseEndpoint(e)
			errs = append(errs, e.destroy())
			ending = append(ending, e)
		}
		errs = append(errs, p.dropHandle())
	}
	m.asking, m.unackedFailures, m.toSettle, m.behind, m.rings = nil, nil, nil, nil, nil
	m.Forget()
	if m.h != nil {
		errs = append(errs, m.h.close())
	}
	// This includes operations of queue pairs that could not be destroyed, because no memory is
	// registered any more.
	for _, e := range ending {
		e.callBack()
	}
	m.h = nil
	return errors.Join(errs...)
}

// sayGoodbye sends GOODBYE over every connection, and waits until the peers' devices have
// acknowledged it. Thus it arrives after everything else, and is not lost. To a peer without a
// connection it sends a datagram, and waits until the datagram has left the queue pair.
func (m *module) sayGoodbye() {
	if m.h == nil {
		return
	}
	waiting := 0
	for e := range m.Endpoints() {
		switch {
		case e.State() != btl.Up:
		case e.sayGoodbye():
			waiting++
		default:
			m.tell(e.p, &message{kind: msgBYE, epoch: e.Epoch()})
		}
	}
	for deadline := m.cfg.Clock.Now() + goodbyeNanos; (waiting > 0 || m.h.hasUDSends()) && m.cfg.Clock.Now() < deadline; {
		waiting = 0
		m.h.pollUDSends(m.wcs[:])
		for _, g := range m.h.groups {
			m.pollQuietly(g)
		}
		for e := range m.Endpoints() {
			if e.State() == btl.Up && e.leave == sentGoodbye && e.awaited > 0 {
				waiting++
			}
		}
		m.cfg.Pass()
	}
}
