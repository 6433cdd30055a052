package tcp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl"
)

// cable stands for the interface of a module: the test decides its state.
type cable struct {
	state interfaceState
	tell  int // the test writes reports here
}

var well = interfaceState{name: "eth7", up: true, carrier: true}

// plug gives a module a cable.
func plug(t *testing.T, m *module) *cable {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fds[1]) })
	c := &cable{well, fds[1]}
	m.link = link{fd: fds[0], carrier: true, state: func(netip.Addr) (interfaceState, error) { return c.state, nil }}
	require.NoError(t, m.handshakePoller.add(fds[0]))
	return c
}

// is reports a change, and sets the current state.
func (c *cable) is(t *testing.T, s interfaceState) {
	c.state = s
	_, err := unix.Write(c.tell, []byte("news"))
	require.NoError(t, err)
}

// TestLinkDownFailsConnections: when the interface goes down, or loses its link, connections to
// other machines fail at once. Until it is back, no new ones are made.
func TestLinkDownFailsConnections(t *testing.T) {
	for _, broken := range []struct {
		state interfaceState
		why   error
	}{
		{interfaceState{name: "eth7", up: false}, errLinkDown},
		{interfaceState{name: "eth7", up: true}, errNoCarrier},
	} {
		c := newCouple(t, Config{})
		cable := plug(t, c.a)
		c.a.peers.Of(1)[0].onOtherMachine = true
		op := post(t, c.ea, []byte{1})
		cable.is(t, broken.state)
		until(t, "the failure", func() bool { return c.va.drained == 1 }, c.a)
		require.ErrorIs(t, c.va.failed, broken.why)
		require.ErrorContains(t, c.va.failed, "eth7")
		require.Equal(t, []any{1, btl.ClassPath, btl.SideLocal, "ENETDOWN"}, []any{c.va.failed.Peer, c.va.failed.Class, c.va.failed.Side, c.va.failed.Native})
		require.Error(t, op.err)

		err := connectToOtherMachine(t, c.a, c.b)
		require.ErrorIs(t, err, broken.why)
		var be *btl.Error
		require.ErrorAs(t, err, &be)
		require.NotErrorIs(t, err, btl.ErrUnreachable, "it may be back")
		cable.is(t, well)
		until(t, "the link to be back", func() bool { return c.a.link.down == nil }, c.a)
		c.until(t, "the peer's end to fail", func() bool { return c.eb.State() == btl.Drained })
		c.connect(t)
	}
}

// connectToOtherMachine connects m to the address that peer would have on another machine.
func connectToOtherMachine(t *testing.T, m, peer *module) error {
	c, ok := parseRailAddress(peer.Address())
	require.True(t, ok)
	c.host[0]++
	c.addresses[0].AddrPort = netip.AddrPortFrom(netip.MustParseAddr("203.0.113.78"), c.addresses[0].Port())
	m.locals[0].Address = netip.MustParseAddr("203.0.113.77")
	defer func() { m.locals[0].Address = loopback4 }()
	_, err := m.Connect(btl.Path{Peer: int(c.rank)}, c.encode())
	return err
}

// TestLinkDownSparesThisMachine: peers on this machine stay reachable, whatever happens to the
// interface.
func TestLinkDownSparesThisMachine(t *testing.T) {
	c := newCouple(t, Config{})
	plug(t, c.a).is(t, interfaceState{name: "eth7"})
	until(t, "the report to be read", func() bool { return c.a.link.down != nil }, c.a)
	op := post(t, c.ea, []byte{1})
	c.until(t, "a message", func() bool { return op.done })
	c.ea.Fail(errors.New("again"))
	c.until(t, "both ends to fail", func() bool { return c.ea.State() == btl.Drained && c.eb.State() == btl.Drained })
	c.connect(t)
}

// TestAddressTakenFailsRail: without its address the whole rail fails, until it has the address
// again.
func TestAddressTakenFailsRail(t *testing.T) {
	c := newCouple(t, Config{})
	cable := plug(t, c.a)
	cable.is(t, interfaceState{})
	until(t, "the end of the rail", func() bool { return c.va.drained == 1 }, c.a)
	require.Equal(t, []any{btl.AllPeers, btl.ClassDevice, btl.SideLocal, "EADDRNOTAVAIL"}, []any{c.va.failed.Peer, c.va.failed.Class, c.va.failed.Side, c.va.failed.Native})
	require.ErrorIs(t, c.va.failed, errNoAddress)
	_, err := c.a.Connect(btl.Path{Peer: 1}, c.b.Address())
	require.ErrorIs(t, err, errNoAddress)
	cable.is(t, interfaceState{}) // a change of something else
	until(t, "the report to be read", func() bool { return !c.a.Unsettled }, c.a)
	require.Equal(t, 1, c.va.drained)
	cable.is(t, well)
	until(t, "the address to be back", func() bool { return c.a.link.down == nil }, c.a)
	c.until(t, "the peer's end to fail", func() bool { return c.eb.State() == btl.Drained })
	c.connect(t)
}

