package tcp

import (
	"net/netip"

	"github.com/mpigo/mpigo/btl/transport"
)

// Pairs says which of a rank's rails lead to which of another's, given the addresses of both. The
// pairs are one to one, so that each is a rail of its own. Both ranks find the same pairs if one of
// them says that it is the lower. Where two addresses are in one network, only such pairs are made.
// Otherwise routers may join the networks, and the first address of each kind is paired with the
// first, and so on. Loopback leads only to ranks that share it.
func Pairs(ours, theirs [][]byte, weAreLower bool) []transport.Pair {
	if !weAreLower {
		pairs := Pairs(theirs, ours, true)
		for i, p := range pairs {
			pairs[i] = transport.Pair{Local: p.Remote, Remote: p.Local}
		}
		return pairs
	}
	a, b := parseRailAddresses(ours), parseRailAddresses(theirs)
	leaveOutShared(a, b)
	for kind := sameNetwork; kind > unrelated; kind-- {
		var pairs []transport.Pair
		taken := make([]bool, len(b))
		for i := range a {
			for j := range b {
				if !taken[j] && relate(a[i], b[j]) == kind {
					taken[j] = true
					pairs = append(pairs, transport.Pair{Local: i, Remote: j})
					break
				}
			}
		}
		if len(pairs) > 0 {
			return pairs
		}
	}
	return nil
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
			if x != nil && y != nil && x.host != y.host && x.address.Addr() == y.address.Addr() {
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
	if a == nil || b == nil {
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
