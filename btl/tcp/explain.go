package tcp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// maxNamed bounds how many addresses of a machine a message names.
const maxNamed = 6

// Explain says in one line why no address of one rank leads to an address of another, and what to
// do. It is called with the addresses of both when they have no pair of rails.
func Explain(ours, theirs [][]byte) string {
	a, b := firstConnections(ours), firstConnections(theirs)
	var why []string
	for _, x := range a {
		for _, y := range b {
			for _, s := range explainPair(x, y) {
				if !slices.Contains(why, s) {
					why = append(why, s)
				}
			}
		}
	}
	if len(why) == 0 {
		why = []string{"one end has no address"}
	}
	return fmt.Sprintf("%s here and %s there: %s; mpirun-go doctor -v lists all addresses of the machines, and why some are not used",
		addressesOf(a), addressesOf(b), strings.Join(why, ", "))
}

// firstConnections returns the addresses of a rank's rails, each interface once.
func firstConnections(encoded [][]byte) []*railAddress {
	return slices.DeleteFunc(parseRailAddresses(encoded), func(c *railAddress) bool { return c != nil && c.connection > 0 })
}

// explainPair says why the addresses of one rail do not lead to the addresses of another.
func explainPair(a, b *railAddress) (why []string) {
	if a == nil || b == nil {
		return []string{"not an address of this version"}
	}
	if len(a.addresses) == 0 || len(b.addresses) == 0 {
		return []string{"an address is missing"}
	}
	if isIn4, isIn6 := families(a.addresses, b.addresses); !isIn4 && !isIn6 {
		return []string{"no address family in common"}
	}
	for _, x := range a.addresses {
		for _, y := range b.addresses {
			if x.Addr().Is4() == y.Addr().Is4() {
				why = append(why, explainAddresses(x.Addr(), y.Addr(), a.host == b.host))
			}
		}
	}
	return why
}

// families reports whether two lists of addresses both have IPv4, and both have IPv6.
func families(a, b []netAddress) (isIn4, isIn6 bool) {
	is4 := func(x netAddress) bool { return x.Addr().Is4() }
	is6 := func(x netAddress) bool { return !x.Addr().Is4() }
	return slices.ContainsFunc(a, is4) && slices.ContainsFunc(b, is4), slices.ContainsFunc(a, is6) && slices.ContainsFunc(b, is6)
}

// explainAddresses says why one address does not lead to another of its family.
func explainAddresses(x, y netip.Addr, sameHost bool) string {
	switch {
	case (x.IsLoopback() || y.IsLoopback()) && !sameHost:
		return "loopback does not lead to another machine"
	case x.IsLoopback() != y.IsLoopback():
		return "loopback leads to loopback only"
	case x == y && !sameHost:
		return fmt.Sprintf("both machines have %v", x)
	}
	return "a link-local address leads to its own network only"
}

// addressesOf lists addresses for a message.
func addressesOf(list []*railAddress) string {
	var s []string
	for _, c := range list {
		switch {
		case c == nil:
			s = append(s, "?")
		case len(c.addresses) == 0:
			s = append(s, "none yet")
		default:
			for _, a := range c.addresses {
				s = append(s, a.Addr().String())
			}
		}
	}
	switch {
	case len(s) == 0:
		return "no address"
	case len(s) > maxNamed:
		s = append(s[:maxNamed], "…")
	}
	return strings.Join(s, ", ")
}
