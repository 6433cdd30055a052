package doctor

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// Five interfaces with an IPv4 and an IPv6 address each are five rails (tcp.Interface.Rail). So a
// rank makes 32/5 = 6 of 8 connections of each, and needs 6 ports.
func TestDoctorCountsInterfacesWithSeveralAddressesOnce(t *testing.T) {
	j := wellJob()
	set(j, "tcp.ports", "20000-20003")
	set(j, "tcp.connections", "8")
	h := &j.Hosts[0]
	h.Slots = 1
	h.Facts.Interfaces = nil
	for i := range 5 {
		for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i), 0, 1}), netip.AddrFrom16([16]byte{0: 0xfd, 1: byte(i), 15: 1})} {
			name := fmt.Sprintf("eth%d", i)
			h.Facts.Interfaces = append(h.Facts.Interfaces, Interface{Name: name, Rail: name, Addr: a, Up: true})
		}
	}
	list := tcpPorts(j, h)
	require.Equal(t, Broken, list[0].level, "4 ports for 6 connections")
}
