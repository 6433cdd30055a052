package tcp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mpigo/mpigo/internal/tunable"
)

// ErrNoSuch: nothing in the include list names an address of this machine.
var ErrNoSuch = errors.New("no such interface or address")

// Interface is a network interface of this machine and one of its addresses.
type Interface struct {
	Name    string
	Address netip.Addr
	// Bits is the length of the address's network prefix.
	Bits int
	// Word is the place of the first word of the include list that names it, from 1; 0 without a
	// list.
	Word uint8
	// Up: the interface is not switched off.
	Up bool
}

// virtual are the prefixes of names of interfaces that lead only to containers and virtual machines
// of this machine.
var virtual = [...]string{"docker", "br-", "virbr", "cni", "veth", "flannel", "cali", "podman", "lxcbr", "lxd", "incus", "vnet", "vboxnet", "vmnet", "tunl", "kube-", "nerdctl"}

// Addresses are the local addresses over which ranks may reach each other, in the order of the
// interfaces, IPv4 first.
//
// include and exclude list names of interfaces, addresses, or networks ("10.0.0.0/8"). With
// include, only what it names is used. Without it, an interface is used by its first IPv4 address,
// or its first IPv6 address if it has no other; interfaces of containers and virtual machines are
// left out, and so is the loopback interface unless there is nothing else. Link-local addresses
// have to be included by address or network. An interface that is down is used only if include
// names it: it may come up. The error is ErrNoSuch if nothing in include names an address of this
// machine.
func Addresses(include, exclude []string) ([]Interface, error) {
	found, err := candidates()
	if err != nil {
		return nil, err
	}
	return choose(hostname(), found, include, exclude)
}

// hostname is this machine's name for messages.
func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "this machine"
	}
	return host
}

// unknownAmong are the words of a list for Addresses that name no interface and no address of a
// machine.
func unknownAmong(found []candidate, list []string) (none []string) {
	found = slices.Concat(found, loopbacks(list, found))
	for i, w := range parseWords(list) {
		if !slices.ContainsFunc(found, func(c candidate) bool { return w.names(c) != byNothing }) {
			none = append(none, list[i])
		}
	}
	return none
}

// candidates are the addresses that this machine has.
func candidates() ([]candidate, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var found []candidate
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of interface %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue // not an IP address
			}
			found = append(found, candidate{i.Index, i.Name, prefix.Addr().Unmap(), prefix.Bits(), i.Flags&net.FlagUp != 0, i.Flags&net.FlagLoopback != 0})
		}
	}
	return found, nil
}

// candidate is an address that a machine has.
type candidate struct {
	index    int
	name     string
	addr     netip.Addr
	bits     int
	up       bool
	loopback bool
}

// choose is Addresses for a given machine of that name.
func choose(host string, found []candidate, include, exclude []string) ([]Interface, error) {
	sortCandidates(found)
	found = append(found, loopbacks(include, found)...)
	in, out := parseWords(include), parseWords(exclude)
	// The job would run over other networks than the user meant. It is no error if some words name
	// nothing, because machines of one job may differ.
	if len(in) > 0 && !slices.ContainsFunc(found, in.covers) {
		return nil, fmt.Errorf("%w on %s, which has %s", ErrNoSuch, host, describe(found))
	}
	var chosen, loopback []Interface
	for _, c := range found {
		if !c.up && len(in) == 0 || out.covers(c) {
			continue
		}
		how, word := in.names(c)
		if c.addr.IsLinkLocalUnicast() && how != byAddress || len(in) > 0 && how == byNothing {
			continue
		}
		if how != byAddress && slices.ContainsFunc(append(chosen, loopback...), func(i Interface) bool { return i.Name == c.name }) {
			continue
		}
		i := c.chosen(word)
		switch {
		case len(in) > 0:
			chosen = append(chosen, i)
		case c.loopback:
			loopback = append(loopback, i)
		case !isVirtual(c.name):
			chosen = append(chosen, i)
		}
	}
	if len(chosen) == 0 {
		chosen = loopback
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no address is left on %s that ranks could use: it has %s", host, describe(found))
	}
	return chosen, nil
}

// sortCandidates sorts by interface, IPv4 first.
func sortCandidates(found []candidate) {
	slices.SortStableFunc(found, func(a, b candidate) int {
		switch {
		case a.index != b.index:
			return a.index - b.index
		case a.addr.Is4() != b.addr.Is4():
			if a.addr.Is4() {
				return -1
			}
			return 1
		}
		return a.addr.Compare(b.addr)
	})
}

// chosen is the address as Addresses returns it.
func (c candidate) chosen(word int) Interface {
	i := Interface{c.name, c.addr, c.bits, uint8(min(word, maxWord)), c.up}
	if c.addr.IsLinkLocalUnicast() && c.addr.Is6() {
		i.Address = c.addr.WithZone(c.name)
	}
	return i
}

// maxWord bounds Interface.Word.
const maxWord = 255

// awaitedWord is a word of the include list that names nothing which this machine has. It may come.
type awaitedWord struct {
	text  string
	place uint8 // Interface.Word
}

// maxAwaited bounds how many words are awaited.
const maxAwaited = 4

