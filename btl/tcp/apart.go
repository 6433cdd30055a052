package tcp

import (
	"fmt"
	"slices"
	"strings"
)

// mostNamed addresses of a machine are named in a message.
const mostNamed = 6

// Explain says, in a line, why no address of one rank leads to one of another's, given the cards of both: when Pairs finds none.
func Explain(ours, theirs [][]byte) string {
	a, b := parseCards(ours), parseCards(theirs)
	var why []string
	for _, x := range a {
		for _, y := range b {
			if s := apart(x, y); !slices.Contains(why, s) {
				why = append(why, s)
			}
		}
	}
	if len(why) == 0 {
		why = []string{"an end without an address"}
	}
	return fmt.Sprintf("%s here and %s there: %s", addressesOf(a), addressesOf(b), strings.Join(why, ", "))
}

// apart is why one address does not lead to another.
func apart(a, b *card) string {
	if a == nil || b == nil {
		return "not a card of this version"
	}
	x, y := a.address.Addr(), b.address.Addr()
	switch {
	case x.Is4() != y.Is4():
		return "no family in common"
	case (x.IsLoopback() || y.IsLoopback()) && a.host != b.host:
		return "loopback leads to no other machine"
	case x.IsLoopback() != y.IsLoopback():
		return "loopback leads to loopback alone"
	case x == y && a.host != b.host:
		return fmt.Sprintf("both machines have %v", x)
	}
	return "a link-local address leads to its own network alone"
}

// addressesOf lists them for a message.
func addressesOf(cards []*card) string {
	if len(cards) == 0 {
		return "no address"
	}
	var s []string
	for _, c := range cards {
		switch {
		case len(s) == mostNamed:
			return strings.Join(s, ", ") + ", …"
		case c == nil:
			s = append(s, "?")
		default:
			s = append(s, c.address.Addr().String())
		}
	}
	return strings.Join(s, ", ")
}
