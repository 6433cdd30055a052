// Package tunable is the registry of all settings that a user can make. It has a table of keys with
// their kind, default, range and meaning; it parses their values, and passes them from the launcher
// to the ranks.
//
// A user sets the tunable "sm.ring.bytes" by `mpirun-go --set sm.ring.bytes=1M`, or by the
// environment variable MPIGO_SM_RING_BYTES. The launcher passes it to the ranks in that variable. A
// rank reads all tunables once, at Init, with FromEnv, which rejects bad values.
//
// To add a tunable, add a row to table in table.go. The package has no state: a Set is a value that
// its owner passes on.
package tunable

import (
	"slices"
	"strings"
)

// Kind is the form of a tunable's value.
type Kind uint8

// The kinds. Each has one accessor of the same name on Set.
const (
	Bytes    Kind = iota + 1 // a size: 4096, 64K, 1M, 2G (powers of 1024)
	Int                      // a whole number
	Duration                 // numbers with units, as in time.ParseDuration: 50us, 2s
	Bool                     // true or false (also 1, 0, yes, no, on, off)
	String                   // one word
	List                     // words separated by commas, none twice
)

// String names the kind as mpirun-go info prints it.
func (k Kind) String() string {
	return [...]string{"", "bytes", "int", "duration", "bool", "string", "list"}[k]
}

// Tunable is one row of the table.
type Tunable struct {
	Key     string // words in lower case, joined by dots
	Kind    Kind
	Default string // as a user would write it
	// One line: the meaning, and the meaning of special values; without a full stop at the end.
	Doc string

	// Min and Max bound a value of kind Bytes, Int or Duration (in nanoseconds).
	Min, Max int64

	// Allowed are the words that a String or a List may have.
	Allowed []string

	// wellFormed checks a String or a List without Allowed. form describes the words that it
	// accepts.
	wellFormed func(words []string) bool
	form       string
}

// Env returns the name of the environment variable of the tunable.
func (t Tunable) Env() string { return EnvName(t.Key) }

// EnvName returns the name of the environment variable of a key: MPIGO_SM_RING_BYTES for
// sm.ring.bytes.
func EnvName(key string) string {
	return "MPIGO_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// All returns every tunable, sorted by key. The caller owns the result.
func All() []Tunable {
	all := table()
	slices.SortFunc(all, func(a, b Tunable) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// Find returns the tunable with the given key.
func Find(key string) (Tunable, bool) {
	for _, t := range table() {
		if t.Key == key {
			return t, true
		}
	}
	return Tunable{}, false
}

// nearest returns the known key with the smallest edit distance to key, for "did you mean" in
// messages, or "" if none is close.
func nearest(key string) string {
	var keys []string
	for _, t := range All() {
		keys = append(keys, t.Key)
	}
	return Nearest(strings.ToLower(key), keys, len(key)/2+1)
}

// Nearest returns the first of the words with the smallest edit distance to a misspelt one, or ""
// if none is within most.
func Nearest(misspelt string, words []string, most int) string {
	best, bestDistance := "", most+1
	for _, w := range words {
		if d := editDistance(misspelt, w); d < bestDistance {
			best, bestDistance = w, d
		}
	}
	return best
}

// editDistance returns the Levenshtein distance: the smallest number of insertions, deletions and
// substitutions of a byte that turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substituted := diagonal
			if a[i] != b[j] {
				substituted++
			}
			diagonal = row[j+1]
			row[j+1] = min(substituted, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
