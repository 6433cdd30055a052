package calls

import _ "unsafe" // for go:linkname

// Now is the time of CLOCK_MONOTONIC in nanoseconds. It is the same clock in all processes of a
// host, which the monotonic times of package time are not: those count from the start of the
// process.
//
//go:linkname Now runtime.nanotime
func Now() int64
