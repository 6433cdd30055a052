package tcp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

var other4 = netip.MustParseAddr("127.0.0.2")

// at is an address of an interface that a late one has now.
func at(a netip.Addr) Interface { return Interface{"eth7", a, 8, 0, true} }

// moving are two modules whose machines may give them other addresses.
type moving struct {
	*couple
	next   [2]*Interface // what they find
	cables [2]*cable
	moved  [2]int
}

func newMoving(t *testing.T) *moving {
	m := &moving{couple: &couple{va: &mate{}, vb: &mate{}}}
	for i := range 2 {
		cfg := Config{
			Size: 2, Secret: secret, Local: loopback4,
			Find: func() (Interface, bool) {
				if m.next[i] == nil {
					return Interface{}, false
				}
				return *m.next[i], true
			},
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

// TestModulesThatLoseTheirAddressesGetOthers: the machines of both ends lose the addresses, and get
// others at once or later. The modules listen there, report it, and connect again.
func TestModulesThatLoseTheirAddressesGetOthers(t *testing.T) {
	leavesNothing(t)
	m := newMoving(t)
	before := [][]byte{m.a.Address(), m.b.Address()}
	op := post(t, m.ea, []byte{1})
	i := at(other4)
	m.next[1] = &i
	for _, c := range m.cables {
		c.is(t, interfaceState{})
	}
	m.until(t, "the end of both rails", m.drained)
	require.True(t, op.done)
	require.ErrorIs(t, m.va.failed, errNoAddress)
	_, err := m.a.Connect(btl.Path{Peer: 1}, m.b.Address())
	require.ErrorIs(t, err, errNoAddress)
	require.Equal(t, [2]int{0, 1}, m.moved)
	m.next[0] = &i
	m.cables[0].is(t, well)
	m.cables[0].is(t, interfaceState{}) // and gone again
	m.until(t, "the other address", func() bool { return m.moved == [2]int{1, 1} })
	for i, side := range []*module{m.a, m.b} {
		require.NotEqual(t, before[i], side.Address())
		c, ok := parseRailAddress(side.Address())
		require.True(t, ok)
		require.Equal(t, netip.AddrPortFrom(other4, side.port), c.address)
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

// TestModuleReturnsToBetterAddress: an address that has led to no peer is left for a better one.
func TestModuleReturnsToBetterAddress(t *testing.T) {
	m := newMoving(t)
	first, second := at(loopback4), at(other4)
	m.next[0] = &second
	m.cables[0].is(t, interfaceState{})
	m.until(t, "the other address", func() bool { return m.moved[0] == 1 })
	m.until(t, "both ends to fail", m.drained)
	m.next[0] = &first
	m.until(t, "the first address", func() bool {
		_ = m.a.lookForAddress()
		return m.moved[0] == 2
	})
	require.Equal(t, loopback4, m.a.cfg.Local)
	m.connect(t)
	m.next[0] = &second
	require.True(t, m.a.lookForAddress())
	require.Equal(t, 2, m.moved[0], "the address works")
}

// TestAddressThatReturnsIsNoNews: the module goes on with the address that it had.
func TestAddressThatReturnsIsNoNews(t *testing.T) {
	m := newMoving(t)
	before := m.a.Address()
	m.a.link.down = errNoAddress
	m.a.link.fd = -1 // without the kernel's reports
	_, err := m.a.Connect(btl.Path{Peer: 1}, m.b.Address())
	require.NoError(t, err, "the endpoint that is up")
	require.Error(t, m.a.link.down)
	first := at(loopback4)
	m.next[0] = &first
	m.until(t, "the address", func() bool {
		_, _ = m.a.Connect(btl.Path{Peer: 1}, m.b.Address())
		return m.a.link.down == nil
	})
	require.Equal(t, before, m.a.Address())
	require.Zero(t, m.moved[0])
}

// TestPeerMovedRedirectsConnection: a connection that is being made to the old address of the peer
// goes on at the new one. What is no address of that peer's module changes nothing.
func TestPeerMovedRedirectsConnection(t *testing.T) {
	m := newMoving(t)
	m.ea.Fail(btl.ErrInjected)
	m.until(t, "both ends to fail", m.drained)
	i, old := at(other4), m.b.Address()
	m.next[1] = &i
	m.b.link.down = errNoAddress
	m.b.findAddress()
	ep, err := m.a.Connect(btl.Path{Peer: 1}, old)
	require.NoError(t, err)
	p := ep.(*endpoint).p
	c, _ := parseRailAddress(old)
	c.nonce[0]++
	for _, bad := range [][]byte{nil, []byte("nonsense"), m.a.Address(), c.encode()} {
		m.a.PeerMoved(1, bad)
	}
	m.a.PeerMoved(0, m.b.Address())
	require.Equal(t, loopback4, p.address.Addr())
	m.a.PeerMoved(1, m.b.Address())
	require.Equal(t, other4, p.address.Addr())
	m.until(t, "the connection", func() bool { return ep.(*endpoint).phase == phaseReady })
}

// TestSuccessor: what takes the place of an address is of the same interface or network, and of the
// same family. The nearest is taken.
func TestSuccessor(t *testing.T) {
	ip := netip.MustParseAddr
	on := func(name, addr string) candidate {
		return candidate{1, name, ip(addr), map[bool]int{true: 24, false: 64}[ip(addr).Is4()], true, name == "lo"}
	}
	eth0 := Interface{"eth0", ip("10.0.0.2"), 24, 0, true}
	for what, c := range map[string]struct {
		first   Interface
		include []string
		has     []candidate
		want    string
	}{
		"nothing":                {eth0, nil, []candidate{on("lo", "127.0.0.1")}, ""},
		"another interface":      {eth0, nil, []candidate{on("eth1", "10.0.0.3")}, ""},
		"another network":        {eth0, nil, []candidate{on("eth0", "192.168.0.9")}, "192.168.0.9"},
		"the same network first": {eth0, nil, []candidate{on("eth0", "1.2.3.4"), on("eth0", "10.0.0.9")}, "10.0.0.9"},
		"the first itself":       {eth0, nil, []candidate{on("eth0", "10.0.0.1"), on("eth0", "10.0.0.2")}, "10.0.0.2"},
		"one that is taken":      {eth0, nil, []candidate{on("eth0", "10.0.0.77"), on("eth0", "10.0.0.9")}, "10.0.0.9"},
		"another family":         {eth0, nil, []candidate{on("eth0", "2001:db8::1")}, ""},
		"IPv6":                   {Interface{"eth0", ip("2001:db8::7"), 64, 0, true}, nil, []candidate{on("eth0", "10.0.0.1"), on("eth0", "fe80::1"), on("eth0", "2001:db8::8")}, "2001:db8::8"},
		"a link-local address":   {eth0, nil, []candidate{on("eth0", "169.254.0.1")}, ""},
		"an excluded one":        {eth0, nil, []candidate{on("eth0", "10.9.0.1")}, ""},
		"a named interface":      {Interface{"eth0", ip("10.0.0.2"), 24, 2, true}, []string{"ib0", "eth0"}, []candidate{on("ib0", "10.0.0.3"), on("eth0", "10.5.0.3")}, "10.5.0.3"},
		"a named network":        {Interface{"eth0", ip("10.0.0.2"), 24, 1, true}, []string{"10.0.0.0/8"}, []candidate{on("eth0", "192.168.0.9"), on("eth1", "10.5.0.3")}, "10.5.0.3"},
		"its own interface":      {Interface{"eth0", ip("10.0.0.2"), 24, 1, true}, []string{"10.0.0.0/8"}, []candidate{on("eth1", "10.4.0.3"), on("eth0", "10.5.0.3")}, "10.5.0.3"},
		"loopback of a network":  {Interface{"eth0", ip("10.0.0.2"), 24, 1, true}, []string{"0.0.0.0/0"}, []candidate{on("lo", "127.0.0.1")}, ""},
	} {
		s, ok := successorOf(c.first, c.include)
		require.True(t, ok, what)
		got, ok := s.come(c.has, []string{"10.9.0.0/16"}, func(a netip.Addr) bool { return a == ip("10.0.0.77") })
		require.Equal(t, c.want != "", ok, what)
		if ok {
			require.Equal(t, Interface{got.Name, ip(c.want), got.Bits, c.first.Word, true}, got, what)
		}
	}
	for what, c := range map[string]struct {
		first   Interface
		include []string
	}{
		"loopback":         {Interface{"lo", ip("127.0.0.1"), 8, 0, true}, nil},
		"a single address": {Interface{"eth0", ip("10.0.0.2"), 24, 1, true}, []string{"10.0.0.2"}},
	} {
		_, ok := successorOf(c.first, c.include)
		require.False(t, ok, what)
	}
}
