package comm_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// finalizer is the rank that calls Finalize while the other ranks go on.
const finalizer = 2

// callAllWithout makes every collective call at all ranks but one, which calls Finalize instead.
func callAllWithout(w *comm.Comm) error {
	comm.CallAll(w, func() bool {
		if w.Rank() == finalizer {
			check(w.Finalize())
		}
		return w.Rank() == finalizer
	})
	return nil
}

// callFinalized makes every call that waits for a finalized rank, and requires ErrProcFailed.
func callFinalized(w *comm.Comm) error {
	for _, c := range append(comm.WaitingCalls(),
		comm.WaitingCall{Name: "bsend", Call: func(w *comm.Comm, peer int) error {
			return comm.Bsend(w, make([]byte, 1<<20), peer, 0)
		}},
		comm.WaitingCall{Name: "barrier", Call: func(w *comm.Comm, _ int) error { return w.Barrier() }},
	) {
		if w.Rank() == finalizer {
			break
		}
		if err := c.Call(w, finalizer); !errors.Is(err, comm.ErrProcFailed) {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// finalizedPeerProgram has ranks wait for one that is in Finalize, in every call. They get errors,
// and all ranks finish.
func finalizedPeerProgram(w *comm.Comm) error {
	err := callFinalized(w)
	fmt.Println("returned")
	return err
}

// callSharedWithout has the others call Allreduce through shared memory, while the finalizer is in
// Finalize.
func callSharedWithout(w *comm.Comm) error {
	short, long := comm.SharingMemory(w, "short"), comm.SharingMemory(w, "long")
	if w.Rank() == finalizer {
		return w.Finalize()
	}
	for _, d := range []*comm.Comm{short, long} {
		if err := comm.Allreduce(d, nil, make([]int, 100), comm.Sum[int]); !errors.Is(err, comm.ErrProcFailed) {
			return fmt.Errorf("allreduce: %w", err)
		}
	}
	return nil
}

// finalizedSharedProgram does that between processes.
func finalizedSharedProgram(w *comm.Comm) error {
	err := callSharedWithout(w)
	fmt.Println("returned")
	return err
}

// finalizedPeerCollectivesProgram does the same with each collective.
func finalizedPeerCollectivesProgram(w *comm.Comm) error {
	err := callAllWithout(w)
	fmt.Println("returned")
	return err
}

// TestCallsThatWaitForFinalizedRankFail: no rank waits forever for a rank that has called Finalize
// or has returned.
func TestCallsThatWaitForFinalizedRankFail(t *testing.T) {
	for name, body := range map[string]func(w *comm.Comm) error{
		"point-to-point": callFinalized,
		"collectives":    callAllWithout,
		"shared memory":  callSharedWithout,
		"waiting already": func(w *comm.Comm) error {
			if w.Rank() == finalizer {
				return nil
			}
			// A receive and a send that were posted long before.
			r, s := must(comm.Irecv(w, []int{0}, finalizer, 0)), must(comm.Issend(w, []int{0}, finalizer, 0))
			for _, r := range []request.Request{r, s} {
				_, err := r.Wait()
				var e *comm.Error
				if assert.ErrorAs(t, err, &e) {
					assert.Equal(t, finalizer, e.Peer)
					assert.ErrorIs(t, err, comm.ErrProcFailed)
					assert.EqualError(t, e.Err, "peer process failed: it has called Finalize, or returned")
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, comm.RunLocal(4, body))
		})
	}
	t.Run("processes", func(t *testing.T) {
		launch, returned := launcher(t), outcome{0, "returned\nreturned\nreturned\n", ""}
		assert.Equal(t, returned, launch(3, "finalized peer"))
		assert.Equal(t, returned, launch(3, "finalized collectives"))
		assert.Equal(t, returned, launch(3, "finalized shared"))
	})
}

// TestMessageOfFinalizedRankIsReceived: messages that a rank has sent before Finalize can be
// received at any later time. The other ranks continue meanwhile.
func TestMessageOfFinalizedRankIsReceived(t *testing.T) {
	const many, late = 5000, 1500 * time.Millisecond // more messages than the window has room for
	var finalizing atomic.Bool
	run(t, 4, func(t rank, w *comm.Comm) {
		d := must(w.Dup())
		if w.Rank() == finalizer {
			for i := range many {
				require.NoError(t, must(comm.Isend(w, []int{0: i, 99: 0}, 0, 1)).Free())
			}
			for _, n := range []int{0, 100, 1 << 20} {
				require.NoError(t, must(comm.Isend(d, pattern(n, n), 0, 2)).Free())
			}
			time.AfterFunc(late, func() { finalizing.Store(true) })
			require.NoError(t, w.Finalize())
			return
		}
		for !finalizing.Load() { // the other ranks exchange messages meanwhile
			require.NoError(t, comm.SendValue(w, "on", w.Rank(), 3))
			must2(comm.RecvValue[string](w, comm.AnySource, 3))
			time.Sleep(time.Millisecond)
		}
		if w.Rank() != 0 {
			require.NoError(t, comm.Ssend(w, []int{w.Rank()}, 0, 4))
			return
		}
		for range 2 {
			recv[int](w, 1, comm.AnySource, 4)
		}
		for _, n := range []int{0, 100, 1 << 20} { // these are pending behind the others
			require.Equal(t, pattern(n, n), recv[byte](d, n, finalizer, 2))
		}
		for i := range many {
			require.Equal(t, i, recv[int](w, 100, finalizer, 1)[0])
		}
		require.ErrorIs(t, errOf(comm.Recv(w, []int{0}, finalizer, 1)), comm.ErrProcFailed)
		require.ErrorIs(t, errOf(comm.Recv(d, []int{0}, finalizer, comm.AnyTag)), comm.ErrProcFailed)
	}, comm.WithSetting("pml.unexpected.bytes", "64K"))
}

// TestSendToFinalizedRankIsReported: Finalize reports a send to a finalized rank that the program
// does not wait for.
func TestSendToFinalizedRankIsReported(t *testing.T) {
	err := tryRun(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 0 {
			check(must(comm.Issend(w, []int{0}, 1, 7)).Free())
			require.ErrorIs(t, errOf(comm.Recv(w, []int{0}, 1, 0)), comm.ErrProcFailed)
		}
	})
	require.ErrorIs(t, err, comm.ErrPending)
	require.ErrorContains(t, err, "no rank receives issend peer 1 tag 7")
}

func TestFreedReceiveCompletesInFinalize(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 1 {
			require.NoError(t, must(comm.Irecv(w, []int{0}, 0, 7)).Free())
			return
		}
		require.ErrorIs(t, errOf(comm.Recv(w, []int{0}, 1, 0)), comm.ErrProcFailed)
		require.NoError(t, comm.Ssend(w, []int{0}, 1, 7))
	})
}

