package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/btl"
)

// several returns the encoded address of a module with several addresses.
func several(host byte, prefixes ...string) []byte {
	c := railAddress{size: 2, host: [16]byte{host}, frag: 4096}
	for _, text := range prefixes {
		p := netip.MustParsePrefix(text)
		c.addresses = append(c.addresses, netAddress{netip.AddrPortFrom(p.Addr(), 1), uint8(p.Bits())})
	}
	return c.encode()
}

// TestPathsUseTheNetworkInCommon: of the addresses of two interfaces, the pair in one network is
// used. There is one rail.
func TestPathsUseTheNetworkInCommon(t *testing.T) {
	for what, c := range map[string]struct {
		a, b  []string
		paths []string
	}{
		"IPv6 only there":      {[]string{"10.0.0.1/24", "fd00::1/64"}, []string{"fd00::2/64"}, []string{"fd00::1 fd00::2"}},
		"IPv4 without a route": {[]string{"10.0.0.1/24", "fd00::1/64"}, []string{"10.5.0.2/24", "fd00::2/64"}, []string{"fd00::1 fd00::2"}},
		"the second IPv4":      {[]string{"10.1.1.1/32", "10.9.0.1/24"}, []string{"10.2.1.1/32", "10.9.0.2/24"}, []string{"10.9.0.1 10.9.0.2"}},
		"both families":        {[]string{"10.0.0.1/24", "fd00::1/64"}, []string{"10.0.0.2/24", "fd00::2/64"}, []string{"10.0.0.1 10.0.0.2", "fd00::1 fd00::2"}},
		"routers":              {[]string{"10.0.0.1/24", "2001:db8::1/64"}, []string{"10.5.0.2/24", "2001:db8:1::2/64"}, []string{"10.0.0.1 10.5.0.2", "2001:db8::1 2001:db8:1::2"}},
		"one shared address":   {[]string{"10.0.0.1/24", "fd00::1/64"}, []string{"10.0.0.1/24", "fd00::2/64"}, []string{"fd00::1 fd00::2"}},
		"no family in common":  {[]string{"10.0.0.1/24"}, []string{"fd00::2/64"}, nil},
	} {
		a, b := several(1, c.a...), several(2, c.b...)
		require.Equal(t, len(c.paths) > 0, len(pairsOf([][]byte{a}, [][]byte{b}, true)) == 1, what)
		ours, _ := parseRailAddress(a)
		theirs, _ := parseRailAddress(b)
		var paths []string
		for _, p := range pathsBetween(ours.addresses, theirs.addresses, false) {
			paths = append(paths, fmt.Sprintf("%v %v", p.local.Addr(), p.remote.Addr()))
		}
		require.Equal(t, c.paths, paths, what)
	}
}

// TestPathsOfBothRanksAreEqual: both ends find the same paths in the same order, each once.
func TestPathsOfBothRanksAreEqual(t *testing.T) {
	addresses := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) netAddress {
		n := rapid.IntRange(1, 9).Draw(t, "host")
		if rapid.Bool().Draw(t, "IPv6") {
			a := netip.MustParseAddr(fmt.Sprintf("%s::%d", rapid.SampledFrom([]string{"fd00", "2001:db8", "fe80"}).Draw(t, "network"), n))
			return netAddress{netip.AddrPortFrom(a, 1), rapid.SampledFrom([]uint8{64, 128}).Draw(t, "bits")}
		}
		a := netip.MustParseAddr(fmt.Sprintf("%s.%d", rapid.SampledFrom([]string{"10.0.0", "10.0.1", "192.0.2", "127.0.0"}).Draw(t, "network"), n))
		return netAddress{netip.AddrPortFrom(a, 1), rapid.SampledFrom([]uint8{8, 24, 32}).Draw(t, "bits")}
	}), 0, maxAddresses, func(a netAddress) netip.Addr { return a.Addr() })
	rapid.Check(t, func(t *rapid.T) {
		a, b, sameHost := addresses.Draw(t, "ours"), addresses.Draw(t, "theirs"), rapid.Bool().Draw(t, "one machine")
		for i := range b { // two ranks listen at different ports
			b[i].AddrPort = netip.AddrPortFrom(b[i].Addr(), 2)
		}
		here, there := pathsBetween(a, b, sameHost), pathsBetween(b, a, sameHost)
		require.LessOrEqual(t, len(here), maxPaths)
		require.Len(t, there, len(here))
		for i, p := range here {
			require.Equal(t, path{there[i].remote, there[i].local}, p)
			require.NotContains(t, here[:i], p)
		}
		best := relate(&railAddress{addresses: a}, &railAddress{addresses: b})
		if sameHost {
			require.Equal(t, best != unrelated, len(here) > 0)
		}
	})
}

