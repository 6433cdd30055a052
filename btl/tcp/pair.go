package tcp

import (
	"net/netip"
)

// leads is transport.Transport's Leads. Where two addresses are in one network, only such pairs are
// used. Otherwise routers may join the networks. Loopback leads only to ranks that share it.
//
// Where an address leads that a rank does not have yet is not known. It is paired with those that
// the same word of the users' lists names, as if it led there well.
func leads(ours, theirs [][]byte) func(local, remote int) int {
	return leadsBetween(parseRailAddresses(ours), parseRailAddresses(theirs))
}

// leadsBetween is leads for parsed addresses, nil for what is no address. It owns both lists.
func leadsBetween(a, b []*railAddress) func(local, remote int) int {
	leaveOutShared(a, b)
	best := otherScope
	for _, x := range a {
		for _, y := range b {
			best = max(best, relate(x, y))
		}
	}
	return func(local, remote int) int {
		x, y := a[local], b[remote]
		if x != nil && y != nil && x.word == y.word && !(x.address.IsValid() && y.address.IsValid()) {
			return int(best)
		}
		return int(relate(x, y))
	}
}

// parseRailAddresses gives nil for what is not an address.
func parseRailAddresses(encoded [][]byte) []*railAddress {
	list := make([]*railAddress, len(encoded))
	for i, b := range encoded {
		if c, ok := parseRailAddress(b); ok {
			list[i] = &c
		}
	}
	return list
}

// leaveOutShared drops addresses that both of two machines have, as bridges to virtual machines
// have the same everywhere: what either machine sends there comes back to itself.
func leaveOutShared(a, b []*railAddress) {
	for i, x := range a {
		for j, y := range b {
			if x != nil && y != nil && x.host != y.host && x.address.IsValid() && x.address.Addr() == y.address.Addr() {
				a[i], b[j] = nil, nil
			}
		}
	}
}

// relation of two addresses: how likely one leads to the other.
type relation uint8

const (
	unrelated   relation = iota
	otherScope           // one is private, the other is not
	sameScope            // both are private, or neither is
	sameNetwork          // one is in the network of the other
)

func relate(a, b *railAddress) relation {
	if a == nil || b == nil || !a.address.IsValid() || !b.address.IsValid() {
		return unrelated
	}
	x, y := a.address.Addr().WithZone(""), b.address.Addr().WithZone("")
	switch {
	case x.Is4() != y.Is4(), x.IsLoopback() != y.IsLoopback():
		return unrelated
	case x.IsLoopback():
		if a.host != b.host {
			return unrelated
		}
		return sameNetwork
	case contains(x, a.bits, y), contains(y, b.bits, x):
		return sameNetwork
	case x.IsLinkLocalUnicast() || y.IsLinkLocalUnicast():
		return unrelated
	case x.IsPrivate() == y.IsPrivate():
		return sameScope
	}
	return otherScope
}

// contains reports whether the network of an address has another address.
func contains(of netip.Addr, bits uint8, other netip.Addr) bool {
	p, err := of.Prefix(int(bits))
	return err == nil && p.Contains(other)
}
