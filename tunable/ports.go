package tunable

import (
	"slices"
	"strconv"
	"strings"
)

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
