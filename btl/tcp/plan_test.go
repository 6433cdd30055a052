package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/btltest"
	"github.com/mpigo/mpigo/btl/transport"
)

// opened opens the rails of a machine with the addresses that list returns, and the user's
// settings.
func opened(t *testing.T, list func() ([]candidate, error), keysAndValues ...string) transport.Opened {
	t.Helper()
	o, err := openAmong(&transport.Env{
		Size: 2, Settings: settings(t, keysAndValues...), Events: &mate{}, Wakeup: btltest.NewPipeWakeup(t), AsyncProgress: func() func() { return func() {} },
	}, list)
	require.NoError(t, err)
	for _, rail := range o.Modules {
		t.Cleanup(func() { require.NoError(t, rail.Module.Close()) })
	}
	return o
}

func loopbackOnly() ([]candidate, error) {
	return []candidate{{1, "lo", loopback4, 8, true, true, ""}}, nil
}

// loopbackList returns a value of tcp.include with the given number of addresses of this machine.
func loopbackList(addresses int) (list string) {
	for n := range addresses {
		list += fmt.Sprintf(",127.0.0.%d", n+1)
	}
	return list[1:]
}

// TestRailsOfSeveralConnections: each interface has as many rails as the user wants. Their names
// have the number of the connection, and each has a share of the bandwidth. The first rail of each
// interface comes first.
func TestRailsOfSeveralConnections(t *testing.T) {
	one := opened(t, loopbackOnly, "tcp.include", loopbackList(2))
	more := opened(t, loopbackOnly, "tcp.include", loopbackList(2), "tcp.connections", "3")
	require.Empty(t, more.LeftOut)
	names := func(o transport.Opened) (list []string) {
		for n, rail := range o.Modules {
			require.Equal(t, fmt.Sprintf("127.0.0.%d", n%2+1), rail.Port)
			list = append(list, rail.Module.Attrs().Name)
		}
		return list
	}
	require.Equal(t, []string{"tcp:127.0.0.1", "tcp:127.0.0.2"}, names(one))
	require.Equal(t, []string{
		"tcp:127.0.0.1", "tcp:127.0.0.2", "tcp:127.0.0.1#2", "tcp:127.0.0.2#2", "tcp:127.0.0.1#3", "tcp:127.0.0.2#3",
	}, names(more))
	whole := one.Modules[0].Module.Attrs().BandwidthMBps
	for n, rail := range more.Modules {
		require.Equal(t, whole/3, rail.Module.Attrs().BandwidthMBps)
		a, ok := parseRailAddress(rail.Module.Address())
		require.True(t, ok)
		require.EqualValues(t, n/2, a.connection)
	}
}

// TestManyInterfacesGetFewerConnections: a rank has no more rails than two ranks use, unless it has
// more interfaces. All interfaces get the same number.
func TestManyInterfacesGetFewerConnections(t *testing.T) {
	for addresses, each := range map[int]int{4: 8, 5: 6, 20: 1, 40: 1} {
		o := opened(t, loopbackOnly, "tcp.include", loopbackList(addresses), "tcp.connections", "8")
		require.Len(t, o.Modules, addresses*each)
		if each == 8 {
			require.Empty(t, o.LeftOut)
			continue
		}
		require.Len(t, o.LeftOut, 1)
		require.EqualError(t, o.LeftOut[0], fmt.Sprintf(
			"rail tcp: tcp.connections=8: only %d for each of %d interfaces, because a rank has at most 32 rails over TCP", each, addresses))
	}
}

// TestConnectionWithoutPortIsLeftOut: an interface with ports for only one connection has one rail,
// and the reason is reported once.
func TestConnectionWithoutPortIsLeftOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	o := opened(t, loopbackOnly, "tcp.include", "127.0.0.1", "tcp.connections", "4", "tcp.ports", fmt.Sprintf("%[1]d-%[1]d", port))
	require.Len(t, o.Modules, 1)
	require.Len(t, o.LeftOut, 1)
	require.ErrorContains(t, o.LeftOut[0], "rail tcp:lo#2: listen on 127.0.0.1: none of ports")
	require.ErrorContains(t, o.LeftOut[0], "each rank of a machine takes 4 ports: give more ports, or set tcp.connections lower)")
}

