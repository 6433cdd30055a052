//go:build !amd64 || race

package sm

import "sync/atomic"

// publishFences says whether publish is a fence, too: whether a load after it in the
// program is after it for every other processor.
const publishFences = true

// publish stores v into word after every store before it in the program.
func publish(word *uint64, v uint64) { atomic.StoreUint64(word, v) }
