package tcp

import (
	"errors"
	"fmt"
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
	// Word is the place, from 1, of the first word of the include list that names the address. It
	// is 0 without a list.
	Word uint8
	// Up: the interface is switched on.
	Up bool
	// Rail tells rails apart: addresses with the same value belong to one rail.
	Rail string
}

// virtual lists name prefixes of interfaces that lead only to containers and virtual machines of
// this machine.
var virtual = [...]string{"docker", "br-", "virbr", "cni", "veth", "flannel", "cali", "podman", "lxcbr", "lxd", "incus", "vnet", "vboxnet", "vmnet", "tunl", "kube-", "nerdctl"}

// Addresses returns the local addresses over which ranks may reach each other, in the order of the
// interfaces, IPv4 first.
//
// The addresses of an interface belong to one rail, at most one of each network and maxAddresses of
// them. include and exclude list names of interfaces, addresses, or networks ("10.0.0.0/8"). With
// include, only the addresses that it names are used, and an address that is named by itself is a
// rail of its own. Without include, interfaces of containers and virtual machines are left out. The
// loopback interface is left out too, unless there is no other.
//
// The loopback interface is used with its first address, or with each address that include names by
// address or network. Link-local addresses are used only if include names them by address or
// network. Addresses that the system is about to give up, or has not checked yet, are used only if
// include names them by address. An interface that is down is used only if include names it,
// because it may come up. The error is ErrNoSuch if nothing in include names an address of this
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

// unknownAmong returns the words of an include or exclude list that name no interface and no
// address of a machine.
func unknownAmong(found []candidate, list []string) (none []string) {
	found = slices.Concat(found, loopbacks(list, found))
	for i, w := range parseWords(list) {
		if !slices.ContainsFunc(found, func(c candidate) bool { return w.names(c) != byNothing }) {
			none = append(none, list[i])
		}
	}
	return none
}

// choose does what Addresses does, for a machine with the given name and addresses.
func choose(host string, found []candidate, include, exclude []string) ([]Interface, error) {
	sortCandidates(found)
	found = append(found, loopbacks(include, found)...)
	in, out := parseWords(include), parseWords(exclude)
	// If no word names anything, the job would run over other networks than the user meant. Single
	// words may name nothing, because machines of one job may differ.
	if len(in) > 0 && !slices.ContainsFunc(found, in.covers) {
		return nil, fmt.Errorf("%w on %s, which has %s", ErrNoSuch, host, describe(found))
	}
	var chosen, loopback []Interface
	for _, c := range found {
		i, ok := usable(c, in, out)
		switch {
		case !ok || !c.up && len(in) == 0 || c.loopback && hasRail(append(chosen, loopback...), i.Rail):
		case len(in) > 0:
			chosen = addDistinct(chosen, i)
		case c.loopback:
			loopback = addDistinct(loopback, i)
		case !isVirtual(c.name):
			chosen = addDistinct(chosen, i)
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

// usable reports whether the lists of the user permit an address, and returns it with its rail.
func usable(c candidate, in, out words) (i Interface, ok bool) {
	how, word := in.names(c)
	if out.covers(c) || len(in) > 0 && how == byNothing || c.addr.IsLinkLocalUnicast() && how < byNetwork || c.unfit != "" && how < byAddress {
		return Interface{}, false
	}
	i = c.chosen(word)
	if how == byAddress || how == byNetwork && c.loopback {
		i.Rail = i.Address.String()
	}
	return i, true
}

// maxAddresses bounds the addresses of a rail.
const maxAddresses = 8

func hasRail(list []Interface, rail string) bool {
	return slices.ContainsFunc(list, func(i Interface) bool { return i.Rail == rail })
}

// addDistinct adds an address to a list of rails, unless its rail already has an address of the
// same network.
func addDistinct(list []Interface, i Interface) []Interface {
	n := 0
	for _, o := range list {
		if o.Rail != i.Rail {
			continue
		}
		if n++; n == maxAddresses || isOneNetwork(o, i) {
			return list
		}
	}
	return append(list, i)
}

// isOneNetwork reports whether two addresses of an interface are in the same network.
func isOneNetwork(a, b Interface) bool {
	return a.Bits == b.Bits && contains(a.Address.WithZone(""), uint8(a.Bits), b.Address.WithZone(""))
}

// chosen returns the address in the form that Addresses returns.
func (c candidate) chosen(word int) Interface {
	i := Interface{c.name, c.addr, c.bits, uint8(min(word, maxWord)), c.up, c.name}
	if c.addr.IsLinkLocalUnicast() && c.addr.Is6() {
		i.Address = c.addr.WithZone(c.name)
	}
	return i
}

// maxWord bounds Interface.Word.
const maxWord = 255

// loopbacks returns the addresses of the loopback network that include names one by one. A machine
// has all of them, but lists only one.
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

// how is the way in which a word names an address.
type how uint8

const (
	byNothing how = iota
	byName
	byNetwork
	byAddress // the word is this address
)

func (w word) names(c candidate) how {
	switch {
	case w.prefix.IsValid() && w.prefix.Contains(c.addr.WithZone("")):
		if w.prefix.IsSingleIP() {
			return byAddress
		}
		return byNetwork
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

// covers reports whether one of the words names an address.
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

// describe lists the interfaces and addresses of a machine.
func describe(found []candidate) string {
	var s []string
	for _, c := range found {
		text := c.name + " " + c.addr.String()
		if !c.up {
			text += " (down)"
		}
		if c.unfit != "" {
			text += " (" + c.unfit + ")"
		}
		s = append(s, text)
	}
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

// speedOf returns the bandwidth that the interface of an address reports, in 10^6 bytes a second.
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