// TestAddressesOfOneInterfaceAreOneRail: a rail uses at most one address of each network of its
// interface, and no more than maxAddresses.
func TestAddressesOfOneInterfaceAreOneRail(t *testing.T) {
	ip := netip.MustParseAddr
	found := []candidate{
		{1, "eth0", ip("10.0.0.1"), 24, true, false, ""},
		{1, "eth0", ip("10.0.0.2"), 24, true, false, ""},
		{1, "eth0", ip("fd00::1"), 64, true, false, "temporary"},
		{1, "eth0", ip("fd00::2"), 64, true, false, ""},
		{1, "eth0", ip("fd01::1"), 64, true, false, "deprecated"},
		{2, "eth1", ip("10.3.0.1"), 16, true, false, ""},
	}
	names := func(list []Interface, err error) (names []string) {
		require.NoError(t, err)
		for _, i := range list {
			names = append(names, i.Rail+" "+i.Address.String())
		}
		return names
	}
	require.Equal(t, []string{"eth0 10.0.0.1", "eth0 fd00::2", "eth1 10.3.0.1"}, names(choose("n1", found, nil, nil)))
	require.Equal(t, []string{"10.0.0.1 10.0.0.1", "10.0.0.2 10.0.0.2", "fd00::1 fd00::1"}, names(choose("n1", found, []string{"10.0.0.1", "10.0.0.2", "fd00::1"}, nil)))
	require.Equal(t, []string{"eth0 fd00::2"}, names(choose("n1", found, []string{"fd00::/16"}, nil)))
	require.Equal(t, []string{"eth0 10.0.0.1", "eth1 10.3.0.1"}, names(choose("n1", found, []string{"10.0.0.0/8"}, nil)))
	require.Equal(t, []string{"eth0 10.0.0.2", "eth0 fd00::2", "eth1 10.3.0.1"}, names(choose("n1", found, nil, []string{"10.0.0.1"})))

	many := found[:0:0]
	for n := range 20 {
		many = append(many, candidate{1, "eth0", ip(fmt.Sprintf("10.0.%d.1", n)), 24, true, false, ""})
	}
	list, err := choose("n1", many, nil, nil)
	require.NoError(t, err)
	require.Len(t, list, maxAddresses)
}

// dual is a module with an IPv4 and an IPv6 address.
func dual(t *testing.T, rank int, v *mate) *module {
	return newAt(t, Config{Size: 2, Secret: secret, Local: loopback4, LocalBits: 8, Others: []Interface{{Address: loopback6, Bits: 128}}}, rank, v)
}

// TestModuleOfTwoFamiliesReachesPeersOfEither: a module listens at all its addresses, and connects
// from the address that leads to the peer.
func TestModuleOfTwoFamiliesReachesPeersOfEither(t *testing.T) {
	for _, there := range []netip.Addr{loopback4, loopback6} {
		for _, first := range []int{0, 1} { // the end that connects
			c := &couple{va: &mate{}, vb: &mate{}}
			c.a, c.b = dual(t, 0, c.va), newAt(t, Config{Size: 2, Secret: secret, Local: there}, 1, c.vb)
			if first == 0 {
				c.ea = connectTo(t, c.a, 1, c.b.Address())
			} else {
				c.eb = connectTo(t, c.b, 0, c.a.Address())
			}
			c.connect(t)
			for _, e := range []btl.Endpoint{c.ea, c.eb} {
				op := post(t, e, []byte{1})
				c.until(t, "a fragment", func() bool { return op.done })
				require.Equal(t, there, e.(*endpoint).local)
			}
		}
	}
}

