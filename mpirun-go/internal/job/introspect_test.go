package job

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/procstate"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// stuckControl is a rank on a host that does not answer, not even when the context ends.
type stuckControl struct {
	procs.Control
	release chan struct{}
}

func (c stuckControl) State(context.Context) procstate.State {
	<-c.release
	return procstate.Unknown
}

func (c stuckControl) Exiting() bool         { return false }
func (c stuckControl) Signal(syscall.Signal) {}

func TestEndDoesNotWaitForReportThatHangs(t *testing.T) {
	for name, begin := range map[string]func(r *run){
		"timeout": (*run).onTimeout, "quit": (*run).onQuit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				launcher, end := net.Pipe()
				defer end.Close()
				questions := introspect.NewConn(launcher)
				defer questions.Close()
				require.NoError(t, introspect.Greet(end))
				synctest.Wait()
				stuck := stuckControl{release: make(chan struct{})}
				defer close(stuck.release)
				r, _ := newTimedRun(t, &rank{Proc: &procs.Proc{PID: 1 << 30, Remote: stuck}, questions: questions})
				r.cfg.Specs = []procs.Spec{{}}
				started := time.Now()
				begin(r)
				for r.failure == nil {
					r.handleNext()
				}
				assert.Equal(t, reportLimit, time.Since(started))
				assert.True(t, r.endNow)
			})
		})
	}
}

func TestBoundedGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		err := bounded(time.Second, func() error {
			<-release
			return nil
		})
		assert.ErrorContains(t, err, "not written after 1s")
		failed := errors.New("no space")
		assert.Equal(t, failed, bounded(time.Second, func() error { return failed }))
	})
}

// A rank whose connection broke counts as running.
func TestRankThatBrokeTheProtocolIsNotFinalized(t *testing.T) {
	for sent, want := range map[string]introspect.State{"": introspect.StateFinalized, "garbage\n": introspect.StateSilent} {
		launcher, end := net.Pipe()
		k := &rank{Proc: goneProcess(), questions: introspect.NewConn(launcher)}
		require.NoError(t, introspect.Greet(end))
		_, _ = end.Write([]byte(sent))
		end.Close()
		require.Eventually(t, k.questions.IsGone, time.Minute, time.Millisecond)
		r, _ := newIdleRun(k)
		assert.Equal(t, want, r.stateOf(k))
	}
}
