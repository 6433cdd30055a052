package request

import (
	"math/bits"
	"unsafe"
)

// MPI's special ranks and tags, and Undefined.
const (
	AnySource = -1
	AnyTag    = -1
	ProcNull  = -2
	// Undefined is the index or count that a call returns if no request of its list is active.
	Undefined = -3
)

// Status is the outcome of a completed operation.
type Status struct {
	// Source and Tag of the received message; AnySource and AnyTag if there is none.
	Source, Tag int
	// Count of whole elements of the receive's type; −1 after a probe.
	Count int
	// Bytes received.
	Bytes     int64
	Cancelled bool
	// Err is set only by calls over several requests.
	Err error
}

// Empty returns the empty status (MPI 4.1, section 3.7.3).
func Empty() Status { return Status{Source: AnySource, Tag: AnyTag} }

// Count returns the number of elements of type T in the bytes that st describes. ok is false if the
// bytes are no whole number of elements. For a T of size zero, n is 0, and ok is true if there are
// no bytes.
func Count[T any](st Status) (n int, ok bool) {
	size := int64(unsafe.Sizeof(*new(T)))
	if size == 0 {
		return 0, st.Bytes == 0
	}
	return int(st.Bytes / size), st.Bytes%size == 0
}

// WholeElements returns the number of whole elements of a size in bytes. size must be positive.
// Powers of two, the common case, avoid the division, which would be the slowest step of a
// completion.
func WholeElements(bytes int64, size int) int {
	if size&(size-1) == 0 {
		return int(bytes >> bits.TrailingZeros(uint(size)))
	}
	return int(bytes / int64(size))
}
