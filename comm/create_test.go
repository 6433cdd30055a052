package comm_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

// worksAs checks that a communicator has the ranks of the world in order, and that messages and
// collectives work in it. It frees it.
func worksAs(t rank, c *comm.Comm, world []int) {
	t.Helper()
	require.NotNil(t, c)
	assert.Equal(t, world, c.Group().Ranks())
	assert.Equal(t, slices.Index(world, t.w.Rank()), c.Rank())
	ringOf(t, c)
	all := make([]int, len(world))
	require.NoError(t, comm.Allgather(c, []int{t.w.Rank()}, all))
	assert.Equal(t, world, all)
	require.NoError(t, c.Free())
}

func TestCreateMakesCommunicatorOfGroup(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		run(t, n, func(t rank, w *comm.Comm) {
			for _, list := range [][]int{{}, {n - 1}, upTo(n-1, 0, -1), upTo(0, n-1, 2)} {
				c := must(w.Create(must(w.Group().Incl(list...))))
				if slices.Contains(list, w.Rank()) {
					assert.Equal(t, "world/create", c.Name())
					worksAs(t, c, list)
				} else {
					assert.Nil(t, c)
				}
			}
		})
	}
}

// TestCreateOfSeveralGroups: ranks pass different groups that have no common member, or none.
func TestCreateOfSeveralGroups(t *testing.T) {
	const n = 7
	lists := [][]int{{4, 0, 2}, {6}, {1, 5}}
	run(t, n, func(t rank, w *comm.Comm) {
		var mine []int
		for _, list := range lists {
			if slices.Contains(list, w.Rank()) {
				mine = list
			}
		}
		back := must(w.Split(0, -w.Rank()))
		for _, parent := range []*comm.Comm{w, back} {
			c := must(parent.Create(must(w.Group().Incl(mine...))))
			if mine == nil {
				assert.Nil(t, c)
			} else {
				worksAs(t, c, mine)
			}
		}
		require.NoError(t, back.Free())
	})
}

// TestCreateOfDifferentGroupsFailsEverywhere: members of a group pass other groups.
func TestCreateOfDifferentGroupsFailsEverywhere(t *testing.T) {
	const n = 5
	run(t, n, func(t rank, w *comm.Comm) {
		for _, lists := range [][n][]int{
			{{0, 1}, {1, 0}, {}, {}, {}},
			{{0, 1}, {0, 1, 2}, {}, {}, {}},
			{{0, 1}, {}, {}, {3}, {}},
			{{0, 1, 2}, {0, 1, 2}, {0, 2}, {}, {4}},
			{{0, 1}, {0, 1}, {0, 1, 2}, {}, {}},
			{{4, 0}, {}, {}, {}, {}},
			{{0, 1, 2}, {0, 2, 1}, {0, 1, 2}, {}, {}},
		} {
			c, err := w.Create(must(w.Group().Incl(lists[w.Rank()]...)))
			assert.Nil(t, c)
			assert.ErrorIs(t, err, comm.ErrRank, lists)
			isErrorOf(t, err, "create", comm.Undefined, comm.Undefined)
			require.NoError(t, w.Barrier())
		}
	})
}

// TestCreateOfForeignGroupFailsEverywhere: one rank, or all, pass a group that is not part of the
// parent.
func TestCreateOfForeignGroupFailsEverywhere(t *testing.T) {
	run(t, 4, func(t rank, w *comm.Comm) {
		color := comm.Undefined
		if w.Rank() < 3 {
			color = 0
		}
		parent := must(w.Split(color, 0))
		if parent == nil {
			return
		}
		for _, odd := range []bool{true, w.Rank() == 1} {
			g := parent.Group()
			if odd {
				g = w.Group()
			}
			c, err := parent.Create(g)
			assert.Nil(t, c)
			if odd {
				assert.ErrorIs(t, err, comm.ErrRank)
				assert.ErrorContains(t, err, "rank 3 of the world is not in the communicator")
			} else {
				assert.ErrorIs(t, err, comm.ErrComm)
			}
		}
		require.NoError(t, errors.Join(parent.Barrier(), parent.Free()))
		assert.ErrorIs(t, errOf(parent.Create(comm.Group{})), comm.ErrComm)
		assert.ErrorIs(t, errOf((*comm.Comm)(nil).Create(w.Group())), comm.ErrComm)
		assert.ErrorIs(t, errOf((*comm.Comm)(nil).CreateGroup(w.Group(), 0)), comm.ErrComm)
	})
}

