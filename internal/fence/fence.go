//go:build !race

// Package fence provides an atomic store that is ordered before later loads.
package fence

import "sync/atomic"

// Store stores v into word. Every other processor sees the store before any atomic load that
// follows in the program.
func Store(word *uint64, v uint64) { atomic.StoreUint64(word, v) }
