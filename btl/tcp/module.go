package tcp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/transport"
)

const (
	// maintainEvery: unless something is waiting, only every 64th progress call checks the clock,
	// the listener and handshakes.
	maintainEvery = 64
	// lookAroundEvery: only every 4th progress call polls connections other than the active one. If
	// the active one has been silent for maxSilentTurns, each call polls them.
	lookAroundEvery = 4
	maxSilentTurns  = 64
	// unpollAfter: if only the active connection received in this many progress calls, it is
	// removed from the poller and only read.
	unpollAfter = 64
	// blockedEvery: only every 8th progress call tries a full socket again.
	blockedEvery = 8

	latencyNanos = 6000
	// mbpsUnknown is for interfaces that do not report their speed, such as loopback.
	mbpsUnknown = 25000
)

// module is a rail of one rank at one interface.
type module struct {
	base.Module[*endpoint]

	// The fields that every progress call reads are together.
	active      *endpoint // whose connection received last
	silentTurns int       // progress calls in which it received nothing
	// busyTurns counts progress calls in which only active received; from unpollAfter on, its
	// connection is not polled.
	busyTurns   int
	turns       uint64
	ready       []*endpoint // with a connection
	toFlush     []*endpoint // with fragments that were posted inside a progress call
	blocked     []*endpoint // with fragments that their full sockets have not taken
	pendingAcks []*endpoint // with acknowledgements to be sent
	unparsed    []*endpoint // with frames that the last progress call did not parse
	spare       []*endpoint // memory for unparsed
	inside      bool        // a progress call
	look        bool        // the next progress call looks at all connections
	armed       bool        // between Arm and Disarm

	out sending

	cfg   Config
	nonce moduleNonce
	host  [16]byte
	codec *codec // nil until the secret is known
	now   int64  // when the clock was last read

	peers           base.Peers[peer]
	locals          []local      // at most maxAddresses
	first           []netip.Addr // the addresses of start-up
	leftOut         []error      // why addresses of start-up are not used
	byFD            []*endpoint
	handshakes      map[int]handshaking // by socket
	trafficPoller   *poller             // of established connections
	handshakePoller *poller             // of the listener, and of handshakes
	waker           *waker              // nil if the rank has neither Wakeup nor AsyncProgress
	link            link
	findAt          int64 // when a missing address is looked for again

	unauthenticated []*unauthenticatedPeer // oldest first
	// authenticatedWaiting counts the peers in unauthenticated that have proved that they know the
	// secret, and cannot be answered yet.
	authenticatedWaiting int
	challenged           int         // connections so far that were sent a challenge
	acceptMore           bool        // more connections may wait in the system's queue
	dialing              []*endpoint // without a connection yet
	// unconfirmed counts endpoints whose connection replaces a failed one, and on which nothing has
	// arrived yet.
	unconfirmed int

	unwritable []*endpoint // whose sockets refuse to be written for good
	deferred   *btl.Error  // the failure of the whole rail that the next progress call applies
	buffers    [][]byte    // that no connection uses
	info       unix.TCPInfo
	checkAt    int64 // when health is to be checked next
	checked    int64 // when it was checked last

	outs []*endpoint // whose sockets are polled for room
}

// handshaking is a connection in its handshake. step continues it, and returns the number of
// events.
type handshaking interface{ step() int }

// peer is what a module knows about another rank's module, once it has seen that module's address
// or an authenticated hello.
type peer struct {
	rank      int
	nonce     moduleNonce
	addresses []netAddress // none until they are seen
	// onOtherMachine: the peer is on another machine, or in another network namespace.
	onOtherMachine bool
	everConnected  bool   // there was a connection
	isTried        bool   // Connect was called while the interface had no link yet
	epoch          uint32 // of the latest incarnation of this end
	leastEpoch     uint32 // the first one not over at the peer's end, as far as this rank knows
	ep             *endpoint
}

// New makes the rail of a rank at cfg.Local and cfg.Others, and listens there.
func New(cfg Config) (btl.Module, error) {
	m, err := newModule(cfg)
	if err != nil {
		name := cfg.Rail
		if name == "" {
			name = "tcp:" + cfg.Local.String()
		}
		return nil, fmt.Errorf("rail %s: %w", name, err)
	}
	return m, nil
}

