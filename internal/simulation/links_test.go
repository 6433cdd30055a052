package simulation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// switchedWorld is two ranks with the given numbers of ports on one network.
func switchedWorld(t *testing.T, on Transport, ports ...int) *world {
	s := setup{
		ranks: 2, slots: 16, fragBytes: 1000, window: 1000, maxBytes: 1500, skipOdds: 8, groups: [][]int{{0, 1}, {1, 0}}, deadRail: -1,
		victims: [2]int{0, 1}, switched: true, ports: ports,
	}
	for range max(ports[0], ports[1]) {
		s.rails = append(s.rails, railSetup{latency: 1000, jitter: 1, mbps: 100})
	}
	w, err := newWorld(&plan{seed: 1, transport: on, setup: s}, false)
	require.NoError(t, err)
	t.Cleanup(w.close)
	for _, r := range w.ranks {
		r.matching = nil // it knows only the messages of a plan
	}
	return w
}

// exchangeOne sends a message from rank 0 to rank 1, and waits for it.
func (w *world) exchangeOne(t *testing.T, when string) {
	t.Helper()
	got := w.waitFor(1, 0)
	w.sendFrom(0)
	w.until(t, "a message "+when, func() bool { return got() != nil })
	require.NoError(t, *got())
}

// Port 0 of one rank and port 1 of the other one fail. Only an alternate connects the ranks, until
// one of the ports is back.
func TestMessageTakesAlternateWhilePortsAreCrossed(t *testing.T) {
	for _, on := range []Transport{Loop, Verbs, TCP} {
		t.Run(on.String(), func(t *testing.T) {
			w := switchedWorld(t, on, 2, 2)
			w.exchangeOne(t, "at first")
			s := &w.plan.setup
			s.deadPorts = s.crossedPorts(link{{0, 1}, {1, 0}})
			require.Equal(t, []port{{0, 0}, {1, 1}}, s.deadPorts)
			for _, p := range s.deadPorts {
				w.net.port(p, false, 0)
			}
			w.exchangeOne(t, "while ports are crossed")
			w.until(t, "the alternate", w.allUp)
			for rank := range w.ranks {
				up, _ := w.ranks[rank].p.RailsUp(1 - rank)
				require.Equal(t, 1, up)
			}
			for _, p := range s.deadPorts {
				w.net.port(p, true, 0)
			}
			s.deadPorts = nil
			w.until(t, "the other rails", func() bool { return !w.isMissing(0, 1) && !w.isMissing(1, 0) })
			w.exchangeOne(t, "in the end")
		})
	}
}

// Of three ports against two, each has a rail that is up, and the other ones are alternates.
func TestUnequalPortsAllHaveRails(t *testing.T) {
	for _, on := range []Transport{Loop, Verbs, TCP} {
		w := switchedWorld(t, on, 3, 2)
		w.exchangeOne(t, "at first")
		w.until(t, "all rails", w.allUp)
		up, all := w.ranks[0].p.RailsUp(1)
		require.Equal(t, [2]int{3, 6}, [2]int{up, all}, "%v", on)
	}
}