// TestCreateGroupNeedsOnlyMembers has the case of MPICH's comm_create_group, and others: the other
// ranks wait in Recv meanwhile.
func TestCreateGroupNeedsOnlyMembers(t *testing.T) {
	const n = 6
	run(t, n, func(t rank, w *comm.Comm) {
		for i, list := range [][]int{{0, 2, 4}, {5}, {3, 1}, upTo(n-1, 0, -1), {4, 5, 0, 1}} {
			g := must(w.Group().Incl(list...))
			if !slices.Contains(list, w.Rank()) {
				if i%2 == 0 {
					assert.Nil(t, must(w.CreateGroup(g, i)), "not a member")
				}
				recv[int](w, 1, list[0], i)
				continue
			}
			c := must(w.CreateGroup(g, i))
			assert.Equal(t, fmt.Sprint("world/group", i), c.Name())
			worksAs(t, c, list)
			if w.Rank() == list[0] {
				for r := range n {
					if !slices.Contains(list, r) {
						require.NoError(t, comm.Send(w, []int{0}, r, i))
					}
				}
			}
		}
		assert.Nil(t, must(w.CreateGroup(comm.Group{}, 0)))
	})
}

// TestCreateGroupsAtOnce: goroutines of each rank make communicators of all pairs and of all ranks
// at once, each under its tag, repeatedly.
func TestCreateGroupsAtOnce(t *testing.T) {
	const n, rounds = 4, 20
	var lists [][]int
	for a := range n {
		for b := range n {
			if a != b {
				lists = append(lists, []int{a, b})
			}
		}
	}
	lists = append(lists, upTo(n-1, 0, -1), []int{2, 1, 3})
	run(t, n, func(t rank, w *comm.Comm) {
		parent := must(w.Split(0, -w.Rank()))
		var calls sync.WaitGroup
		failed := make(chan error, len(lists))
		for tag, list := range lists {
			if !slices.Contains(list, w.Rank()) {
				continue
			}
			g := must(w.Group().Incl(list...))
			calls.Go(func() {
				for range rounds {
					c, err := parent.CreateGroup(g, tag)
					if err == nil {
						in := []int{-1}
						err = errors.Join(comm.Allreduce(c, []int{w.Rank()}, in, comm.Max), c.Free())
						if err == nil && in[0] != slices.Max(list) {
							err = fmt.Errorf("%v: got %d", list, in[0])
						}
					}
					if err != nil {
						failed <- err
						return
					}
				}
			})
		}
		calls.Wait()
		close(failed)
		require.NoError(t, <-failed)
		require.NoError(t, parent.Free())
	})
}

// TestCreateGroupOneTagManyGroups: calls of one goroutine follow each other under one tag, with
// groups that overlap.
func TestCreateGroupOneTagManyGroups(t *testing.T) {
	const n = 5
	run(t, n, func(t rank, w *comm.Comm) {
		rng := rand.New(rand.NewPCG(1, 2)) // the same at all ranks
		for range 200 {
			list := rng.Perm(n)[:1+rng.IntN(n)]
			if slices.Contains(list, w.Rank()) {
				worksAs(t, must(w.CreateGroup(must(w.Group().Incl(list...)), 7)), list)
			}
		}
	})
}

