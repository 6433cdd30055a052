package comm_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
)

// here is the line of its caller.
func here() string {
	_, _, line, _ := runtime.Caller(1)
	return fmt.Sprintf("errorline_test.go:%d", line)
}

// isAt checks that the error of a call has a line, also in its text.
func isAt(t rank, line string, err error) {
	t.Helper()
	var e *comm.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, line, e.Line)
	assert.Contains(t, err.Error(), fmt.Sprintf("%s: %s (%s", e.Comm, e.Op, line))
}

// TestErrorHasLineOfCall: calls that are refused, and calls that fail while they wait.
func TestErrorHasLineOfCall(t *testing.T) {
	for _, mode := range []string{"false", "true"} {
		run(t, 1, func(t rank, w *comm.Comm) {
			isAt(t, here(), comm.Send(w, []int{1}, 7, 0))
			isAt(t, here(), comm.Send(w, []string{"x"}, 0, 0))
			isAt(t, here(), comm.Bcast(w, []int{1}, 9))
			isAt(t, here(), w.Free())
			isAt(t, here(), errOf(comm.Irecv(w, []int{1}, 0, -5)))
			isAt(t, here(), errOf(comm.AllreduceInit(w, []int{1}, []int{1, 2}, comm.Sum)))
			isAt(t, here(), errOf(comm.Recv(untilWait(w), []int{0}, comm.AnySource, 0)))
			isAt(t, here(), comm.Ssend(untilWait(w), []int{0}, 0, 0))
			isAt(t, here(), func() error { return comm.Send(w, []int{1}, 7, 0) }())
			must(comm.Recv(w, []int{0}, 0, 0)) // the message of Ssend
		}, comm.WithSetting("check", mode))
	}
}

// TestErrorOfRequestHasLineOfWait: in checked mode, it has that of the call that has started the
// operation.
func TestErrorOfRequestHasLineOfWait(t *testing.T) {
	for _, mode := range []string{"false", "true"} {
		run(t, 1, func(t rank, w *comm.Comm) {
			isRight := func(started, waited string, err error) {
				t.Helper()
				if mode == "true" {
					waited = started
				}
				isAt(t, waited, err)
			}
			irecv := func(tag int) comm.Request { return must(comm.Irecv(w, []int{0}, 0, tag)) }
			started := before(here())
			for tag, wait := range []func(r comm.Request) (string, error){
				func(r comm.Request) (string, error) { return here(), errOf(r.Wait()) },
				func(r comm.Request) (string, error) { return here(), errOf2(r.Test()) },
				func(r comm.Request) (string, error) { return here(), comm.WaitAll(r) },
				func(r comm.Request) (string, error) {
					for _, st := range comm.Completed(t.Context(), r) {
						return before(here()), st.Err
					}
					return "", nil
				},
			} {
				r := irecv(tag)
				require.NoError(t, comm.Send(w, []int{1, 2}, 0, tag))
				waited, err := wait(r)
				assert.ErrorIs(t, err, comm.ErrTruncate)
				isRight(started, waited, err)
			}
		}, comm.WithSetting("check", mode))
	}
}

// before is the line before a line.
func before(line string) string {
	var n int
	_, err := fmt.Sscanf(line, "errorline_test.go:%d", &n)
	check(err)
	return fmt.Sprintf("errorline_test.go:%d", n-1)
}

// TestErrorOfCollectiveHasLineOfWait: not that of the call in which the failure was noticed.
func TestErrorOfCollectiveHasLineOfWait(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		if w.Rank() == 1 {
			isAt(t, here(), comm.Allreduce(w, []int{1}, []int{1, 2}, comm.Sum))
			check(comm.Send(w, []int{1}, 0, 0))
			return
		}
		r := must(w.Ibarrier())
		must(comm.Recv(w, []int{0}, 1, 0))
		<-r.Done()
		isAt(t, here(), errOf(r.Wait()))
	}, comm.WithSetting("check", "false"))
}
