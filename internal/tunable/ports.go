package tunable

import (
	"slices"
	"strconv"
	"strings"
)

// ParseRange reads a range of ports, FIRST-LAST; any is 0 and 0.
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

// wellFormedPorts reports whether words are rails over verbs as ibverbs.ParsePorts reads them. It is looked at here too, so that a slip of the
// keyboard is found before there is any rank, and also if none opens a device.
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
			if meet(rails[i], other) {
				return false
			}
		}
	}
	return true
}

// meet reports whether some rank of a machine gets the same port of two rails, whose ports the ranks take in turn.
func meet(a, b []string) bool {
	for local := range len(a) * len(b) {
		if a[local%len(a)] == b[local%len(b)] {
			return true
		}
	}
	return false
}
