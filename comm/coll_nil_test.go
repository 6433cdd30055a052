package comm

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/request"
)

// TestNilSliceOfRankWithoutElementsIsEmpty: a rank without a contribution passes a nil slice, as
// append leaves it, while the other ranks pass slices that are not nil. In each form, the call does
// the same as with an empty slice that is not nil. It does not work in place.
func TestNilSliceOfRankWithoutElementsIsEmpty(t *testing.T) {
	const n = 3
	type call struct {
		forms [3]func(in, out []int) (request.Request, error)
		sends []int // elements that each rank passes as in
		gets  []int // elements that each rank passes as out
		want  [][]int
	}
	blocking := func(err error) (request.Request, error) { return request.Request{}, err }
	counts, none := []int{0, 1, 2}, []int{0, 0, 0}
	calls := func(w, g *Comm) map[string]call {
		me := w.Rank()
		scounts, rcounts := []int{me, 0, 0}, none // to rank 0
		if me == 0 {
			rcounts = counts
		}
		all := map[string]call{
			"alltoallv": {[3]func(in, out []int) (request.Request, error){
				func(in, out []int) (request.Request, error) {
					return blocking(Alltoallv(w, in, scounts, nil, out, rcounts, nil))
				},
				func(in, out []int) (request.Request, error) {
					return Ialltoallv(w, in, scounts, nil, out, rcounts, nil)
				},
				func(in, out []int) (request.Request, error) {
					return AlltoallvInit(w, in, scounts, nil, out, rcounts, nil)
				},
			}, counts, []int{3, 0, 0}, [][]int{{1, 2, 2}, {}, {}}},
			"neighboralltoallv": {[3]func(in, out []int) (request.Request, error){
				func(in, out []int) (request.Request, error) {
					return blocking(NeighborAlltoallv(g, in, scounts, nil, out, rcounts, nil))
				},
				func(in, out []int) (request.Request, error) {
					return IneighborAlltoallv(g, in, scounts, nil, out, rcounts, nil)
				},
				func(in, out []int) (request.Request, error) {
					return NeighborAlltoallvInit(g, in, scounts, nil, out, rcounts, nil)
				},
			}, counts, []int{3, 0, 0}, [][]int{{1, 2, 2}, {}, {}}},
			"allgatherv": {[3]func(in, out []int) (request.Request, error){
				func(in, out []int) (request.Request, error) { return blocking(Allgatherv(w, in, out, counts, nil)) },
				func(in, out []int) (request.Request, error) { return Iallgatherv(w, in, out, counts, nil) },
				func(in, out []int) (request.Request, error) { return AllgathervInit(w, in, out, counts, nil) },
			}, counts, []int{3, 3, 3}, [][]int{{1, 2, 2}, {1, 2, 2}, {1, 2, 2}}},
			"neighborallgatherv": {[3]func(in, out []int) (request.Request, error){
				func(in, out []int) (request.Request, error) {
					return blocking(NeighborAllgatherv(g, in, out, counts, nil))
				},
				func(in, out []int) (request.Request, error) { return IneighborAllgatherv(g, in, out, counts, nil) },
				func(in, out []int) (request.Request, error) { return NeighborAllgathervInit(g, in, out, counts, nil) },
			}, counts, []int{3, 3, 3}, [][]int{{1, 2, 2}, {1, 2, 2}, {1, 2, 2}}},
			"gatherv": {[3]func(in, out []int) (request.Request, error){
				func(in, out []int) (request.Request, error) { return blocking(Gatherv(w, in, out, counts, nil, 0)) },
				func(in, out []int) (request.Request, error) { return Igatherv(w, in, out, counts, nil, 0) },
				func(in, out []int) (request.Request, error) { return GathervInit(w, in, out, counts, nil, 0) },
			}, counts, []int{3, 0, 0}, [][]int{{1, 2, 2}, {}, {}}},
			"scatterv": {[3]func(in, out []int) (request.Request, error){
				func(in, out []int) (request.Request, error) { return blocking(Scatterv(w, in, out, counts, nil, 2)) },
				func(in, out []int) (request.Request, error) { return Iscatterv(w, in, out, counts, nil, 2) },
				func(in, out []int) (request.Request, error) { return ScattervInit(w, in, out, counts, nil, 2) },
			}, []int{0, 0, 3}, counts, [][]int{{}, {2}, {2, 2}}},
			"scatterv of nothing to the root": {[3]func(in, out []int) (request.Request, error){
				func(in, out []int) (request.Request, error) {
					return blocking(Scatterv(w, in, out, []int{1, 2, 0}, nil, 2))
				},
				func(in, out []int) (request.Request, error) { return Iscatterv(w, in, out, []int{1, 2, 0}, nil, 2) },
				func(in, out []int) (request.Request, error) { return ScattervInit(w, in, out, []int{1, 2, 0}, nil, 2) },
			}, []int{0, 0, 3}, []int{1, 2, 0}, [][]int{{2}, {2, 2}, {}}},
		}
		for name, forms := range map[string][3]func(in, out []int) (request.Request, error){
			"alltoall": {
				func(in, out []int) (request.Request, error) { return blocking(Alltoall(w, in, out)) },
				func(in, out []int) (request.Request, error) { return Ialltoall(w, in, out) },
				func(in, out []int) (request.Request, error) { return AlltoallInit(w, in, out) },
			},
			"neighboralltoall": {
				func(in, out []int) (request.Request, error) { return blocking(NeighborAlltoall(g, in, out)) },
				func(in, out []int) (request.Request, error) { return IneighborAlltoall(g, in, out) },
				func(in, out []int) (request.Request, error) { return NeighborAlltoallInit(g, in, out) },
			},
			"allgather": {
				func(in, out []int) (request.Request, error) { return blocking(Allgather(w, in, out)) },
				func(in, out []int) (request.Request, error) { return Iallgather(w, in, out) },
				func(in, out []int) (request.Request, error) { return AllgatherInit(w, in, out) },
			},
			"neighborallgather": {
				func(in, out []int) (request.Request, error) { return blocking(NeighborAllgather(g, in, out)) },
				func(in, out []int) (request.Request, error) { return IneighborAllgather(g, in, out) },
				func(in, out []int) (request.Request, error) { return NeighborAllgatherInit(g, in, out) },
			},
			"gather": {
				func(in, out []int) (request.Request, error) { return blocking(Gather(w, in, out, 0)) },
				func(in, out []int) (request.Request, error) { return Igather(w, in, out, 0) },
				func(in, out []int) (request.Request, error) { return GatherInit(w, in, out, 0) },
			},
			"scatter": {
				func(in, out []int) (request.Request, error) { return blocking(Scatter(w, in, out, 0)) },
				func(in, out []int) (request.Request, error) { return Iscatter(w, in, out, 0) },
				func(in, out []int) (request.Request, error) { return ScatterInit(w, in, out, 0) },
			},
			"reduce": {
				func(in, out []int) (request.Request, error) { return blocking(Reduce(w, in, out, Sum, 0)) },
				func(in, out []int) (request.Request, error) { return Ireduce(w, in, out, Sum, 0) },
				func(in, out []int) (request.Request, error) { return ReduceInit(w, in, out, Sum, 0) },
			},
			"allreduce": {
				func(in, out []int) (request.Request, error) { return blocking(Allreduce(w, in, out, Sum)) },
				func(in, out []int) (request.Request, error) { return Iallreduce(w, in, out, Sum) },
				func(in, out []int) (request.Request, error) { return AllreduceInit(w, in, out, Sum) },
			},
			"scan": {
				func(in, out []int) (request.Request, error) { return blocking(Scan(w, in, out, Sum)) },
				func(in, out []int) (request.Request, error) { return Iscan(w, in, out, Sum) },
				func(in, out []int) (request.Request, error) { return ScanInit(w, in, out, Sum) },
			},
			"exscan": {
				func(in, out []int) (request.Request, error) { return blocking(Exscan(w, in, out, Sum)) },
				func(in, out []int) (request.Request, error) { return Iexscan(w, in, out, Sum) },
				func(in, out []int) (request.Request, error) { return ExscanInit(w, in, out, Sum) },
			},
			"reducescatter": {
				func(in, out []int) (request.Request, error) { return blocking(ReduceScatter(w, in, out, none, Sum)) },
				func(in, out []int) (request.Request, error) { return IreduceScatter(w, in, out, none, Sum) },
				func(in, out []int) (request.Request, error) { return ReduceScatterInit(w, in, out, none, Sum) },
			},
			"reducescatterblock": {
				func(in, out []int) (request.Request, error) { return blocking(ReduceScatterBlock(w, in, out, Sum)) },
				func(in, out []int) (request.Request, error) { return IreduceScatterBlock(w, in, out, Sum) },
				func(in, out []int) (request.Request, error) { return ReduceScatterBlockInit(w, in, out, Sum) },
			},
		} {
			all[name+" of nothing"] = call{forms, none, none, [][]int{{}, {}, {}}}
		}
		return all
	}
	var names []string
	for name := range calls(new(Comm), nil) {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, checked := range []string{"false", "true"} {
		t.Run("check="+checked, func(t *testing.T) {
			body := func(w *Comm) error {
				g := must(w.Graph([]int{0, 1, 2}, []int{0, 1, 2}))
				for _, name := range names {
					for form := range 3 {
						// nilRanks has a bit for each rank that passes nil for no elements.
						for nilRanks := range 1 << n {
							f, me := calls(w, g)[name], w.Rank()
							slice := func(elements int) []int {
								if elements == 0 && nilRanks>>me&1 == 1 {
									return nil
								}
								return slices.Repeat([]int{me}, elements)
							}
							out := slice(f.gets[me])
							r, err := f.forms[form](slice(f.sends[me]), out)
							if err == nil && form == 2 {
								err = r.Start()
							}
							if err == nil {
								_, err = r.Wait()
							}
							assert.NoError(t, err, "%s, form %d, rank %d, nil at %03b", name, form, me, nilRanks)
							if len(f.want[me]) > 0 || len(out) > 0 {
								assert.Equal(t, f.want[me], out, "%s, form %d, rank %d, nil at %03b", name, form, me, nilRanks)
							}
							if err == nil && form == 2 {
								check(r.Free())
							}
						}
					}
				}
				return g.Free()
			}
			assert.NoError(t, RunLocal(n, body, WithSetting("check", checked)))
		})
	}
}

// TestAlltoallvInPlaceOfRankWithoutElements: the ranks work in place, and one of them has no
// elements. All comparisons of calls find that it makes the same call as the others.
func TestAlltoallvInPlaceOfRankWithoutElements(t *testing.T) {
	run(t, 3, func(w *Comm) {
		out := [][]int{{}, {10, 11, 12}, {20, 21, 22}}[w.Rank()]
		counts := [][]int{{0, 0, 0}, {0, 1, 2}, {0, 2, 1}}[w.Rank()]
		want := [][]int{{}, {10, 20, 21}, {11, 12, 22}}[w.Rank()]
		forms := []func() (request.Request, error){
			func() (request.Request, error) {
				return request.Request{}, Alltoallv(w, nil, nil, nil, out, counts, nil)
			},
			func() (request.Request, error) { return Ialltoallv(w, nil, nil, nil, out, counts, nil) },
			func() (request.Request, error) { return AlltoallvInit(w, nil, nil, nil, out, counts, nil) },
		}
		for i, how := range []coll.How{blocking, nonblocking, persistent} {
			before := slices.Clone(out)
			r, err := forms[i]()
			check(complete(how, r, err))
			assert.Equal(t, want, out)
			copy(out, before)
		}
	})
}
