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

// leaver is the rank that calls Finalize while the other ranks go on.
const leaver = 2

// callAllWithout makes every collective call at all ranks but one, which calls Finalize instead.
func callAllWithout(w *comm.Comm) error {
	var left error
	err := comm.CallAll(w, func() {
		if w.Rank() == leaver {
			left = w.Finalize()
		}
	})
	if w.Rank() == leaver {
		return left
	}
	return err
}

// callFinalized makes every call that waits for a finalized rank, and requires ErrProcFailed.
func callFinalized(w *comm.Comm) error {
	buf, long := []int{0}, make([]int, 1<<17)
	wait := func(r request.Request, err error) error {
		if err == nil {
			_, err = r.Wait()
		}
		return err
	}
	calls := []struct {
		name string
		call func() error
	}{
		{"recv", func() error { _, err := comm.Recv(w, buf, leaver, 0); return err }},
		{"recv again", func() error { _, err := comm.Recv(w, buf, leaver, 0); return err }},
		{"recv of any tag", func() error { _, err := comm.Recv(w, buf, leaver, comm.AnyTag); return err }},
		{"irecv", func() error { return wait(comm.Irecv(w, buf, leaver, 0)) }},
		{"probe", func() error { _, err := w.Probe(leaver, 0); return err }},
		{"mprobe", func() error { _, _, err := w.Mprobe(leaver, 0); return err }},
		{"iprobe", func() error { _, _, err := w.Iprobe(leaver, 0); return err }},
		{"ssend", func() error { return comm.Ssend(w, buf, leaver, 0) }},
		{"send", func() error { return comm.Send(w, long, leaver, 0) }},
		{"issend", func() error { return wait(comm.Issend(w, long, leaver, 0)) }},
		{"bsend", func() error { return comm.Bsend(w, long, leaver, 0) }},
		{"persistent", func() error {
			r, err := comm.RecvInit(w, buf, leaver, 0)
			if err != nil {
				return err
			}
			if err := r.Start(); err != nil {
				return err
			}
			return errors.Join(wait(r, nil), r.Free())
		}},
		{"barrier", w.Barrier},
	}
	for _, c := range calls {
		if err := c.call(); !errors.Is(err, comm.ErrProcFailed) {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// finalizedPeerProgram has ranks wait for one that is in Finalize, in every call. They get errors,
// and all ranks finish.
func finalizedPeerProgram(w *comm.Comm) error {
	if w.Rank() != leaver {
		if err := callFinalized(w); err != nil {
			return err
		}
		fmt.Println("told")
	}
	return nil
}

// finalizedPeerCollectivesProgram does the same with each collective.
func finalizedPeerCollectivesProgram(w *comm.Comm) error {
	err := callAllWithout(w)
	if err == nil {
		fmt.Println("told")
	}
	return err
}

// TestCallsThatWaitForFinalizedRankFail: no rank waits for ever for a rank that has called Finalize
// or has returned.
func TestCallsThatWaitForFinalizedRankFail(t *testing.T) {
	for name, body := range map[string]func(w *comm.Comm) error{
		"point-to-point": func(w *comm.Comm) error {
			if w.Rank() == leaver {
				return nil
			}
			return callFinalized(w)
		},
		"collectives": callAllWithout,
		"waiting already": func(w *comm.Comm) error {
			if w.Rank() == leaver {
				return nil
			}
			// A receive and a send that were posted long before.
			r, err := comm.Irecv(w, []int{0}, leaver, 0)
			if err != nil {
				return err
			}
			s, err := comm.Issend(w, []int{0}, leaver, 0)
			if err != nil {
				return err
			}
			for _, r := range []request.Request{r, s} {
				_, err := r.Wait()
				if e := (*comm.Error)(nil); !errors.As(err, &e) || e.Peer != leaver || !errors.Is(err, comm.ErrProcFailed) {
					return fmt.Errorf("waiting: %w", err)
				}
				if want := "peer process failed: it has called Finalize, or returned"; errors.Unwrap(err).Error() != want {
					return fmt.Errorf("%q, not %q", errors.Unwrap(err), want)
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
		launch := launcher(t)
		assert.Equal(t, outcome{0, "told\ntold\n", ""}, launch(3, "left"))
		assert.Equal(t, outcome{0, "told\ntold\ntold\n", ""}, launch(3, "left collectives"))
	})
}

// TestMessageOfFinalizedRankIsReceived: messages that a rank has sent before Finalize are received,
// however late. The other ranks are not disturbed.
func TestMessageOfFinalizedRankIsReceived(t *testing.T) {
	const many, late = 5000, 1500 * time.Millisecond // more than the window has room for
	var finalizing atomic.Bool
	run(t, 4, func(t rank, w *comm.Comm) {
		d, err := w.Dup()
		require.NoError(t, err)
		if w.Rank() == leaver {
			for i := range many {
				r, err := comm.Isend(w, []int{0: i, 99: 0}, 0, 1)
				require.NoError(t, err)
				require.NoError(t, r.Free())
			}
			for _, n := range []int{0, 100, 1 << 20} {
				r, err := comm.Isend(d, pattern(n, n), 0, 2)
				require.NoError(t, err)
				require.NoError(t, r.Free())
			}
			time.AfterFunc(late, func() { finalizing.Store(true) })
			require.NoError(t, w.Finalize())
			return
		}
		for !finalizing.Load() { // the other ranks go on meanwhile
			require.NoError(t, comm.SendValue(w, "on", w.Rank(), 3))
			_, _, err := comm.RecvValue[string](w, comm.AnySource, 3)
			require.NoError(t, err)
		}
		if w.Rank() != 0 {
			require.NoError(t, comm.Ssend(w, []int{w.Rank()}, 0, 4))
			return
		}
		for range 2 {
			_, err := comm.Recv(w, []int{0}, comm.AnySource, 4)
			require.NoError(t, err)
		}
		for _, n := range []int{0, 100, 1 << 20} { // which are pending behind the others
			buf := make([]byte, n)
			_, err := comm.Recv(d, buf, leaver, 2)
			require.NoError(t, err)
			require.Equal(t, pattern(n, n), buf)
		}
		for i := range many {
			buf := make([]int, 100)
			_, err := comm.Recv(w, buf, leaver, 1)
			require.NoError(t, err)
			require.Equal(t, i, buf[0])
		}
		_, err = comm.Recv(w, []int{0}, leaver, 1)
		require.ErrorIs(t, err, comm.ErrProcFailed)
		_, err = comm.Recv(d, []int{0}, leaver, comm.AnyTag)
		require.ErrorIs(t, err, comm.ErrProcFailed)
	}, comm.WithSetting("pml.unexpected.bytes", "64K"))
}

// TestSendToFinalizedRankIsReported: Finalize reports a send to a finalized rank that the program
// does not wait for.
func TestSendToFinalizedRankIsReported(t *testing.T) {
	err := comm.RunLocal(2, func(w *comm.Comm) error {
		if w.Rank() == 1 {
			return nil
		}
		if r, err := comm.Issend(w, []int{0}, 1, 7); err != nil {
			return err
		} else if err := r.Free(); err != nil {
			return err
		}
		if _, err := comm.Recv(w, []int{0}, 1, 0); !errors.Is(err, comm.ErrProcFailed) {
			return fmt.Errorf("recv: %w", err)
		}
		return nil
	})
	require.ErrorIs(t, err, comm.ErrPending)
	require.ErrorContains(t, err, "no rank receives issend peer 1 tag 7")
}

func TestFreedReceiveCompletesInFinalize(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 1 {
			r, err := comm.Irecv(w, []int{0}, 0, 7)
			require.NoError(t, err)
			require.NoError(t, r.Free())
			return
		}
		_, err := comm.Recv(w, []int{0}, 1, 0)
		require.ErrorIs(t, err, comm.ErrProcFailed)
		require.NoError(t, comm.Ssend(w, []int{0}, 1, 7))
	})
}

// finalizedStarProgram has all ranks but the first call Finalize without having sent anything. The
// first waits for each of them, by another call each time, and gets errors. The others connect to
// no other rank.
func finalizedStarProgram(w *comm.Comm) error {
	if w.Rank() != 0 {
		if err := w.Finalize(); err != nil {
			return err
		}
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
			for { // seldom, and without sleeping in the library
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
	fmt.Println("told")
	return nil
}

// TestFinalizedRankAnswersNewPeer: a rank gets its error from ranks that it has never talked to.
// These are in Finalize and do not connect to each other.
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
		want := append([]string{"told"}, slices.Repeat([]string{"1 peers"}, ranks-1)...)
		assert.ElementsMatch(t, want, lines, "%v", flags)
	}
}
