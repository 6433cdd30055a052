//go:build race

package fence

import "sync/atomic"

// Store is as without the race detector. With it, an atomic store is only a release
// (runtime/race: __tsan_go_atomic64_store), which a later load may overtake, but a swap is a fence.
func Store(word *uint64, v uint64) { atomic.SwapUint64(word, v) }
