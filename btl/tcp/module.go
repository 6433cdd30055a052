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
)

const (
	// attendEvery: a turn looks at the clock, the listener and handshakes only so often, as long as there is nothing to be seen to.
	attendEvery = 64
	// aroundEvery: a turn looks at other connections than the one that has spoken last only so often. If that has been silent for
	// coldTurns, each turn looks at all.
	aroundEvery = 4
	coldTurns   = 64
	// unpollAfter: a connection that has spoken so often, and no other meanwhile, is not polled any more but only read.
	unpollAfter = 64
	// blockedEvery: a full socket is tried again only so often.
	blockedEvery = 8

	latencyNanos = 6000
	// mbpsUnknown is for interfaces that do not say how fast they are, as loopback does not.
	mbpsUnknown = 25000
)

// module is the rail of one rank at one local address.
type module struct {
	base.Rail[*endpoint]

	// What every turn reads, together.
	hot      *endpoint // whose connection has spoken last
	silent   int       // turns in which it has not
	spoken   int       // turns in which it has, and no other; from unpollAfter on it is not polled
	turns    uint64
	ready    []*endpoint // that have a connection
	dirty    []*endpoint // with something to be sent that was posted inside of a turn
	blocked  []*endpoint // with something to be sent, whose sockets are full
	owing    []*endpoint // that owe acknowledgements
	leftover []*endpoint // with frames that the last turn has not looked at
	spare    []*endpoint // for leftover
	inside   bool        // of Progress
	look     bool        // the next turn is to look everywhere
	armed    bool        // between Arm and Disarm

	out sending

	cfg   Config
	nonce lifeNonce
	host  [16]byte
	zone  uint32
	port  uint16
	codec *codec // nil until the secret is known
	now   int64  // as of the last look at the clock

	peers    []*peer // by rank; nil for whom nothing is known of
	listener int     // -1 if it is broken
	byFD     []*endpoint
	door     map[int]guest // by socket
	traffic  *poller       // of connections that are ready
	entrance *poller       // of the listener, and of handshakes
	alarm    *alarm        // nil if there is nobody to wake
	link     link

	strangers []*stranger // oldest first
	waiting   int         // of those, who are none: peers whom we cannot answer yet
	greeted   int         // ever
	crowd     bool        // more connections may be waiting than were let in
	dialing   []*endpoint // whose connection is not there yet
	unheard   int         // endpoints with a connection in place of one that failed, by which nothing has come yet

	unwritable []*endpoint // whose sockets have refused for good
	deferred   *btl.Error  // the failure of the whole rail that the next progress call applies
	buffers    [][]byte    // that connections do not use any more
	info       unix.TCPInfo
	checkAt    int64 // when health is due to be looked at
	checked    int64 // when it was last

	outs []*endpoint // whose sockets are polled for room
}

// guest is a connection in its handshake.
type guest interface{ step() int }

// peer is what a module knows of another rank's.
type peer struct {
	rank    int
	met     bool // its card was seen, or a hello of it that holds
	nonce   lifeNonce
	address netip.AddrPort
	// elsewhere: it is on another machine, or in another network namespace, as its card says.
	elsewhere bool
	reached   bool   // there was a connection, ever
	epoch     uint32 // of our latest incarnation
	least     uint32 // the first that is not over at the peer's, as far as we know
	ep        *endpoint
}

