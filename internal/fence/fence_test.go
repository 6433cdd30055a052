package fence

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOneOfTwoSeesTheOther: of two goroutines that each store a word and then load the other's, at
// least one sees the other's store.
func TestOneOfTwoSeesTheOther(t *testing.T) {
	const line = 16 // words, so that the words are on lines of their own
	var words, seen [2 * line]uint64
	var begun, done atomic.Uint64
	side := func(i int, round uint64) {
		Store(&words[i*line], round)
		seen[i*line] = atomic.LoadUint64(&words[(1-i)*line])
	}
	gone := make(chan bool)
	go func() {
		defer close(gone)
		for round := uint64(1); ; round++ {
			for begun.Load() < round {
			}
			if begun.Load() > round {
				return
			}
			side(1, round)
			done.Store(round)
		}
	}()
	missed := uint64(0)
	round := uint64(1)
	for end := time.Now().Add(100 * time.Millisecond); missed == 0 && time.Now().Before(end); round++ {
		begun.Store(round)
		side(0, round)
		for done.Load() < round {
		}
		if seen[0] != round && seen[line] != round {
			missed = round
		}
	}
	begun.Store(round + 1)
	<-gone
	require.Zero(t, missed, "in this round neither saw the other")
}
