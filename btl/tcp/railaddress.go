package tcp

import (
	"encoding/binary"
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

const (
	railAddressVersion = 1
	// version, rank, size, nonce, host, family, address, port, bits, fragment, checksum
	railAddressBytes = 1 + 4 + 4 + 16 + 16 + 1 + 16 + 2 + 1 + 4 + base.ChecksumBytes
)

// encode appends a checksum: an address that was damaged on its way is told from one that leads
// nowhere.
func (c *railAddress) encode() []byte {
	b := make([]byte, 0, railAddressBytes)
	b = append(b, railAddressVersion)
	b = binary.LittleEndian.AppendUint32(b, c.rank)
	b = binary.LittleEndian.AppendUint32(b, c.size)
	b = append(b, c.nonce[:]...)
	b = append(b, c.host[:]...)
	family := byte(6)
	if c.address.Addr().Is4() {
		family = 4
	}
	b = append(b, family)
	a := c.address.Addr().As16()
	b = append(b, a[:]...)
	b = binary.LittleEndian.AppendUint16(b, c.address.Port())
	b = append(b, c.bits)
	b = binary.LittleEndian.AppendUint32(b, c.frag)
	return base.AppendChecksum(b)
}

// parseRailAddress checks everything. ok is false for what no module publishes.
func parseRailAddress(b []byte) (c railAddress, ok bool) {
	if len(b) != railAddressBytes || b[0] != railAddressVersion || !base.HasChecksum(b) {
		return railAddress{}, false
	}
	c.rank = binary.LittleEndian.Uint32(b[1:])
	c.size = binary.LittleEndian.Uint32(b[5:])
	copy(c.nonce[:], b[9:])
	copy(c.host[:], b[25:])
	addr := netip.AddrFrom16([16]byte(b[42:58]))
	switch {
	case b[41] == 4 && addr.Is4In6():
		addr = addr.Unmap()
	case b[41] == 6 && !addr.Is4In6():
	default:
		return railAddress{}, false
	}
	c.address = netip.AddrPortFrom(addr, binary.LittleEndian.Uint16(b[58:]))
	c.bits = b[60]
	c.frag = binary.LittleEndian.Uint32(b[61:])
	ok = int(c.bits) <= addr.BitLen() && !addr.IsUnspecified() && !addr.IsMulticast() && c.address.Port() != 0 &&
		c.rank < c.size && c.size <= maxRanks && c.frag <= maxFragBytes
	return c, ok
}
