//go:build race

package sm

import (
	"sync/atomic"
	"unsafe"
)

// publishFences is as without the race detector on other processors than amd64.
const publishFences = true

// publish stores v into word after every store before it in the program. Under the race detector an
// atomic store is only a release (runtime/race: __tsan_go_atomic64_store), which a later load may
// overtake. A swap is a fence.
func publish(word *uint64, v uint64) { atomic.SwapUint64(word, v) }

// publishAhead is publish.
func publishAhead(word *uint64, v uint64, _ unsafe.Pointer) { publish(word, v) }
