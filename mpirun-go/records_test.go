package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/trace"
	"github.com/mpigo/mpigo/mpirun-go/internal/records"
	"github.com/mpigo/mpigo/mpirun-go/internal/remote"
)

// TestTracesAreNotMadeAfterSignal: Ctrl-C stops the merging of records at the end of a job, and the
// end of a job stops a merge that is under way. The files of the ranks stay.
func TestTracesAreNotMadeAfterSignal(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(trace.Path(dir, 0))
	require.NoError(t, err)
	require.NoError(t, (&trace.File{Job: "a", Size: 1}).Write(f))
	require.NoError(t, f.Close())
	r := &recorder{con: newConsole(), job: records.Job{ID: "a", Size: 1}, dirs: []remote.RecordDir{{Kind: records.Trace, Path: dir}}}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&interruptedError{syscall.SIGINT})
	assert.Equal(t, "trace: got signal 2 (interrupt)", r.dumpTrace(ctx, nil))
	r.finish(ctx)
	assert.NoFileExists(t, dir+"/trace.json")
	assert.Equal(t, "trace until now: "+dir+"/trace.html", r.dumpTrace(t.Context(), nil))
	assert.FileExists(t, dir+"/trace.json")
}

// TestWorkWithRecordsEndsAfterItsTime: the work ends with the reason, unless it has finished
// before.
func TestWorkWithRecordsEndsAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		late := errors.New("late")
		ctx, cancel := withLooks(t.Context(), fetchTimeout, late)
		defer cancel()
		<-ctx.Done()
		assert.Equal(t, fetchTimeout, time.Since(begin))
		assert.Equal(t, late, context.Cause(ctx))
		ctx, cancel = withLooks(t.Context(), fetchTimeout, late)
		cancel()
		<-ctx.Done()
		assert.Equal(t, context.Canceled, context.Cause(ctx))
	})
}

// TestStoppedLauncherDoesNotEndWorkWithRecords: the time for which the launcher was stopped counts
// as one tick.
func TestStoppedLauncherDoesNotEndWorkWithRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := make(chan time.Time)
		var result error
		go func() { result = endAfter(t.Context(), 20, look, errFetch) }()
		for range 19 {
			time.Sleep(time.Hour)
			look <- time.Now()
		}
		synctest.Wait()
		assert.NoError(t, result)
		look <- time.Now()
		synctest.Wait()
		assert.Equal(t, errFetch, result)
	})
}
