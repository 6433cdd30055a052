package tcp

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
)

// lifeNonce marks one life of one module: who means another one is not let in.
type lifeNonce [16]byte

// card is what a module publishes.
type card struct {
	rank, size uint32
	nonce      lifeNonce
	host       [16]byte // what loopback addresses are good for
	address    netip.AddrPort
	bits       uint8  // of the address that are its network's
	frag       uint32 // FragBytes
}

const (
	cardVersion = 1
	// version, rank, size, nonce, host, family, address, port, bits, fragment, checksum
	cardBytes = 1 + 4 + 4 + 16 + 16 + 1 + 16 + 2 + 1 + 4 + 4
)

// encode ends with a checksum: what was damaged on its way is told from what leads nowhere.
func (c *card) encode() []byte {
	b := make([]byte, 0, cardBytes)
	b = append(b, cardVersion)
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
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// parseCard trusts nothing.
func parseCard(b []byte) (c card, ok bool) {
	if len(b) != cardBytes || b[0] != cardVersion {
		return card{}, false
	}
	body, sum := b[:cardBytes-4], binary.LittleEndian.Uint32(b[cardBytes-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return card{}, false
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
		return card{}, false
	}
	c.address = netip.AddrPortFrom(addr, binary.LittleEndian.Uint16(b[58:]))
	c.bits = b[60]
	c.frag = binary.LittleEndian.Uint32(b[61:])
	ok = int(c.bits) <= addr.BitLen() && !addr.IsUnspecified() && !addr.IsMulticast() && c.address.Port() != 0 &&
		c.rank < c.size && c.size <= mostRanks && c.frag <= mostFragBytes
	return c, ok
}

// hostID is the same for two processes exactly if they share their loopback interface.
func hostID() ([16]byte, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return [16]byte{}, fmt.Errorf("identify this machine: %w", err)
	}
	network, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return [16]byte{}, fmt.Errorf("identify this network namespace: %w", err)
	}
	sum := sha256.Sum256(append(boot, network...))
	return [16]byte(sum[:16]), nil
}