// finalizedStarProgram has all ranks but the first call Finalize without having sent anything. The
// first waits for each of them, by another call each time, and gets errors. The others connect to
// no other rank.
func finalizedStarProgram(w *comm.Comm) error {
	if w.Rank() != 0 {
		check(w.Finalize())
		peers := map[int]bool{}
		for _, r := range w.Rails() {
			peers[r.Peer] = true
		}
		fmt.Printf("%d peers\n", len(peers))
		return nil
	}
	buf := []int{0}
	waits := []func(rank int) error{
		func(rank int) error { _, err := comm.Recv(w, buf, rank, 0); return err },
		func(rank int) error { return comm.Ssend(w, buf, rank, 0) },
		func(rank int) error { return comm.Send(w, make([]int, 1<<17), rank, 0) },
		func(rank int) error {
			for { // the rank rarely calls the library, and does not sleep in it
				if _, _, err := w.Iprobe(rank, 0); err != nil {
					return err
				}
				time.Sleep(5 * time.Millisecond)
			}
		},
		func(rank int) error {
			r, err := comm.Irecv(w, buf, rank, 0)
			for err == nil {
				var done bool
				_, done, err = r.Test()
				if done && err == nil {
					return errors.New("received")
				}
				time.Sleep(5 * time.Millisecond)
			}
			return err
		},
		func(int) error { return w.Barrier() },
	}
	for i, wait := range waits {
		if err := wait(i + 1); !errors.Is(err, comm.ErrProcFailed) {
			return fmt.Errorf("rank %d: %w", i+1, err)
		}
	}
	fmt.Println("returned")
	return nil
}

// TestFinalizedRankAnswersNewPeer: a rank gets its error from ranks that it has never exchanged
// messages with. These are in Finalize and do not connect to each other.
func TestFinalizedRankAnswersNewPeer(t *testing.T) {
	launch := launcher(t)
	const ranks = 7
	for _, flags := range [][]string{
		{"--btl", "self,tcp", "--set", "tcp.include=127.0.0.1,127.0.0.2"},
		{"--btl", "self,sm"},
	} {
		got := launch(ranks, "finalized star", flags...)
		assert.Equal(t, 0, got.status, got.stderr)
		lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
		want := append([]string{"returned"}, slices.Repeat([]string{"1 peers"}, ranks-1)...)
		assert.ElementsMatch(t, want, lines, "%v", flags)
	}
}
