package tunable

import "strconv"

// ParsePKey parses a partition key of InfiniBand, such as 0x8001. Its highest bit, full membership,
// may be missing. For "first" it returns 0, which is no key.
func ParsePKey(text string) (key uint16, ok bool) {
	if text == "first" {
		return 0, true
	}
	n, err := strconv.ParseUint(text, 0, 16)
	return uint16(n), err == nil && n&0x7fff != 0
}

func wellFormedPKey(words []string) bool {
	_, ok := ParsePKey(words[0])
	return ok
}

func wellFormedNetwork(words []string) bool {
	network, ok := ParseNetwork(words[0])
	return words[0] == "any" || ok && !network.Addr().Is4In6()
}
