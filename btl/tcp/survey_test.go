package tcp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSurveySaysWhyAddressesAreNotUsed(t *testing.T) {
	found := func() []candidate {
		return []candidate{
			{1, "lo", netip.MustParseAddr("127.0.0.1"), 8, true, true, ""},
			{2, "eth0", netip.MustParseAddr("10.0.0.1"), 24, true, false, ""},
			{2, "eth0", netip.MustParseAddr("fd00::1"), 64, true, false, ""},
			{2, "eth0", netip.MustParseAddr("fd00::9"), 64, true, false, ""},
			{2, "eth0", netip.MustParseAddr("fe80::1"), 64, true, false, ""},
			{3, "eth1", netip.MustParseAddr("10.1.0.1"), 24, false, false, ""},
			{4, "docker0", netip.MustParseAddr("172.17.0.1"), 16, true, false, ""},
			{5, "eth2", netip.MustParseAddr("10.2.0.1"), 24, true, false, ""},
		}
	}
	why := func(include, exclude []string) map[string]string {
		list, err := survey("host", found(), include, exclude)
		require.NoError(t, err)
		require.Len(t, list, len(found()))
		out := map[string]string{}
		for _, s := range list {
			out[s.Address.WithZone("").String()] = s.Why
		}
		return out
	}
	assert.Equal(t, map[string]string{
		"127.0.0.1": "loopback", "10.0.0.1": "", "fd00::1": "", "fd00::9": "another address of its network is used", "fe80::1": "link-local",
		"10.1.0.1": "down", "172.17.0.1": "for containers or virtual machines, by its name", "10.2.0.1": "excluded by tcp.exclude",
	}, why(nil, []string{"eth2"}))
	assert.Equal(t, map[string]string{
		"127.0.0.1": "not in tcp.include", "10.0.0.1": "not in tcp.include", "fd00::1": "not in tcp.include", "fd00::9": "not in tcp.include", "fe80::1": "not in tcp.include",
		"10.1.0.1": "", "172.17.0.1": "not in tcp.include", "10.2.0.1": "",
	}, why([]string{"eth1", "eth2"}, nil))
	list, err := survey("host", found(), nil, []string{"0.0.0.0/0", "::/0"})
	require.Error(t, err)
	for _, s := range list {
		assert.Equal(t, "excluded by tcp.exclude", s.Why)
	}
}