// New makes the rail of a rank at cfg.Local, and listens there.
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
	m := &module{cfg: cfg, listener: -1, link: link{fd: -1}, peers: make([]*peer, cfg.Size), door: map[int]guest{}, now: cfg.Clock.Now()}
	defer func() {
		if err != nil {
			m.closeAll()
		}
	}()
	if m.zone, err = zoneOf(cfg.Local); err != nil {
		return nil, err
	}
	if m.host, err = hostID(); err != nil {
		return nil, err
	}
	_, _ = rand.Read(m.nonce[:]) // it never fails
	if cfg.Secret != nil {
		m.codec = newCodec(cfg.Secret)
	}
	if m.traffic, err = newPoller(); err != nil {
		return nil, err
	}
	if m.entrance, err = newPoller(); err != nil {
		return nil, err
	}
	if m.listener, m.port, err = m.listen(); err != nil {
		return nil, err
	}
	if err = m.entrance.add(m.listener); err != nil {
		return nil, err
	}
	m.watchLink()
	if cfg.Bell != nil || cfg.Wakeup != nil {
		if m.alarm, err = newAlarm(&m.cfg, m.traffic.fd, m.entrance.fd); err != nil {
			return nil, err
		}
	}
	c := card{
		rank: uint32(cfg.Rank), size: uint32(cfg.Size), nonce: m.nonce, host: m.host,
		address: netip.AddrPortFrom(m.cfg.Local.WithZone(""), m.port), bits: uint8(m.cfg.LocalBits), frag: uint32(cfg.FragBytes),
	}
	speed := cfg.BandwidthMBps
	if speed == 0 {
		speed = speedOf(cfg.Local)
	}
	m.Init(m, cfg.Events, btl.Attrs{
		Name: m.cfg.Rail, LatencyNanos: latencyNanos, BandwidthMBps: speed,
		EagerBytes: m.cfg.EagerBytes, MaxSendBytes: m.cfg.FragBytes,
	}, c.encode())
	return m, nil
}

// SetSecret gives the job's secret to a module that was made without it.
func (m *module) SetSecret(secret []byte) {
	m.codec = newCodec(secret)
	m.Unsettled = true
}

// draw makes a nonce.
func (m *module) draw() (n nonce) {
	_, _ = rand.Read(n[:]) // it never fails
	return n
}

// Connect implements btl.Module.
func (m *module) Connect(rank int, theirs []byte) (btl.Endpoint, error) {
	if m.Closed {
		return nil, btl.ErrClosed
	}
	c, ok := parseCard(theirs)
	local := m.cfg.Local
	switch {
	case !ok:
		return nil, m.unreachable("that is no card of such a rail")
	case rank < 0 || rank >= m.cfg.Size || rank == m.cfg.Rank || c.rank != uint32(rank):
		return nil, m.unreachable(fmt.Sprintf("card of rank %d for rank %d", c.rank, rank))
	case c.size != uint32(m.cfg.Size):
		return nil, m.NewError(rank, btl.ClassUsage, btl.SideBoth, "", fmt.Errorf("a job of %d ranks there, of %d here", c.size, m.cfg.Size))
	case int(c.frag) != m.cfg.FragBytes:
		return nil, m.NewError(rank, btl.ClassUsage, btl.SideBoth, "", fmt.Errorf("fragments of %d bytes there, of %d here", c.frag, m.cfg.FragBytes))
	case c.address.Addr().Is4() != local.Is4():
		return nil, m.unreachable(fmt.Sprintf("%v and %v are not of one family", local, c.address.Addr()))
	case c.address.Addr().IsLoopback() != local.IsLoopback():
		return nil, m.unreachable(fmt.Sprintf("%v does not lead to %v", local, c.address.Addr()))
	case local.IsLoopback() && c.host != m.host:
		return nil, m.unreachable(fmt.Sprintf("%v is on another machine, or in another network namespace", c.address.Addr()))
	case m.codec == nil:
		return nil, m.NewError(rank, btl.ClassUsage, btl.SideLocal, "", base.ErrNoSecret)
	}
	p := m.peer(rank)
	if p.met && p.nonce != c.nonce {
		return nil, m.NewError(rank, btl.ClassPath, btl.SideRemote, "", errors.New("the card is of another life of the peer's rail"))
	}
	p.met, p.nonce, p.address, p.elsewhere = true, c.nonce, c.address, c.host != m.host
	if e := p.ep; e != nil && e.State() == btl.Up && !e.IsReportable() && m.cannotReach(p) != nil {
		e.fail(m.linkError(p)) // the peer has made it, and only its card says where it is
	}
	if e := p.ep; e != nil && e.State() == btl.Failed && !e.IsReportable() {
		m.bury(e) // nobody was told of it
	}
	if e := p.ep; e != nil && e.State() != btl.Drained {
		e.MarkReportable()
		return e, nil
	}
	if err := m.ConnectError(rank); err != nil {
		return nil, err
	}
	if err := m.cannotReach(p); err != nil {
		return nil, err
	}
	if err := m.revive(); err != nil {
		return nil, m.NewError(rank, btl.ClassDevice, btl.SideLocal, nativeOf(asErrno(err)), err)
	}
	if i := slices.IndexFunc(m.strangers, func(s *stranger) bool { return s.known && int(s.hello.from) == rank }); i >= 0 {
		m.consider(m.strangers[i], p) // the peer was first
		if p.ep != nil && p.ep.State() == btl.Up {
			p.ep.MarkReportable()
			return p.ep, nil
		}
	}
	epoch := p.nextEpoch()
	if epoch == 0 {
		return nil, m.NewError(rank, btl.ClassProtocol, btl.SideRemote, "", base.ErrEpochs)
	}
	e := m.newEndpoint(p, epoch)
	e.MarkReportable()
	e.ask()
	return e, nil
}