func newModule(cfg Config) (_ *module, err error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	m := &module{cfg: cfg, link: link{fd: -1}, peers: base.MakePeers[peer](cfg.Size), handshakes: map[int]handshaking{}, now: cfg.Clock.Now()}
	defer func() {
		if err != nil {
			m.closeAll()
		}
	}()
	if m.host, err = base.HostID("net"); err != nil {
		return nil, err
	}
	_, _ = rand.Read(m.nonce[:]) // it never fails
	if cfg.Secret != nil {
		m.codec = newCodec(cfg.Secret)
	}
	if m.trafficPoller, err = newPoller(); err != nil {
		return nil, err
	}
	if m.handshakePoller, err = newPoller(); err != nil {
		return nil, err
	}
	if !cfg.Local.IsValid() {
		m.link.down = errors.New(cfg.Awaits)
	} else {
		list := slices.Concat([]Interface{{Address: cfg.Local, Bits: cfg.LocalBits}}, cfg.Others)
		if err = m.listenAtAll(list); err != nil {
			return nil, err
		}
		for _, i := range list {
			m.first = append(m.first, i.Address)
		}
	}
	m.watchLink()
	if cfg.Wakeup != nil || cfg.AsyncProgress != nil {
		if m.waker, err = newWaker(&m.cfg, m.trafficPoller.fd, m.handshakePoller.fd); err != nil {
			return nil, err
		}
	}
	if cfg.BandwidthMBps == 0 {
		cfg.BandwidthMBps = speedOf(cfg.Local)
	}
	m.Init(m, cfg.Events, btl.Attrs{
		Name: m.cfg.Rail, LatencyNanos: latencyNanos, BandwidthMBps: cfg.BandwidthMBps,
		EagerBytes: m.cfg.EagerBytes, MaxSendBytes: m.cfg.FragBytes,
	}, m.encodeAddress())
	return m, nil
}

// encodeAddress makes the address that the module publishes.
func (m *module) encodeAddress() []byte {
	c := railAddress{
		rank: uint32(m.cfg.Rank), size: uint32(m.cfg.Size), nonce: m.nonce, host: m.host,
		frag: uint32(m.cfg.FragBytes), word: m.cfg.Word, connection: m.cfg.Connection, addresses: m.published(isAny),
	}
	return c.encode()
}

// SetSecret gives the job's secret to a module that was made without it.
func (m *module) SetSecret(secret []byte) {
	m.codec = newCodec(secret)
	m.Unsettled = true
}

// newNonce draws a nonce.
func (m *module) newNonce() (n nonce) {
	_, _ = rand.Read(n[:]) // it never fails
	return n
}

