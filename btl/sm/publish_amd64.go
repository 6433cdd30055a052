//go:build !race

package sm

// publishFences says whether publish is also a fence: a load that follows it in the program follows
// it for every other processor.
const publishFences = false

// publish stores v into word after every store before it in the program.
//
//go:noescape
func publish(word *uint64, v uint64)
