//go:build !amd64 || race

package sm

import (
	"unsafe"

	"github.com/mpigo/mpigo/internal/fence"
)

// publishFences says whether publish is also a fence: a load that follows it in the program follows
// it for every other processor.
const publishFences = true

// publish stores v into word after every store before it in the program.
func publish(word *uint64, v uint64) { fence.Store(word, v) }

// publishAhead is publish.
func publishAhead(word *uint64, v uint64, _ unsafe.Pointer) { publish(word, v) }
