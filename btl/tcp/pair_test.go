package tcp

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/transport"
)

// addresses returns the encoded addresses of a machine.
func addresses(host byte, prefixes ...string) (list [][]byte) {
	for _, a := range prefixes {
		p := netip.MustParsePrefix(a)
		c := railAddress{size: 2, host: [16]byte{host}, addresses: []netAddress{{netip.AddrPortFrom(p.Addr(), 1), uint8(p.Bits())}}, frag: 4096}
		list = append(list, c.encode())
	}
	return list
}

// pairsOf returns the pairs of a rank with our addresses and a rank with their addresses.
func pairsOf(a, b [][]byte, weAreLower bool) []transport.Pair {
	return transport.Pairs(len(a), len(b), leads(a, b), weAreLower)
}

// crossed adds alternates to pairs: local, remote, local, remote...
func crossed(list []transport.Pair, places ...int) []transport.Pair {
	for _, p := range pairList(places...) {
		p.Alternate = true
		list = append(list, p)
	}
	return list
}

// pairList makes pairs of places: local, remote, local, remote...
func pairList(places ...int) (list []transport.Pair) {
	for i := 0; i < len(places); i += 2 {
		list = append(list, transport.Pair{Local: places[i], Remote: places[i+1]})
	}
	return list
}

// spares adds pairs of level 1: local, remote, local, remote...
func spares(list []transport.Pair, places ...int) []transport.Pair {
	for _, p := range pairList(places...) {
		p.Level = 1
		list = append(list, p)
	}
	return list
}

func TestPairs(t *testing.T) {
	for what, c := range map[string]struct {
		a, b [][]byte
		want []transport.Pair
	}{
		"one network":           {addresses(1, "10.0.0.1/24"), addresses(2, "10.0.0.2/24"), pairList(0, 0)},
		"two, in another order": {addresses(1, "10.0.0.1/24", "10.1.0.1/24"), addresses(2, "10.1.0.2/24", "10.0.0.2/24"), spares(pairList(0, 1, 1, 0), 0, 0, 1, 1)},
		"one has more":          {addresses(1, "10.0.0.1/24", "10.1.0.1/24"), addresses(2, "10.1.0.2/24"), spares(pairList(1, 0), 0, 0)},
		"joined by routers": {
			addresses(1, "10.0.0.1/32", "10.0.1.1/32", "192.0.2.1/24"), addresses(2, "10.0.0.2/32", "10.0.1.2/32"),
			crossed(append(spares(pairList(0, 0, 1, 1), 2, 0), transport.Pair{Local: 2, Remote: 1, Extra: true, Level: 1}), 0, 1, 1, 0),
		},
		"a network of one side":    {addresses(1, "10.0.0.1/8"), addresses(2, "10.9.0.2/32"), pairList(0, 0)},
		"public and private":       {addresses(1, "192.0.2.1/24"), addresses(2, "10.9.0.2/32"), pairList(0, 0)},
		"two families":             {addresses(1, "10.0.0.1/24"), addresses(2, "2001:db8::1/64"), nil},
		"loopback of one machine":  {addresses(1, "127.0.0.1/8", "127.0.0.2/8"), addresses(1, "127.0.0.1/8", "127.0.0.2/8"), crossed(pairList(0, 0, 1, 1), 0, 1, 1, 0)},
		"loopback of two machines": {addresses(1, "127.0.0.1/8"), addresses(2, "127.0.0.1/8"), nil},
		"loopback and another":     {addresses(1, "127.0.0.1/8"), addresses(1, "10.0.0.1/24"), nil},
		"links":                    {addresses(1, "fe80::1/64"), addresses(2, "fe80::2/64"), pairList(0, 0)},
		"one address of both": {
			addresses(1, "192.168.56.1/24", "10.1.0.1/24"), addresses(2, "192.168.56.1/24", "10.2.0.1/24"), pairList(1, 1),
		},
		"only one address of both": {addresses(1, "192.168.56.1/24"), addresses(2, "192.168.56.1/24"), nil},
		"one address, one machine": {addresses(1, "10.1.0.1/24"), addresses(1, "10.1.0.1/24"), pairList(0, 0)},
		"not an address":           {[][]byte{{1, 2, 3}, nil}, addresses(2, "10.0.0.1/24"), nil},
	} {
		require.Equal(t, c.want, pairsOf(c.a, c.b, true), what)
		var seen []transport.Pair
		for _, p := range pairsOf(c.b, c.a, false) {
			p.Local, p.Remote = p.Remote, p.Local
			seen = append(seen, p)
		}
		require.Equal(t, c.want, seen, "%s, seen from the other end", what)
	}
}

// TestExplain: if no address leads to the other machine, the text names the addresses of both and
// says why they do not work.
func TestExplain(t *testing.T) {
	const advice = "; mpirun-go doctor -v lists all addresses of the machines, and why some are not used"
	for _, c := range []struct {
		a, b [][]byte
		want string
	}{
		{addresses(1, "127.0.0.1/8"), addresses(2, "10.77.0.2/16"), "127.0.0.1 here and 10.77.0.2 there: loopback does not lead to another machine"},
		{addresses(1, "127.0.0.1/8"), addresses(2, "127.0.0.1/8"), "127.0.0.1 here and 127.0.0.1 there: loopback does not lead to another machine"},
		{addresses(1, "127.0.0.1/8"), addresses(1, "10.77.0.2/16"), "127.0.0.1 here and 10.77.0.2 there: loopback leads to loopback only"},
		{addresses(1, "10.0.0.1/24"), addresses(2, "fd00::2/64"), "10.0.0.1 here and fd00::2 there: no address family in common"},
		{addresses(1, "172.16.5.1/24"), addresses(2, "172.16.5.1/24"), "172.16.5.1 here and 172.16.5.1 there: both machines have 172.16.5.1"},
		{addresses(1, "fe80::1/64"), addresses(2, "2001:db8::2/64"), "fe80::1 here and 2001:db8::2 there: a link-local address leads to its own network only"},
		{
			addresses(1, "172.16.5.1/24"), addresses(2, "172.16.5.1/24", "fd00::2/64"),
			"172.16.5.1 here and 172.16.5.1, fd00::2 there: both machines have 172.16.5.1, no address family in common",
		},
		{addresses(1, "10.0.0.1/24"), nil, "10.0.0.1 here and no address there: one end has no address"},
		{[][]byte{{1, 2, 3}}, addresses(2, "10.0.0.1/24"), "? here and 10.0.0.1 there: not an address of this version"},
		{
			slices.Repeat(addresses(1, "127.0.0.1/8"), 7), addresses(2, "10.0.0.1/24"),
			"127.0.0.1, 127.0.0.1, 127.0.0.1, 127.0.0.1, 127.0.0.1, 127.0.0.1, … here and 10.0.0.1 there: loopback does not lead to another machine",
		},
	} {
		require.Empty(t, pairsOf(c.a, c.b, true))
		require.Equal(t, c.want+advice, Explain(c.a, c.b))
	}
}
