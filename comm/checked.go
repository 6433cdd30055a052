package comm

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/mpigo/mpigo/comm/internal/audit"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/pml"
)

// Checked mode (the tunable check) compares the calls of the ranks, and watches the buffers that
// belong to the library. Its cost does not matter when it is on. It costs nothing when it is off: a
// view of a communicator in checked mode never takes a fast path (Comm.done), and only the general
// paths call the functions of the files checked*.go.

// checker is the checked mode of a rank. Goroutines may share it.
type checker struct {
	types sync.Map // reflect.Type → audit.Type

	// The engine's lock guards the rest.

	watched []*watch   // the user's requests, from the call that makes them until they end
	sends   syncChoice // of the standard sends
	// dropped are messages that had arrived in communicators when these were freed, the first
	// maxDropped of them.
	dropped []pml.Unreceived
	// tell warns the user.
	tell func(j *job, what error)
}

// agreeOnCheck checks that all ranks are in checked mode, or none. A rank in checked mode would
// wait for answers that a rank in normal mode does not give.
func (j *job) agreeOnCheck(others []wireup.Card) error {
	for rank, card := range others {
		if is := j.check != nil; rank != j.rank && card.Checked != is {
			return fmt.Errorf("%w: rank %d runs with check=%v, this rank with check=%v: set it for all ranks, by mpirun-go --set",
				ErrNotSupported, rank, card.Checked, is)
		}
	}
	return nil
}

// generalPath is the done channel of views whose context never ends, in checked mode. It never
// receives a value.
var generalPath = make(chan struct{})

// typeOf describes an element type, which holds no pointers. typ may be nil.
func (k *checker) typeOf(typ elemType) audit.Type {
	if typ == nil {
		return audit.Type{}
	}
	t := reflect.TypeOf(typ).Elem()
	if known, ok := k.types.Load(t); ok {
		return known.(audit.Type)
	}
	described := audit.TypeOf(t)
	k.types.Store(t, described)
	return described
}
