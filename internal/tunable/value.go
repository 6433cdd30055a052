package tunable

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrUnknown: the key is not in the table.
var ErrUnknown = errors.New("unknown tunable")

// ErrValue: the tunable does not accept the value.
var ErrValue = errors.New("bad value")

// ValueError is the error of a value that a tunable does not accept. It Is ErrValue.
type ValueError struct {
	Key     string
	Value   string
	Source  string // the environment variable that had the value, or ""
	Allowed string // description of the values that the tunable accepts
}

// Error returns one line with the key, the value and the accepted values.
func (e *ValueError) Error() string {
	from := ""
	if e.Source != "" {
		from = " (from " + e.Source + ")"
	}
	return fmt.Sprintf("%s=%q%s: %v: want %s", e.Key, e.Value, from, ErrValue, e.Allowed)
}

// Unwrap makes errors.Is(err, ErrValue) true.
func (e *ValueError) Unwrap() error { return ErrValue }

// value is a parsed value: number for Bytes, Int, Duration (nanoseconds) and Bool (0, 1), words for
// String and List.
type value struct {
	number int64
	words  []string
}

// parse parses text as a value of t. It ignores spaces around the text and around the words of a
// list. The error is a *ValueError.
func (t Tunable) parse(text string) (value, error) {
	v, ok := t.read(strings.TrimSpace(text))
	if !ok {
		return value{}, &ValueError{Key: t.Key, Value: text, Allowed: t.allowed()}
	}
	return v, nil
}

func (t Tunable) read(text string) (v value, ok bool) {
	switch t.Kind {
	case Bytes:
		n, err := ParseBytes(text)
		return value{number: n}, err == nil && t.inRange(n)
	case Int:
		n, err := strconv.ParseInt(text, 10, 64)
		return value{number: n}, err == nil && t.inRange(n)
	case Duration:
		d, err := time.ParseDuration(text)
		return value{number: int64(d)}, err == nil && t.inRange(int64(d))
	case Bool:
		on, ok := parseBool(text)
		if on {
			v.number = 1
		}
		return v, ok
	case String:
		words := []string{text}
		return value{words: words}, t.isWord(text) && (t.wellFormed == nil || t.wellFormed(words))
	case List:
		words := strings.Split(text, ",")
		for i, w := range words {
			words[i] = strings.TrimSpace(w)
			if !t.isWord(words[i]) || slices.Contains(words[:i], words[i]) {
				return value{}, false
			}
		}
		return value{words: words}, t.wellFormed == nil || t.wellFormed(words)
	}
	return value{}, false
}

func parseBool(text string) (on, ok bool) {
	switch strings.ToLower(text) {
	case "1", "true", "yes", "on":
		return true, true
	case "0", "false", "no", "off":
		return false, true
	}
	return false, false
}

func (t Tunable) inRange(n int64) bool { return t.Min <= n && n <= t.Max }

// isWord reports whether w is allowed, and can be passed in the environment and in a list.
func (t Tunable) isWord(w string) bool {
	if len(t.Allowed) > 0 {
		return slices.Contains(t.Allowed, w)
	}
	return w != "" && !strings.ContainsAny(w, ",\x00\n")
}

// allowed describes the values that t accepts.
func (t Tunable) allowed() string {
	what, show := "", func(n int64) string { return strconv.FormatInt(n, 10) }
	switch t.Kind {
	case Bytes:
		what, show = "a size such as 4096, 64K or 1M", FormatBytes
	case Int:
		what = "a whole number"
	case Duration:
		what, show = "a duration such as 50us or 2s", func(n int64) string { return time.Duration(n).String() }
	case Bool:
		return "true or false"
	case String:
		if t.form != "" {
			return t.form
		}
		return "one of " + strings.Join(t.Allowed, ", ")
	case List:
		if t.form != "" {
			return t.form
		}
		return "a comma-separated list, each once, of " + strings.Join(t.Allowed, ", ")
	}
	return fmt.Sprintf("%s from %s to %s", what, show(t.Min), show(t.Max))
}

// ParseBytes parses a size: a number of bytes, or a number with K, M, G or T (powers of 1024, in
// upper or lower case; KB and KiB mean K). Negative sizes, fractions and sizes over 2⁶³−1 are
// errors.
func ParseBytes(text string) (int64, error) {
	upper := strings.ToUpper(text)
	digits := strings.TrimRight(upper, "KMGTIB")
	shift, known := map[string]uint{
		"": 0, "B": 0,
		"K": 10, "KB": 10, "KIB": 10,
		"M": 20, "MB": 20, "MIB": 20,
		"G": 30, "GB": 30, "GIB": 30,
		"T": 40, "TB": 40, "TIB": 40,
	}[upper[len(digits):]]
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || !known || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a size such as 4096, 64K or 1M", text)
	}
	return int64(n) << shift, nil
}

// FormatBytes is the inverse of ParseBytes. It uses the largest unit that is exact.
func FormatBytes(n int64) string {
	units := []string{"", "K", "M", "G", "T"}
	i := 0
	for i+1 < len(units) && n != 0 && n%1024 == 0 {
		n /= 1024
		i++
	}
	return strconv.FormatInt(n, 10) + units[i]
}
