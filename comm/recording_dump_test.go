package comm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/profile"
	"github.com/mpigo/mpigo/internal/trace"
	"github.com/mpigo/mpigo/request"
)

func readTrace(t require.TestingT, dir string, rank int) *trace.File {
	in, err := os.Open(trace.Path(dir, rank))
	require.NoError(t, err)
	defer in.Close()
	f, err := trace.Read(in)
	require.NoError(t, err)
	return f
}

// open lists the calls that had not ended.
func open(f *trace.File) (names []string) {
	for _, e := range f.Events {
		if e.Open {
			names = append(names, e.Name)
		}
	}
	return names
}

// TestDumpTraceWritesFileUntilNow: rank 1 makes rank 0, which waits, write its trace. Finalize
// writes another trace, which no late dump replaces.
func TestDumpTraceWritesFileUntilNow(t *testing.T) {
	dir := t.TempDir()
	ranks := make(chan *job, 1)
	var late *describer
	run(t, 2, func(w *Comm) {
		if w.Rank() == 0 {
			ranks <- w.job
			must(Recv(w, make([]byte, 8), 1, 7))
			return
		}
		late = newDescriber(<-ranks)
		require.Eventually(t, func() bool {
			err := late.DumpTrace()
			if errors.Is(err, errLocked) { // the rank is stopped while it holds its lock
				return false
			}
			return assert.NoError(t, err) && len(open(readTrace(t, dir, 0))) > 0
		}, 20*time.Second, time.Millisecond)
		assert.Equal(t, []string{"recv"}, open(readTrace(t, dir, 0)))
		assert.NoFileExists(t, trace.Path(dir, 1))
		check(Send(w, make([]byte, 8), 0, 7))
	}, WithSetting("trace", dir))
	assert.Empty(t, open(readTrace(t, dir, 0)))
	before, err := os.ReadFile(trace.Path(dir, 0))
	require.NoError(t, err)
	require.NoError(t, late.DumpTrace())
	after, err := os.ReadFile(trace.Path(dir, 0))
	require.NoError(t, err)
	assert.Equal(t, before, after)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2)
}

func TestDumpTraceFailsWithoutTraceLockOrDirectory(t *testing.T) {
	run(t, 1, func(w *Comm) {
		assert.ErrorIs(t, newDescriber(w.job).DumpTrace(), errNoTrace)
	})
	dir := t.TempDir()
	err := RunLocal(1, func(w *Comm) error {
		d := newDescriber(w.job)
		w.job.eng.Lock()
		assert.ErrorIs(t, d.DumpTrace(), errLocked)
		w.job.eng.Unlock()
		require.NoError(t, os.RemoveAll(dir))
		assert.ErrorIs(t, d.DumpTrace(), fs.ErrNotExist)
		return nil
	}, WithSetting("trace", dir))
	assert.ErrorIs(t, err, fs.ErrNotExist, "Finalize says that the trace is lost")
}

// TestSignalHasItsEffectThoughWritingHangs: a file system may hang.
func TestSignalHasItsEffectThoughWritingHangs(t *testing.T) {
	dir := t.TempDir()
	effect := make(chan os.Signal, 1)
	signal.Notify(effect, syscall.SIGHUP) // the process goes on
	defer signal.Stop(effect)
	run(t, 1, func(w *Comm) {
		w.job.recording.writing.Lock()
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGHUP
		w.job.awaitSignal(signals, time.Millisecond)
		<-effect
		w.job.recording.writing.Unlock()
	}, WithSetting("trace", dir))
	assert.FileExists(t, trace.Path(dir, 0))
}

// TestSignalInFinalizeWaitsForTheRecords: a long trace takes longer to write than a rank that fails
// waits for the lock.
func TestSignalInFinalizeWaitsForTheRecords(t *testing.T) {
	dir := t.TempDir()
	recorded := make(chan error, 1)
	run(t, 1, func(w *Comm) {
		w.job.recording.writing.Lock()
		go func() {
			defer w.job.recording.writing.Unlock()
			for !w.job.recording.isWriting.Load() {
				time.Sleep(time.Millisecond)
			}
			go func() { recorded <- w.job.tryWriteRecords("it was told to end") }()
			select {
			case err := <-recorded:
				recorded <- fmt.Errorf("it did not wait: %w", err)
			case <-time.After(300 * time.Millisecond):
			}
		}()
	}, WithSetting("trace", dir))
	assert.NoError(t, <-recorded)
	assert.FileExists(t, trace.Path(dir, 0))
}

