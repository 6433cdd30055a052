package comm_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// ringOf checks that each rank of a communicator receives from the rank before it.
func ringOf(t rank, c *comm.Comm) {
	t.Helper()
	n := c.Size()
	next, prev := (c.Rank()+1)%n, (c.Rank()+n-1)%n
	b := []int{c.Rank()}
	must(comm.SendrecvReplace(c, b, next, 0, prev, 0))
	require.Equal(t, prev, b[0])
}

func TestDupHasMatchingSpaceOfItsOwn(t *testing.T) {
	run(t, 3, func(t rank, w *comm.Comm) {
		d := must(w.Dup())
		assert.Equal(t, w.Rank(), d.Rank())
		assert.Equal(t, w.Size(), d.Size())
		next, prev := (w.Rank()+1)%3, (w.Rank()+2)%3
		for _, n := range sizes() {
			a := must(comm.Isend(w, pattern(n, 1), next, 0))
			b := must(comm.Isend(d, pattern(n, 2), next, 0))
			for seed, c := range map[int]*comm.Comm{2: d, 1: w} {
				got := make([]byte, n)
				st := must(comm.Recv(c, got, comm.AnySource, comm.AnyTag))
				assert.Equal(t, prev, st.Source)
				assert.Equal(t, pattern(n, seed), got)
			}
			must(a.Wait())
			must(b.Wait())
		}
		require.NoError(t, d.Free())
	})
}

func TestMessageForUnmadeCommunicatorIsKept(t *testing.T) {
	const rounds = 50
	run(t, 4, func(t rank, w *comm.Comm) {
		for i := range rounds {
			d := must(w.Dup())
			// It is sent at once, to ranks that may still be in Dup.
			for r := range 4 {
				require.NoError(t, comm.Bsend(d, []int{i*100 + w.Rank()}, r, 0))
			}
			for r := range 4 {
				got := []int{0}
				must(comm.Recv(d, got, r, 0))
				require.Equal(t, i*100+r, got[0])
			}
			require.NoError(t, d.Free())
		}
	})
}

func TestSplitOrdersByKeyThenRank(t *testing.T) {
	const n = 7
	run(t, n, func(t rank, w *comm.Comm) {
		me := w.Rank()
		c := must(w.Split(me%3, 0))
		assert.Equal(t, me/3, c.Rank(), "ties in the order of the parent")
		assert.Equal(t, []int{3, 2, 2}[me%3], c.Size())
		ringOf(t, c)
		back := must(w.Split(0, -me))
		assert.Equal(t, n-1-me, back.Rank())
		ringOf(t, back)
		// By key, with equal ones: ranks 0 and 6 have key 5, the others key −1.
		key := -1
		if me == 0 || me == 6 {
			key = 5
		}
		tied := must(back.Split(1<<40, key))
		assert.Equal(t, map[int]int{6: 5, 0: 6, 5: 0, 4: 1, 3: 2, 2: 3, 1: 4}[me], tied.Rank())
		ringOf(t, tied)
		// Some ranks pass Undefined.
		color := comm.Undefined
		if me > 4 {
			color = 9
		}
		few := must(w.Split(color, me))
		if me <= 4 {
			assert.Nil(t, few)
			assert.Equal(t, 0, few.Size())
		} else {
			assert.Equal(t, 2, few.Size())
			assert.Equal(t, me-5, few.Rank())
			ringOf(t, few)
			require.NoError(t, few.Free())
		}
		// Split of the result of Split.
		inner := must(c.Split(c.Rank(), 0))
		assert.Equal(t, 1, inner.Size())
		ringOf(t, inner)
		assert.ErrorIs(t, errOf(w.Split(-1, 0)), comm.ErrCount)
		assert.ErrorIs(t, errOf(w.Split(comm.ProcNull, 0)), comm.ErrCount)
		ringOf(t, w)
		for _, c := range []*comm.Comm{c, back, tied, inner} {
			require.NoError(t, c.Free())
		}
	})
}

func TestSplitHostOfLocalRanksIsOneGroup(t *testing.T) {
	run(t, 3, func(t rank, w *comm.Comm) {
		c := must(w.SplitHost(10 - w.Rank()))
		assert.Equal(t, 3, c.Size())
		assert.Equal(t, 2-w.Rank(), c.Rank())
		ringOf(t, c)
		require.NoError(t, c.Free())
	})
}

func TestWildcardsReportRanksOfCommunicator(t *testing.T) {
	run(t, 4, func(t rank, w *comm.Comm) {
		c := must(w.Split(0, -w.Rank()))
		if c.Rank() > 0 {
			require.NoError(t, comm.Send(c, []int{c.Rank()}, 0, c.Rank()))
		} else {
			for range 3 {
				m, st := must2(c.Mprobe(comm.AnySource, comm.AnyTag))
				got := []int{0}
				st2 := must(comm.Mrecv(m, got))
				assert.Equal(t, got[0], st.Source)
				assert.Equal(t, got[0], st2.Source)
				assert.Equal(t, got[0], st2.Tag)
			}
		}
		require.NoError(t, c.Free())
	})
}

