//go:build !race

package sm

import "unsafe"

// publishFences says whether publish is also a fence: a load that follows it in the program follows
// it for every other processor.
const publishFences = false

// publish stores v into word after every store before it in the program.
//
//go:noescape
func publish(word *uint64, v uint64)

// publishAhead is publish, and a hint that the line of ahead will be written.
//
//go:noescape
func publishAhead(word *uint64, v uint64, ahead unsafe.Pointer)
