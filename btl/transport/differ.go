package transport

import (
	"fmt"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/tunable"
)

// Differ is the error when two ranks have different values of a tunable that must be the same.
func Differ(key string, rank int, value string, peer int, theirs string) error {
	return fmt.Errorf("%s is %s at rank %d and %s at rank %d: set it to the same value for all ranks, by mpirun-go --set",
		key, value, rank, theirs, peer)
}

// DifferInFragments is Differ for a tunable that sets the longest payload of a fragment. Its
// arguments are the lengths of the longest fragments including their headers.
func DifferInFragments(key string, rank int, fragment int64, peer int, theirs int64) error {
	payload := func(fragment int64) string { return tunable.FormatBytes(fragment - btl.MaxHeaderBytes) }
	return Differ(key, rank, payload(fragment), peer, payload(theirs))
}