// parsePeer decodes and checks the address of a rank's module.
func (m *module) parsePeer(rank int, theirs []byte) (railAddress, error) {
	c, ok := parseRailAddress(theirs)
	if err := m.CheckOwner(rank, c.owner(), ok, base.AddressOwner{Rank: uint32(m.cfg.Rank), Size: uint32(m.cfg.Size)}); err != nil {
		return c, err
	}
	if rank == m.cfg.Rank {
		return c, m.unreachable("the rank itself")
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
	if !m.hasAddress() || slices.ContainsFunc(m.locals, func(l local) bool { return l.gone }) {
		m.lookForAddresses()
	}
	switch {
	case err != nil:
		return nil, err
	case m.cfg.Find == nil && len(c.addresses) > 0 && len(pathsBetween(m.published(isAny), c.addresses, c.host == m.host)) == 0:
		return nil, m.unreachable(Explain([][]byte{m.encodeAddress()}, [][]byte{theirs}))
	case m.codec == nil:
		return nil, m.NewError(rank, btl.ClassUsage, btl.SideLocal, "", base.ErrNoSecret)
	}
	p := m.peer(rank, c.nonce)
	if p == nil {
		return nil, m.NewError(rank, btl.ClassProtocol, btl.SideRemote, "", base.ErrModules)
	}
	p.onOtherMachine = c.host != m.host
	if len(c.addresses) > 0 {
		p.addresses = c.addresses
	}
	if e := p.ep; e != nil && e.State() == btl.Up && !e.IsReportable() && m.cannotReach(p) != nil {
		// The peer made the endpoint, and only now does its address say on which machine it is.
		e.fail(m.linkError(p))
	}
	if e := p.ep; e != nil && e.State() == btl.Failed && !e.IsReportable() {
		m.discard(e) // the layer above does not know it
	}
	if e := p.ep; e != nil && e.State() != btl.Drained {
		e.Return(to)
		return e, nil
	}
	if err := m.ConnectError(rank); err != nil {
		return nil, err
	}
	if err := m.cannotReach(p); err != nil {
		return nil, err
	}
	if m.link.isUnproven() && p.onOtherMachine && !p.isTried {
		p.isTried = true // the layer above tries again, and probes the path before it uses it
		return nil, m.NewError(rank, btl.ClassPath, btl.SideLocal, nativeOf(unix.ENETDOWN), errNoCarrier)
	}
	if err := m.reopenListeners(); err != nil {
		return nil, m.NewError(rank, btl.ClassDevice, btl.SideLocal, nativeOf(asErrno(err)), err)
	}
	if i := slices.IndexFunc(m.unauthenticated, func(s *unauthenticatedPeer) bool { return s.authenticated && s.isFrom(p) }); i >= 0 {
		m.answerHello(m.unauthenticated[i], p) // the peer has connected first
		if p.ep != nil && p.ep.State() == btl.Up {
			p.ep.Return(to)
			return p.ep, nil
		}
	}
	if len(p.addresses) == 0 {
		return nil, m.NewError(rank, btl.ClassPath, btl.SideRemote, "", btl.ErrNoAddress)
	}
	epoch := p.nextEpoch()
	if epoch == 0 {
		return nil, m.NewError(rank, btl.ClassProtocol, btl.SideRemote, "", base.ErrEpochs)
	}
	e := m.newEndpoint(p, epoch)
	e.Return(to)
	e.startDialing()
	return e, nil
}

// discard drains a Failed endpoint that the layer above does not know.
func (m *module) discard(e *endpoint) {
	e.tearDown()
	m.Drained(e)
	m.Discard(e)
}

func (m *module) unreachable(why string) error {
	return fmt.Errorf("rail %s: %w: %s", m.cfg.Rail, btl.ErrUnreachable, why)
}

// nextEpoch returns the epoch of this end's next incarnation, or 0 if none is left.
func (p *peer) nextEpoch() uint32 {
	if p.epoch == math.MaxUint32 {
		return 0
	}
	return max(p.leastEpoch, p.epoch+1)
}

// peer returns the peer for the module of a rank with a nonce, or nil if the rank has too many
// modules.
func (m *module) peer(rank int, n moduleNonce) *peer {
	for _, p := range m.peers.Of(rank) {
		if p.nonce == n {
			return p
		}
	}
	p := &peer{rank: rank, nonce: n}
	if !m.peers.Add(rank, p) {
		return nil
	}
	return p
}

// watchTraffic polls the connection of an endpoint.
func (m *module) watchTraffic(fd int, e *endpoint) error {
	if err := m.trafficPoller.add(fd); err != nil {
		return err
	}
	for len(m.byFD) <= fd {
		m.byFD = append(m.byFD, nil)
	}
	m.byFD[fd] = e
	return nil
}

// watchHandshake polls a connection in its handshake.
func (m *module) watchHandshake(fd int, g handshaking) error {
	if err := m.handshakePoller.add(fd); err != nil {
		return err
	}
	m.handshakes[fd] = g
	return nil
}

// unwatchHandshake stops polling a connection that has ended its handshake.
func (m *module) unwatchHandshake(fd int) { m.handshakePoller.remove(fd) }

// forget removes an endpoint from the lists that progress calls read.
func (m *module) forget(e *endpoint) {
	if i := slices.Index(m.ready, e); i >= 0 {
		m.ready = slices.Delete(m.ready, i, i+1)
	}
	if m.active == e {
		m.pollActive()
		m.active = nil
		if len(m.ready) > 0 {
			m.active = m.ready[0]
		}
		m.look = true
	}
}

// Progress implements btl.Module.
func (m *module) Progress() int {
	m.inside = true
	n := 0
	if len(m.unparsed) > 0 {
		n += m.parseUnparsed()
	}
	if h := m.active; h != nil {
		if got := h.receive(); got > 0 {
			n += got
			m.silentTurns = 0
			if m.busyTurns++; m.busyTurns == unpollAfter {
				m.unpollActive()
			}
		} else {
			m.silentTurns++
		}
	}
	m.turns++
	if m.look || len(m.ready) > 1 && (m.turns%lookAroundEvery == 0 || m.silentTurns > maxSilentTurns) {
		n += m.lookAround()
	}
	news := uint32(0)
	if a := m.waker; a != nil && a.news.Load() != 0 {
		news = a.news.Swap(0)
	}
	if len(m.blocked) > 0 && (m.turns%blockedEvery == 0 || news != 0) {
		m.flushBlocked()
	}
	if m.Unsettled || news != 0 || m.turns%maintainEvery == 0 {
		n += m.maintain()
	}
	if len(m.toFlush) > 0 {
		m.flushPosted()
	}
	if len(m.pendingAcks) > 0 {
		m.sendPendingAcks(news&newsStalled != 0)
	}
	m.inside = false
	if a := m.waker; a != nil {
		// While the rank sleeps, the poller reports room in full sockets (outs).
		a.turnMade(len(m.pendingAcks) > 0 || len(m.blocked) > len(m.outs) || len(m.unauthenticated) > 0 || m.Unsettled || m.unconfirmed > 0)
	}
	return n
}

// lookAround reads all connections that have something to read.
func (m *module) lookAround() int {
	m.look = false
	n := 0
	for _, ev := range m.trafficPoller.poll() {
		e := m.byFD[ev.Fd]
		if e == nil || e.State() != btl.Up {
			continue // the endpoint has failed in this progress call
		}
		if got := e.receive(); got > 0 {
			n += got
			if m.active != e && e.State() == btl.Up {
				m.pollActive()
				m.active, m.silentTurns = e, 0
			}
		}
	}
	return n
}

// unpollActive stops polling the active connection: each progress call reads it anyway, and
// notifying the poller costs a sender about a thirtieth of a short message's time.
func (m *module) unpollActive() {
	if m.armed {
		m.busyTurns = 0 // another goroutine makes progress while the rank's driver sleeps
		return
	}
	_ = m.trafficPoller.control(unix.EPOLL_CTL_MOD, m.active.fd, 0)
}

// pollActive undoes unpollActive, before another connection becomes active or the rank sleeps.
func (m *module) pollActive() {
	if m.busyTurns >= unpollAfter {
		_ = m.trafficPoller.control(unix.EPOLL_CTL_MOD, m.active.fd, unix.EPOLLIN)
	}
	m.busyTurns = 0
}

// maintain does the work that not every progress call needs.
func (m *module) maintain() int {
	if m.Closed {
		return 0
	}
	before := m.now
	m.now = m.cfg.Clock.Now()
	m.Unsettled, m.acceptMore = false, false
	m.extendDeadlines(before)
	n := 0
	var come [maxAddresses]int // listeners where a peer waits
	waiting := come[:0]
	for _, ev := range m.handshakePoller.poll() {
		if fd := int(ev.Fd); m.listening(fd) != nil {
			waiting = append(waiting, fd)
		} else if fd == m.link.fd {
			m.link.readNews()
		} else if g := m.handshakes[fd]; g != nil {
			n += g.step()
		}
	}
	if m.link.unsure {
		m.lookAtLink()
	}
	n += m.attendUnauthenticated()
	for _, fd := range waiting { // last, so that earlier connections are handled first
		m.acceptConnections(fd)
	}
	n += m.dialAgain()
	n += m.readUnwritable()
	if err := m.deferred; err != nil {
		m.deferred = nil
		m.failRail(err)
		n++
	}
	n += m.FailDeferred()
	n += m.checkHealth()
	n += m.DrainEndpoints((*endpoint).tearDown, nil)
	if m.DrainModule() {
		n++
	}
	m.freeBuffers(maxBuffers)
	m.Unsettled = m.Unsettled || m.acceptMore || m.link.unsure || len(m.dialing)+len(m.unwritable) > 0 || m.deferred != nil || m.Waiting()
	return n
}

// Fail implements btl.Module.
func (m *module) Fail(cause error) {
	m.failRail(m.ErrorBecause(btl.AllPeers, btl.ClassDevice, cause))
}

// failRail fails all endpoints at once. Working listeners stay open, because the rail may come
// back, and peers know its address.
func (m *module) failRail(err *btl.Error) {
	for n := range m.locals {
		if l := &m.locals[n]; l.listener >= 0 && !listens(l.listener) {
			_ = l.close(m)
		}
	}
	m.FailModule(err)
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

// listens reports whether a listener works.
func listens(fd int) bool {
	v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && v != 0
}

// closeAll closes the files of the module itself.
func (m *module) closeAll() error {
	var errs []error
	if m.waker != nil {
		errs = append(errs, m.waker.close())
	}
	for n := range m.locals {
		errs = append(errs, m.locals[n].close(m))
	}
	for _, p := range []*poller{m.trafficPoller, m.handshakePoller} {
		if p != nil {
			errs = append(errs, p.close())
		}
	}
	if m.link.fd >= 0 {
		errs = append(errs, unix.Close(m.link.fd))
		m.link.fd = -1
	}
	m.freeBuffers(0)
	return errors.Join(errs...)
}