// bury ends an endpoint of which nobody knows.
func (m *module) bury(e *endpoint) {
	e.tearDown()
	m.Drained(e)
	m.Discard(e)
}

func (m *module) unreachable(why string) error {
	return fmt.Errorf("rail %s: %w: %s", m.cfg.Rail, btl.ErrUnreachable, why)
}

// nextEpoch is the epoch of our next incarnation; 0 if there is none left.
func (p *peer) nextEpoch() uint32 {
	if p.epoch == math.MaxUint32 {
		return 0
	}
	return max(p.least, p.epoch+1)
}

// revive makes the listener anew if it has broken, at the port that the card says.
func (m *module) revive() error {
	if m.listener >= 0 {
		return nil
	}
	fd, _, err := m.listenAt(m.port)
	if err != nil {
		return err
	}
	if err := m.entrance.add(fd); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	m.listener = fd
	return nil
}

func (m *module) peer(rank int) *peer {
	p := m.peers[rank]
	if p == nil {
		p = &peer{rank: rank}
		m.peers[rank] = p
	}
	return p
}

// watchTraffic adds the connection of an endpoint to those that are polled.
func (m *module) watchTraffic(fd int, e *endpoint) error {
	if err := m.traffic.add(fd); err != nil {
		return err
	}
	for len(m.byFD) <= fd {
		m.byFD = append(m.byFD, nil)
	}
	m.byFD[fd] = e
	return nil
}

// watchDoor adds a connection in its handshake.
func (m *module) watchDoor(fd int, g guest) error {
	if err := m.entrance.add(fd); err != nil {
		return err
	}
	m.door[fd] = g
	return nil
}

// unwatchDoor takes it out; its owner has forgotten it already.
func (m *module) unwatchDoor(fd int) { m.entrance.remove(fd) }

// forget takes an endpoint out of what turns look at.
func (m *module) forget(e *endpoint) {
	if i := slices.Index(m.ready, e); i >= 0 {
		m.ready = slices.Delete(m.ready, i, i+1)
	}
	if m.hot == e {
		m.pollHot()
		m.hot = nil
		if len(m.ready) > 0 {
			m.hot = m.ready[0]
		}
		m.look = true
	}
}

// Progress implements btl.Module.
func (m *module) Progress() int {
	m.inside = true
	n := 0
	if len(m.leftover) > 0 {
		n += m.takeLeftovers()
	}
	if h := m.hot; h != nil {
		if got := h.receive(); got > 0 {
			n += got
			m.silent = 0
			if m.spoken++; m.spoken == unpollAfter {
				m.unpollHot()
			}
		} else {
			m.silent++
		}
	}
	m.turns++
	if m.look || len(m.ready) > 1 && (m.turns%aroundEvery == 0 || m.silent > coldTurns) {
		n += m.lookAround()
	}
	news := uint32(0)
	if a := m.alarm; a != nil && a.news.Load() != 0 {
		news = a.news.Swap(0)
	}
	if len(m.blocked) > 0 && (m.turns%blockedEvery == 0 || news != 0) {
		m.flushBlocked()
	}
	if m.Unsettled || news != 0 || m.turns%attendEvery == 0 {
		n += m.attend()
	}
	if len(m.dirty) > 0 {
		m.flushDirty()
	}
	if len(m.owing) > 0 {
		m.settleDebts(news&newsStalled != 0)
	}
	m.inside = false
	if a := m.alarm; a != nil {
		// While the rank sleeps the poller tells of room in full sockets (outs).
		a.turned(len(m.owing) > 0 || len(m.blocked) > len(m.outs) || len(m.strangers) > 0 || m.Unsettled || m.unheard > 0)
	}
	return n
}

