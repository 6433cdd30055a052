//go:build !amd64 && !arm64

package progress

// Relax would be a hint to the processor. For this one none is known.
func Relax() {}
