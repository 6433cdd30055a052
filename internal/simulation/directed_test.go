package simulation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
)

// Random plans almost never reach the cases below. These tests fix the steps that lead to a case,
// and leave the rest random.

// directed runs plans that a function derives from the plans of seeds, until reached is true for
// the sum of the results, for at most the given number of seeds. The function returns false if it
// cannot use a plan.
func directed(t *testing.T, on Transport, seeds uint64, direct func(p *plan) bool, reached func(sum *Result) bool) {
	t.Helper()
	sum := &Result{}
	for seed := uint64(1); seed <= seeds; seed++ {
		p := draw(seed, on)
		if !direct(p) {
			continue
		}
		r := p.run(nil)
		require.Nil(t, r.Failure, "seed %d over %v", seed, on)
		if sum.Add(r); reached(sum) {
			return
		}
	}
	require.Fail(t, "no seed has reached the case", "%v: %v", on, sum.Hits)
}

// refusePuts makes all rails refuse PUT and remote writes. So a receive ends with an error although
// its PUT was delivered, the sender restarts, and RNDVRESTARTNACK answers it. A fault is aimed at
// that: 0 is error-lost, 1 error-delivered. It reports false if the plan ends in another way.
func refusePuts(p *plan, fault int) bool {
	s := &p.setup
	if s.ending != Heals && s.ending != Refuses {
		return false
	}
	s.ending, s.deadRail, s.protocol, s.rdma = Refuses, -1, pml.Put, 1
	s.wrong, s.wrongRail = []string{"PUT", remoteWrite}, -1
	var aims []action
	for rank := range s.ranks {
		aims = append(aims, action{kind: doAim, rank: rank, name: "RNDVRESTARTNACK", c: fault})
	}
	p.actions = append(aims, p.actions...)
	return true
}

// TestFaultsHitAnswerOfReceiveThatIsGone: RNDVRESTARTNACK fails on its way, before or after it is
// delivered.
func TestFaultsHitAnswerOfReceiveThatIsGone(t *testing.T) {
	for _, on := range []Transport{Loop, Verbs, Direct} {
		for fault, name := range []string{"error-lost", "error-delivered"} {
			directed(t, on, 200, func(p *plan) bool { return refusePuts(p, fault) },
				func(sum *Result) bool { return sum.Hits[Hit{"RNDVRESTARTNACK", name}] > 0 })
		}
	}
}

// TestOperationEndsWhileItsRailIsEmptied: when a rail fails, the operations that wait for it use
// other rails. In this plan one of them is delivered at once, and ends another one that is still
// waiting.
func TestOperationEndsWhileItsRailIsEmptied(t *testing.T) {
	p := draw(1522, Direct)
	require.True(t, refusePuts(p, 0))
	require.Nil(t, p.run(nil).Failure)
}

// TestDetachWaitsForDevices: buffers are taken back again and again while remote writes are under
// way, so some of them are still a device's.
func TestDetachWaitsForDevices(t *testing.T) {
	for _, on := range []Transport{Loop, Verbs} {
		detach := func(p *plan) bool {
			p.setup.protocol, p.setup.rdma = pml.Put, 1
			for i, a := range p.actions {
				switch a.kind {
				case doTest, doIprobe, doImprobe, doProbe:
					p.actions[i].kind = doDetach
				}
			}
			return true
		}
		directed(t, on, 400, detach, func(sum *Result) bool { return sum.AwaitedBuffers > 0 })
	}
}
