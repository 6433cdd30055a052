package tcp

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/mpigo/mpigo/btl/base"
)

// moduleNonce distinguishes one life of a module from another: a process that restarts at the same
// address is another peer.
type moduleNonce [16]byte

// railAddress is the address that a module publishes.
type railAddress struct {
	rank, size uint32
	nonce      moduleNonce
	host       [16]byte     // processes with the same value share their loopback interface
	addresses  []netAddress // at most maxAddresses; none while the module has none
	frag       uint32       // FragBytes
	word       uint8        // Config.Word
	connection uint8        // Config.Connection
}

// netAddress is an address at which a module listens.
type netAddress struct {
	netip.AddrPort
	bits uint8 // of its network prefix
}

// railAddressFields is a railAddress as it is encoded. Its addresses follow.
type railAddressFields struct {
	Nonce      moduleNonce
	Host       [16]byte
	Frag       uint32
	Word       uint8
	Connection uint8
}

// netAddressFields is a netAddress as it is encoded.
type netAddressFields struct {
	IP   [16]byte // IPv4 in the form ::ffff:a.b.c.d
	Port uint16
	Bits uint8
}

// addressForm is the form of what modules publish. Never written.
var addressForm = base.AddressForm{Transport: "tcp", Version: 6}

// The lengths of the two parts of an encoded address.
var (
	emptyAddressBytes = addressForm.Bytes(&railAddressFields{})
	netAddressBytes   = binary.Size(netAddressFields{})
)

func (c *railAddress) owner() base.AddressOwner { return base.AddressOwner{Rank: c.rank, Size: c.size} }

func (c *railAddress) encode() []byte {
	f := railAddressFields{Nonce: c.nonce, Host: c.host, Frag: c.frag, Word: c.word, Connection: c.connection}
	list := make([]netAddressFields, len(c.addresses))
	for n, a := range c.addresses {
		list[n] = netAddressFields{a.Addr().As16(), a.Port(), a.bits}
	}
	return addressForm.Encode(c.owner(), &f, list)
}

// parseRailAddress checks everything. ok is false if no module would publish these bytes.
func parseRailAddress(b []byte) (c railAddress, ok bool) {
	var f railAddressFields
	list := make([]netAddressFields, min(max(len(b)-emptyAddressBytes, 0)/netAddressBytes, maxAddresses))
	owner, ok := addressForm.Decode(b, &f, list)
	if !ok {
		return c, false
	}
	c = railAddress{rank: owner.Rank, size: owner.Size, nonce: f.Nonce, host: f.Host, frag: f.Frag, word: f.Word, connection: f.Connection}
	ok = f.Frag <= maxFragBytes && f.Connection < maxConnections && (len(list) > 0 || f.Word != 0)
	for _, f := range list {
		addr := netip.AddrFrom16(f.IP).Unmap()
		a := netAddress{netip.AddrPortFrom(addr, f.Port), f.Bits}
		ok = ok && int(f.Bits) <= addr.BitLen() && !addr.IsUnspecified() && !addr.IsMulticast() && f.Port != 0
		ok = ok && !slices.ContainsFunc(c.addresses, func(o netAddress) bool { return o.Addr() == addr })
		c.addresses = append(c.addresses, a)
	}
	return c, ok
}
