package railsim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/network"
	"github.com/mpigo/mpigo/pml"
)

// TestShortMessagesHideNoRate: the fragments before a long message, and its RTS, do not show the
// rate of a rail, because they wait for each other. The ideal time is 0.4 ms for the bytes, and two
// round trips.
func TestShortMessagesHideNoRate(t *testing.T) {
	skipIfBrief(t)
	for _, shorts := range []int{0, 500} {
		j := open(t, config{rails: []link{tcpLink(10_000), tcpLink(10_000)}, protocol: pml.Copy})
		j.warm(t)
		for n := range 5 {
			for range shorts {
				m := j.post(0, 1, 2000)
				require.True(t, j.run(limit, m.isDone))
			}
			m := j.post(0, 1, 1e6)
			require.True(t, j.run(limit, m.isDone))
			t.Logf("%.2f ms after %d short ones", float64(m.nanos())/1e6, shorts)
			if n > 0 { // the first one has to learn the rates
				require.LessOrEqual(t, m.nanos(), network.Millisecond)
			}
			j.run(j.now()+10*network.Millisecond, func() bool { return false })
		}
	}
}