// TestRankThatGoesOnAfterTermWritesAgain: a program may handle the signal and go on to Finalize.
func TestRankThatGoesOnAfterTermWritesAgain(t *testing.T) {
	dir := t.TempDir()
	var early *profile.File
	run(t, 1, func(w *Comm) {
		w.job.writeRecordsSoon("it was told to end")
		in, err := os.Open(profile.Path(dir, 0))
		require.NoError(t, err)
		defer in.Close()
		early, err = profile.Read(in)
		require.NoError(t, err)
		check(w.Barrier())
		time.Sleep(10 * time.Millisecond)
	}, WithSetting("profile", dir), WithSetting("trace", dir))
	assert.Equal(t, "it was told to end", early.Error)
	in, err := os.Open(profile.Path(dir, 0))
	require.NoError(t, err)
	defer in.Close()
	last, err := profile.Read(in)
	require.NoError(t, err)
	assert.Empty(t, last.Error)
	assert.Greater(t, last.AppNanos, early.AppNanos)
	assert.Equal(t, "barrier", last.Kinds[0].Name)
	assert.Equal(t, "barrier", readTrace(t, dir, 0).Events[0].Name)
}

// TestCheckedModeRecordsTheSame: checked mode takes other paths, and sends messages of its own.
// Profile and trace have the calls and messages of the program.
func TestCheckedModeRecordsTheSame(t *testing.T) {
	type seen struct {
		calls   map[string]uint64
		events  map[string]int // of the trace: calls, and operations begun and observed
		arrows  int            // messages whose both ends are in the trace
		noLines int            // calls whose line is not in this file
	}
	const tag = 4711
	record := func(checked string) seen {
		dir := t.TempDir()
		run(t, 2, func(w *Comm) {
			other := 1 - w.Rank()
			in, out := make([]float64, 100), make([]float64, 100)
			for range 20 {
				r := must(Irecv(w, in, other, tag))
				check(Send(w, out, other, tag))
				must(r.Wait())
				rs := []request.Request{must(Irecv(w, in, other, tag)), must(Isend(w, out, other, tag))}
				check(request.WaitAll(rs...))
				must(Sendrecv(w, out, other, tag, in, other, tag))
				if w.Rank() == 0 {
					check(Ssend(w, out, 1, tag))
				} else {
					must(Recv(w, in, 0, tag))
				}
				check(Allreduce(w, out, in, Sum[float64]))
				check(w.Barrier())
			}
			if w.Rank() == 0 { // a call that fails is a call
				assert.Error(t, Send(w, out, 7, 0))
			}
		}, WithSetting("profile", dir), WithSetting("trace", dir), WithSetting("check", checked))
		s := seen{calls: map[string]uint64{}, events: map[string]int{}}
		type message struct {
			from, to int
			context  uint64
			number   uint32
		}
		sent := map[message]bool{}
		for rank := range 2 {
			file, err := os.Open(profile.Path(dir, rank))
			require.NoError(t, err)
			f, err := profile.Read(file)
			require.NoError(t, errors.Join(err, file.Close()))
			for _, k := range f.Kinds {
				s.calls[k.Name] += k.Calls
			}
			for _, e := range readTrace(t, dir, rank).Events {
				switch e.Type {
				case trace.Call, trace.Begun:
					s.events[string(e.Type)+" "+e.Name]++
				case trace.Observed:
					s.events["observed"]++
				}
				if e.Type == trace.Call && !strings.HasPrefix(e.Line, "recording_dump_test.go:") {
					s.noLines++
				}
				if e.Type == trace.Sent && e.Tag == tag {
					sent[message{rank, e.Peer, e.Context, e.Number}] = true
				}
			}
		}
		for rank := range 2 {
			for _, e := range readTrace(t, dir, rank).Events {
				if e.Type == trace.Matched && sent[message{e.Peer, rank, e.Context, e.Number}] {
					s.arrows++
				}
			}
		}
		return s
	}
	off, on := record("false"), record("true")
	assert.Equal(t, off, on)
	assert.Equal(t, 20*(2+2+2+1), on.arrows)
	assert.Zero(t, on.noLines)
	assert.EqualValues(t, 40, on.calls["allreduce"])
}

// TestCheckedMistakeIsInTheRecords: the ranks that made the mistake write what they did.
func TestCheckedMistakeIsInTheRecords(t *testing.T) {
	dir := t.TempDir()
	err := RunLocal(2, func(w *Comm) error {
		if w.Rank() == 0 {
			return Bcast(w, make([]int64, 4), 0)
		}
		return w.Barrier()
	}, WithSetting("profile", dir), WithSetting("trace", dir), WithSetting("check", "true"))
	require.ErrorIs(t, err, ErrComm)
	for rank, call := range []string{"bcast", "barrier"} {
		f := readTrace(t, dir, rank)
		require.NotEmpty(t, f.Events)
		names := map[string]bool{}
		for _, e := range f.Events {
			names[e.Name] = true
		}
		assert.True(t, names[call], "rank %d: %v", rank, names)
		assert.FileExists(t, profile.Path(dir, rank))
	}
}