func TestCreateGroupRefusesBadArguments(t *testing.T) {
	run(t, 4, func(t rank, w *comm.Comm) {
		color := comm.Undefined
		if w.Rank() < 3 {
			color = 0
		}
		parent := must(w.Split(color, 0))
		if parent == nil {
			return
		}
		g := parent.Group()
		for _, tag := range []int{-1, comm.AnyTag, w.TagUB() + 1} {
			assert.ErrorIs(t, errOf(parent.CreateGroup(g, tag)), comm.ErrTag)
			assert.ErrorIs(t, errOf(parent.CreateGroup(w.Group(), tag)), comm.ErrRank)
		}
		assert.ErrorIs(t, errOf(parent.CreateGroup(w.Group(), 1)), comm.ErrRank)
		// One member passes bad arguments, or another group: the leader, and another one.
		for odd := range 3 {
			mine, want := g, comm.ErrComm
			if w.Rank() == odd {
				mine, want = w.Group(), comm.ErrRank
			}
			c, err := parent.CreateGroup(mine, w.TagUB())
			assert.Nil(t, c)
			assert.ErrorIs(t, err, want, odd)
		}
		for odd := 1; odd < 3; odd++ {
			mine := g
			if w.Rank() == odd {
				mine = must(g.Incl(0, odd))
			}
			c, err := parent.CreateGroup(mine, 3)
			assert.Nil(t, c)
			if w.Rank() == odd {
				assert.ErrorIs(t, err, comm.ErrRank)
			} else {
				assert.ErrorIs(t, err, comm.ErrComm)
			}
		}
		worksAs(t, must(parent.CreateGroup(g, w.TagUB())), []int{0, 1, 2})
		require.NoError(t, parent.Free())
		assert.ErrorIs(t, errOf(parent.CreateGroup(g, 1)), comm.ErrComm)
	})
}

// TestCreateGroupInDifferentOrdersFails: two members pass the same ranks in opposite orders, so
// each of them is the first of its own group.
func TestCreateGroupInDifferentOrdersFails(t *testing.T) {
	run(t, 3, func(t rank, w *comm.Comm) {
		if w.Rank() == 1 {
			return
		}
		order := []int{2, 0}
		if w.Rank() == 0 {
			order = []int{0, 2}
		}
		c, err := w.CreateGroup(must(w.Group().Incl(order...)), 3)
		assert.Nil(t, c)
		if w.Rank() == 0 {
			assert.ErrorIs(t, err, comm.ErrComm)
			assert.ErrorContains(t, err, "rank 1 gave up on this create group: it has passed another group")
		} else {
			assert.ErrorIs(t, err, comm.ErrRank)
			assert.ErrorContains(t, err, "rank 1 of the group passes another group")
		}
		worksAs(t, must(w.CreateGroup(must(w.Group().Incl(2, 0)), 3)), []int{2, 0})
	})
}

// TestCreateGroupWithEndedContextsEverywhere: each call counts at each member.
func TestCreateGroupWithEndedContextsEverywhere(t *testing.T) {
	run(t, 3, func(t rank, w *comm.Comm) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			err := errOf(w.WithContext(ctx).CreateGroup(w.Group(), 1))
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, comm.ErrGivenUp)
		}
		worksAs(t, must(w.CreateGroup(w.Group(), 1)), []int{0, 1, 2})
	})
}

// TestCreateGroupGivenUpFailsEverywhere: the context of one member ends while it waits for another
// member. The calls of all members fail; the next calls work.
func TestCreateGroupGivenUpFailsEverywhere(t *testing.T) {
	const n = 4
	run(t, n, func(t rank, w *comm.Comm) {
		for quits := range n {
			for late := range n {
				if late == quits {
					continue
				}
				tag := quits*n + late
				c, err := (*comm.Comm)(nil), error(nil)
				switch w.Rank() {
				case quits:
					c, err = untilWait(w).CreateGroup(w.Group(), tag)
					if !errors.Is(err, comm.ErrComm) {
						assert.ErrorIs(t, err, context.Canceled)
					}
					require.NoError(t, comm.Send(w, []int{0}, late, 0))
				case late:
					recv[int](w, 1, quits, 0)
					c, err = w.CreateGroup(w.Group(), tag)
					assert.ErrorIs(t, err, comm.ErrComm)
				default:
					c, err = w.CreateGroup(w.Group(), tag)
					assert.ErrorIs(t, err, comm.ErrComm)
				}
				assert.Nil(t, c)
				assert.Error(t, err)
				worksAs(t, must(w.CreateGroup(w.Group(), tag)), upTo(0, n-1, 1))
			}
		}
	})
}