// TestDialTriesNextPath: if an address of the peer does not answer, the next attempt goes to
// another one.
func TestDialTriesNextPath(t *testing.T) {
	a, b := dual(t, 0, &mate{}), dual(t, 1, &mate{})
	theirs, ok := parseRailAddress(b.Address())
	require.True(t, ok)
	theirs.addresses[0].AddrPort = netip.AddrPortFrom(loopback4, 1) // where nothing listens
	e := connectTo(t, a, 1, theirs.encode())
	until(t, "the connection", func() bool { return e.phase == phaseReady }, a, b)
	require.Equal(t, loopback6, e.local)
}

// TestDialTriesNextPathAfterStranger: another process listens at an address of the peer. It hangs
// up, or sends nothing until the attempt times out.
func TestDialTriesNextPathAfterStranger(t *testing.T) {
	for _, isSilent := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		if !isSilent {
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_ = conn.Close()
				}
			}()
		}
		a, b := dual(t, 0, &mate{}), dual(t, 1, &mate{})
		clock := fakeClock(1)
		a.cfg.Clock, a.now = &clock, 1
		a.cfg.ConnectTimeout = a.cfg.HandshakeTimeout
		theirs, ok := parseRailAddress(b.Address())
		require.True(t, ok)
		theirs.addresses[0].AddrPort = netip.MustParseAddrPort(l.Addr().String())
		e := connectTo(t, a, 1, theirs.encode())
		until(t, "the connection", func() bool {
			if isSilent && e.pause.path == 0 || e.attempt == nil {
				clock += fakeClock(time.Millisecond)
			}
			return e.phase == phaseReady || e.State() != btl.Up
		}, a, b)
		require.Equal(t, loopback6, e.local)
	}
}

// TestLosingOneAddressFailsItsConnectionsOnly: a rail continues with its remaining addresses.
func TestLosingOneAddressFailsItsConnectionsOnly(t *testing.T) {
	c := &couple{va: &mate{}, vb: &mate{}}
	c.a, c.b = dual(t, 0, c.va), dual(t, 1, c.vb)
	cable := plug(t, c.a)
	gone := loopback6
	c.a.link.state = func(a netip.Addr) (interfaceState, error) {
		if a == gone {
			return interfaceState{}, nil
		}
		return well, nil
	}
	c.connect(t)
	c.until(t, "the connection", func() bool { return c.ea.(*endpoint).phase == phaseReady })
	require.Equal(t, loopback4, c.ea.(*endpoint).local)
	cable.is(t, well)
	c.until(t, "the report to be read", func() bool { return c.a.locals[1].gone })
	op := post(t, c.ea, []byte{1})
	c.until(t, "a fragment", func() bool { return op.done })

	gone = loopback4
	cable.is(t, well)
	c.until(t, "both ends to fail", func() bool { return c.ea.State() == btl.Drained && c.eb.State() == btl.Drained })
	require.ErrorIs(t, c.va.failed, errNoAddress)
	require.Equal(t, 1, c.va.failed.Peer, "not the whole rail")
	require.Equal(t, btl.SideLocal, c.va.failed.Side)
	c.ea = connectTo(t, c.a, 1, c.b.Address())
	c.until(t, "the connection", func() bool { return c.ea.(*endpoint).phase == phaseReady })
	require.Equal(t, loopback6, c.ea.(*endpoint).local)
}

// TestModuleTakesAddressThatComes: an address of another network is added and published, and does
// not disturb existing connections. A second address of a network is not added.
func TestModuleTakesAddressThatComes(t *testing.T) {
	m := newMoving(t)
	before := m.a.Address()
	six := Interface{"eth7", loopback6, 128, 0, true, "eth7"}
	m.next[0] = []Interface{at(loopback4), at(other4), six}
	m.cables[0].is(t, well)
	m.until(t, "the address", func() bool { return len(m.a.locals) == 2 })
	require.Equal(t, 1, m.moved[0])
	require.NotEqual(t, before, m.a.Address())
	require.True(t, m.a.isLocal(loopback4) && m.a.isLocal(loopback6))
	op := post(t, m.ea, []byte{1})
	m.until(t, "a fragment", func() bool { return op.done })
	require.False(t, slices.ContainsFunc(m.a.locals, func(l local) bool { return l.gone }))
}
