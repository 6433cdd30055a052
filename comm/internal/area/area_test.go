package area

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// testAreas are the areas of this many ranks, in the same memory, for a team without any collective
// yet.
func testAreas(ranks int) []*Area { return testAreasAfter(ranks, 0) }

// testAreasAfter are the areas of a team that has made this many collectives.
func testAreasAfter(ranks int, count uint64) []*Area {
	block := Align(1000)
	words := make([]uint64, Bytes(ranks, block)/wordBytes)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*wordBytes)
	before := Stamp(count, MostRound)
	Clear(mem, ranks, before)
	areas := make([]*Area, ranks)
	world := make([]int, ranks)
	for rank := range areas {
		world[rank] = rank
		areas[rank] = New(nil, mem, world, rank, block, before)
	}
	return areas
}

// TestAreaCountsArrivals: the last rank to come to a round learns that it is the last. Rounds to
// which only some ranks came do not disturb later ones. An invalid count is detected.
func TestAreaCountsArrivals(t *testing.T) {
	const ranks = 3
	areas := testAreas(ranks)
	for count := uint64(1); count < 60; count++ {
		for round := range count % 3 {
			stamp := Stamp(count, round)
			for i, a := range areas {
				if count%5 == 0 && i == 1 {
					break // the others give the round up
				}
				last, ok := a.Arrive(stamp)
				require.True(t, ok)
				require.Equal(t, i == ranks-1, last)
			}
			require.Equal(t, count%5 != 0, *areas[0].Count(stamp) == areas[0].AllCounted(stamp))
		}
	}
	_, ok := areas[0].Arrive(Stamp(60, 0))
	require.True(t, ok)
	late := Stamp(60-RoundsAhead, 0)
	for _, a := range areas[1:] { // a rank that comes to a round that others gave up is never last
		last, ok := a.Arrive(late)
		require.True(t, ok)
		require.False(t, last)
	}
	stamp := Stamp(100, 0)
	for _, wrong := range []uint64{3, 4, 1000, MostRanks} {
		atomic.StoreUint64(areas[0].Count(stamp), stamp<<countBits|wrong)
		_, ok := areas[0].Arrive(stamp)
		require.False(t, ok, wrong)
	}
}

// TestAreaCountsArrivalOnceThatGoesTheGeneralWay: a rank that was counted on a short path comes to
// the same round again.
func TestAreaCountsArrivalOnceThatGoesTheGeneralWay(t *testing.T) {
	areas := testAreas(3)
	stamp := Stamp(7, 0)
	for i, a := range areas {
		a.Filled(stamp)
		for range 3 {
			last, ok := a.Arrive(stamp)
			require.True(t, ok)
			require.Equal(t, i == len(areas)-1, last)
		}
	}
	require.Equal(t, areas[0].AllCounted(stamp), *areas[0].Count(stamp))
}

// wraps are numbers of collectives after which a stamp, or that in a count, is 0 again, or half of
// that, where the sign of a difference changes.
var wraps = []uint64{1 << 31, 1 << 32, 1 << 43, 1 << 44, 1<<44 + 1<<32} // never written

// TestAreaEntryOfLongAgoIsUsedAgain: no rank was counted in an entry for so long that the stamp in
// its count wraps, or seems to be ahead. Some ranks had given that round up.
func TestAreaEntryOfLongAgoIsUsedAgain(t *testing.T) {
	for _, arrived := range []int{0, 2, 3} {
		for _, later := range []uint64{1 << 31, 1<<32 - RoundsAhead, 1 << 32, 1<<32 + RoundsAhead} {
			const ageSpan = 1 << 27 // age is called more often, which takes longer
			areas := testAreas(3)
			for _, a := range areas[:arrived] {
				_, ok := a.Arrive(Stamp(5, 0))
				require.True(t, ok)
			}
			for count := uint64(ageSpan); count <= later; count += ageSpan {
				for _, a := range areas {
					a.Age(count - ageSpan)
				}
			}
			stamp := Stamp(5+later, 0)
			for i, a := range areas {
				last, ok := a.Arrive(stamp)
				require.True(t, ok)
				require.Equal(t, i == len(areas)-1, last, "%d, %d", arrived, later)
			}
			require.Equal(t, areas[0].AllCounted(stamp), *areas[0].Count(stamp))
		}
	}
}

// TestAreaCountsArrivalsWhenStampsWrap: no stamp has a special meaning, also in an area that is
// made shortly before the wrap.
func TestAreaCountsArrivalsWhenStampsWrap(t *testing.T) {
	for _, wrap := range wraps {
		for _, begin := range []uint64{wrap - 3*RoundsAhead, wrap - 2, wrap - 1} {
			areas := testAreasAfter(3, begin)
			for count := begin + 1; count != wrap+3*RoundsAhead; count++ {
				stamp := Stamp(count, 0)
				for i, a := range areas {
					rank, _ := a.Reserve(stamp, 0)
					require.Equal(t, Nobody, rank, "all have passed")
					require.False(t, a.IsPut(stamp))
					require.False(t, a.HasCome(a.Self, stamp))
					require.NotEqual(t, stamp, *a.Done(stamp))
					a.Place(stamp, 0)
					a.Filled(stamp)
					for range 2 { // on a short path, and the general way
						last, ok := a.Arrive(stamp)
						require.True(t, ok)
						require.Equal(t, i == len(areas)-1, last, "%d of %d", i, count)
					}
				}
				for _, a := range areas {
					a.AllArrived(stamp)
					a.pass(Stamp(count+1, 0))
				}
				areas[0].Finish(stamp)
			}
		}
	}
}

