// Package tunable is the registry of everything about the library that a user
// may set: one table of keys with kind, default, range and meaning, the parsing
// of their values, and the way they travel from the launcher to the ranks.
//
// A tunable "sm.ring.bytes" is set by `mpirun-go --set sm.ring.bytes=1M`, or by
// the environment variable MPIGO_SM_RING_BYTES, which is also how the launcher
// hands it on. A rank reads all of them once, at Init, with FromEnv; what has a
// bad value is refused there, before anything depends on it.
//
// To add a tunable, add a row to table in table.go. The package has no state:
// a Set is a value that its owner passes on.
package tunable

import (
	"slices"
	"strings"
)

// Kind says how a tunable's value is written and read.
type Kind uint8

// The kinds. Each has one accessor of the same name on Set.
const (
	Bytes    Kind = iota + 1 // a size: 4096, 64K, 1M, 2G (powers of 1024)
	Int                      // a whole number
	Duration                 // a number with a unit, as time.ParseDuration takes it: 50us, 2s
	Bool                     // true or false (also 1, 0, yes, no, on, off)
	String                   // one word
	List                     // words separated by commas, without repetition
)

// String names the kind as mpirun-go info prints it.
func (k Kind) String() string {
	switch k {
	case Bytes:
		return "bytes"
	case Int:
		return "int"
	case Duration:
		return "duration"
	case Bool:
		return "bool"
	case String:
		return "string"
	case List:
		return "list"
	}
	return "unknown"
}

// Tunable is one row of the table.
type Tunable struct {
	Key     string // words in lower case, joined by dots
	Kind    Kind
	Default string // as a user would write it
	Doc     string // one line, without a full stop at the end

	// Min and Max bound a value of kind Bytes, Int or Duration (then in
	// nanoseconds); both zero means unbounded.
	Min, Max int64

	// Allowed are the words that a String or a List may have; empty means any.
	Allowed []string

	// wellFormed, if not nil, says whether a String or a List that has no Allowed words is written as form says.
	wellFormed func(words []string) bool
	form       string
}

// Env is the name of the environment variable that carries the tunable.
func (t Tunable) Env() string { return EnvName(t.Key) }

// EnvName is the environment variable of a key: sm.ring.bytes travels as
// MPIGO_SM_RING_BYTES.
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

// Nearest returns the known key that is written most like key, for "did you
// mean" in messages, or "" if none is close.
func Nearest(key string) string {
	best, bestDistance := "", len(key)/2+2
	for _, t := range All() {
		if d := editDistance(strings.ToLower(key), t.Key); d < bestDistance {
			best, bestDistance = t.Key, d
		}
	}
	return best
}

// editDistance is Levenshtein's: the fewest insertions, deletions and
// substitutions of one byte that turn a into b.
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
