//go:build race

package fence

import "sync/atomic"

// Store has the same effect as without the race detector. Under the detector an atomic store is
// only a release (runtime/race: __tsan_go_atomic64_store), which a later load may overtake. A swap
// is a full fence.
func Store(word *uint64, v uint64) { atomic.SwapUint64(word, v) }
