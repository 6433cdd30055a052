// Package btltest is the conformance suite that every byte transfer layer must pass: the contract
// of package btl (C1 to C10) as tests.
//
// A BTL's own test calls [TestBTL] with a function that makes two connected modules. The two may
// live in one process, or the second in another one: see [Serve] and [Dial].
//
// The suite checks each call of a module against the rules of package btl: which calls are
// permitted inside which others, the order of Failed, Done and Drained, exactly one Done for each
// accepted operation, nothing after Drained, order and content of each fragment, no delivery of
// refused fragments, and delivery of all fragments that succeeded.
package btltest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/race"
	"github.com/mpigo/mpigo/progress"
)

// Pair is two modules that can reach each other, freshly made and not yet connected, and what a
// test must know about them. The suite closes both modules.
type Pair struct {
	A, B         btl.Module
	RankA, RankB int

	// WakeupA and WakeupB are the wakeups that A and B were given. A module without a wakeup must
	// not be a progress.Idler.
	WakeupA, WakeupB progress.Wakeup

	// Remote says that B is a proxy for a module in another process. Allocations and the wakeup,
	// which cannot cross, are then tested on side A only.
	Remote bool

	// Serial says that one goroutine must drive both modules.
	Serial bool

	// Allocates says that the modules allocate memory for each fragment, as a simulation may.
	// Otherwise the suite checks that they do not.
	Allocates bool

	// ReadsInPlace says that a device reads fragments from the caller's memory; otherwise Rebind of
	// an accepted Send must succeed.
	ReadsInPlace bool

	// Patience bounds each wait of the suite; 0 stands for 30 s.
	Patience time.Duration

	// The driving goroutine calls Idle, if not nil, when nothing happens. A simulation advances its
	// time in it.
	Idle func()

	// Close, if not nil, is called once both modules are closed.
	Close func()
}

// Maker makes a Pair whose modules report to evA and evB.
type Maker func(t testing.TB, evA, evB btl.Events) *Pair

// TestBTL tests the modules that mk makes against the contract. Each subtest makes its own pair.
func TestBTL(t *testing.T, mk func(t testing.TB, evA, evB btl.Events) *Pair) {
	for _, group := range []struct {
		name  string
		tests []namedTest
	}{
		{"Connect", connectTests()},
		{"Traffic", trafficTests()},
		{"Fail", failTests()},
		{"Close", closeTests()},
		{"Remote", remoteTests()},
		{"Idle", idleTests()},
		{"Inject", injectTests()},
		{"Rebind", rebindTests()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) { test.run(t, mk) })
			}
		})
	}
}

// namedTest is a subtest. It makes its own pair, or several.
type namedTest struct {
	name string
	run  func(t *testing.T, mk Maker)
}

// each runs a test once on a fresh pair.
func each(run func(h *harness)) func(*testing.T, Maker) {
	return func(t *testing.T, mk Maker) {
		h := newHarness(t, mk)
		run(h)
		h.finish()
	}
}

// directed runs a test once from A to B and once from B to A, each on a fresh pair.
func directed(run func(h *harness, from, to *side)) func(*testing.T, Maker) {
	return func(t *testing.T, mk Maker) {
		t.Run("A-to-B", func(t *testing.T) { each(func(h *harness) { run(h, h.a, h.b) })(t, mk) })
		t.Run("B-to-A", func(t *testing.T) { each(func(h *harness) { run(h, h.b, h.a) })(t, mk) })
	}
}

// seeded runs a test for several seeds, each time in the same way as driven.
func seeded(run func(h *harness, rng *rand.Rand)) func(*testing.T, Maker) {
	return func(t *testing.T, mk Maker) {
		for seed := uint64(1); seed <= race.Some(uint64(3)); seed++ {
			t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
				driven(func(h *harness) { run(h, rand.New(rand.NewPCG(seed, 10))) })(t, mk)
			})
		}
	}
}

// driven runs a test with both sides driven by one goroutine, and, unless the pair is serial, once
// more with a goroutine for each side.
func driven(run func(h *harness)) func(*testing.T, Maker) {
	return func(t *testing.T, mk Maker) {
		serial := false
		t.Run("one-goroutine", func(t *testing.T) {
			each(func(h *harness) { serial = h.pair.Serial; run(h) })(t, mk)
		})
		if serial {
			return
		}
		t.Run("two-goroutines", func(t *testing.T) {
			each(func(h *harness) {
				h.drive(h.b)
				run(h)
				h.halt(h.b)
			})(t, mk)
		})
	}
}