// TestInterfaceWithoutLinkReportsKeepsConnections: an interface that never reports a link is not
// taken to have lost it.
func TestInterfaceWithoutLinkReportsKeepsConnections(t *testing.T) {
	c := newCouple(t, Config{})
	cable := plug(t, c.a)
	c.a.peers.Of(1)[0].onOtherMachine = true
	c.a.link.carrier = false
	looked := false
	c.a.link.state = func(netip.Addr) (interfaceState, error) {
		looked = true
		return cable.state, nil
	}
	cable.is(t, interfaceState{name: "eth7", up: true})
	until(t, "the report to be read", func() bool { return looked }, c.a)
	require.NoError(t, c.a.link.down)
	require.Equal(t, btl.Up, c.ea.State())
}

// TestReportsOfOtherInterfacesAreIgnored: changes of other interfaces are ignored while the
// module's own interface works.
func TestReportsOfOtherInterfacesAreIgnored(t *testing.T) {
	about := func(kind uint16, index uint32) []byte {
		b := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
		binary.NativeEndian.PutUint32(b, uint32(len(b)))
		binary.NativeEndian.PutUint16(b[4:], kind)
		binary.NativeEndian.PutUint32(b[unix.SizeofNlMsghdr+4:], index)
		return b
	}
	l := link{index: 7}
	for _, kind := range []uint16{unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR} {
		require.True(t, l.isAbout(about(kind, 7)))
		require.False(t, l.isAbout(about(kind, 8)))
		require.True(t, l.isAbout(append(about(kind, 8), about(kind, 7)...)))
	}
	require.True(t, l.isAbout([]byte("what is this")))
	for _, down := range []error{errNoAddress, errLinkDown} {
		l.down = down
		require.True(t, l.isAbout(about(unix.RTM_NEWADDR, 8)), "another interface may have it now")
		require.True(t, l.isAbout(about(unix.RTM_NEWLINK, 7)))
		require.False(t, l.isAbout(about(unix.RTM_NEWLINK, 8)))
	}
}

// TestLinkStateUnknownIsLookedUpAgain: if the module cannot determine the state, it tries again.
func TestLinkStateUnknownIsLookedUpAgain(t *testing.T) {
	c := newCouple(t, Config{})
	cable := plug(t, c.a)
	c.a.peers.Of(1)[0].onOtherMachine = true
	cable.is(t, interfaceState{name: "eth7"})
	until(t, "the failure", func() bool { return c.va.drained == 1 }, c.a)
	looked := 0
	c.a.link.state = func(netip.Addr) (interfaceState, error) {
		if looked++; looked < 3 {
			require.Error(t, c.a.link.down)
			return interfaceState{}, unix.EMFILE
		}
		return cable.state, nil
	}
	cable.is(t, well)
	until(t, "the link to be back", func() bool { return c.a.link.down == nil }, c.a)
	require.Equal(t, 3, looked)
	require.False(t, c.a.link.unsure)
}

// TestNextInterfaceNeedsNoLinkReport: a link of one interface does not count for the next interface
// that gets the address.
func TestNextInterfaceNeedsNoLinkReport(t *testing.T) {
	c := newCouple(t, Config{})
	cable := plug(t, c.a)
	c.a.peers.Of(1)[0].onOtherMachine = true
	cable.is(t, interfaceState{})
	until(t, "the end of the rail", func() bool { return c.va.drained == 1 }, c.a)
	cable.is(t, interfaceState{name: "tun0", index: 9, up: true})
	until(t, "the address to be back", func() bool { return !errors.Is(c.a.link.down, errNoAddress) }, c.a)
	require.NoError(t, c.a.link.down)
}

// TestConnectAfterLinkDownFails: Connect does not return a connection made by a peer if the link
// has since gone.
func TestConnectAfterLinkDownFails(t *testing.T) {
	leavesNothing(t)
	va := &mate{}
	cfg := Config{Size: 2, Local: loopback4, Secret: secret}
	a, b := newAt(t, cfg, 0, va), newAt(t, cfg, 1, &mate{})
	eb := connectTo(t, b, 0, a.Address())
	until(t, "a connection", func() bool { return eb.phase == phaseReady }, a, b)
	plug(t, a).is(t, interfaceState{name: "eth7"})
	until(t, "the report to be read", func() bool { return a.link.down != nil }, a)
	require.ErrorIs(t, connectToOtherMachine(t, a, b), errLinkDown)
	until(t, "the peer's end to fail", func() bool { return eb.State() == btl.Drained }, a, b)
	require.Zero(t, va.drained, "the layer above does not know of the endpoint")
}

// TestStateOfFindsInterfaceOfEachAddress: each address of this machine is found on its interface.
func TestStateOfFindsInterfaceOfEachAddress(t *testing.T) {
	list, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range list {
		addrs, err := i.Addrs()
		require.NoError(t, err)
		for _, a := range addrs {
			addr := netip.MustParsePrefix(a.String()).Addr()
			if addr.IsLinkLocalUnicast() {
				addr = addr.WithZone(i.Name)
			}
			s, err := stateOf(addr)
			require.NoError(t, err)
			require.Equal(t, i.Flags&net.FlagUp != 0, s.up, "%v: %+v", addr, s)
			require.NotEmpty(t, s.name)
		}
	}
	s, err := stateOf(netip.MustParseAddr("203.0.113.77"))
	require.NoError(t, err)
	require.Equal(t, interfaceState{}, s)
}
