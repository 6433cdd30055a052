package tunable

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Origin says where a value comes from.
type Origin uint8

// Where a value may come from, the stronger last.
const (
	FromDefault Origin = iota
	FromEnvironment
	FromCommandLine
)

// String names the origin as mpirun-go info prints it.
func (o Origin) String() string {
	switch o {
	case FromDefault:
		return "default"
	case FromEnvironment:
		return "environment"
	case FromCommandLine:
		return "command line"
	}
	return "unknown"
}

// Set is the value of every tunable: the defaults, save for what was set. The
// zero Set is all defaults. A Set never changes, so goroutines may share it and
// copies are cheap; With gives a changed one.
//
// The accessors look up by name: read a tunable once and keep it, not in a hot
// path. A key that is not in the table, or is of another kind than the accessor,
// is a mistake in the program's text; they panic on it, whatever the user set.
type Set struct {
	changed map[string]entry // never written to once the Set is handed out
}

type entry struct {
	value
	text   string
	origin Origin
}

// FromEnv reads every tunable from the environment that getenv (os.Getenv as a
// rule) looks things up in. An empty variable counts as not set. The error joins
// a *ValueError for each bad one; the Set is then without them.
func FromEnv(getenv func(name string) string) (Set, error) {
	set := Set{changed: map[string]entry{}}
	var bad []error
	for _, t := range All() {
		text := getenv(t.Env())
		if text == "" {
			continue
		}
		v, err := t.parse(text)
		if err != nil {
			if refused := (*ValueError)(nil); errors.As(err, &refused) {
				refused.Source = t.Env()
			}
			bad = append(bad, err)
			continue
		}
		set.changed[t.Key] = entry{value: v, text: text, origin: FromEnvironment}
	}
	return set, errors.Join(bad...)
}

// With returns the Set with one tunable set from text. The error Is ErrUnknown,
// and then names the nearest key, or Is ErrValue.
func (s Set) With(key, text string, origin Origin) (Set, error) {
	t, ok := Find(key)
	if !ok {
		if near := Nearest(key); near != "" {
			return s, fmt.Errorf("%w %q: did you mean %s?", ErrUnknown, key, near)
		}
		return s, fmt.Errorf("%w %q", ErrUnknown, key)
	}
	v, err := t.parse(text)
	if err != nil {
		return s, err
	}
	changed := maps.Clone(s.changed)
	if changed == nil {
		changed = map[string]entry{}
	}
	changed[key] = entry{value: v, text: text, origin: origin}
	return Set{changed: changed}, nil
}

// Environ returns NAME=VALUE for each tunable that is not at its default,
// sorted: what a launcher adds to the environment of a rank.
func (s Set) Environ() []string {
	env := make([]string, 0, len(s.changed))
	for _, key := range slices.Sorted(maps.Keys(s.changed)) {
		env = append(env, EnvName(key)+"="+s.changed[key].text)
	}
	return env
}

// Text is the value as it was written, and where it comes from.
func (s Set) Text(key string) (string, Origin) {
	if e, ok := s.changed[key]; ok {
		return e.text, e.origin
	}
	t, ok := Find(key)
	if !ok {
		panic("tunable: no tunable " + key)
	}
	return t.Default, FromDefault
}

// Bytes is the value of a tunable of kind Bytes.
func (s Set) Bytes(key string) int64 { return s.get(key, Bytes).number }

// Int is the value of a tunable of kind Int.
func (s Set) Int(key string) int64 { return s.get(key, Int).number }

// Duration is the value of a tunable of kind Duration.
func (s Set) Duration(key string) time.Duration {
	return time.Duration(s.get(key, Duration).number)
}

// Bool is the value of a tunable of kind Bool.
func (s Set) Bool(key string) bool { return s.get(key, Bool).number != 0 }

// String is the value of a tunable of kind String.
func (s Set) String(key string) string { return s.get(key, String).words[0] }

// List is the value of a tunable of kind List. The caller owns the result.
func (s Set) List(key string) []string { return slices.Clone(s.get(key, List).words) }

func (s Set) get(key string, kind Kind) value {
	t, ok := Find(key)
	if !ok || t.Kind != kind {
		panic(fmt.Sprintf("tunable: no tunable %q of kind %v", key, kind))
	}
	if e, ok := s.changed[key]; ok {
		return e.value
	}
	v, err := t.parse(t.Default)
	if err != nil {
		panic("tunable: default of " + strings.TrimSpace(err.Error()))
	}
	return v
}
