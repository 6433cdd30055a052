package tcp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/btl/transport"
)

// late is an address that the machine does not have yet.
type late struct {
	has   bool
	moved int
}

// config is the configuration of a module that waits for a loopback address.
func (l *late) config() Config {
	return Config{
		Size: 2, Secret: secret, Rail: "tcp:eth1", Word: 2, Awaits: "n1 has no interface or address eth1",
		Find: func() []Interface {
			if !l.has {
				return nil
			}
			return []Interface{{"eth1", loopback4, 8, 2, true, "eth1"}}
		},
		Moved: func() { l.moved++ },
	}
}

// TestConnectOfModuleWithoutAddressFailsUntilItComes: a module without an address cannot connect,
// and its peer cannot connect to it. Once the machine has the address, the module connects,
// although the peer still does not know the address.
func TestConnectOfModuleWithoutAddressFailsUntilItComes(t *testing.T) {
	l := &late{}
	c := &couple{va: &mate{}, vb: &mate{}}
	c.a, c.b = newAt(t, l.config(), 0, c.va), newAt(t, Config{Size: 2, Local: loopback4, Secret: secret}, 1, c.vb)
	before := c.a.Address()
	for range 2 {
		_, err := c.a.Connect(btl.Path{Peer: 1}, c.b.Address())
		require.ErrorContains(t, err, "n1 has no interface or address eth1")
		require.NotErrorIs(t, err, btl.ErrUnreachable)
		require.ErrorContains(t, c.a.Absent(false), "n1 has no interface or address eth1")
		_, err = c.b.Connect(btl.Path{Peer: 0}, before)
		require.ErrorIs(t, err, btl.ErrNoAddress)
		require.NotErrorIs(t, err, btl.ErrUnreachable)
	}
	l.has = true
	require.NoError(t, c.a.Absent(true))
	require.Equal(t, 1, l.moved)
	require.NotEqual(t, before, c.a.Address())

	var err error
	c.ea, err = c.a.Connect(btl.Path{Peer: 1}, c.b.Address())
	require.NoError(t, err)
	c.until(t, "the peer to be connected", func() bool {
		c.eb, err = c.b.Connect(btl.Path{Peer: 0}, before)
		return err == nil
	})
	for _, e := range []btl.Endpoint{c.ea, c.eb} {
		op := post(t, e, []byte{1})
		c.until(t, "a fragment", func() bool { return op.done })
	}

	// The peer still cannot make the connection; the other end can.
	c.ea.Fail(btl.ErrInjected)
	c.until(t, "both ends to fail", func() bool { return c.ea.State() == btl.Drained && c.eb.State() == btl.Drained })
	_, err = c.b.Connect(btl.Path{Peer: 0}, before)
	require.ErrorIs(t, err, btl.ErrNoAddress)
	c.connect(t) // this passes the address
}

// TestModulesWithoutAddressesConnectOnceTheyAreTold: if neither module had an address, they need
// each other's later address.
func TestModulesWithoutAddressesConnectOnceTheyAreTold(t *testing.T) {
	la, lb := &late{}, &late{}
	c := &couple{va: &mate{}, vb: &mate{}}
	c.a, c.b = newAt(t, la.config(), 0, c.va), newAt(t, lb.config(), 1, c.vb)
	require.Len(t, transport.Pairs(1, 1, leads([][]byte{c.a.Address()}, [][]byte{c.b.Address()}), true), 1)
	before := c.b.Address()
	la.has, lb.has = true, true
	require.NoError(t, c.a.Absent(false))
	_, err := c.a.Connect(btl.Path{Peer: 1}, before)
	require.ErrorIs(t, err, btl.ErrNoAddress)
	require.NoError(t, c.b.Absent(false))
	c.connect(t)
}

