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

// sameSubnet reports whether two ports of InfiniBand are in one subnet, according to their GIDs.
func (a *address) sameSubnet(b *address) bool {
	return a.gid.IsZero() || b.gid.IsZero() || [8]byte(a.gid[:8]) == [8]byte(b.gid[:8])
}

// isZero reports whether the address is unknown, for example because the module's device was
// absent.
func (a *address) isZero() bool { return *a == address{} }

// String returns the address in the form that users know, for messages.
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
	address    address // zero while the device is absent
	pkey       pkey    // when the module was made; 0 while the device is absent
	frag       uint32  // FragBytes
}

// railAddressFields is a railAddress as it is encoded.
type railAddressFields struct {
	Nonce   nonce
	Address [addressBytes]byte
	PKey    pkey
	Frag    uint32
}

// addressBytes: GID, LID, QPN, Q_Key, link layer.
const addressBytes = 16 + 2 + 4 + 4 + 1

// addressForm is the form of what modules publish. Never written.
var addressForm = base.AddressForm{Transport: "ibverbs", Version: 4}

func (c *railAddress) owner() base.AddressOwner { return base.AddressOwner{Rank: c.rank, Size: c.size} }

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

func (c *railAddress) encode() []byte {
	a := [addressBytes]byte(appendAddress(nil, &c.address))
	return addressForm.Encode(c.owner(), &railAddressFields{c.nonce, a, c.pkey, c.frag})
}

// parseRailAddress checks everything. ok is false for an address that no module publishes.
func parseRailAddress(b []byte) (c railAddress, ok bool) {
	var f railAddressFields
	owner, ok := addressForm.Decode(b, &f)
	if !ok {
		return c, false
	}
	a, ok := readAddress(f.Address[:])
	ok = ok && f.PKey.partition() != 0 || a.isZero() && f.PKey == 0
	ok = ok && f.Frag <= maxFragBytes
	return railAddress{owner.Rank, owner.Size, f.Nonce, a, f.PKey, f.Frag}, ok
}
