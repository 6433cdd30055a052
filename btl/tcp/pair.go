package tcp

import (
	"cmp"
	"net/netip"
	"slices"
)

// leads is transport.Transport's Leads. Where two rails have addresses in one network, only such
// pairs are used. Otherwise routers may join the networks. Loopback leads only to ranks that share
// it.
//
// Of rails that share an interface, each leads to those that have the same number at the peer. If
// one rank makes more of them, the others lead nowhere.
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
		if x != nil && y != nil && x.connection != y.connection {
			return int(unrelated)
		}
		if x != nil && y != nil && x.word == y.word && (len(x.addresses) == 0 || len(y.addresses) == 0) {
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

// without is c without the addresses of another one, nil if none is left.
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

// relate is the best relation that addresses of two rails have.
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

// relateAddresses is how likely one address leads to the other. sameHost: both are of one machine.
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

// contains reports whether the network of an address has another address.
func contains(of netip.Addr, bits uint8, other netip.Addr) bool {
	p, err := of.Prefix(int(bits))
	return err == nil && p.Contains(other)
}

// path is a local address of a rail and one of the peer's.
type path struct{ local, remote netAddress }

// maxPaths bounds how many paths are tried for one rail.
const maxPaths = 8

// pathsBetween are the addresses of two rails that may lead to each other, the best first. Where
// two are in one network, only such pairs count. Of equal ones IPv4 comes first, then the lowest
// addresses. Both ends find the same.
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

// ends are the two ends of a path in an order that both ranks find.
func (p path) ends() [2]netip.AddrPort {
	if p.remote.Compare(p.local.AddrPort) < 0 {
		return [2]netip.AddrPort{p.remote.AddrPort, p.local.AddrPort}
	}
	return [2]netip.AddrPort{p.local.AddrPort, p.remote.AddrPort}
}