// TestCreateGroupLeaderGivesUpOften: the leader gives up calls that a member makes much later.
func TestCreateGroupLeaderGivesUpOften(t *testing.T) {
	const calls = 300
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 0 {
			for range calls {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Microsecond)
				view := w.WithContext(ctx)
				for {
					_, err := view.CreateGroup(w.Group(), 1)
					require.Error(t, err)
					if errors.Is(err, context.DeadlineExceeded) {
						break
					}
				}
				cancel()
			}
			require.NoError(t, comm.Send(w, []int{0}, 1, 0))
			for {
				if c, err := w.CreateGroup(w.Group(), 1); err == nil {
					worksAs(t, c, []int{0, 1})
					return
				}
			}
		}
		recv[int](w, 1, 0, 0)
		for {
			if c, err := w.CreateGroup(w.Group(), 1); err == nil {
				worksAs(t, c, []int{0, 1})
				return
			}
		}
	})
}

// TestCreateGroupWithoutMemberFails: a member frees the parent, or ends, instead of calling.
func TestCreateGroupWithoutMemberFails(t *testing.T) {
	for odd := range 3 {
		run(t, 3, func(t rank, w *comm.Comm) {
			parent := must(w.Dup())
			if w.Rank() == odd {
				require.NoError(t, parent.Free())
				require.NoError(t, w.Barrier())
				return
			}
			c, err := parent.CreateGroup(w.Group(), 1)
			assert.Nil(t, c)
			assert.ErrorIs(t, err, comm.ErrComm, odd)
			require.NoError(t, errors.Join(parent.Free(), w.Barrier()))
		})
		run(t, 3, func(t rank, w *comm.Comm) {
			if w.Rank() == odd {
				return
			}
			_, err := w.CreateGroup(w.Group(), 1)
			require.Error(t, err)
			if !errors.Is(err, comm.ErrProcFailed) {
				assert.ErrorIs(t, err, comm.ErrComm, odd)
			}
		})
	}
}

func TestSplitByMakesCommunicatorsOfParts(t *testing.T) {
	run(t, 4, func(t rank, w *comm.Comm) {
		for kind, name := range []string{"node", "numa", "socket", "core"} {
			// All are goroutines of one process.
			c := must(w.SplitBy(comm.SplitKind(kind), -w.Rank()))
			assert.Equal(t, "world/"+name, c.Name())
			worksAs(t, c, []int{3, 2, 1, 0})
		}
		for _, kind := range []comm.SplitKind{-1, 4} {
			assert.ErrorIs(t, errOf(w.SplitBy(kind, 0)), comm.ErrCount)
		}
		assert.ErrorIs(t, errOf(w.SplitBy(comm.SplitKind(w.Rank()%2), 0)), comm.ErrCount, "different kinds")
		require.NoError(t, w.Barrier())
	})
}

// TestManySplitsInContextsOfTheirOwn has the case of MPICH's ctxsplit.
func TestManySplitsInContextsOfTheirOwn(t *testing.T) {
	for _, c := range []struct{ ranks, total int }{{1, 100_000}, {3, 2_000}} {
		run(t, c.ranks, func(t rank, w *comm.Comm) {
			for i := range c.total {
				color := 0
				if w.Rank() == i%5 {
					color = comm.Undefined
				}
				if part := must(w.Split(color, i)); part != nil {
					require.NoError(t, part.Free())
				}
			}
		})
	}
}

// TestFreeOfCommunicatorInUse has the case of MPICH's cmfree: a communicator is freed while
// operations are under way, and the communicators that were made from it go on.
func TestFreeOfCommunicatorInUse(t *testing.T) {
	run(t, 4, func(t rank, w *comm.Comm) {
		parent := must(w.Dup())
		pairs := must(parent.CreateGroup(must(w.Group().Incl(w.Rank()/2*2, w.Rank()/2*2+1)), 0))
		half := must(parent.Create(must(w.Group().Incl(w.Rank()%2, w.Rank()%2+2))))
		grid := must(parent.Cart([]int{2, 2}, []bool{true, true}))
		in, other := make([]byte, 1<<20), w.Rank()^1
		r := must(comm.Irecv(parent, in, other, 0))
		s := must(comm.Isend(parent, pattern(len(in), w.Rank()), other, 0))
		require.NoError(t, parent.Free())
		require.NoError(t, errors.Join(errOf(r.Wait()), errOf(s.Wait())))
		assert.Equal(t, pattern(len(in), other), in)
		for _, c := range []*comm.Comm{pairs, half, grid} {
			ringOf(t, c)
			require.NoError(t, errors.Join(c.Barrier(), c.Free()))
		}
	})
}
