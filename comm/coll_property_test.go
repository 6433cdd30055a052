package comm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/collprogram"
	"github.com/mpigo/mpigo/internal/race"
)

// TestCollectivesAgainstNaiveModel: random sequences of collectives in all forms, with random
// algorithms, give the results of a naive model.
func TestCollectivesAgainstNaiveModel(t *testing.T) {
	ids := collprogram.IDs()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 10).Draw(t, "ranks")
		limit := rapid.IntRange(-1, 400)
		ranks := rapid.IntRange(0, 10)
		tuning := &coll.Tuning{
			BcastTreeBytes:            limit.Draw(t, "bcast tree"),
			ReduceTreeBytes:           limit.Draw(t, "reduce tree"),
			FlatRanks:                 ranks.Draw(t, "flat ranks"),
			FlatBytes:                 rapid.IntRange(-1, 4000).Draw(t, "flat"),
			ScanDoublingBytes:         limit.Draw(t, "scan doubling"),
			AllreduceDoublingBytes:    limit.Draw(t, "allreduce doubling"),
			ReduceScatterHalvingBytes: 2 * limit.Draw(t, "reduce scatter halving"),
			GatherTreeBytes:           limit.Draw(t, "gather tree"),
			GatherTreeRanks:           ranks.Draw(t, "gather tree ranks"),
			AllgatherBruckBytes:       limit.Draw(t, "allgather Bruck"),
			AlltoallBruckBytes:        limit.Draw(t, "alltoall Bruck"),
			AlltoallBruckRanks:        ranks.Draw(t, "alltoall Bruck ranks"),
			AlltoallFlightBytes:       limit.Draw(t, "alltoall flight"),
			PieceBytes:                rapid.IntRange(1, 200).Draw(t, "piece"),
		}
		form := rapid.SampledFrom([]collprogram.Form{collprogram.Blocking, collprogram.Nonblocking, collprogram.Persistent})
		calls := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *collprogram.Call {
			c := &collprogram.Call{
				ID:         rapid.SampledFrom(ids).Draw(t, "kind"),
				Count:      rapid.IntRange(0, 60).Draw(t, "count"),
				Root:       rapid.IntRange(0, n-1).Draw(t, "root"),
				InPlace:    rapid.Bool().Draw(t, "in place"),
				InOrder:    rapid.Bool().Draw(t, "in rank order"),
				Gap:        rapid.IntRange(0, 3).Draw(t, "gap"),
				Descending: rapid.Bool().Draw(t, "descending"),
				Contents:   rapid.Uint64().Draw(t, "contents"),
			}
			c.Counts = rapid.SliceOfN(rapid.IntRange(0, c.Count), n, n).Draw(t, "counts")
			return c
		}), 1, 8).Draw(t, "calls")
		forms := rapid.SliceOfN(form, len(calls), len(calls)).Draw(t, "forms")
		err := comm.RunLocal(n, func(w *comm.Comm) error {
			comm.SetTuning(w, tuning)
			for i, c := range calls {
				if err := c.Check(w, forms[i]); err != nil {
					return fmt.Errorf("call %d: %w", i, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestCollectivesOfEveryTuningAgainstNaiveModel makes each call with every number of ranks, every
// algorithm, every root, and several lengths. The form of the call changes from one to the next.
func TestCollectivesOfEveryTuningAgainstNaiveModel(t *testing.T) {
	comm.ForEachTuning(t, checkResults)
}

func checkResults(w *comm.Comm) {
	n, made := w.Size(), 0
	for _, count := range comm.CountsFor(w) {
		counts := make([]int, n)
		for r := range counts {
			counts[r] = (r + 2) % 3 * count / 2
		}
		for _, id := range collprogram.IDs() {
			roots := []int{0}
			if id.IsRooted() {
				roots = comm.RootsOf(n, count)
			}
			for _, root := range roots {
				for _, inPlace := range []bool{false, true} {
					for _, odd := range []bool{false, true} {
						if odd && !id.Combines() && !id.HasCounts() {
							continue
						}
						if count > 1000 && id.HasCounts() && odd != inPlace {
							continue // it would take too long
						}
						c := &collprogram.Call{
							ID: id, Count: count, Root: root, InPlace: inPlace, InOrder: odd && id.Combines(),
							Counts: counts, Descending: odd, Contents: uint64(count),
						}
						if odd {
							c.Gap = 2
						}
						forms := []collprogram.Form{collprogram.Blocking, collprogram.Nonblocking + collprogram.Form(made%2)}
						if count >= 1000 {
							forms = forms[made%2:][:1]
						}
						made++
						for _, form := range forms {
							check(c.Check(w, form))
						}
					}
				}
			}
		}
	}
}

// TestCollectivesInBlocksAgainstNaiveModel: vectors are longer than the memory of each rank.
func TestCollectivesInBlocksAgainstNaiveModel(t *testing.T) {
	for _, way := range []string{"short", "long", "mixed"} {
		for i := range 24 {
			n, placement := 2+i/3, []string{"on one host", "by twos", "by fours"}[i%3]
			t.Run(fmt.Sprintf("%s %d ranks %s", way, n, placement), func(t *testing.T) {
				run(t, n, func(_ rank, w *comm.Comm) {
					if i%3 > 0 {
						comm.PlaceOnHosts(w, placement)
					}
					d := comm.SharingMemory(w, way)
					random := rand.New(rand.NewPCG(uint64(n), 7)) // the same at all ranks
					for range race.Some(120) {
						count := random.IntN(300)
						id := []calls.ID{calls.Allreduce, calls.Reduce, calls.Bcast, calls.Allgather, calls.Alltoall}[random.IntN(5)]
						c := &collprogram.Call{ID: id, Count: count, Root: random.IntN(n), InPlace: random.IntN(2) == 0,
							InOrder: random.IntN(2) == 0 && id.Combines()}
						check(c.Check(d, collprogram.Blocking))
						check(d.Barrier())
					}
					if !comm.SharesMemory(d) {
						failf("the ranks share no memory any more")
					}
				}, comm.WithSetting("coll.shared.bytes", "128"), comm.WithSetting("check", "false"))
			})
		}
	}
}

// TestRandomProgramsAgainstNaiveModel: random programs of all forms of collectives and of messages,
// some of them with algorithms for long vectors, through shared memory, on one host and on several,
// and in checked mode.
func TestRandomProgramsAgainstNaiveModel(t *testing.T) {
	tunings, placements := comm.CollTunings(), comm.Placements()
	for _, name := range []string{"defaults", "flat", "parts", "pieces", "shared, last combines", "shared, all combine", "checked"} {
		isChecked := fmt.Sprint(name == "checked")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range race.Some(uint64(100)) {
				n := 1 + int(seed%8)
				placement := placements[seed%uint64(len(placements))]
				require.NoError(t, comm.RunLocal(n, func(w *comm.Comm) error {
					if seed%2 == 1 { // only shared memory depends on hosts
						comm.PlaceOnHosts(w, placement)
					}
					comm.SetTuning(w, tunings[name])
					p := collprogram.New(seed, n)
					return p.Run(w)
				}, comm.WithSetting("check", isChecked)))
			}
		})
	}
}
