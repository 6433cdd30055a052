package tcp

import (
	"net/netip"
	"slices"

	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/tunable"
)

// Surveyed is an address of this machine, and whether ranks use it.
type Surveyed struct {
	Interface
	// Why says why ranks do not use it; "" if they do.
	Why string
}

// Survey lists the addresses of this machine in the order of the interfaces. Given the settings
// tcp.include and tcp.exclude, it says which of them ranks do not use, and why. unknown are words
// of both settings that name nothing here. absent are single addresses of tcp.include that name
// nothing here. They are not in unknown, because another machine may have them. The error is the
// error of Addresses: ranks have no address to use.
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

// survey does what Survey does, for a given machine.
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
		case c.unfit != "":
			s.Why = c.unfit
		case !c.up:
			s.Why = "down"
		case byName[c.name]:
			s.Why = "another address of its network is used"
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
// another machine, by their indexes in both lists. Each pair is a rail. It leaves out pairs that
// are spare because routers may not connect them. weAreLower says that the local rank is the lower
// one.
func RailsBetween(ours, theirs []Interface, weAreLower bool) []transport.Pair {
	here, there := railsAmong(ours), railsAmong(theirs)
	a, b := published(ours, here, 1), published(theirs, there, 2)
	pairs := transport.Pairs(len(here), len(there), leadsBetween(slices.Clone(a), slices.Clone(b)), weAreLower)
	leaveOutShared(a, b)
	list := pairs[:0]
	for _, p := range pairs {
		x, y := a[p.Local], b[p.Remote]
		if x == nil || y == nil || p.Level > 0 {
			continue
		}
		paths := pathsBetween(x.addresses, y.addresses, false)
		if len(paths) == 0 {
			continue
		}
		p.Local, p.Remote = placeOf(ours, here[p.Local], paths[0].local), placeOf(theirs, there[p.Remote], paths[0].remote)
		list = append(list, p)
	}
	return list
}

// railsAmong returns, for each rail, the indexes of its addresses. Rails are in the order of their
// first addresses.
func railsAmong(list []Interface) (rails [][]int) {
	for n, i := range list {
		r := slices.IndexFunc(rails, func(of []int) bool { return list[of[0]].Rail == i.Rail })
		if r < 0 {
			rails, r = append(rails, nil), len(rails)
		}
		rails[r] = append(rails[r], n)
	}
	return rails
}

// placeOf returns which of the given indexes of a list has an address.
func placeOf(list []Interface, places []int, a netAddress) int {
	return places[slices.IndexFunc(places, func(n int) bool { return list[n].Address.WithZone("") == a.Addr() })]
}

// published returns the addresses that ranks of a machine publish for its rails, with the fields
// that pairing needs.
func published(list []Interface, rails [][]int, host byte) []*railAddress {
	out := make([]*railAddress, len(rails))
	for r, of := range rails {
		out[r] = &railAddress{host: [16]byte{host}, word: list[of[0]].Word}
		for _, n := range of {
			a := netip.AddrPortFrom(list[n].Address.WithZone(""), 1)
			out[r].addresses = append(out[r].addresses, netAddress{a, uint8(list[n].Bits)})
		}
	}
	return out
}
