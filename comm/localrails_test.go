package comm_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/comm"
)

// shiftLong sends a message over all rails from each rank to its right neighbour, and checks the
// message that each rank receives.
func shiftLong(w *comm.Comm, round int) {
	const bytes = 1 << 20
	n := w.Size()
	left, in := (w.Rank()+n-1)%n, make([]byte, bytes)
	must(comm.Sendrecv(w, pattern(bytes, round*n+w.Rank()), (w.Rank()+1)%n, 0, in, left, 0))
	expect(pattern(bytes, round*n+left), in, "round ", round)
	check(w.Barrier())
}

// railsIn counts the rails of a name and in a state to other ranks.
func railsIn(w *comm.Comm, name, state string) (n int) {
	for _, r := range w.Rails() {
		if r.Rail == name && r.State == state && r.Peer != w.Rank() {
			n++
		}
	}
	return n
}

// TestCutRailLeavesOthersAndMendRailBringsBack: the ranks continue over the remaining rails. All of
// them notice the cut, and use the rail again once it is mended.
func TestCutRailLeavesOthersAndMendRailBringsBack(t *testing.T) {
	const ranks, peers = 3, 2
	run(t, ranks, func(t rank, w *comm.Comm) {
		round := 0
		// until exchanges messages until what holds at all ranks.
		until := func(what func() bool) {
			for all := []bool{false}; !all[0]; round++ {
				shiftLong(w, round)
				check(comm.Allreduce(w, []bool{what()}, all, comm.Land))
			}
		}
		until(func() bool { return railsIn(w, "loop1", "up") == peers })
		if w.Rank() == 0 {
			check(w.CutRail(1))
		}
		until(func() bool { return railsIn(w, "loop1", "up") == 0 && w.Stats().RailsFailed >= peers })
		assert.Equal(t, peers, railsIn(w, "loop0", "up"))
		assert.Equal(t, peers, railsIn(w, "loop2", "up"))
		if w.Rank() == ranks-1 { // another rank than that which has cut it
			check(w.MendRail(1))
		}
		until(func() bool { return railsIn(w, "loop1", "up") == peers && w.Stats().RailsReturned >= peers })
	}, comm.WithRails(3), comm.WithSetting("pml.notices", "false"))
}

// TestCallsWaitForMendedRail: with no rail left, calls wait, and end without an error once a rail
// is mended.
func TestCallsWaitForMendedRail(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		shiftLong(w, 0)
		if w.Rank() == 0 {
			check(w.CutRail(0))
			for railsIn(w, "loop0", "up") > 0 {
				must2(w.Iprobe(1, 99))
			}
			mended := make(chan error, 1)
			go func() { mended <- w.MendRail(0) }()
			defer func() { check(<-mended) }()
		}
		shiftLong(w, 1)
	}, comm.WithSetting("pml.notices", "false"), comm.WithGrace(time.Minute))
}

func TestCutRailRefusesWhatIsNotThere(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		for _, rail := range []int{-1, 2} {
			assert.ErrorIs(t, w.CutRail(rail), comm.ErrCount)
			assert.ErrorIs(t, w.MendRail(rail), comm.ErrCount)
		}
		comm.EqualError(t, w.CutRail(2), "world: cut rail: invalid count: rail 2 of 2 (the option Rails or WithRails sets their number)")
	}, comm.WithRails(2))
	var none *comm.Comm
	assert.ErrorIs(t, none.CutRail(0), comm.ErrComm)
	assert.ErrorIs(t, none.MendRail(0), comm.ErrComm)
}

func TestWithRailsRefusesOtherNumbers(t *testing.T) {
	body := func(*comm.Comm) error { return nil }
	for _, n := range []int{-1, 0, 33} {
		assert.ErrorIs(t, comm.RunLocal(1, body, comm.WithRails(n)), comm.ErrCount, "%d rails", n)
	}
	assert.NoError(t, comm.RunLocal(1, body, comm.WithRails(0), comm.WithRails(32)))
}
