package ibverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

func sampleAddress(link linkKind) address {
	return address{gid: verbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 10, 15: 1}, lid: 7, qpn: 0xfffffe, qkey: 0x7fffffff, link: link}
}

func TestCard(t *testing.T) {
	for link := range linkEnd {
		want := railAddress{rank: 3, size: 9, nonce: nonce{1, 2, 8}, address: sampleAddress(link), frag: 8256}
		b := want.encode()
		got, ok := parseRailAddress(b)
		require.True(t, ok)
		require.Equal(t, want, got)
		for i := range b {
			bad := append([]byte(nil), b...)
			bad[i] ^= 0x10
			_, ok := parseRailAddress(bad)
			require.False(t, ok, "byte %d damaged", i)
		}
	}
}

// TestCardThatNobodyWrites: the checksum is right, what it says is not.
func TestCardThatNobodyWrites(t *testing.T) {
	good := railAddress{rank: 3, size: 9, address: sampleAddress(linkRoCE), frag: 8256}
	for name, damage := range map[string]func(*railAddress){
		"rank":            func(c *railAddress) { c.rank = 9 },
		"size":            func(c *railAddress) { c.size = maxRanks + 1 },
		"no queue pair":   func(c *railAddress) { c.address.qpn = 0 },
		"25 bits":         func(c *railAddress) { c.address.qpn = 1 << 24 },
		"no GID":          func(c *railAddress) { c.address.gid = verbs.GID{} },
		"no LID":          func(c *railAddress) { c.address.link, c.address.lid = linkInfiniBand, 0 },
		"no global GID":   func(c *railAddress) { c.address.link, c.address.gid = linkGlobal, verbs.GID{} },
		"unknown link":    func(c *railAddress) { c.address.link = linkEnd },
		"fragment length": func(c *railAddress) { c.frag = maxFragBytes + 1 },
	} {
		c := good
		damage(&c)
		_, ok := parseRailAddress(c.encode())
		require.False(t, ok, name)
	}
}

func FuzzCard(f *testing.F) {
	c := railAddress{rank: 3, size: 9, address: sampleAddress(linkRoCE), frag: 8256}
	f.Add(c.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := parseRailAddress(b); ok {
			require.Equal(t, b, c.encode(), "one card has one encoding")
		}
	})
}