// awaited are the words of an include list that name none of the chosen addresses, and no address
// that is excluded. If there is a chosen one, single addresses are not awaited: they are of other
// machines.
func awaited(found []candidate, include, exclude []string, chosen []Interface) (list []awaitedWord) {
	found = append(found, loopbacks(include, found)...)
	in, out := parseWords(include), parseWords(exclude)
	for n, w := range in {
		names := func(c candidate) bool {
			return w.names(c) == byAddress || w.names(c) == byName && (!c.addr.IsLinkLocalUnicast() || out.covers(c))
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

// come is the address that an awaited word names by now, if there is one that is not taken.
func (w awaitedWord) come(found []candidate, exclude []string, isTaken func(netip.Addr) bool) (i Interface, ok bool) {
	sortCandidates(found)
	in, out := parseWords([]string{w.text}), parseWords(exclude)
	for _, c := range found {
		how, _ := in.names(c)
		if how == byNothing || how == byName && c.addr.IsLinkLocalUnicast() || out.covers(c) {
			continue
		}
		if i = c.chosen(int(w.place)); !isTaken(i.Address) {
			return i, true
		}
	}
	return Interface{}, false
}

// loopbacks are the addresses of the loopback network that include names one by one: a machine has
// all of them and lists only one.
func loopbacks(include []string, found []candidate) []candidate {
	var more []candidate
	for _, s := range include {
		prefix, ok := tunable.ParseNetwork(s)
		if !ok || !prefix.IsSingleIP() {
			continue
		}
		addr := prefix.Addr()
		for _, c := range found {
			if c.loopback && addr.Is4() && c.addr.Is4() && c.addr != addr && contains(c.addr, uint8(c.bits), addr) {
				c.addr = addr
				more = append(more, c)
				break
			}
		}
	}
	return more
}

func isVirtual(name string) bool {
	return slices.ContainsFunc(virtual[:], func(v string) bool { return strings.HasPrefix(name, v) })
}

// word names interfaces by name, or addresses by their network.
type word struct {
	name   string
	prefix netip.Prefix
}

type words []word

// how a word names an address.
type how uint8

const (
	byNothing how = iota
	byName
	byAddress
)

func (w word) names(c candidate) how {
	switch {
	case w.prefix.IsValid() && w.prefix.Contains(c.addr.WithZone("")):
		return byAddress
	case w.name != "" && w.name == c.name:
		return byName
	}
	return byNothing
}

// names says how the words name an address, and the place of the first word that does, from 1.
func (ws words) names(c candidate) (best how, first int) {
	for n, w := range ws {
		h := w.names(c)
		if h != byNothing && first == 0 {
			first = n + 1
		}
		best = max(best, h)
	}
	return best, first
}

// covers reports whether a word names an address.
func (ws words) covers(c candidate) bool {
	how, _ := ws.names(c)
	return how != byNothing
}

func parseWords(list []string) words {
	ws := make(words, len(list))
	for i, s := range list {
		if prefix, ok := tunable.ParseNetwork(s); ok {
			ws[i].prefix = prefix
		} else {
			ws[i].name = s
		}
	}
	return ws
}

// describe lists what a machine has.
func describe(found []candidate) string {
	var s []string
	for _, c := range found {
		text := c.name + " " + c.addr.String()
		if !c.up {
			text += " (down)"
		}
		s = append(s, text)
	}
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

// speedOf is the bandwidth that the interface of an address reports, in 10^6 bytes a second.
func speedOf(addr netip.Addr) int64 {
	found, _ := candidates() // none if the system does not say
	for _, c := range found {
		if c.addr.WithZone("") != addr.WithZone("") {
			continue
		}
		text, _ := os.ReadFile("/sys/class/net/" + c.name + "/speed")
		if mbps, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && mbps > 0 {
			return max(mbps/8, 1)
		}
	}
	return mbpsUnknown / 8
}

// successor is what takes the place of an address that this machine has lost: the address of the
// same interface or, if the user has named a network, another address of that network.
type successor struct {
	first   Interface // the address at the start
	network string    // the user's word; "" unless it is a network
}

// successorOf reports whether another address can take the place of one: not if the user has named
// the address itself, and not on loopback.
func successorOf(first Interface, include []string) (s successor, ok bool) {
	s.first = first
	if n := int(first.Word); n > 0 {
		prefix, is := tunable.ParseNetwork(include[n-1])
		if is {
			s.network = include[n-1]
		}
		if n == maxWord || is && prefix.IsSingleIP() {
			return s, false
		}
	}
	return s, !first.Address.IsLoopback()
}

// come is the best such address that this machine has, and that is not taken: the first one itself,
// else one of its network, else one of its interface. It is of the same family, because the peers'
// addresses are.
func (s successor) come(found []candidate, exclude []string, isTaken func(netip.Addr) bool) (best Interface, ok bool) {
	sortCandidates(found)
	out, most := parseWords(exclude), -1
	for _, c := range found {
		how, _ := parseWords([]string{cmp.Or(s.network, s.first.Name)}).names(c)
		i := c.chosen(int(s.first.Word))
		first := s.first.Address
		if how == byNothing || how == byName && c.addr.IsLinkLocalUnicast() || c.addr.Is4() != first.Is4() || c.loopback || out.covers(c) || isTaken(i.Address) {
			continue
		}
		worth := 0
		for n, is := range []bool{c.name == s.first.Name, contains(first.WithZone(""), uint8(s.first.Bits), c.addr), i.Address == first} {
			if is {
				worth += 1 << n
			}
		}
		if worth > most {
			best, most, ok = i, worth, true
		}
	}
	return best, ok
}
