package faults

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/btl"
)

func armed(faults ...btl.Fault) *rules {
	r := new(rules)
	for _, f := range faults {
		r.add(f)
	}
	return r
}

// strikes posts operations to a peer and says which kind of fault each one met.
func strikes(r *rules, peer, posts int) []string {
	var met []string
	for range posts {
		hit, struck := r.strike(peer, true)
		if !struck {
			met = append(met, "")
			continue
		}
		met = append(met, hit.Kind.String())
	}
	return met
}

func TestStrike(t *testing.T) {
	const peer, other = 1, 2
	for _, c := range []struct {
		name   string
		faults []btl.Fault
		want   []string // of operations to peer
	}{
		{"none", nil, []string{"", ""}},
		{"the next", []btl.Fault{{Kind: btl.FaultRefuse, Peer: peer}}, []string{"refuse", ""}},
		{"after and count", []btl.Fault{{Kind: btl.FaultRefuse, Peer: peer, After: 2, Count: 3}},
			[]string{"", "", "refuse", "refuse", "refuse", ""}},
		{"any peer", []btl.Fault{{Kind: btl.FaultSilence, Peer: btl.AllPeers, After: 1}}, []string{"", "silence", ""}},
		{"another peer", []btl.Fault{{Kind: btl.FaultSilence, Peer: other}}, []string{"", ""}},
		{"late counts turns", []btl.Fault{{Kind: btl.FaultLate, Peer: peer, Count: 7}}, []string{"late", ""}},
		{"oldest first, the other stays due", []btl.Fault{
			{Kind: btl.FaultStale, Peer: peer},
			{Kind: btl.FaultErrorLost, Peer: btl.AllPeers},
		}, []string{"stale", "error-lost", ""}},
		{"what is struck passes for the others", []btl.Fault{
			{Kind: btl.FaultErrorLost, Peer: peer, After: 2},
			{Kind: btl.FaultRefuse, Peer: peer, Count: 2},
		}, []string{"refuse", "refuse", "error-lost", ""}},
		{"negative", []btl.Fault{{Kind: btl.FaultRefuse, Peer: peer, After: -1, Count: -1}}, []string{"refuse", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := armed(c.faults...)
			require.Equal(t, c.want[0] != "", r.isDue(peer))
			require.Equal(t, c.want, strikes(r, peer, len(c.want)))
		})
	}
}

// TestHit: strike returns the fault with its remaining count.
func TestHit(t *testing.T) {
	for given, want := range map[int]int{0: 1, 40: 40, -1: 0} {
		r := armed(btl.Fault{Kind: btl.FaultLate, Peer: btl.AllPeers, Count: given})
		hit, struck := r.strike(3, true)
		require.True(t, struck)
		require.Equal(t, btl.Fault{Kind: btl.FaultLate, Peer: btl.AllPeers, Count: want}, hit)
		require.Empty(t, *r)
	}
}

// TestStaleIgnoresOtherThanSends: a Put or Get is neither struck nor counted by FaultStale, and
// other faults still strike it.
func TestStaleIgnoresOtherThanSends(t *testing.T) {
	r := armed(btl.Fault{Kind: btl.FaultStale, Peer: 1, After: 1}, btl.Fault{Kind: btl.FaultSilence, Peer: 1})
	hit, struck := r.strike(1, false)
	require.True(t, struck)
	require.Equal(t, btl.FaultSilence, hit.Kind)
	_, struck = r.strike(1, false)
	require.False(t, struck)
	require.Equal(t, []string{"", "stale", ""}, strikes(r, 1, 3))
}

// passes applies the rules as SendInline does.
func passes(r *rules, peer int) bool {
	if r.isDue(peer) {
		return false
	}
	r.strike(peer, true)
	return true
}

// TestInlineIsCountedOnlyIfItPasses: a fragment that a fault would strike is refused however often
// it is tried, and only one that passes counts.
func TestInlineIsCountedOnlyIfItPasses(t *testing.T) {
	r := armed(
		btl.Fault{Kind: btl.FaultErrorLost, Peer: 1, After: 1},
		btl.Fault{Kind: btl.FaultRefuse, Peer: 1, After: 2},
	)
	require.True(t, passes(r, 2))
	require.True(t, passes(r, 1))
	for range 5 {
		require.False(t, passes(r, 1))
	}
	require.True(t, passes(r, 2))
	require.Equal(t, []string{"error-lost", "refuse"}, strikes(r, 1, 2))
	require.True(t, passes(r, 1))
}

// TestOneFault: a single fault strikes Count of its operations after the first After ones,
// including those that were sent inline.
func TestOneFault(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := btl.Fault{
			Kind: btl.FaultRefuse, Peer: rapid.IntRange(btl.AllPeers, 1).Draw(t, "peer"),
			After: rapid.IntRange(0, 4).Draw(t, "after"), Count: rapid.IntRange(1, 4).Draw(t, "count"),
		}
		r := armed(f)
		concerned := 0
		for range 30 {
			peer := rapid.IntRange(0, 1).Draw(t, "to")
			ours := f.Peer == peer || f.Peer == btl.AllPeers
			want := ours && concerned >= f.After && concerned < f.After+f.Count
			if rapid.Bool().Draw(t, "inline") {
				require.Equal(t, !want, passes(r, peer))
				if want {
					continue // not counted
				}
			} else {
				_, struck := r.strike(peer, true)
				require.Equal(t, want, struck)
			}
			if ours {
				concerned++
			}
		}
		require.Equal(t, concerned >= f.After+f.Count, len(*r) == 0)
	})
}
