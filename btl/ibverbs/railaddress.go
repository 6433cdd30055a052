package ibverbs

import (
	"encoding/binary"
	"fmt"

	"github.com/mpigo/mpigo/btl/base"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// address is the address of a module's datagram queue pair.
type address struct {
	gid  verbs.GID
	lid  uint16
	qpn  uint32 // 24 bits
	qkey uint32
	link linkKind
}

// linkKind is how a port is addressed.
type linkKind uint8

const (
	linkInfiniBand linkKind = iota // by its LID
	linkRoCE                       // by its GID
	linkGlobal                     // InfiniBand, by its LID and its GID
	linkEnd
)

// String is the address in the form that users know, for messages.
func (a address) String() string {
	if a.link != linkInfiniBand {
		return a.gid.Addr().Unmap().String()
	}
	return fmt.Sprintf("LID %d", a.lid)
}

// nonce identifies one module: messages for another one are ignored.
type nonce [8]byte

// railAddress is the content of the address that a module publishes.
type railAddress struct {
	rank, size uint32
	nonce      nonce
	address    address
	frag       uint32 // FragBytes
}

const (
	railAddressVersion = 2
	railAddressBytes   = 1 + 4 + 4 + 8 + addressBytes + 4 + base.ChecksumBytes
	// addressBytes: GID, LID, QPN, Q_Key, link layer
	addressBytes = 16 + 2 + 4 + 4 + 1
)

func appendAddress(b []byte, a *address) []byte {
	b = append(b, a.gid[:]...)
	b = binary.LittleEndian.AppendUint16(b, a.lid)
	b = binary.LittleEndian.AppendUint32(b, a.qpn)
	b = binary.LittleEndian.AppendUint32(b, a.qkey)
	return append(b, byte(a.link))
}

// readAddress reads addressBytes. ok is false for an address that no module has.
func readAddress(b []byte) (a address, ok bool) {
	copy(a.gid[:], b)
	a.lid = binary.LittleEndian.Uint16(b[16:])
	a.qpn = binary.LittleEndian.Uint32(b[18:])
	a.qkey = binary.LittleEndian.Uint32(b[22:])
	a.link = linkKind(b[26])
	ok = a.link < linkEnd && a.qpn > 0 && a.qpn < 1<<24 &&
		(a.link == linkInfiniBand && a.lid != 0 || a.link != linkInfiniBand && !a.gid.IsZero())
	return a, ok
}

// encode appends a checksum, which distinguishes a damaged address from one that leads nowhere.
func (c *railAddress) encode() []byte {
	b := make([]byte, 0, railAddressBytes)
	b = append(b, railAddressVersion)
	b = binary.LittleEndian.AppendUint32(b, c.rank)
	b = binary.LittleEndian.AppendUint32(b, c.size)
	b = append(b, c.nonce[:]...)
	b = appendAddress(b, &c.address)
	b = binary.LittleEndian.AppendUint32(b, c.frag)
	return base.AppendChecksum(b)
}

// parseRailAddress checks everything. ok is false for an address that no module publishes.
func parseRailAddress(b []byte) (c railAddress, ok bool) {
	if len(b) != railAddressBytes || b[0] != railAddressVersion || !base.HasChecksum(b) {
		return railAddress{}, false
	}
	c.rank = binary.LittleEndian.Uint32(b[1:])
	c.size = binary.LittleEndian.Uint32(b[5:])
	copy(c.nonce[:], b[9:])
	if c.address, ok = readAddress(b[17:]); !ok {
		return railAddress{}, false
	}
	c.frag = binary.LittleEndian.Uint32(b[17+addressBytes:])
	return c, c.rank < c.size && c.size <= maxRanks && c.frag <= maxFragBytes
}
