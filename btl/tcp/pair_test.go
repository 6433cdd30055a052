package tcp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPairs(t *testing.T) {
	cards := func(host byte, addresses ...string) (list [][]byte) {
		for _, a := range addresses {
			p := netip.MustParsePrefix(a)
			c := card{size: 2, host: [16]byte{host}, address: netip.AddrPortFrom(p.Addr(), 1), bits: uint8(p.Bits()), frag: 4096}
			list = append(list, c.encode())
		}
		return list
	}
	for what, c := range map[string]struct {
		a, b [][]byte
		want []Pair
	}{
		"one network":              {cards(1, "10.0.0.1/24"), cards(2, "10.0.0.2/24"), []Pair{{0, 0}}},
		"two, in another order":    {cards(1, "10.0.0.1/24", "10.1.0.1/24"), cards(2, "10.1.0.2/24", "10.0.0.2/24"), []Pair{{0, 1}, {1, 0}}},
		"one has more":             {cards(1, "10.0.0.1/24", "10.1.0.1/24"), cards(2, "10.1.0.2/24"), []Pair{{1, 0}}},
		"joined by routers":        {cards(1, "10.0.0.1/32", "10.0.1.1/32", "192.0.2.1/24"), cards(2, "10.0.0.2/32", "10.0.1.2/32"), []Pair{{0, 0}, {1, 1}}},
		"a network of one side":    {cards(1, "10.0.0.1/8"), cards(2, "10.9.0.2/32"), []Pair{{0, 0}}},
		"public and private":       {cards(1, "192.0.2.1/24"), cards(2, "10.9.0.2/32"), []Pair{{0, 0}}},
		"two families":             {cards(1, "10.0.0.1/24"), cards(2, "2001:db8::1/64"), nil},
		"loopback of one machine":  {cards(1, "127.0.0.1/8", "127.0.0.2/8"), cards(1, "127.0.0.1/8", "127.0.0.2/8"), []Pair{{0, 0}, {1, 1}}},
		"loopback of two machines": {cards(1, "127.0.0.1/8"), cards(2, "127.0.0.1/8"), nil},
		"loopback and another":     {cards(1, "127.0.0.1/8"), cards(1, "10.0.0.1/24"), nil},
		"links":                    {cards(1, "fe80::1/64"), cards(2, "fe80::2/64"), []Pair{{0, 0}}},
		"one address of both": {
			cards(1, "192.168.56.1/24", "10.1.0.1/24"), cards(2, "192.168.56.1/24", "10.2.0.1/24"), []Pair{{1, 1}},
		},
		"only one address of both": {cards(1, "192.168.56.1/24"), cards(2, "192.168.56.1/24"), nil},
		"one address, one machine": {cards(1, "10.1.0.1/24"), cards(1, "10.1.0.1/24"), []Pair{{0, 0}}},
		"nonsense":                 {[][]byte{{1, 2, 3}, nil}, cards(2, "10.0.0.1/24"), nil},
	} {
		require.Equal(t, c.want, Pairs(c.a, c.b, true), what)
		var seen []Pair
		for _, p := range Pairs(c.b, c.a, false) {
			seen = append(seen, Pair{p.Theirs, p.Ours})
		}
		require.Equal(t, c.want, seen, "%s, seen from the other end", what)
	}
}
