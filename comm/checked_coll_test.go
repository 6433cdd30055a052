package comm_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/request"
)

// inCheckedMode runs a body at n ranks in checked mode.
func inCheckedMode(t *testing.T, n int, body func(w *comm.Comm) error) {
	t.Helper()
	require.NoError(t, comm.RunLocal(n, body, comm.WithSetting("check", "true")))
}

// mismatch is a set of calls that do not match.
type mismatch struct {
	calls []func(w *comm.Comm) error // by rank; the last one also serves all further ranks
	kind  error                      // of the error at all ranks
	text  string                     // of the error at all ranks
}

func (m *mismatch) of(rank int) func(w *comm.Comm) error { return m.calls[min(rank, len(m.calls)-1)] }

func mismatches() map[string]mismatch {
	type call = func(w *comm.Comm) error
	barrier := func(w *comm.Comm) error { return w.Barrier() }
	bcast := func(n, root int) call {
		return func(w *comm.Comm) error { return comm.Bcast(w, make([]int32, n), root) }
	}
	sum := func(w *comm.Comm) error { return comm.Allreduce(w, []int64{1}, make([]int64, 1), comm.Sum) }
	gatherv := func(own int, counts ...int) call {
		return func(w *comm.Comm) error {
			return comm.Gatherv(w, make([]int16, own), make([]int16, 16), counts, nil, 0)
		}
	}
	waited := func(r request.Request, err error) error {
		if err == nil {
			_, err = r.Wait()
		}
		return err
	}
	return map[string]mismatch{
		"types": {
			[]call{func(w *comm.Comm) error { return comm.Allreduce(w, []float64{1}, make([]float64, 1), comm.Sum) }, sum},
			comm.ErrType, "rank 1 calls Allreduce of []int64, rank 0 of []float64",
		},
		"types of equal size without an operation": {
			[]call{
				func(w *comm.Comm) error { return comm.Bcast(w, make([]int32, 4), 0) },
				func(w *comm.Comm) error { return comm.Bcast(w, make([]float32, 4), 0) },
			},
			comm.ErrType, "rank 1 calls Bcast of []float32, rank 0 of []int32",
		},
		"roots": {[]call{bcast(4, 0), bcast(4, 1)}, comm.ErrRoot, "rank 1 calls Bcast with root 1, rank 0 with root 0"},
		"operations": {
			[]call{sum, func(w *comm.Comm) error { return comm.Allreduce(w, []int64{1}, make([]int64, 1), comm.Max) }},
			comm.ErrOp, "rank 1 calls Allreduce with comm.Max, rank 0 with comm.Sum",
		},
		"order of ranks": {
			[]call{sum, func(w *comm.Comm) error {
				return comm.Allreduce(w, []int64{1}, make([]int64, 1), comm.Sum, comm.InRankOrder())
			}},
			comm.ErrOp, "rank 1 calls Allreduce with InRankOrder, rank 0 without",
		},
		"calls":   {[]call{barrier, bcast(4, 0)}, comm.ErrComm, "rank 1 calls Bcast, rank 0 Barrier"},
		"lengths": {[]call{bcast(3, 0), bcast(4, 0)}, comm.ErrCount, "rank 1 calls Bcast of 4 elements, rank 0 of 3"},
		"forms": {
			[]call{barrier, func(w *comm.Comm) error { return waited(w.Ibarrier()) }},
			comm.ErrComm, "rank 1 calls Ibarrier, rank 0 Barrier",
		},
		"nonblocking": {
			[]call{
				func(w *comm.Comm) error { return waited(comm.Ibcast(w, make([]int32, 4), 0)) },
				func(w *comm.Comm) error { return waited(comm.Ibcast(w, make([]uint32, 4), 0)) },
			},
			comm.ErrType, "rank 1 calls Ibcast of []uint32, rank 0 of []int32",
		},
		"persistent": {
			[]call{
				func(w *comm.Comm) error { _, err := comm.AllreduceInit(w, []int{1}, []int{0}, comm.Sum); return err },
				func(w *comm.Comm) error { _, err := comm.AllreduceInit(w, []int{1}, []int{0}, comm.Prod); return err },
			},
			comm.ErrOp, "rank 1 calls AllreduceInit with comm.Prod, rank 0 with comm.Sum",
		},
		"a part of Gatherv": {
			[]call{gatherv(1, 1, 2, 3), gatherv(3)},
			comm.ErrCount, "in Gatherv, rank 1 sends 3 elements to rank 0, which expects 2",
		},
		"a part of Scatterv": {
			[]call{
				func(w *comm.Comm) error {
					return comm.Scatterv(w, make([]int, 6), make([]int, 1), []int{1, 2, 3}, nil, 0)
				},
				func(w *comm.Comm) error { return comm.Scatterv(w, nil, make([]int, 2), nil, nil, 0) },
			},
			comm.ErrCount, "in Scatterv, rank 0 sends 3 elements to rank 2, which expects 2",
		},
		"a part of Alltoallv": {
			[]call{func(w *comm.Comm) error {
				n, r := w.Size(), w.Rank()
				give, take := make([]int, n), make([]int, n)
				give[r], take[r] = 1, 1
				give[(r+1)%n] = 2
				take[(r+n-1)%n] = 2
				if r == 2 {
					take[1] = 3
				}
				return comm.Alltoallv(w, make([]int, 8), give, nil, make([]int, 8), take, nil)
			}},
			comm.ErrCount, "in Alltoallv, rank 1 sends 2 elements to rank 2, which expects 3",
		},
		"a part of Allgatherv": {
			[]call{
				func(w *comm.Comm) error {
					return comm.Allgatherv(w, make([]int, 1), make([]int, 7), []int{1, 2, 3}, nil)
				},
				func(w *comm.Comm) error {
					return comm.Allgatherv(w, make([]int, 1+w.Rank()), make([]int, 7), []int{2, 2, 3}, nil)
				},
			},
			comm.ErrCount, "in Allgatherv, rank 0 sends 1 elements to rank 1, which expects 2",
		},
		"a count of ReduceScatter": {
			[]call{func(w *comm.Comm) error {
				counts := []int{1, 2, 3}
				if w.Rank() == 1 {
					counts = []int{2, 2, 2}
				}
				return comm.ReduceScatter(w, make([]int, 6), make([]int, counts[w.Rank()]), counts, comm.Sum)
			}},
			comm.ErrCount, "in ReduceScatter, rank 1 counts 2 elements for rank 0, which counts 1",
		},
		"a communicator": {
			[]call{func(w *comm.Comm) error { _, err := w.Split(0, 0); return err }, barrier},
			comm.ErrComm, "rank 1 calls Barrier, rank 0 Split",
		},
	}
}

