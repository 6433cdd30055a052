package tcp

import (
	"net/netip"
	"slices"

	"github.com/mpigo/mpigo/internal/tunable"
)

// source says where an open rail gets its addresses: from its interface, or by the user's word.
type source struct {
	// name of the interface; "" if only word says which addresses the rail uses.
	name string
	// rail is Interface.Rail of the first addresses, or "" if there was none.
	rail string
	// word is the word of the include list, or "" if there is no list. Its place is Interface.Word.
	word             string
	place            uint8
	include, exclude []string
}

// sourceOf returns the source of a rail whose first address is first. ok says whether the rail can
// get other addresses. It cannot if the user has named the address itself, or on loopback.
func sourceOf(first Interface, include, exclude []string) (s source, ok bool) {
	s = source{name: first.Name, rail: first.Rail, place: first.Word, include: include, exclude: exclude}
	if n := int(first.Word); n > 0 {
		s.word = include[n-1]
		if _, is := singleAddress(s.word); is || n == maxWord {
			return s, false
		}
	}
	return s, !first.Address.IsLoopback()
}

// now returns the addresses that the rail may use now: those of its own interface, if it has any.
// Otherwise, if the user's word is a network, a new interface may have one. isTaken reports whether
// another rail uses an address.
func (s source) now(found []candidate, isTaken func(netip.Addr) bool) (list []Interface) {
	sortCandidates(found)
	in, out := parseWords(s.include), parseWords(s.exclude)
	for _, c := range found {
		i, ok := usable(c, in, out)
		if s.name != "" && ok && c.name == s.name && i.Rail == s.rail && !c.loopback && !isTaken(i.Address) {
			i.Word = s.place
			list = append(list, i)
		}
	}
	prefix, isNetwork := tunable.ParseNetwork(s.word)
	if len(list) > 0 || s.name != "" && (!isNetwork || prefix.IsSingleIP()) {
		return list
	}
	in = parseWords([]string{s.word})
	for _, c := range found {
		i, ok := usable(c, in, out)
		i.Word = s.place
		if ok && !isTaken(i.Address) && (s.name == "" || !c.loopback) && (len(list) == 0 || list[0].Rail == i.Rail && !c.loopback) {
			list = append(list, i)
		}
	}
	return list
}

// awaitedWord is a word of the include list that names nothing on this machine yet.
type awaitedWord struct {
	text  string
	place uint8 // Interface.Word
}

// maxAwaited bounds how many words are awaited.
const maxAwaited = 4

// awaited returns the words of an include list that name no chosen address and no excluded one. If
// there is a chosen address, it leaves out words that are single addresses, because they belong to
// other machines.
func awaited(found []candidate, include, exclude []string, chosen []Interface) (list []awaitedWord) {
	found = append(found, loopbacks(include, found)...)
	in, out := parseWords(include), parseWords(exclude)
	for n, w := range in {
		names := func(c candidate) bool {
			return w.names(c) >= byNetwork || w.names(c) == byName && (!c.addr.IsLinkLocalUnicast() || out.covers(c))
		}
		if slices.ContainsFunc(found, names) || w.prefix.IsValid() && w.prefix.IsSingleIP() && len(chosen) > 0 {
			continue
		}
		if n < maxWord && len(list) < maxAwaited {
			list = append(list, awaitedWord{include[n], uint8(n + 1)})
		}
	}
	return list
}
