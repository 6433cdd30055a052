package comm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The line of the start stays when the reason why there is no rail is added.
func TestLineOfStartStaysWithReason(t *testing.T) {
	name := "world"
	s := &state{job: &job{untold: func() error { return errors.New("rail tcp:eth0 is absent") }}}
	s.name.Store(&name)
	var e *Error
	err := s.describe("recv", 1, 1, &startedError{fmt.Errorf("%w: cut", ErrUnreachable), "main.go:71"})
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "main.go:71", e.Line)
	assert.ErrorContains(t, err, "rail tcp:eth0 is absent")
}

// An iterator of the library that is called through the standard library has no line of that.
func TestLineIsNotOfStandardLibrary(t *testing.T) {
	run(t, 1, func(w *Comm) {
		r := must(Irecv(w, []int{0}, 0, 3))
		check(Send(w, []int{1, 2}, 0, 3))
		next, stop := iter.Pull2(Completed(context.Background(), r))
		defer stop()
		_, st, _ := next()
		var e *Error
		require.ErrorAs(t, st.Err, &e)
		assert.Empty(t, e.Line)
	}, WithSetting("check", "false"))
}