// TestAwaited: the module waits for words that name nothing. It waits for single addresses only if
// no other word names something.
func TestAwaited(t *testing.T) {
	ip := netip.MustParseAddr
	found := []candidate{
		{1, "lo", ip("127.0.0.1"), 8, true, true, ""},
		{2, "eth0", ip("10.0.0.2"), 16, true, false, ""},
		{3, "eth1", ip("fe80::1"), 64, true, false, ""},
		{4, "eth2", ip("10.2.0.2"), 16, false, false, ""},
	}
	for _, c := range []struct {
		include, exclude []string
		want             []awaitedWord
	}{
		{nil, nil, nil},
		{[]string{"eth0"}, nil, nil},
		{[]string{"eth0", "eth2", "10.2.0.0/16"}, nil, nil}, // eth2 is down, and has an address
		{[]string{"eth0", "ens7"}, nil, []awaitedWord{{"ens7", 2}}},
		{[]string{"eth1", "eth0"}, nil, []awaitedWord{{"eth1", 1}}},
		{[]string{"10.0.0.0/16", "10.1.0.0/16"}, nil, []awaitedWord{{"10.1.0.0/16", 2}}},
		{[]string{"10.0.0.2", "10.0.0.3", "127.0.0.9"}, nil, nil},
		{[]string{"10.0.0.3"}, nil, []awaitedWord{{"10.0.0.3", 1}}},
		{[]string{"ens7"}, nil, []awaitedWord{{"ens7", 1}}},
		{[]string{"eth0"}, []string{"eth0"}, nil},
		{[]string{"a", "b", "c", "d", "e", "f"}, nil, []awaitedWord{{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}}},
	} {
		chosen, _ := choose("n2", found, c.include, c.exclude)
		require.Equal(t, c.want, awaited(found, c.include, c.exclude, chosen), "%v without %v", c.include, c.exclude)
	}
}

// TestOpenWithAbsentAddress: if the user names an address that does not exist yet, its rail is
// Absent until it comes.
func TestOpenWithAbsentAddress(t *testing.T) {
	ip := netip.MustParseAddr
	found := []candidate{{1, "lo0", ip("127.0.0.1"), 8, true, true, ""}}
	moved := 0
	opened, err := openAmong(&transport.Env{
		Size: 2, Settings: settings(t, "tcp.include", "lo1,lo0,127.0.0.0/30"), Events: &mate{}, Wakeup: btltest.NewPipeWakeup(t),
		AsyncProgress: func() func() { return func() {} }, Moved: func() { moved++ },
	}, func() ([]candidate, error) { return found, nil })
	require.NoError(t, err)
	require.Len(t, opened.Modules, 2)
	for _, r := range opened.Modules {
		defer r.Module.Close()
	}
	there, absent := opened.Modules[0], opened.Modules[1]
	require.Equal(t, []string{"tcp:lo0", "tcp:lo1"}, []string{there.Module.Attrs().Name, absent.Module.Attrs().Name})
	require.Equal(t, there.Module.Attrs().BandwidthMBps, absent.Module.Attrs().BandwidthMBps)
	require.NoError(t, there.Absent(true))
	require.ErrorContains(t, absent.Absent(true), "has no interface or address lo1")
	require.NotEmpty(t, absent.Module.Address())

	found = append(found, candidate{2, "lo1", ip("127.0.0.2"), 8, true, true, ""})
	require.NoError(t, absent.Absent(true))
	require.Equal(t, 1, moved)
	c, ok := parseRailAddress(absent.Module.Address())
	require.True(t, ok)
	require.Equal(t, ip("127.0.0.2"), c.addresses[0].Addr())
	require.EqualValues(t, 1, c.word)
}

// TestAbsentWordDoesNotTakeAnAddressInUse: each address is one rail.
func TestAbsentWordDoesNotTakeAnAddressInUse(t *testing.T) {
	ip := netip.MustParseAddr
	found := []candidate{{1, "lo", ip("127.0.0.1"), 8, true, true, ""}, {2, "eth1", ip("fe80::1"), 64, true, false, ""}}
	w := source{word: "127.0.0.0/8", place: 3}
	free := func(netip.Addr) bool { return false }
	require.Equal(t, []Interface{{"lo", ip("127.0.0.1"), 8, 3, true, "127.0.0.1"}}, w.now(found, free))
	require.Empty(t, w.now(found, func(a netip.Addr) bool { return a == ip("127.0.0.1") }), "in use")
	w.exclude = []string{"lo"}
	require.Empty(t, w.now(found, free), "excluded")
	require.Empty(t, source{word: "eth1", place: 1}.now(found, free), "its only address is link-local")
}

