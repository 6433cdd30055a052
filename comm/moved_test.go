package comm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnreachablePeerOfMovedRankIsExplained: an error says that the other ranks were not told of
// this rank's new address. Other errors do not.
func TestUnreachablePeerOfMovedRankIsExplained(t *testing.T) {
	run(t, 1, func(w *Comm) {
		untold := fmt.Errorf("rail x has moved")
		w.job.untold = func() error { return untold }
		err := w.fail("send", 0, 0, fmt.Errorf("%w: it failed", ErrUnreachable))
		require.EqualError(t, err, "world: send (peer 0, tag 0): peer unreachable: it failed; rail x has moved")
		require.ErrorIs(t, err, untold)
		require.NotErrorIs(t, w.fail("send", 0, 0, ErrTag), untold)
		untold = nil
		require.EqualError(t, w.fail("send", 0, 0, ErrUnreachable), "world: send (peer 0, tag 0): peer unreachable")
	})
}
