package comm

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// knownPeers are the ranks to which a rank has ever found a way.
func knownPeers(w *Comm) []int {
	var peers []int
	for _, r := range w.Rails() {
		if len(peers) == 0 || peers[len(peers)-1] != r.Peer {
			peers = append(peers, r.Peer)
		}
	}
	return peers
}

// TestFinalizeConnectsToNobody: ranks that are in Finalize for long meet only those that wait for them, and these get their error.
func TestFinalizeConnectsToNobody(t *testing.T) {
	t.Parallel() // Finalize tells nobody for a second
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