// TestPairsOfMissingAddresses: a missing address is paired with addresses that the same word names.
func TestPairsOfMissingAddresses(t *testing.T) {
	// The addresses of the first words exist.
	words := func(host byte, words []uint8, prefixes ...string) (list [][]byte) {
		there := addresses(host, prefixes...)
		for i, w := range words {
			c := railAddress{size: 2, host: [16]byte{host}, frag: 4096}
			if i < len(there) {
				c, _ = parseRailAddress(there[i])
			}
			c.word = w
			list = append(list, c.encode())
		}
		return list
	}
	for what, c := range map[string]struct {
		a, b [][]byte
		want []transport.Pair
	}{
		"one end lacks its second": {
			words(1, []uint8{1, 2}, "10.0.0.1/24"), words(2, []uint8{1, 2}, "10.0.0.2/24", "10.1.0.2/24"), spares(pairList(0, 0, 1, 1), 0, 1),
		},
		"one end lacks its first": {
			words(1, []uint8{2, 1}, "10.1.0.1/24"), words(2, []uint8{1, 2}, "10.0.0.2/24", "10.1.0.2/24"), spares(pairList(0, 1, 1, 0), 0, 0),
		},
		"both lack the second": {
			words(1, []uint8{1, 2}, "10.0.0.1/24"), words(2, []uint8{1, 2}, "10.0.0.2/24"), pairList(0, 0, 1, 1),
		},
		"each lacks another one": { // routers may connect the existing ones
			words(1, []uint8{1, 2}, "10.0.0.1/24"), words(2, []uint8{2, 1}, "10.1.0.2/24"),
			append(pairList(0, 0), transport.Pair{Local: 1, Extra: true}, transport.Pair{Remote: 1, Extra: true}),
		},
		"both lack everything": {words(1, []uint8{1}), words(2, []uint8{1}), pairList(0, 0)},
		"one lacks another's word": {
			words(1, []uint8{1, 2}, "10.0.0.1/24"), words(2, []uint8{1, 3}, "10.0.0.2/24"), pairList(0, 0),
		},
		"without words at the other": {words(1, []uint8{1, 2}, "10.0.0.1/24"), addresses(2, "10.0.0.2/24"), pairList(0, 0)},
	} {
		require.ElementsMatch(t, c.want, pairsOf(c.a, c.b, true), what)
	}
}

// TestInterfaceWithoutLinkAtStartIsAbsent: a rail is absent if its interface is down, has no link,
// or lacks the address. Ranks of this machine need only the address.
func TestInterfaceWithoutLinkAtStartIsAbsent(t *testing.T) {
	m := newAt(t, Config{Size: 2, Local: loopback4, Secret: secret}, 0, &mate{})
	require.NoError(t, m.Absent(true), "loopback is not watched")
	cable := plug(t, m)
	for _, c := range []struct {
		state         interfaceState
		local, remote error
	}{
		{well, nil, nil},
		{interfaceState{name: "eth7"}, nil, errLinkDown},
		{interfaceState{name: "eth7", up: true}, nil, errNoCarrier},
		{interfaceState{}, errNoAddress, errNoAddress},
	} {
		cable.state = c.state
		require.ErrorIs(t, m.Absent(true), c.remote)
		require.ErrorIs(t, m.Absent(false), c.local)
	}
}

// TestFirstConnectWithoutLinkFails: if a connection is made before the interface has had a link,
// the layer above probes it before use, because the peer may be out of reach. The module tries it
// nevertheless, because some interfaces never report a link.
func TestFirstConnectWithoutLinkFails(t *testing.T) {
	cfg := Config{Size: 2, Local: loopback4, Secret: secret}
	a, b := newAt(t, cfg, 0, &mate{}), newAt(t, cfg, 1, &mate{})
	cable := plug(t, a)
	begin := func(s interfaceState) {
		cable.state = s
		a.locals[0].Address = netip.MustParseAddr("203.0.113.77")
		a.beginToWatch()
		a.locals[0].Address = loopback4
	}
	begin(interfaceState{name: "eth7", index: 3, up: true})
	require.ErrorIs(t, connectToOtherMachine(t, a, b), errNoCarrier)
	require.NotErrorIs(t, connectToOtherMachine(t, a, b), errNoCarrier)

	begin(interfaceState{name: "eth7", index: 3})
	require.ErrorIs(t, a.link.down, errLinkDown)
	require.ErrorIs(t, connectToOtherMachine(t, a, newAt(t, cfg, 1, &mate{})), errLinkDown)
	cable.is(t, well)
	until(t, "the link to be there", func() bool { return a.link.down == nil }, a)
}
