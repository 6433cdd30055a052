package comm

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/request"
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

// TestFinalizeConnectsOnlyToWaitingRanks: a rank that stays in Finalize connects only to ranks
// that wait for it, whose calls get their error.
func TestFinalizeConnectsOnlyToWaitingRanks(t *testing.T) {
	t.Parallel() // Finalize sends nothing for a second
	const ranks = 5
	peers := make([][]int, ranks)
	run(t, ranks, func(w *Comm) {
		defer func() { peers[w.Rank()] = knownPeers(w) }()
		if w.Rank() == 0 {
			for rank := 1; rank < ranks; rank++ {
				_, err := Recv(w, []int{0}, rank, 0)
				assert.ErrorIs(t, err, ErrProcFailed, "rank %d", rank)
			}
		}
		check(w.Finalize())
	})
	for rank := 1; rank < ranks; rank++ {
		assert.Equal(t, []int{0}, peers[rank], "rank %d", rank)
	}
}

// TestFinalizeOfUnreachableRanksSucceeds: two ranks with no path between them finish, even after a
// long wait for the third.
func TestFinalizeOfUnreachableRanksSucceeds(t *testing.T) {
	t.Parallel()
	var fabric *loop.Fabric
	run(t, 3, func(w *Comm) {
		if w.Rank() != 0 {
			return
		}
		assert.NoError(t, fabric.FailLane(1, 2, 0, loop.Cut{}))
		for rank := 1; rank < 3; rank++ {
			_, err := w.Probe(rank, 0)
			assert.ErrorIs(t, err, ErrProcFailed, "rank %d", rank)
		}
	}, WithSetting("pml.grace", "1s"), OnFabric(func(f *loop.Fabric) { fabric = f }))
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

// TestFinalizeWaitsForSlowReceiver: a rank does not run for seconds while all ranks are in
// Finalize. It then receives the messages for its posted receives. No rank gives up before.
func TestFinalizeWaitsForSlowReceiver(t *testing.T) {
	t.Parallel()
	const long = 2500 * time.Millisecond
	want := bytes.Repeat([]byte{7}, 1<<20)
	for name, send := range map[string]func(w *Comm) (request.Request, error){
		"announced":   func(w *Comm) (request.Request, error) { return Isend(w, want, 1, 7) },
		"synchronous": func(w *Comm) (request.Request, error) { return Issend(w, want[:1], 1, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goOn := make(chan struct{})
			buf := make([]byte, 1<<20)
			run(t, 2, func(w *Comm) {
				if w.Rank() == 0 {
					check(must(send(w)).Free())
					check(w.Finalize())
					return
				}
				check(must(Irecv(w, buf, 0, 7)).Free())
				j := w.job
				j.eng.Lock()
				j.eng.AddPoller(halt{func() bool { return j.ended != nil }, goOn})
				j.eng.Unlock()
				time.AfterFunc(long, func() { close(goOn) })
			})
			assert.Equal(t, want[0], buf[0])
		})
	}
}

// TestMessageOfGoneSenderIsReceived: a complete send has delivered its message. So the message is
// received even if the sender ends at once, and whether or not the receiver has polled.
func TestMessageOfGoneSenderIsReceived(t *testing.T) {
	for _, length := range []int{8, 4000, 1 << 20} {
		for _, when := range []string{"before", "after", "meanwhile"} {
			if length == 1<<20 && when == "after" {
				continue // such a message is not sent before it is received
			}
			for range 20 {
				waits, gone := make(chan *Comm, 1), make(chan struct{})
				run(t, 2, func(w *Comm) {
					want, buf := bytes.Repeat([]byte{7}, length), make([]byte, length)
					if w.Rank() == 1 {
						waits <- w
						if when == "after" {
							<-gone
						}
						_, err := Recv(w, buf, 0, 0)
						assert.NoError(t, err, "%d bytes, the receive is posted %s", length, when)
						assert.True(t, bytes.Equal(want, buf))
						_, err = Recv(w, buf, 0, 0)
						assert.ErrorIs(t, err, ErrProcFailed)
						return
					}
					if when == "before" {
						awaitPending(context.Background(), <-waits)
					}
					check(Send(w, want, 1, 0))
					check(locked(w, w.job.modules[0].Close))
					close(gone)
				}, WithSetting("pml.protocol", "copy"))
			}
		}
	}
}