// TestFreeOfWorldOrTwiceFails: Rank, Size and Name of a freed communicator work.
func TestFreeOfWorldOrTwiceFails(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		assert.ErrorIs(t, w.Free(), comm.ErrComm)
		assert.ErrorIs(t, w.WithContext(t.Context()).Free(), comm.ErrComm)
		c := must(w.Split(0, -w.Rank()))
		c.SetName("gone")
		require.NoError(t, c.Free())
		err := c.Free()
		assert.ErrorIs(t, err, comm.ErrComm)
		comm.EqualError(t, err, "gone: free comm: invalid communicator: it was freed")
		assert.Equal(t, 1-w.Rank(), c.Rank())
		assert.Equal(t, 2, c.Size())
		assert.Equal(t, "gone", c.Name())
		assert.ErrorIs(t, errOf(c.Dup()), comm.ErrComm)
		assert.ErrorIs(t, errOf(c.Split(0, 0)), comm.ErrComm)
		assert.ErrorIs(t, errOf(comm.Alloc[int](c, 1)), comm.ErrComm)
		assert.ErrorIs(t, c.Finalize(), comm.ErrComm)
	})
}

// TestSendToFreedCommunicatorFails: a send that waits for its receive fails when the receiver frees
// the communicator.
func TestSendToFreedCommunicatorFails(t *testing.T) {
	for _, protocol := range []string{"copy", "get", "put"} {
		run(t, 2, func(t rank, w *comm.Comm) {
			for _, freedBefore := range []bool{false, true} {
				c := must(w.Dup())
				if w.Rank() == 1 {
					if !freedBefore {
						must(c.Probe(0, 5))
					}
					require.NoError(t, c.Free())
					require.NoError(t, w.Barrier())
					continue
				}
				var sends []request.Request
				begin := func(r request.Request, err error) {
					require.NoError(t, err)
					sends = append(sends, r)
				}
				if freedBefore {
					require.NoError(t, w.Barrier())
				}
				begin(comm.Issend(c, []int{1}, 1, 3))
				begin(comm.Isend(c, make([]byte, 1<<20), 1, 4))
				require.NoError(t, comm.Send(c, []int{1}, 1, 5), "it does not wait")
				if !freedBefore {
					require.NoError(t, w.Barrier())
				}
				for i, r := range sends {
					_, err := r.Wait()
					assert.ErrorIs(t, err, comm.ErrComm)
					assert.ErrorContains(t, err, fmt.Sprintf(", peer 1, tag %d): invalid communicator: the receiver has freed it", 3+i))
				}
			}
		}, comm.WithSetting("pml.protocol", protocol))
	}
}

func TestFreeCompletesPendingOperations(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		for i, n := range sizes() {
			c := must(w.Dup())
			if w.Rank() == 0 {
				s := must(comm.Isend(c, pattern(n, i), 1, 0))
				require.NoError(t, c.Free())
				must(s.Wait())
				continue
			}
			got := make([]byte, n)
			r := must(comm.Irecv(c, got, 0, 0))
			require.NoError(t, c.Free())
			st := must(r.Wait())
			assert.Equal(t, n, st.Count)
			assert.Equal(t, pattern(n, i), got)
		}
	})
}

func TestSecondDupAtOnceFails(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 1 {
			must(comm.Recv(w, []int{0}, 0, 0))
			d := must(w.Dup())
			require.NoError(t, d.Free())
			return
		}
		made := make(chan error)
		for range 2 {
			go func() {
				d, err := w.Dup()
				if err == nil {
					err = d.Free()
				}
				made <- err
			}()
		}
		require.ErrorIs(t, <-made, comm.ErrComm, "the other goroutine is in the call")
		require.NoError(t, comm.Send(w, []int{0}, 1, 0))
		require.NoError(t, <-made)
	})
}

func TestNamesOfDerivedCommunicators(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		assert.Equal(t, "world", w.Name())
		d := must(w.Dup())
		assert.Equal(t, "world/dup", d.Name())
		s := must(d.Split(3, 0))
		assert.Equal(t, "world/dup/split3", s.Name())
		h := must(s.SplitHost(0))
		assert.Equal(t, "world/dup/split3/host", h.Name())
		h.SetName("mine")
		assert.ErrorContains(t, comm.Send(h, []int{1}, 9, 0), "mine: send")
		// The length of names is limited.
		for range 50 {
			next := must(s.Dup())
			assert.LessOrEqual(t, len(next.Name()), 64)
			require.NoError(t, s.Free())
			s = next
		}
	})
}

// TestManyDupsLeaveNothing: 100,000 communicators in a row work, and no memory remains in use.
func TestManyDupsLeaveNothing(t *testing.T) {
	for _, c := range []struct{ ranks, total int }{{1, 100_000}, {2, 3_000}} {
		run(t, c.ranks, func(t rank, w *comm.Comm) {
			heap := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			var before uint64
			for i := range c.total {
				if i == c.total/10 && w.Rank() == 0 {
					before = heap()
				}
				d := must(w.Dup())
				if i%1000 == 0 {
					ringOf(t, d)
				}
				require.NoError(t, d.Free())
			}
			if w.Rank() == 0 {
				assert.Less(t, heap(), before+4<<20, "bytes in use")
			}
		})
	}
}

// TestDupOfDupWorks: each communicator is made from the one before.
func TestDupOfDupWorks(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		c := w
		for range 2000 {
			next := must(c.Dup())
			if c != w {
				require.NoError(t, c.Free())
			}
			c = next
		}
		ringOf(t, c)
		require.NoError(t, c.Free())
	})
}

func TestWtimeIncreases(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		last := w.Wtime()
		for range 1000 {
			now := w.Wtime()
			require.GreaterOrEqual(t, now, last)
			last = now
		}
		assert.GreaterOrEqual(t, w.TagUB(), 32767)
	})
}
