package doctor

import (
	"cmp"
	"fmt"
	"slices"
)

// Level says how bad a finding is.
type Level uint8

const (
	OK      Level = iota
	Hint          // it could be better
	Warning       // jobs run, but slowly or not all of them
	Broken        // jobs fail
)

var levelNames = [...]string{OK: "ok", Hint: "hint", Warning: "warning", Broken: "broken"}

func (l Level) String() string { return levelNames[l] }

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Level) UnmarshalText(text []byte) error {
	i := slices.Index(levelNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("no level %q", text)
	}
	*l = Level(i)
	return nil
}

// Finding is the result of one check on one host. Only a finding that is not OK says what breaks
// and how to fix it.
type Finding struct {
	Host   string `json:"host"` // as the user names it
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Wanted string `json:"wanted,omitempty"`
	Breaks string `json:"breaks,omitempty"`
	Fix    string `json:"fix,omitempty"` // a command, or what to change
}

// sortFindings sorts by host, in the order of hosts that have the worst finding first, and the
// worst of each host first.
func sortFindings(list []Finding) {
	worst := map[string]Level{}
	for _, f := range list {
		worst[f.Host] = max(worst[f.Host], f.Level)
	}
	order := map[string]int{}
	for _, f := range list {
		if _, known := order[f.Host]; !known {
			order[f.Host] = len(order)
		}
	}
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(worst[b.Host], worst[a.Host]), cmp.Compare(order[a.Host], order[b.Host]), cmp.Compare(b.Level, a.Level))
	})
}
