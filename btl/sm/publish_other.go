//go:build !amd64 || race

package sm

import (
	"unsafe"

	"github.com/mpigo/mpigo/internal/fence"
)

// publishFences says whether publish is also a fence: every other processor then sees it before any
// later load of the program.
const publishFences = true

// publish stores v into word after every store before it in the program.
func publish(word *uint64, v uint64) { fence.Store(word, v) }

// publishAhead is publish.
func publishAhead(word *uint64, v uint64, _ unsafe.Pointer) { publish(word, v) }
