package railsim

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/internal/network"
)

// TestRanksThatAreAwayFailNoRail: ranks make no progress at times. The time for which a rank is
// stopped does not count.
func TestRanksThatAreAwayFailNoRail(t *testing.T) {
	skipIfBrief(t)
	const stop = 10 * network.Second
	two := []link{tcpLink(100), tcpLink(20)}
	direct := []link{directLink(10_000), directLink(1000)}
	for i, s := range []struct {
		name        string
		rails       []link
		away        func(rank int, now int64) int64
		count, size int
		stopped     float64 // seconds
	}{
		{"5 of 25 ms", two, pauses(5*network.Millisecond, 25*network.Millisecond), 2, 30e6, 0},
		{"20 of 100 ms", two, pauses(20*network.Millisecond, 100*network.Millisecond), 2, 30e6, 0},
		{"50 of 250 µs, direct", direct, pauses(50*network.Microsecond, 250*network.Microsecond), 4, 30e6, 0},
		{"sender stopped", two, stopped(0, network.Second/2, network.Second/2+stop), 1, 30e6, float64(stop) / 1e9},
		{"receiver stopped", two, stopped(1, network.Second/2, network.Second/2+stop), 1, 30e6, float64(stop) / 1e9},
	} {
		for _, p := range someOf(i) {
			t.Run(s.name+", "+p.String(), func(t *testing.T) {
				o := runCourse(t, config{rails: s.rails, protocol: p, away: s.away}, s.count, s.size)
				t.Logf("%v; %.2f s without the stop", o, o.longest-s.stopped)
				assert.NoError(t, o.err)
				assert.Zero(t, o.failures)
			})
		}
	}
}