func TestCheckedCollectiveThatDiffersFailsAtEveryRank(t *testing.T) {
	for name, m := range mismatches() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{3, 5} {
				if n > 3 && m.kind == comm.ErrCount && m.text != "rank 1 calls Bcast of 4 elements, rank 0 of 3" {
					continue // its counts are for three ranks
				}
				inCheckedMode(t, n, func(w *comm.Comm) error {
					err := m.of(w.Rank())(w)
					assert.ErrorIs(t, err, m.kind, "rank %d", w.Rank())
					assert.ErrorContains(t, err, m.text, "rank %d", w.Rank())
					// The communicator can be used.
					sum := make([]int, 1)
					if err := comm.Allreduce(w, []int{1}, sum, comm.Sum); err != nil {
						return err
					}
					if sum[0] != n {
						return fmt.Errorf("the sum is %d", sum[0])
					}
					return nil
				})
			}
		})
	}
}

// TestCheckedPartsThatOverlapAreRefused: the parts that one rank receives overlap. Its error names
// the parts, and the error of the other ranks names the rank. Adjacent parts do not overlap, nor
// does the place of a neighbour that does not exist.
func TestCheckedPartsThatOverlapAreRefused(t *testing.T) {
	const n, odd = 3, 1
	counts := []int{3, 2, 1}
	apart, overlapping := []int{1, 4, 0}, []int{1, 3, 0}
	calls := map[string]func(w *comm.Comm, displs []int) error{
		"gatherv": func(w *comm.Comm, displs []int) error {
			return comm.Gatherv(w, make([]int, counts[w.Rank()]), make([]int, 8), counts, displs, odd)
		},
		"allgatherv": func(w *comm.Comm, displs []int) error {
			return comm.Allgatherv(w, make([]int, counts[w.Rank()]), make([]int, 8), counts, displs)
		},
		"iallgatherv": func(w *comm.Comm, displs []int) error {
			r, err := comm.Iallgatherv(w, make([]int, counts[w.Rank()]), make([]int, 8), counts, displs)
			if err == nil {
				_, err = r.Wait()
			}
			return err
		},
		"alltoallv": func(w *comm.Comm, displs []int) error {
			own := slices.Repeat(counts[w.Rank():][:1], n)
			return comm.Alltoallv(w, make([]int, 9), own, nil, make([]int, 8), counts, displs)
		},
		"alltoallv init": func(w *comm.Comm, displs []int) error {
			own := slices.Repeat(counts[w.Rank():][:1], n)
			r, err := comm.AlltoallvInit(w, make([]int, 9), own, nil, make([]int, 8), counts, displs)
			if err == nil {
				err = r.Free()
			}
			return err
		},
		"neighborallgatherv": func(w *comm.Comm, displs []int) error {
			g := must(w.Graph([]int{0, 1, 2}, []int{0, 1, 2}))
			return errors.Join(comm.NeighborAllgatherv(g, make([]int, counts[w.Rank()]), make([]int, 8), counts, displs), g.Free())
		},
		"neighboralltoallv": func(w *comm.Comm, displs []int) error {
			g := must(w.Graph([]int{0, 1, 2}, []int{0, 1, 2}))
			own := slices.Repeat(counts[w.Rank():][:1], n)
			return errors.Join(comm.NeighborAlltoallv(g, make([]int, 9), own, nil, make([]int, 8), counts, displs), g.Free())
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			inCheckedMode(t, n, func(w *comm.Comm) error {
				if err := call(w, apart); err != nil {
					return err
				}
				if w.Rank() != odd {
					err := call(w, apart)
					assert.ErrorIs(t, err, comm.ErrComm)
					assert.ErrorContains(t, err, "rank 1 gave up")
					return nil
				}
				err := call(w, overlapping)
				assert.ErrorIs(t, err, comm.ErrBuffer)
				assert.ErrorContains(t, err, name)
				assert.ErrorContains(t, err, "parts of out overlap: 3 elements at 1 from rank 0, and 2 at 3 from rank 1")
				return nil
			})
			require.NoError(t, comm.RunLocal(n, func(w *comm.Comm) error { return call(w, overlapping) },
				comm.WithSetting("check", "false")))
		})
	}
	t.Run("nothing comes from there", func(t *testing.T) {
		inCheckedMode(t, 2, func(w *comm.Comm) error {
			line := must(w.Cart([]int{2}, []bool{false}))
			return errors.Join(comm.NeighborAllgatherv(line, make([]int, 2), make([]int, 3), []int{2, 2}, []int{0, 1}),
				comm.NeighborAllgatherv(line, make([]int, 2), make([]int, 3), []int{2, 2}, []int{0, 0}), line.Free())
		})
	})
}

// TestPartLengthsKnowEveryCall: checked mode compares the parts of each collective whose parts have
// lengths of their own. Without a case in partLengths, ranks that differ would go unnoticed.
func TestPartLengthsKnowEveryCall(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "checked_coll.go", nil, 0)
	require.NoError(t, err)
	cases := map[string]bool{}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "partLengths" {
			ast.Inspect(fn, func(n ast.Node) bool {
				if c, ok := n.(*ast.CaseClause); ok {
					for _, x := range c.List {
						if sel, ok := x.(*ast.SelectorExpr); ok {
							cases[sel.Sel.Name] = true
						}
					}
				}
				return true
			})
		}
	}
	for _, id := range calls.All() {
		if id.HasCounts() && id == id.Base() && id.Flow() != calls.FromNeighbors { // they share one
			require.True(t, cases[id.Go()], "%v has parts with lengths of their own, but no case in partLengths (checked_coll.go)", id)
		}
	}
}