// TestConnectionsShareAnAddressThatComes: all rails of an interface that comes late get its
// address, and rails of another interface do not.
func TestConnectionsShareAnAddressThatComes(t *testing.T) {
	has := false
	o := opened(t, func() ([]candidate, error) {
		found, _ := loopbackOnly()
		if has {
			found = append(found, candidate{9, "eth9", netip.MustParseAddr("127.0.0.9"), 8, true, false, ""})
		}
		return found, nil
	}, "tcp.include", "127.0.0.1,eth9,eth8", "tcp.connections", "2")
	require.Len(t, o.Modules, 6)
	has = true
	ports := map[uint16]bool{}
	for _, rail := range o.Modules {
		m := rail.Module.(*module)
		if rail.Port == "lo 127.0.0.1" {
			continue
		}
		require.Equal(t, rail.Port == "eth9", rail.Absent(false) == nil)
		for _, l := range m.locals {
			require.Equal(t, "127.0.0.9", l.Address.String())
			ports[l.port] = true
		}
	}
	require.Len(t, ports, 2, "each has a listener of its own")
}

// interfaces returns the encoded addresses of a machine's rails, with the given number of
// connections for each interface.
func interfaces(host byte, connections int, prefixes ...string) (list [][]byte) {
	for n := range connections {
		for _, b := range addresses(host, prefixes...) {
			c, _ := parseRailAddress(b)
			c.connection = uint8(n)
			list = append(list, c.encode())
		}
	}
	return list
}

// TestConnectionsLeadToTheirOwn: a rail leads to rails with the same number, so that the number of
// pairs grows linearly with the number of connections. A rail whose number the peer does not have
// leads nowhere. Both ends find the same pairs.
func TestConnectionsLeadToTheirOwn(t *testing.T) {
	a, b := []string{"10.0.0.1/24", "10.0.0.2/24"}, []string{"10.0.0.8/24", "10.0.0.9/24"}
	for _, c := range []struct{ here, there, pairs int }{{1, 1, 4}, {4, 4, 16}, {8, 3, 12}, {1, 8, 4}} {
		ours, theirs := interfaces(1, c.here, a...), interfaces(2, c.there, b...)
		pairs := pairsOf(ours, theirs, true)
		require.Len(t, pairs, c.pairs)
		seen := pairsOf(theirs, ours, false)
		for n, p := range pairs {
			require.Equal(t, p.Local/2, p.Remote/2, "the connection")
			require.Equal(t, transport.Pair{Local: p.Remote, Remote: p.Local, Alternate: p.Alternate}, seen[n])
			require.False(t, p.Extra)
		}
	}
	// A rail with a missing address does not lead to rails of other numbers either.
	late := railAddress{size: 2, host: [16]byte{1}, frag: 4096, word: 3, connection: 1}
	lead := leads([][]byte{late.encode()}, interfaces(2, 2, "10.0.0.8/24"))
	require.Zero(t, lead(0, 0))
	require.Zero(t, lead(0, 1), "another word")
	theirs := railAddress{size: 2, host: [16]byte{2}, frag: 4096, word: 3}
	lead = leads([][]byte{late.encode()}, [][]byte{theirs.encode()})
	require.Zero(t, lead(0, 0))
	theirs.connection = 1
	require.NotZero(t, leads([][]byte{late.encode()}, [][]byte{theirs.encode()})(0, 0))
}

// TestEachInterfaceKeepsAPairOfSeveralConnections: if two ranks have more pairs than they may use,
// each interface keeps one, even if one end has more interfaces.
func TestEachInterfaceKeepsAPairOfSeveralConnections(t *testing.T) {
	all := []string{"10.0.0.1/8", "10.0.0.2/8", "10.0.0.3/8", "10.0.0.4/8"}
	for there := 1; there <= len(all); there++ {
		ours := interfaces(1, 8, all...)
		var theirs [][]byte
		for n := range 8 {
			for i := range there {
				c, _ := parseRailAddress(addresses(2, fmt.Sprintf("10.0.1.%d/8", i+1))[0])
				c.connection = uint8(n)
				theirs = append(theirs, c.encode())
			}
		}
		for _, most := range []int{32, 20, 4} {
			here := transport.Limit([][]transport.Pair{pairsOf(ours, theirs, true)}, most)[0]
			require.Len(t, here, most)
			opposite := transport.Limit([][]transport.Pair{pairsOf(theirs, ours, false)}, most)[0]
			used := map[string]bool{}
			for n, p := range here {
				require.Equal(t, [2]int{p.Local, p.Remote}, [2]int{opposite[n].Remote, opposite[n].Local})
				used[fmt.Sprint("here ", p.Local%len(all))], used[fmt.Sprint("there ", p.Remote%there)] = true, true
			}
			require.Len(t, used, len(all)+there, "%d interfaces there, %d pairs", there, most)
		}
	}
}

// TestExplainNamesAnInterfaceOnce: a message does not repeat an address for each connection.
func TestExplainNamesAnInterfaceOnce(t *testing.T) {
	require.Contains(t, Explain(interfaces(1, 4, "10.0.0.1/24"), interfaces(2, 2, "fd00::2/64")), "10.0.0.1 here and fd00::2 there: no address family in common;")
}
