//go:build !race

package sm

import "unsafe"

// publishFences says whether publish is also a fence: every other processor then sees it before any
// later load of the program.
const publishFences = false

// publish stores v into word after every store before it in the program.
//
//go:noescape
func publish(word *uint64, v uint64)

// publishAhead is publish with a hint that the cache line of ahead will be written.
//
//go:noescape
func publishAhead(word *uint64, v uint64, ahead unsafe.Pointer)
