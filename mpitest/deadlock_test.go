package mpitest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
	"github.com/mpigo/mpigo/request"
)

// poll calls the library until a call returns an error because all calls were ended. Such a rank
// runs: it might send at any time.
func poll(world *comm.Comm, pause time.Duration) {
	for {
		if _, _, err := world.Iprobe(0, 99); err != nil {
			return
		}
		time.Sleep(pause)
	}
}

// irecv begins a receive.
func irecv(t testing.TB, world *comm.Comm, source, tag int) request.Request {
	return must(comm.Irecv(world, make([]byte, 8), source, tag))
}

// body is the body of a rank. Its error is that of the call that hangs.
type body func(t testing.TB, w *comm.Comm) error

// TestHangReportNamesDeadlock: the report of a hang names a deadlock if there is one, and not
// otherwise.
func TestHangReportNamesDeadlock(t *testing.T) {
	recv := func(source int) body {
		return func(_ testing.TB, w *comm.Comm) error {
			_, err := comm.Recv(w, make([]byte, 8), source, 1)
			return err
		}
	}
	runs := func(_ testing.TB, w *comm.Comm) error {
		poll(w, 100*time.Microsecond) // leaves the core to other tests
		return assert.AnError
	}
	returns := func(testing.TB, *comm.Comm) error { return nil }
	barrier := func(_ testing.TB, w *comm.Comm) error { return w.Barrier() }
	bcast := func(_ testing.TB, w *comm.Comm) error { return comm.Bcast(w, []int{1}, 0) }
	waitAny := func(t testing.TB, w *comm.Comm) error {
		_, _, err := request.WaitAny(irecv(t, w, 1, 1), irecv(t, w, 2, 1))
		return err
	}
	// withContext calls a body with a context that may end.
	withContext := func(call body) body {
		return func(t testing.TB, w *comm.Comm) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			return call(t, w.WithContext(ctx))
		}
	}
	// sharing calls a body when the ranks share memory for barriers.
	sharing := func(call body) body {
		return func(t testing.TB, w *comm.Comm) error {
			for range 4 {
				require.NoError(t, w.Barrier())
			}
			return call(t, w)
		}
	}
	// ibarrier waits for a nonblocking barrier, and a receive, together.
	ibarrier := func(all bool) body {
		return func(t testing.TB, w *comm.Comm) error {
			reqs := []request.Request{must(w.Ibarrier()), irecv(t, w, (w.Rank()+1)%w.Size(), 7)}
			if all {
				return request.WaitAll(reqs...)
			}
			_, _, err := request.WaitAny(reqs...)
			return err
		}
	}
	// afterIbarrier calls a body while a nonblocking barrier is under way.
	afterIbarrier := func(call body) body {
		return func(t testing.TB, w *comm.Comm) error {
			must(w.Ibarrier())
			return call(t, w)
		}
	}
	const cycle = "rank 0 waits for rank 1, which waits for rank 0"

	for name, c := range map[string]struct {
		ranks    []body
		deadlock string // empty if there is none
		cycle    string
		want     []string
		not      string
	}{
		// The call waits for the receive first. The report does not list its send as unwaited.
		"a send and receive": {
			ranks: []body{
				func(_ testing.TB, w *comm.Comm) error {
					_, err := comm.Sendrecv(w, make([]byte, 1<<20), 1, 3, make([]byte, 1), 1, 3)
					return err
				},
				runs,
			},
			want: []string{"Sendrecv from 1, tag 3, for "}, not: "no call waits for",
		},
		"two that receive": {ranks: []body{recv(1), recv(0), runs}, deadlock: "ranks 0, 1", cycle: cycle},
		"two that send": {
			ranks: []body{
				func(_ testing.TB, w *comm.Comm) error { return comm.Ssend(w, []byte{1}, 1, 1) },
				func(_ testing.TB, w *comm.Comm) error { return comm.Send(w, make([]byte, 1<<20), 0, 1) },
			},
			deadlock: "ranks 0, 1", cycle: cycle,
		},
		"a nonblocking barrier that a rank does not come to": {
			ranks: []body{ibarrier(true), recv(0)}, deadlock: "ranks 0, 1", cycle: cycle,
			want: []string{"WaitAll for ibarrier in world (not called by 1), and: irecv from 1, tag 7, for "},
		},
		"a nonblocking barrier or a message": {ranks: []body{ibarrier(false), runs}},
		"a nonblocking barrier that no call waits for": {
			ranks: []body{afterIbarrier(recv(1)), recv(0)}, deadlock: "ranks 0, 1", cycle: cycle,
		},
		"a rank that runs during a nonblocking barrier": {ranks: []body{afterIbarrier(runs), recv(0)}},
		"a receive that no call waits for": {
			ranks: []body{
				func(t testing.TB, w *comm.Comm) error {
					irecv(t, w, 1, 5)
					return recv(2)(t, w)
				},
				recv(0), runs,
			},
			want: []string{
				"Recv from 2, tag 1, for ", "    no call waits for: irecv from 1, tag 5\n",
			},
		},
		"any of two, one of which runs": {
			ranks: []body{waitAny, recv(0), runs},
			want:  []string{"WaitAny, any of: irecv from 1, tag 1; irecv from 2, tag 1, for "},
		},
		"some of two, one of which runs": {
			ranks: []body{
				func(t testing.TB, w *comm.Comm) error {
					_, err := request.WaitSome([]request.Request{irecv(t, w, 1, 1), irecv(t, w, 2, 1)}, make([]int, 2), nil)
					return err
				},
				recv(0), runs,
			},
			want: []string{"WaitSome, any of: "},
		},
		"any of two that wait": {ranks: []body{waitAny, recv(0), recv(0)}, deadlock: "ranks 0-2", cycle: cycle},
		"all of two, one of which runs": {
			ranks: []body{
				func(t testing.TB, w *comm.Comm) error {
					return request.WaitAll(irecv(t, w, 1, 1), irecv(t, w, 2, 1))
				},
				recv(0), runs,
			},
			deadlock: "ranks 0, 1", cycle: cycle,
			want: []string{"WaitAll, all of: irecv from 1, tag 1; irecv from 2, tag 1"},
		},
		"any source, one runs": {ranks: []body{recv(comm.AnySource), recv(0), runs}},
		"any source, one has returned": {
			ranks:    []body{recv(comm.AnySource), recv(0), returns},
			deadlock: "ranks 0, 1", cycle: cycle,
		},
		"any source, all others have returned": {ranks: []body{recv(comm.AnySource), returns}, deadlock: "rank 0"},
		"another goroutine runs": {
			ranks: []body{
				func(t testing.TB, w *comm.Comm) error {
					received := make(chan error, 1)
					go func() { received <- recv(1)(t, w) }()
					poll(w, 0)
					return <-received
				},
				recv(0),
			},
			want: []string{
				"Recv from 1, tag 1, for ", "\n      deadlock_test.go:21 Iprobe\n",
			},
		},
		"all goroutines wait": {
			ranks: []body{
				func(t testing.TB, w *comm.Comm) error {
					received := make(chan error, 1)
					go func() { received <- recv(1)(t, w) }()
					_, err := w.Probe(1, 2)
					assert.Error(t, <-received)
					return err
				},
				recv(0),
			},
			deadlock: "ranks 0, 1", cycle: cycle,
		},
		"a context may end": {ranks: []body{withContext(recv(1)), recv(0)}},
		// The barrier may fail at one member, and then fails at the others too.
		"a member may give up the barrier": {
			ranks: []body{barrier, withContext(barrier), recv(0)},
			want:  []string{"Barrier in world, not called by 2, for "},
		},
		// It may free the communicator, which ends the calls of the others.
		"a member of the broadcast runs": {ranks: []body{recv(1), bcast, runs}},
		"one is not in the barrier": {
			ranks:    []body{barrier, barrier, recv(0), barrier},
			deadlock: "ranks 0-3", cycle: "rank 0 waits for rank 2, which waits for rank 0",
			want: []string{"Barrier in world, not called by 2, for "},
		},
		"one is not in the barrier through shared memory": {
			ranks:    []body{sharing(barrier), sharing(barrier), sharing(recv(0)), sharing(barrier)},
			deadlock: "ranks 0-3", cycle: "rank 0 waits for rank 2, which waits for rank 0",
			want: []string{"Barrier in world, not called by 2, for "},
		},
		"one that is not in the barrier runs": {
			ranks: []body{barrier, barrier, runs, barrier},
			want:  []string{"Barrier in world, not called by 2, for "},
		},
		// The other ranks do not wait for each other.
		"the root of a broadcast runs": {ranks: []body{runs, bcast, recv(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, log := runFails(t, len(c.ranks), func(t testing.TB, w *comm.Comm) {
				if err := c.ranks[w.Rank()](t, w); err == nil {
					assert.Contains(t, name, "returned")
				}
			}, mpitest.HangAfter(soon))
			assert.Contains(t, log, "hang: ")
			for _, want := range c.want {
				assert.Contains(t, log, want)
			}
			if c.not != "" {
				assert.NotContains(t, log, c.not)
			}
			if c.deadlock == "" {
				assert.NotContains(t, log, "deadlock: nothing")
				assert.NotContains(t, log, "deadlock: ranks")
				return
			}
			assert.Regexp(t, "\n  deadlock: nothing can release "+c.deadlock, log)
			assert.Contains(t, log, c.cycle)
		})
	}
}

