//go:build !race

// Package fence has a store that a later load does not overtake.
package fence

import "sync/atomic"

// Store stores v into word. An atomic load that follows in the program follows it for every other
// processor.
func Store(word *uint64, v uint64) { atomic.StoreUint64(word, v) }