// lookAround reads all connections that have something.
func (m *module) lookAround() int {
	m.look = false
	n := 0
	for _, ev := range m.traffic.poll() {
		e := m.byFD[ev.Fd]
		if e == nil || e.State() != btl.Up {
			continue // closed by what was handed up in this turn
		}
		if got := e.receive(); got > 0 {
			n += got
			if m.hot != e && e.State() == btl.Up {
				m.pollHot()
				m.hot, m.silent = e, 0
			}
		}
	}
	return n
}

// unpollHot takes the connection that has spoken last out of what the poller looks for: each turn reads it anyway, and to tell the poller takes
// whoever sends about a thirtieth of a short message's time.
func (m *module) unpollHot() {
	if m.armed {
		m.spoken = 0 // some goroutine makes turns while the rank's driver sleeps
		return
	}
	_ = m.traffic.control(unix.EPOLL_CTL_MOD, m.hot.fd, 0)
}

// pollHot takes that back, before another connection takes its place or the rank sleeps.
func (m *module) pollHot() {
	if m.spoken >= unpollAfter {
		_ = m.traffic.control(unix.EPOLL_CTL_MOD, m.hot.fd, unix.EPOLLIN)
	}
	m.spoken = 0
}

// attend does what is not for every turn.
func (m *module) attend() int {
	if m.Closed {
		return 0
	}
	before := m.now
	m.now = m.cfg.Clock.Now()
	m.Unsettled, m.crowd = false, false
	m.excuse(before)
	n, come := 0, false
	for _, ev := range m.entrance.poll() {
		if fd := int(ev.Fd); fd == m.listener {
			come = true
		} else if fd == m.link.fd {
			m.link.hear()
		} else if g := m.door[fd]; g != nil {
			n += g.step()
		}
	}
	if m.link.unsure {
		m.lookAtLink()
	}
	n += m.attendStrangers()
	if come { // last, so that those who were here before have had their say
		m.letIn()
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
	if m.DrainRail() {
		n++
	}
	m.freeBuffers(mostBuffers)
	m.Unsettled = m.Unsettled || m.crowd || m.link.unsure || len(m.dialing)+len(m.unwritable) > 0 || m.deferred != nil || m.Waiting()
	return n
}

// Fail implements btl.Module.
func (m *module) Fail(cause error) {
	m.failRail(m.ErrorBecause(btl.AllPeers, btl.ClassDevice, cause))
}

// failRail fails all endpoints at once. The listener stays open if it works: the rail may come back,
// and its address is known.
func (m *module) failRail(err *btl.Error) {
	if m.listener >= 0 && !listens(m.listener) {
		_ = unix.Close(m.listener)
		m.listener = -1
	}
	m.FailRail(err)
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

// listens reports whether a listener works.
func listens(fd int) bool {
	v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && v != 0
}

// closeAll closes what the module itself holds.
func (m *module) closeAll() error {
	var errs []error
	if m.alarm != nil {
		errs = append(errs, m.alarm.close())
	}
	for _, p := range []*poller{m.traffic, m.entrance} {
		if p != nil {
			errs = append(errs, p.close())
		}
	}
	if m.link.fd >= 0 {
		errs = append(errs, unix.Close(m.link.fd))
		m.link.fd = -1
	}
	if m.listener >= 0 {
		errs = append(errs, unix.Close(m.listener))
		m.listener = -1
	}
	m.freeBuffers(0)
	return errors.Join(errs...)
}
