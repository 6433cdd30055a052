package tunable

import (
	"net/netip"
	"slices"
	"strings"
)

// ParseNetwork parses an address ("10.0.0.1", "::1", "[::1]", "fe80::1%eth0") or a network
// ("10.0.0.0/8"). An address is a network of one. The zone is ignored.
func ParseNetwork(word string) (netip.Prefix, bool) {
	text := word
	if inside, ok := strings.CutPrefix(text, "["); ok { // the form of an address before a port
		before, after, closed := strings.Cut(inside, "]")
		if !closed || !strings.Contains(before, ":") || after != "" && after[0] != '/' {
			return netip.Prefix{}, false
		}
		text = before + after
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Masked(), true
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	addr = addr.Unmap().WithZone("")
	return netip.PrefixFrom(addr, addr.BitLen()), true
}

// wellFormedAddresses checks a list of interfaces, addresses and networks; alone is a word that
// must be the only one. It rejects a word that is neither an address nor a possible name of an
// interface, so the launcher detects a typing error before it starts any rank.
func wellFormedAddresses(alone string) func(words []string) bool {
	return func(words []string) bool {
		if slices.Equal(words, []string{alone}) {
			return true
		}
		return !slices.ContainsFunc(words, func(w string) bool {
			if w == "all" || w == "none" {
				return true
			}
			_, ok := ParseNetwork(w)
			return !ok && (strings.ContainsAny(w, "/:[] \t") || strings.Count(w, ".") == 3 && strings.Trim(w, "0123456789.") == "")
		})
	}
}
