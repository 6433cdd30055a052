//go:build !amd64 && !arm64

package progress

// Relax does nothing: no such hint is known for this processor.
func Relax() {}