// TestHangReportIgnoresRankWithoutRails: a receive from a rank without rails ends with an error if
// none comes back, and so does the WaitAll that waits for it. It is no deadlock that another
// receive of the WaitAll never completes.
func TestHangReportIgnoresRankWithoutRails(t *testing.T) {
	t.Parallel()
	var fabric *loop.Fabric
	_, log := runFails(t, 3, func(t testing.TB, w *comm.Comm) {
		require.NoError(t, w.Barrier())
		if w.Rank() != 0 {
			_, err := comm.Recv(w, make([]byte, 8), 0, 1)
			require.Error(t, err)
			return
		}
		require.NoError(t, fabric.FailLane(0, 2, 0, loop.Cut{}))
		require.Error(t, request.WaitAll(irecv(t, w, 1, 1), irecv(t, w, 2, 1)))
	}, mpitest.HangAfter(soon), comm.OnFabric(func(f *loop.Fabric) { fabric = f }),
		comm.WithSetting("pml.grace", "1h"), comm.WithSetting("pml.notices", "false"))
	assert.Contains(t, log, "hang: ")
	assert.NotContains(t, log, "deadlock:")
}

// TestSendsThatRelyOnBufferingAreReported: without checked mode, short sends return before they are
// received. In checked mode some of them wait, and strictly all of them.
func TestSendsThatRelyOnBufferingAreReported(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]struct {
		most    int // exchanges before the hang
		setting string
	}{
		"true":   {100, "check.seed=7"},
		"strict": {0, "check=strict"},
	} {
		var done [2]int
		_, log := runFails(t, 2, func(t testing.TB, world *comm.Comm) {
			me := world.Rank()
			for range 1000 {
				if err := comm.Send(world, make([]float64, 10), 1-me, 3); err != nil {
					return
				}
				if _, err := comm.Recv(world, make([]float64, 10), 1-me, 3); err != nil {
					return
				}
				done[me]++
			}
		}, mpitest.HangAfter(time.Hour), comm.WithSetting("check", mode), comm.WithSetting("check.seed", "7"))
		assert.Contains(t, log, "rank 0 waits for rank 1, which waits for rank 0; the program relies on buffering (MPI 4.1, section 3.5): checked mode ("+
			c.setting+") has made its sends synchronous\n", mode)
		assert.Regexp(t, `  0, 1: deadlock_test\.go:\d+ Send to rank\+1, tag 3, 80 bytes, made synchronous, for `, log)
		assert.LessOrEqual(t, done[0], c.most, mode)
	}
}
