package base

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Transitions is a table of legal transitions: for each state, the states that may follow it.
type Transitions[S interface {
	~uint8
	fmt.Stringer
}] [][]S

// Enter moves *state to next. It panics if the table does not list that transition. That is a bug
// of the transport, and continuing could corrupt memory that the user owns again.
func (t Transitions[S]) Enter(state *S, next S) {
	if !slices.Contains(t[*state], next) {
		panic(fmt.Sprintf("illegal transition of an endpoint from %v to %v", *state, next))
	}
	*state = next
}

// lifeCycle is the table of an endpoint's states.
var lifeCycle = Transitions[btl.State]{
	btl.Up:      {btl.Failed},
	btl.Failed:  {btl.Drained},
	btl.Drained: {},
}
