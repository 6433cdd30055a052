package tcp

import (
	"fmt"
	"slices"
	"strings"
)

// maxNamed bounds how many addresses of a machine a message names.
const maxNamed = 6

// Explain says in one line why no address of one rank leads to one of another's, given the
// addresses of both, when Pairs finds none.
func Explain(ours, theirs [][]byte) string {
	a, b := parseRailAddresses(ours), parseRailAddresses(theirs)
	var why []string
	for _, x := range a {
		for _, y := range b {
			if s := explainPair(x, y); !slices.Contains(why, s) {
				why = append(why, s)
			}
		}
	}
	if len(why) == 0 {
		why = []string{"one end has no address"}
	}
	return fmt.Sprintf("%s here and %s there: %s", addressesOf(a), addressesOf(b), strings.Join(why, ", "))
}

// explainPair is why one address does not lead to another.
func explainPair(a, b *railAddress) string {
	if a == nil || b == nil {
		return "not an address of this version"
	}
	if !a.address.IsValid() || !b.address.IsValid() {
		return "an address is missing"
	}
	x, y := a.address.Addr(), b.address.Addr()
	switch {
	case x.Is4() != y.Is4():
		return "no address family in common"
	case (x.IsLoopback() || y.IsLoopback()) && a.host != b.host:
		return "loopback does not lead to another machine"
	case x.IsLoopback() != y.IsLoopback():
		return "loopback leads to loopback only"
	case x == y && a.host != b.host:
		return fmt.Sprintf("both machines have %v", x)
	}
	return "a link-local address leads to its own network only"
}

// addressesOf lists addresses for a message.
func addressesOf(list []*railAddress) string {
	if len(list) == 0 {
		return "no address"
	}
	var s []string
	for _, c := range list {
		switch {
		case len(s) == maxNamed:
			return strings.Join(s, ", ") + ", …"
		case c == nil:
			s = append(s, "?")
		case !c.address.IsValid():
			s = append(s, "none yet")
		default:
			s = append(s, c.address.Addr().String())
		}
	}
	return strings.Join(s, ", ")
}
