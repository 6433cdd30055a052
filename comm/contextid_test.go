package comm

import (
	"errors"
	"reflect"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// setLastID sets the counter of the last context id of a rank.
func setLastID(w *Comm, counter uint64) {
	w.job.eng.Lock()
	defer w.job.eng.Unlock()
	last := reflect.ValueOf(w.job.pml).Elem().FieldByName("lastID")
	*(*uint64)(unsafe.Pointer(last.UnsafeAddr())) = counter
}

// TestDupWithoutContextIDsFailsEverywhere: when one rank has no ids left, Dup and Split fail at all
// ranks, even if another rank would have given the id.
func TestDupWithoutContextIDsFailsEverywhere(t *testing.T) {
	require.NoError(t, RunLocal(3, func(w *Comm) error {
		if w.Rank() == 1 {
			setLastID(w, 1<<45-2) // of 3 ranks
		}
		last, err := w.Dup()
		if err != nil {
			return err
		}
		for _, call := range []func() (*Comm, error){
			w.Dup, last.Dup,
			func() (*Comm, error) { return w.Split(w.Rank(), 0) },
			func() (*Comm, error) { return w.Split(Undefined, 0) },
			func() (*Comm, error) { return w.SplitHost(0) },
		} {
			c, err := call()
			assert.Nil(t, c)
			assert.ErrorIs(t, err, ErrComm)
			assert.ErrorContains(t, err, "context ids exhausted: rank 1 has made all of its 35184372088831")
		}
		return errors.Join(last.Barrier(), last.Free(), w.Barrier())
	}))
}
