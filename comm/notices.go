package comm

import (
	"fmt"
	"os"

	"github.com/mpigo/mpigo/pml"
)

// onRail tells the user of a rail that has failed or come back. Called with the lock held.
func (j *job) onRail(e pml.RailEvent) {
	if !j.settings.Bool("pml.notices") || j.ended != nil {
		return
	}
	fmt.Fprintf(os.Stderr, "mpigo: rank %d: %s\n", j.rank, describeRail(e))
}

// describeRail says in one line what happened to which rail, and what happens now.
func describeRail(e pml.RailEvent) string {
	left := "no other rail leads there: waiting for one to come back"
	switch {
	case e.Left == 1:
		left = "going on by the one that is left"
	case e.Left > 1:
		left = fmt.Sprintf("going on by the %d that are left", e.Left)
	}
	if !e.Up {
		return fmt.Sprintf("rail %s to rank %d failed (%s); %s", e.Rail, e.Peer, oneLine(e.Cause), left)
	}
	return fmt.Sprintf("rail %s to rank %d is back", e.Rail, e.Peer)
}
