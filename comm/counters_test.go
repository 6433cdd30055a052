package comm

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
)

// TestStatsAndRailsHaveEveryFieldOfPML: the counters of package pml appear in the types of this
// package, with the same names and values.
func TestStatsAndRailsHaveEveryFieldOfPML(t *testing.T) {
	for _, c := range []struct {
		name    string
		inner   any // a pointer
		convert func(inner any) any
	}{
		{"Stats", new(pml.Stats), func(s any) any { return statsOf(*s.(*pml.Stats)) }},
		{"RailStatus", new(pml.RailStatus), func(s any) any { return railStatusOf(*s.(*pml.RailStatus)) }},
		{"ErrorCounts", new(pml.ErrorCounts), func(s any) any { return errorCountsOf(*s.(*pml.ErrorCounts)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inner := reflect.ValueOf(c.inner).Elem()
			n := 0
			fillDistinct(t, inner, &n)
			outer := reflect.ValueOf(c.convert(c.inner))
			require.Equal(t, reflect.TypeFor[Comm]().PkgPath(), outer.Type().PkgPath())
			require.Equal(t, c.name, outer.Type().Name())
			requireSameFields(t, inner, outer)
		})
	}
}

// fillDistinct sets each field of a struct, and of the structs in it, to another value.
func fillDistinct(t *testing.T, s reflect.Value, n *int) {
	t.Helper()
	for i := range s.NumField() {
		f := s.Field(i)
		if !f.CanSet() {
			continue // not exported
		}
		*n++
		switch {
		case f.Kind() == reflect.Struct:
			fillDistinct(t, f, n)
		case f.CanUint():
			f.SetUint(uint64(*n))
		case f.CanInt():
			f.SetInt(int64(*n))
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.String:
			f.SetString(fmt.Sprint(*n))
		case f.Type() == reflect.TypeFor[error]():
			f.Set(reflect.ValueOf(fmt.Errorf("cause %d", *n)))
		default:
			t.Fatalf("field %s: add its kind here", s.Type().Field(i).Name)
		}
	}
}

// requireSameFields compares all exported fields of two structs, by name.
func requireSameFields(t *testing.T, inner, outer reflect.Value) {
	t.Helper()
	require.Equal(t, inner.NumField(), outer.NumField(), "fields of %v and of %v", inner.Type(), outer.Type())
	for i := range inner.NumField() {
		name, want := inner.Type().Field(i).Name, inner.Field(i)
		got := outer.FieldByName(name)
		require.True(t, got.IsValid(), "%v has no field %s", outer.Type(), name)
		if want.Kind() == reflect.Struct {
			requireSameFields(t, want, got)
			continue
		}
		assert.False(t, got.IsZero(), "%s is not carried over", name)
		assert.Equal(t, want.Interface(), got.Interface(), name)
	}
}
