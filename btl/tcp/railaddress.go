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
	host       [16]byte       // processes with the same value share their loopback interface
	address    netip.AddrPort // invalid while the module has none
	bits       uint8          // of the network prefix of address
	frag       uint32         // FragBytes
	word       uint8          // Config.Word
}

// railAddressFields is a railAddress as it is encoded.
type railAddressFields struct {
	Rank, Size uint32
	Nonce      moduleNonce
	Host       [16]byte
	IP         [16]byte // IPv4 in the form ::ffff:a.b.c.d; zero if there is none
	Port       uint16
	Bits       uint8
	Frag       uint32
	Word       uint8
}

const railAddressVersion = 3

func (c *railAddress) encode() []byte {
	f := railAddressFields{
		Rank: c.rank, Size: c.size, Nonce: c.nonce, Host: c.host, Port: c.address.Port(), Bits: c.bits, Frag: c.frag, Word: c.word,
	}
	if c.address.IsValid() {
		f.IP = c.address.Addr().As16()
	}
	return base.EncodeAddress(railAddressVersion, &f)
}

// parseRailAddress checks everything. ok is false for what no module publishes.
func parseRailAddress(b []byte) (c railAddress, ok bool) {
	var f railAddressFields
	if !base.DecodeAddress(b, railAddressVersion, &f) {
		return c, false
	}
	c = railAddress{rank: f.Rank, size: f.Size, nonce: f.Nonce, host: f.Host, bits: f.Bits, frag: f.Frag, word: f.Word}
	ok = f.Rank < f.Size && f.Size <= maxRanks && f.Frag <= maxFragBytes
	if f.IP == [16]byte{} && f.Port == 0 { // it has none yet
		return c, ok && f.Bits == 0 && f.Word != 0
	}
	addr := netip.AddrFrom16(f.IP).Unmap()
	c.address = netip.AddrPortFrom(addr, f.Port)
	return c, ok && int(f.Bits) <= addr.BitLen() && !addr.IsUnspecified() && !addr.IsMulticast() && f.Port != 0
}
