package tcp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

var other4 = netip.MustParseAddr("127.0.0.2")

// at returns an address that an interface has now.
func at(a netip.Addr) Interface { return Interface{"eth7", a, 8, 0, true, "eth7"} }

// moving are two modules whose machines may give them other addresses.
type moving struct {
	*couple
	next   [2][]Interface // the addresses that they find
	cables [2]*cable
	moved  [2]int
}

func newMoving(t *testing.T) *moving {
	m := &moving{couple: &couple{va: &mate{}, vb: &mate{}}}
	for i := range 2 {
		cfg := Config{
			Size: 2, Secret: secret, Local: loopback4,
			Find:  func() []Interface { return m.next[i] },
			Moved: func() { m.moved[i]++ },
		}
		if i == 0 {
			m.a = newAt(t, cfg, 0, m.va)
			m.cables[i] = plug(t, m.a)
		} else {
			m.b = newAt(t, cfg, 1, m.vb)
			m.cables[i] = plug(t, m.b)
		}
	}
	m.connect(t)
	return m
}

func (m *moving) drained() bool {
	return m.ea.State() == btl.Drained && m.eb.State() == btl.Drained
}

// TestModulesThatLoseTheirAddressesGetOthers: the machines of both ends lose their addresses, and
// get others at once or later. The modules listen at the new addresses, report them, and connect
// again.
func TestModulesThatLoseTheirAddressesGetOthers(t *testing.T) {
	leavesNothing(t)
	m := newMoving(t)
	before := [][]byte{m.a.Address(), m.b.Address()}
	op := post(t, m.ea, []byte{1})
	i := []Interface{at(other4)}
	m.next[1] = i
	for _, c := range m.cables {
		c.is(t, interfaceState{})
	}
	m.until(t, "the end of both rails", m.drained)
	require.True(t, op.done)
	require.ErrorIs(t, m.va.failed, errNoAddress)
	_, err := m.a.Connect(btl.Path{Peer: 1}, m.b.Address())
	require.ErrorIs(t, err, errNoAddress)
	require.Equal(t, [2]int{0, 1}, m.moved)
	m.next[0] = i
	m.cables[0].is(t, well)
	m.cables[0].is(t, interfaceState{}) // and gone again
	m.until(t, "the other address", func() bool { return m.moved == [2]int{1, 1} })
	for i, side := range []*module{m.a, m.b} {
		require.NotEqual(t, before[i], side.Address())
		c, ok := parseRailAddress(side.Address())
		require.True(t, ok)
		require.Equal(t, []netAddress{{netip.AddrPortFrom(other4, side.locals[0].port), 8}}, c.addresses)
		require.NoError(t, side.Absent(true))
		require.True(t, side.link.isMoved)
	}
	m.connect(t)
	for _, e := range []btl.Endpoint{m.ea, m.eb} {
		op := post(t, e, []byte{1})
		m.until(t, "a fragment", func() bool { return op.done && op.err == nil })
	}
	require.False(t, m.a.link.isMoved || m.b.link.isMoved)
}

// TestModuleReturnsToFirstAddress: among addresses of one network, the module prefers its first
// address, because peers know it. Otherwise it keeps its current one.
func TestModuleReturnsToFirstAddress(t *testing.T) {
	m := newMoving(t)
	first, second, third := at(loopback4), at(other4), at(netip.MustParseAddr("127.0.0.3"))
	m.next[0] = []Interface{second}
	m.cables[0].is(t, interfaceState{})
	m.until(t, "the other address", func() bool { return m.moved[0] == 1 })
	m.until(t, "both ends to fail", m.drained)
	uses := func(a netip.Addr) bool { return len(m.a.locals) == 1 && m.a.isLocal(a) }
	m.next[0] = []Interface{second, third}
	m.a.findAddresses()
	require.True(t, uses(other4))
	m.next[0] = []Interface{second, first}
	m.a.findAddresses()
	require.True(t, uses(loopback4))
	require.Equal(t, 2, m.moved[0])
	m.connect(t)
}

// TestAddressThatReturnsIsNoNews: the module continues with the address that it had.
func TestAddressThatReturnsIsNoNews(t *testing.T) {
	m := newMoving(t)
	before := m.a.Address()
	m.a.link.down = errNoAddress
	m.a.link.fd = -1 // without the kernel's reports
	_, err := m.a.Connect(btl.Path{Peer: 1}, m.b.Address())
	require.NoError(t, err, "the endpoint that is up")
	require.Error(t, m.a.link.down)
	m.next[0] = []Interface{at(loopback4)}
	m.until(t, "the address", func() bool {
		_, _ = m.a.Connect(btl.Path{Peer: 1}, m.b.Address())
		return m.a.link.down == nil
	})
	require.Equal(t, before, m.a.Address())
	require.Zero(t, m.moved[0])
}

