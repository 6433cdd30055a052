package tunable

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Origin is the source of a value.
type Origin uint8

// The origins. A later one takes precedence.
const (
	FromDefault Origin = iota
	FromEnvironment
	FromCommandLine
)

// String returns the name that mpirun-go info prints.
func (o Origin) String() string {
	return [...]string{"default", "environment", "command line"}[o]
}

// Set holds the values of all tunables: those that were set, and defaults for the others. The zero
// Set has only defaults. A Set never changes, so goroutines may share it, and copies are cheap.
// With returns a changed copy.
//
// The accessors look a tunable up by name: read a tunable once and keep its value, because a
// look-up is too slow for a hot path. They panic if the key is not in the table or of another kind,
// which is a bug in the program.
type Set struct {
	changed map[string]entry // not written after the Set was returned
}

type entry struct {
	value
	text   string
	origin Origin
}

// FromEnv reads every tunable from the environment with getenv (normally os.Getenv). An empty
// variable counts as not set. The error joins a *ValueError for each bad value; the Set has the
// defaults for those tunables.
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

// CheckVariable returns an error that Is ErrValue if a variable belongs to a tunable and has a
// value that the tunable does not accept. An empty variable counts as not set.
func CheckVariable(name, value string) error {
	for _, t := range table() {
		if t.Env() == name && value != "" {
			_, err := t.parse(value)
			return err
		}
	}
	return nil
}

// With returns a copy of the Set with one tunable set from text. The error Is ErrUnknown, and names
// a similar key if there is one, or Is ErrValue.
func (s Set) With(key, text string, origin Origin) (Set, error) {
	t, ok := Find(key)
	if !ok {
		if near := nearest(key); near != "" {
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

// Environ returns NAME=VALUE for each tunable that was set, sorted. A launcher adds them to the
// environment of a rank.
func (s Set) Environ() []string {
	env := make([]string, 0, len(s.changed))
	for _, key := range slices.Sorted(maps.Keys(s.changed)) {
		env = append(env, EnvName(key)+"="+s.changed[key].text)
	}
	return env
}

// Text returns the value as the user wrote it, and its origin.
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

// Bytes returns the value of a tunable of kind Bytes.
func (s Set) Bytes(key string) int64 { return s.get(key, Bytes).number }

// Int returns the value of a tunable of kind Int.
func (s Set) Int(key string) int64 { return s.get(key, Int).number }

// Duration returns the value of a tunable of kind Duration.
func (s Set) Duration(key string) time.Duration {
	return time.Duration(s.get(key, Duration).number)
}

// Bool returns the value of a tunable of kind Bool.
func (s Set) Bool(key string) bool { return s.get(key, Bool).number != 0 }

// String returns the value of a tunable of kind String.
func (s Set) String(key string) string { return s.get(key, String).words[0] }

// List returns the value of a tunable of kind List. The caller owns the result.
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
