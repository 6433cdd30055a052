package tunable

import (
	"slices"
	"strconv"
	"strings"
)

// ParseRange parses a range of ports, FIRST-LAST. For "any" it returns 0 and 0.
func ParseRange(text string) (first, last uint16, ok bool) {
	if text == "any" {
		return 0, 0, true
	}
	a, b, _ := strings.Cut(text, "-")
	from, err1 := strconv.ParseUint(strings.TrimSpace(a), 10, 16)
	to, err2 := strconv.ParseUint(strings.TrimSpace(b), 10, 16)
	if err1 != nil || err2 != nil || from == 0 || to < from {
		return 0, 0, false
	}
	return uint16(from), uint16(to), true
}

func wellFormedRange(words []string) bool {
	_, _, ok := ParseRange(words[0])
	return ok
}

// wellFormedPorts reports whether ibverbs.ParsePorts accepts words. With this check the launcher
// detects a typing error before it starts any rank, even if no rank would open a device.
func wellFormedPorts(words []string) bool {
	if slices.Contains(words, "all") {
		return len(words) == 1
	}
	rails := make([][]string, len(words))
	for i, w := range words {
		rails[i] = strings.Split(w, "|")
		for k, port := range rails[i] {
			name, number, given := strings.Cut(strings.TrimSpace(port), ":")
			if !given {
				number = "1"
			}
			n, err := strconv.Atoi(number)
			if name == "" || name == "all" || err != nil || n < 1 || n > 255 {
				return false
			}
			rails[i][k] = name + ":" + strconv.Itoa(n)
		}
		for _, other := range rails[:i] {
			if overlap(rails[i], other) {
				return false
			}
		}
	}
	return true
}

// overlap reports whether a rank of a machine gets the same port for two rails. The ranks take the
// ports of a rail in turn.
func overlap(a, b []string) bool {
	for local := range len(a) * len(b) {
		if a[local%len(a)] == b[local%len(b)] {
			return true
		}
	}
	return false
}