// TestPeerMovedRedirectsConnection: an attempt to connect to the old address of the peer continues
// at the new one. Bytes that are not an address of that peer's module change nothing.
func TestPeerMovedRedirectsConnection(t *testing.T) {
	m := newMoving(t)
	m.ea.Fail(btl.ErrInjected)
	m.until(t, "both ends to fail", m.drained)
	old := m.b.Address()
	m.next[1] = []Interface{at(other4)}
	m.b.link.down = errNoAddress
	m.b.findAddresses()
	ep, err := m.a.Connect(btl.Path{Peer: 1}, old)
	require.NoError(t, err)
	p := ep.(*endpoint).p
	c, _ := parseRailAddress(old)
	c.nonce[0]++
	for _, bad := range [][]byte{nil, []byte("nonsense"), m.a.Address(), c.encode()} {
		m.a.PeerMoved(1, bad)
	}
	m.a.PeerMoved(0, m.b.Address())
	require.Equal(t, loopback4, p.addresses[0].Addr())
	m.a.PeerMoved(1, m.b.Address())
	require.Equal(t, other4, p.addresses[0].Addr())
	m.until(t, "the connection", func() bool { return ep.(*endpoint).phase == phaseReady })
}

// TestSourceNow: while a rail is open, it may use all addresses of its interface that the user's
// lists permit. If the interface has none, and the user has named a network, the rail may use
// addresses of another interface.
func TestSourceNow(t *testing.T) {
	ip := netip.MustParseAddr
	on := func(name, addr string) candidate {
		return candidate{1, name, ip(addr), map[bool]int{true: 24, false: 64}[ip(addr).Is4()], true, name == "lo", ""}
	}
	eth0 := Interface{"eth0", ip("10.0.0.2"), 24, 0, true, "eth0"}
	second, inNetwork := eth0, eth0
	second.Word, inNetwork.Word = 2, 1
	tentative := on("eth0", "2001:db8::9")
	tentative.unfit = "not usable yet"
	network := []string{"10.0.0.0/8"}
	for what, c := range map[string]struct {
		first   Interface
		include []string
		has     []candidate
		want    []string
	}{
		"nothing":               {eth0, nil, []candidate{on("lo", "127.0.0.1")}, nil},
		"another interface":     {eth0, nil, []candidate{on("eth1", "10.0.0.3")}, nil},
		"another network":       {eth0, nil, []candidate{on("eth0", "192.168.0.9")}, []string{"192.168.0.9"}},
		"all of the interface":  {eth0, nil, []candidate{on("eth0", "2001:db8::1"), on("eth0", "10.0.0.9"), on("eth0", "1.2.3.4")}, []string{"1.2.3.4", "10.0.0.9", "2001:db8::1"}},
		"one that is taken":     {eth0, nil, []candidate{on("eth0", "10.0.0.77"), on("eth0", "10.0.0.9")}, []string{"10.0.0.9"}},
		"link-local addresses":  {eth0, nil, []candidate{on("eth0", "169.254.0.1"), on("eth0", "fe80::1")}, nil},
		"an excluded one":       {eth0, nil, []candidate{on("eth0", "10.9.0.1")}, nil},
		"one that is tentative": {eth0, nil, []candidate{tentative}, nil},
		"a named interface":     {second, []string{"ib0", "eth0"}, []candidate{on("ib0", "10.0.0.3"), on("eth0", "10.5.0.3")}, []string{"10.5.0.3"}},
		"one named by itself":   {second, []string{"10.5.0.4", "eth0"}, []candidate{on("eth0", "10.5.0.4"), on("eth0", "10.5.0.3")}, []string{"10.5.0.3"}},
		"a named network":       {inNetwork, network, []candidate{on("eth0", "192.168.0.9"), on("eth1", "10.5.0.3")}, []string{"10.5.0.3"}},
		"its own interface":     {inNetwork, network, []candidate{on("eth1", "10.4.0.3"), on("eth0", "10.5.0.3")}, []string{"10.5.0.3"}},
		"loopback of a network": {inNetwork, []string{"0.0.0.0/0"}, []candidate{on("lo", "127.0.0.1")}, nil},
	} {
		s, ok := sourceOf(c.first, c.include, []string{"10.9.0.0/16"})
		require.True(t, ok, what)
		var got []string
		for _, i := range s.now(c.has, func(a netip.Addr) bool { return a == ip("10.0.0.77") }) {
			require.Equal(t, c.first.Word, i.Word, what)
			got = append(got, i.Address.String())
		}
		require.Equal(t, c.want, got, what)
	}
	for what, c := range map[string]struct {
		first   Interface
		include []string
	}{
		"loopback":         {Interface{"lo", ip("127.0.0.1"), 8, 0, true, "lo"}, nil},
		"a single address": {inNetwork, []string{"10.0.0.2"}},
	} {
		_, ok := sourceOf(c.first, c.include, nil)
		require.False(t, ok, what)
	}
}
