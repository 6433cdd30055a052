package tcp

import (
	"cmp"
	"net/netip"
	"slices"
)

// leads is transport.Transport's Leads. If two rails have addresses in one network, only such pairs
// are used. Otherwise routers may connect their networks. Loopback leads only to ranks that share
// it.
//
// If several rails share an interface, each leads only to the peer's rails with the same number. If
// one rank has more of them than the other, the surplus ones lead nowhere.
//
// If a rank does not have an address yet, its network is not known. The rail is paired with rails
// that the same word of the users' lists names, as if it led there well.
func leads(ours, theirs [][]byte) func(local, remote int) int {
	return leadsBetween(parseRailAddresses(ours), parseRailAddresses(theirs))
}

// leadsBetween does what leads does, for parsed addresses. A nil entry is not an address. It owns
// both lists.
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
		if x != nil && y != nil && x.connection != y.connection {
			return int(unrelated)
		}
		if x != nil && y != nil && x.word == y.word && (len(x.addresses) == 0 || len(y.addresses) == 0) {
			return int(best)
		}
		return int(relate(x, y))
	}
}

// parseRailAddresses parses addresses. Entries that are not addresses become nil.
func parseRailAddresses(encoded [][]byte) []*railAddress {
	list := make([]*railAddress, len(encoded))
	for i, b := range encoded {
		if c, ok := parseRailAddress(b); ok {
			list[i] = &c
		}
	}
	return list
}

// leaveOutShared drops addresses that both machines have: bytes that a machine sends there come
// back to itself. For example, bridges to virtual machines have the same address everywhere.
func leaveOutShared(a, b []*railAddress) {
	for i, x := range a {
		for j, y := range b {
			if x == nil || y == nil || x.host == y.host {
				continue
			}
			a[i], b[j] = x.without(y), y.without(x)
			x = a[i]
			if x == nil {
				break
			}
		}
	}
}

// without returns c without the addresses of other, or nil if none is left.
func (c *railAddress) without(other *railAddress) *railAddress {
	left := *c
	left.addresses = slices.DeleteFunc(slices.Clone(c.addresses), func(x netAddress) bool {
		return slices.ContainsFunc(other.addresses, func(y netAddress) bool { return x.Addr() == y.Addr() })
	})
	if len(left.addresses) == 0 && len(c.addresses) > 0 {
		return nil
	}
	return &left
}

// relation of two addresses: how likely one leads to the other.
type relation uint8

const (
	unrelated   relation = iota
	otherScope           // one is private, the other is not
	sameScope            // both are private, or neither is
	sameNetwork          // one is in the network of the other
)

// relate returns the best relation of any addresses of two rails.
func relate(a, b *railAddress) relation {
	best := unrelated
	if a == nil || b == nil {
		return best
	}
	for _, x := range a.addresses {
		for _, y := range b.addresses {
			best = max(best, relateAddresses(x, y, a.host == b.host))
		}
	}
	return best
}

// relateAddresses returns the relation of two addresses. sameHost: both are on one machine.
func relateAddresses(a, b netAddress, sameHost bool) relation {
	x, y := a.Addr().WithZone(""), b.Addr().WithZone("")
	switch {
	case x.Is4() != y.Is4(), x.IsLoopback() != y.IsLoopback():
		return unrelated
	case x == y && !sameHost:
		return unrelated
	case x.IsLoopback():
		if !sameHost {
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

// contains reports whether another address is in the network of an address.
func contains(of netip.Addr, bits uint8, other netip.Addr) bool {
	p, err := of.Prefix(int(bits))
	return err == nil && p.Contains(other)
}

// path is a local address of a rail and one of the peer's.
type path struct{ local, remote netAddress }

// maxPaths bounds how many paths are tried for one rail.
const maxPaths = 8

// pathsBetween returns the paths between two rails that may work, the best first. If two addresses
// are in one network, only such pairs count. Among equal paths, IPv4 comes first, then the lowest
// addresses. Both ends find the same paths.
func pathsBetween(ours, theirs []netAddress, sameHost bool) (list []path) {
	best := unrelated
	of := func(p path) relation { return relateAddresses(p.local, p.remote, sameHost) }
	for _, x := range ours {
		for _, y := range theirs {
			p := path{x, y}
			best = max(best, of(p))
			list = append(list, p)
		}
	}
	list = slices.DeleteFunc(list, func(p path) bool { return of(p) == unrelated || best == sameNetwork && of(p) != best })
	slices.SortFunc(list, func(p, q path) int {
		a, b := p.ends(), q.ends()
		return cmp.Or(int(of(q))-int(of(p)), cmp.Compare(a[0].Addr().BitLen(), b[0].Addr().BitLen()), a[0].Compare(b[0]), a[1].Compare(b[1]))
	})
	return list[:min(len(list), maxPaths)]
}

// ends returns the two ends of a path in an order that is the same at both ranks.
func (p path) ends() [2]netip.AddrPort {
	if p.remote.Compare(p.local.AddrPort) < 0 {
		return [2]netip.AddrPort{p.remote.AddrPort, p.local.AddrPort}
	}
	return [2]netip.AddrPort{p.local.AddrPort, p.remote.AddrPort}
}
