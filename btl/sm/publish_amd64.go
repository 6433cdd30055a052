//go:build !race

package sm

// publishFences says whether publish is a fence, too: whether a load after it in the
// program is after it for every other processor.
const publishFences = false

// publish stores v into word after every store before it in the program.
//
//go:noescape
func publish(word *uint64, v uint64)
