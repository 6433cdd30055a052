package comm

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/race"
)

// longBytes exceeds a signed 32-bit integer.
const longBytes = 1<<31 + 4099

// periodBytes is the period of repeated memory in bytes. Neither 2³¹ nor 2³² is a multiple.
const periodBytes = 8<<20 + 4096

// repeated returns long memory that maps the same pages repeatedly.
func repeated(t *testing.T, bytes int) []byte {
	fd, err := unix.MemfdCreate("repeated", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "repeated")
	require.NoError(t, file.Truncate(periodBytes))
	all := untouched(t, bytes)
	for at := 0; at < bytes; at += periodBytes {
		n := min(periodBytes, bytes-at)
		_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(&all[at]), uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_POPULATE)
		require.NoError(t, err)
	}
	require.NoError(t, file.Close())
	return all
}

// untouched returns memory of zeros that only exists where it is written to.
func untouched(t *testing.T, bytes int) []byte {
	const flags = unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_NORESERVE
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE, flags)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.MunmapPtr(p, uintptr(bytes))) })
	return unsafe.Slice((*byte)(p), bytes)
}

// TestBcastOfMoreThan2GiB: no length in the library has only 32 bits.
func TestBcastOfMoreThan2GiB(t *testing.T) {
	if race.Enabled {
		return // the detector needs several times this memory
	}
	bufs := [2][]byte{repeated(t, longBytes), repeated(t, longBytes)}
	for at := 0; at < periodBytes; at += 4096 {
		copy(bufs[0][at:], fmt.Sprint("page ", at))
	}
	run(t, 2, func(w *Comm) { check(Bcast(w, bufs[w.Rank()], 0)) })
	assert.True(t, string(bufs[0][:periodBytes]) == string(bufs[1][:periodBytes]))
	assert.Equal(t, bufs[0][longBytes-5000:], bufs[1][longBytes-5000:])
}

// TestPartsBeyond4GiB: the parts of ranks are far apart.
func TestPartsBeyond4GiB(t *testing.T) {
	const n, far, length = 3, 1<<32 + 8192, 1000
	counts, displs := []int{length, length, length}, []int{2*far + 5, 0, far - 7}
	all := make([][]byte, n)
	for r := range all {
		all[r] = untouched(t, 2*far+5+length)
	}
	own := func(r, to int) []byte {
		b := make([]byte, length)
		for i := range b {
			b[i] = byte(r*7 + to*31 + i)
		}
		return b
	}
	run(t, n, func(w *Comm) {
		me := w.Rank()
		mine := all[me]
		part := func(r int) []byte { return mine[displs[r]:][:length] }
		check(Allgatherv(w, own(me, 0), mine, counts, displs))
		for r := range n {
			check(same("allgatherv", own(r, 0), part(r)))
			clear(part(r))
		}
		check(Gatherv(w, own(me, 1), mine, counts, displs, 2))
		if me == 2 {
			for r := range n {
				check(same("gatherv", own(r, 1), part(r)))
			}
		}
		got := make([]byte, length)
		check(Scatterv(w, mine, got, counts, displs, 2))
		check(same("scatterv", own(me, 1), got))
		for r := range n {
			copy(part(r), own(me, r))
		}
		check(Alltoallv(w, nil, nil, nil, mine, counts, displs))
		for r := range n {
			check(same("alltoallv in place", own(r, me), part(r)))
		}
	})
}
