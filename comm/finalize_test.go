package comm

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
)

// knownPeers lists the ranks that a rank has ever found a rail to.
func knownPeers(w *Comm) []int {
	var peers []int
	for _, r := range w.Rails() {
		if len(peers) == 0 || peers[len(peers)-1] != r.Peer {
			peers = append(peers, r.Peer)
		}
	}
	return peers
}

// TestFinalizeConnectsOnlyToWaitingRanks: a rank that is in Finalize for long connects only to
// ranks that wait for it, which get their error.
func TestFinalizeConnectsOnlyToWaitingRanks(t *testing.T) {
	t.Parallel() // Finalize sends nothing for a second
	const ranks = 5
	peers := make([][]int, ranks)
	require.NoError(t, RunLocal(ranks, func(w *Comm) error {
		defer func() { peers[w.Rank()] = knownPeers(w) }()
		if w.Rank() != 0 {
			return w.Finalize()
		}
		for rank := 1; rank < ranks; rank++ {
			if _, err := Recv(w, []int{0}, rank, 0); !errors.Is(err, ErrProcFailed) {
				return fmt.Errorf("recv from %d: %w", rank, err)
			}
		}
		return w.Finalize()
	}))
	for rank := 1; rank < ranks; rank++ {
		assert.Equal(t, []int{0}, peers[rank], "rank %d", rank)
	}
}

// TestFinalizeOfUnreachableRanksSucceeds: two ranks with no path between them finish, however long
// they wait for the third.
func TestFinalizeOfUnreachableRanksSucceeds(t *testing.T) {
	t.Parallel()
	var fabric *loop.Fabric
	require.NoError(t, RunLocal(3, func(w *Comm) error {
		if w.Rank() != 0 {
			return nil
		}
		assert.NoError(t, fabric.FailLane(1, 2, 0, loop.Cut{}))
		for rank := 1; rank < 3; rank++ {
			if _, err := w.Probe(rank, 0); !errors.Is(err, ErrProcFailed) {
				return fmt.Errorf("probe of %d: %w", rank, err)
			}
		}
		return nil
	}, WithSetting("pml.grace", "1s"), OnFabric(func(f *loop.Fabric) { fabric = f })))
}

// halt is a poller that blocks its rank, once its condition holds, until the test releases it.
type halt struct {
	when func() bool
	on   <-chan struct{}
}

func (h halt) Progress() int {
	if h.when() {
		<-h.on
	}
	return 0
}

// TestFinalizeWaitsForSlowReceiver: a rank that gets no processor for seconds, while all are in
// Finalize, receives the messages that it has posted receives for. No rank gives up before.
func TestFinalizeWaitsForSlowReceiver(t *testing.T) {
	t.Parallel()
	const long = 2500 * time.Millisecond
	for name, send := range map[string]func(w *Comm, buf []byte) error{
		"announced": func(w *Comm, buf []byte) error {
			r, err := Isend(w, buf, 1, 7)
			return errors.Join(err, r.Free())
		},
		"synchronous": func(w *Comm, buf []byte) error {
			r, err := Issend(w, buf[:1], 1, 7)
			return errors.Join(err, r.Free())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goOn := make(chan struct{})
			buf := make([]byte, 1<<20)
			require.NoError(t, RunLocal(2, func(w *Comm) error {
				if w.Rank() == 0 {
					return errors.Join(send(w, pattern(1<<20)), w.Finalize())
				}
				r, err := Irecv(w, buf, 0, 7)
				if err := errors.Join(err, r.Free()); err != nil {
					return err
				}
				j := w.job
				j.eng.Lock()
				j.eng.AddPoller(halt{func() bool { return j.ended != nil }, goOn})
				j.eng.Unlock()
				time.AfterFunc(long, func() { close(goOn) })
				return nil
			}))
			assert.Equal(t, pattern(1)[0], buf[0])
		})
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	fill(b, 7)
	return b
}
