package tcp

import (
	"net/netip"

	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/tunable"
)

// Surveyed is an address of this machine, and whether ranks use it.
type Surveyed struct {
	Interface
	// Why says why ranks do not use it; "" if they do.
	Why string
}

// Survey lists the addresses of this machine in the order of the interfaces, those that ranks use
// by the settings tcp.include and tcp.exclude, and all others with the reason. unknown are words of
// both that name nothing here, but for single addresses of tcp.include, which absent has: another
// machine may have them. The error is that of Addresses: ranks have no address to use.
func Survey(set tunable.Set) (list []Surveyed, unknown []string, absent []netip.Addr, err error) {
	found, err := candidates()
	if err != nil {
		return nil, nil, nil, err
	}
	include := wordsOf(set, includeKey, includeAll)
	list, err = survey(hostname(), found, include, wordsOf(set, excludeKey, excludeNone))
	for _, text := range unknownAmong(found, include) {
		if a, is := singleAddress(text); is {
			absent = append(absent, a)
		}
	}
	isOther := func(text string) bool { _, is := singleAddress(text); return !is }
	return list, unknownLines(set, found, isOther), absent, err
}

// survey is Survey of a given machine.
func survey(host string, found []candidate, include, exclude []string) ([]Surveyed, error) {
	chosen, err := choose(host, found, include, exclude)
	list := make([]Surveyed, 0, len(found))
	isChosen := map[netip.Addr]bool{}
	byName := map[string]bool{}
	for _, i := range chosen {
		list = append(list, Surveyed{Interface: i})
		isChosen[i.Address.WithZone("")], byName[i.Name] = true, true
	}
	in, out := parseWords(include), parseWords(exclude)
	for _, c := range found {
		if isChosen[c.addr] {
			continue
		}
		s := Surveyed{Interface: c.chosen(0)}
		switch _, word := in.names(c); {
		case out.covers(c):
			s.Why = "excluded by " + excludeKey
		case len(in) > 0 && word == 0:
			s.Why = "not in " + includeKey
		case c.addr.IsLinkLocalUnicast():
			s.Why = "link-local"
		case !c.up:
			s.Why = "down"
		case byName[c.name]:
			s.Why = "another address of the interface is used"
		case c.loopback:
			s.Why = "loopback"
		case isVirtual(c.name):
			s.Why = "for containers or virtual machines, by its name"
		}
		list = append(list, s)
	}
	return list, err
}

// RailsBetween pairs the addresses that ranks of a machine use with those of a peer's ranks on
// another machine: each pair is a rail. weAreLower says that the local rank is the lower one.
func RailsBetween(ours, theirs []Interface, weAreLower bool) []transport.Pair {
	leads := leadsBetween(published(ours, 1), published(theirs, 2))
	return transport.Pairs(len(ours), len(theirs), leads, weAreLower)
}

// published is what ranks of a machine publish of its addresses, as far as pairing needs it.
func published(list []Interface, host byte) []*railAddress {
	out := make([]*railAddress, len(list))
	for n, i := range list {
		out[n] = &railAddress{host: [16]byte{host}, address: netip.AddrPortFrom(i.Address, 1), bits: uint8(i.Bits), word: i.Word}
	}
	return out
}