// TestAreaWaitsForRoomWhenStampsWrap: a rank may not reuse its memory until the others have passed.
func TestAreaWaitsForRoomWhenStampsWrap(t *testing.T) {
	for _, wrap := range wraps {
		a := testAreasAfter(2, wrap-RoundsAhead/2)[0]
		for i := range uint64(RoundsAhead) {
			stamp := Stamp(wrap-RoundsAhead/2+1+i, 0)
			rank, _ := a.Reserve(stamp, 10)
			require.Equal(t, Nobody, rank)
			a.Place(stamp, 10)
		}
		stamp := Stamp(wrap+RoundsAhead/2+1, 0)
		rank, until := a.Reserve(stamp, 10)
		require.Equal(t, 1, rank)
		require.True(t, IsAfter(until+1, *a.Passed(1)))
		*a.Passed(1) = stamp
		require.False(t, IsAfter(until+1, *a.Passed(1)))
		rank, _ = a.Reserve(stamp, 10)
		require.Equal(t, Nobody, rank)
	}
}

// TestAreaPlacesDoNotOverlap: nothing that one rank writes lies in another rank's places, or
// outside of the area.
func TestAreaPlacesDoNotOverlap(t *testing.T) {
	for _, ranks := range []int{2, 5, 9} {
		areas := testAreas(ranks)
		used := make([]int, len(areas[0].mem))
		mark := func(place []byte) {
			at := int(addressOf(place) - addressOf(areas[0].mem))
			for i := range place {
				used[at+i]++
			}
		}
		markWord := func(word *uint64) { mark(unsafe.Slice((*byte)(unsafe.Pointer(word)), wordBytes)) }
		for round := range uint64(RoundsAhead) {
			stamp := Stamp(1, round)
			for _, a := range areas {
				bytes := int(round%8) * 30
				if round >= 8 { // there is room for no more
					bytes = min(bytes, SmallBytes)
				}
				rank, _ := a.Reserve(stamp, bytes)
				require.Equal(t, Nobody, rank)
				place := a.Place(stamp, bytes)
				require.Equal(t, addressOf(place), addressOf(a.At(a.Self, stamp, bytes)))
				mark(place)
				mark(a.slot(a.Self, stamp)[:smallAt])
			}
			a := areas[0]
			markWord(a.Count(stamp))
			markWord(a.Done(stamp))
			markWord(a.doneBy(stamp))
			mark(a.ResultPlace(stamp, smallResultBytes))
		}
		for _, a := range areas {
			markWord(a.Passed(a.Self))
		}
		for i, n := range used {
			require.LessOrEqual(t, n, 1, "byte %d", i)
		}
	}
}

const wordBytes = 8

func addressOf(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// TestAreaMemoryIsReusedWhenAllHavePassed: a rank may not put anything where another rank may still
// read.
func TestAreaMemoryIsReusedWhenAllHavePassed(t *testing.T) {
	areas := testAreas(3)
	a := areas[0]
	free := func(stamp uint64, bytes int) bool {
		rank, _ := a.Reserve(stamp, bytes)
		return rank == Nobody
	}
	for count := uint64(1); count <= RoundsAhead; count++ {
		require.True(t, free(Stamp(count, 0), 10))
		a.Place(Stamp(count, 0), 10)
	}
	next := Stamp(RoundsAhead+1, 0)
	require.False(t, free(next, 10), "the slot")
	areas[1].pass(Stamp(2, 0))
	rank, until := a.Reserve(next, 10)
	require.Equal(t, 2, rank)
	require.Equal(t, Stamp(1, 0), until)
	areas[2].pass(Stamp(2, 0))
	require.True(t, free(next, 10))
	a.Place(next, 600)
	require.False(t, free(next+1, 10), "the slot")
	a.AllArrived(next)
	require.True(t, free(next+1, 10), "all have come to a later round")
	require.False(t, free(next+1, 600), "the cells")
	require.True(t, free(next+1, 200), "what is left of them")
	a.Place(next+1, 200)
	a.Keep(next+1, next+2)
	a.AllArrived(next + 2)
	require.True(t, free(next+3, 400), "the cells of the first round")
	require.False(t, free(next+3, 700), "what is kept for a later round")
}

// TestAreaPlaceThatIsWrongStaysInTheArea: places from other ranks are checked.
func TestAreaPlaceThatIsWrongStaysInTheArea(t *testing.T) {
	a := testAreas(2)[0]
	stamp := Stamp(1, 0)
	for _, wrong := range []uint64{0, 1, 900, 1 << 20, 1 << 63, 1<<64 - 1} {
		*(*uint64)(unsafe.Pointer(&a.slot(1, stamp)[placeAt])) = wrong
		at := addressOf(a.At(1, stamp, 500)) - addressOf(a.cells(1))
		require.LessOrEqual(t, int(at), a.Block-500)
	}
}
