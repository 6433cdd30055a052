package pml

import (
	"slices"
	"strings"
)

// isBlocked reports whether a rank has operations that wait for room on a rail.
func isBlocked(p *PML) bool {
	return slices.ContainsFunc(p.bml.Leftovers(), func(what string) bool { return strings.HasSuffix(what, "has a queue") })
}
