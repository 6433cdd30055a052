//go:build race

package comm

// raced reports whether the race detector is on, which makes tests about ten times slower.
const raced = true
