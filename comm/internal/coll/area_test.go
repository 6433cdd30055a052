package coll

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func testArea(ranks int) *area {
	block := alignArea(1000)
	return newArea(nil, bytesOfWords(make([]uint64, areaBytes(ranks, block)/wordBytes)), ranks, block)
}

// TestAreaArrivals: the last of the ranks to arrive learns that it is, in every meeting. A counter
// that cannot be right is noticed.
func TestAreaArrivals(t *testing.T) {
	const ranks = 3
	first := testArea(ranks)
	areas := []*area{first, newArea(nil, first.mem, ranks, first.block), newArea(nil, first.mem, ranks, first.block)}
	for meeting := range 5 {
		for i, a := range areas {
			all, last, ok := a.arrive()
			require.True(t, ok)
			require.EqualValues(t, (meeting+1)*ranks, all)
			require.Equal(t, i == ranks-1, last)
		}
	}
	for _, wrong := range []uint64{0, 14, 18, 1 << 40, 1<<64 - 1} {
		a := *first
		atomic.StoreUint64(a.arrived, wrong)
		_, _, ok := a.arrive()
		require.False(t, ok, wrong)
	}
}

// TestAreaPlacesDoNotOverlap: nothing that one rank writes lies in another rank's places, or
// outside of the area.
func TestAreaPlacesDoNotOverlap(t *testing.T) {
	for _, ranks := range []int{1, 2, 5, 9} {
		a := testArea(ranks)
		used := make([]int, len(a.mem))
		mark := func(place []byte) {
			at := int(addressOf(place) - addressOf(a.mem))
			for i := range place {
				used[at+i]++
			}
		}
		for _, bytes := range []int{1, 300, a.block, 500, 600} {
			clear(used)
			a.take(bytes)
			for rank := range ranks {
				mark(a.slot(rank))
				mark(a.cell(rank, 0, bytes))
			}
			mark(a.result(0, bytes))
			mark(a.mem[arrivedAt:][:8])
			mark(a.mem[releasedAt:][:8])
			mark(a.smallResult(smallBytes))
			mark(a.mem[poisonedAt:][:8])
			for i, n := range used {
				require.LessOrEqual(t, n, 1, "byte %d", i)
			}
		}
	}
}

func addressOf(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }
