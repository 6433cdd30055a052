package tcp

import (
	"net/netip"

	"github.com/mpigo/mpigo/btl/base"
)

// moduleNonce tells one life of a module from another: a process that restarts at the same address
// is another peer.
type moduleNonce [16]byte

// railAddress is what a module publishes.
type railAddress struct {
	rank, size uint32
	nonce      moduleNonce
	host       [16]byte // processes with the same value share their loopback interface
	address    netip.AddrPort
	bits       uint8  // of the network prefix of address
	frag       uint32 // FragBytes
}

// railAddressFields is a railAddress as it is encoded.
type railAddressFields struct {
	Rank, Size uint32
	Nonce      moduleNonce
	Host       [16]byte
	IP         [16]byte // IPv4 in the form ::ffff:a.b.c.d
	Port       uint16
	Bits       uint8
	Frag       uint32
}

const railAddressVersion = 2

func (c *railAddress) encode() []byte {
	return base.EncodeAddress(railAddressVersion, &railAddressFields{
		c.rank, c.size, c.nonce, c.host, c.address.Addr().As16(), c.address.Port(), c.bits, c.frag,
	})
}

// parseRailAddress checks everything. ok is false for what no module publishes.
func parseRailAddress(b []byte) (c railAddress, ok bool) {
	var f railAddressFields
	if !base.DecodeAddress(b, railAddressVersion, &f) {
		return c, false
	}
	addr := netip.AddrFrom16(f.IP).Unmap()
	ok = int(f.Bits) <= addr.BitLen() && !addr.IsUnspecified() && !addr.IsMulticast() && f.Port != 0 &&
		f.Rank < f.Size && f.Size <= maxRanks && f.Frag <= maxFragBytes
	return railAddress{f.Rank, f.Size, f.Nonce, f.Host, netip.AddrPortFrom(addr, f.Port), f.Bits, f.Frag}, ok
}
