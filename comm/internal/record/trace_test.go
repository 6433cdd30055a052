package record

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/trace"
)

// newRecorded returns a trace and a recorder that fills it.
func newRecorded(events int) (*Trace, *calls.Recorder) {
	tr := NewTrace(events)
	rec := calls.New(tr, true)
	tr.Use(rec)
	return tr, rec
}

func send(rec *calls.Recorder, times int) {
	for i := range times {
		rec.Count(calls.Send, 8)
		rec.End(rec.Begin(calls.Send, 1, i, 8))
	}
}

func eventsOf(tr *Trace) *Events {
	s := tr.NewEvents()
	s.Copy(tr)
	return s
}

func TestEventsAreTheLastOnesInOrder(t *testing.T) {
	tr, rec := newRecorded(16)
	for sent, want := range map[int]struct{ first, events, dropped int }{
		0: {0, 0, 0}, 7: {0, 7, 0}, 16: {0, 16, 0}, 21: {5, 16, 5}, 32: {16, 16, 16},
	} {
		tr, rec = newRecorded(16)
		send(rec, sent)
		var f trace.File
		eventsOf(tr).Fill(&f, 0)
		require.Len(t, f.Events, want.events, sent)
		require.EqualValues(t, want.dropped, f.Dropped, sent)
		for i, e := range f.Events {
			require.Equal(t, want.first+i, e.Tag, sent)
			require.Equal(t, "send", e.Name)
		}
	}
	rec.Count(calls.Recv, 8)
	call := rec.Begin(calls.Recv, 3, 4, 8)
	var f trace.File
	eventsOf(tr).Fill(&f, 1)
	require.NotEmpty(t, f.Events)
	last := f.Events[len(f.Events)-1]
	require.Equal(t, "recv", last.Name)
	require.True(t, last.Open)
	rec.End(call)
}

// TestCopyOfEventsAllocatesNothing: a rank cannot go on meanwhile. The file is made while
// the rank goes on (the race detector).
func TestCopyOfEventsAllocatesNothing(t *testing.T) {
	tr, rec := newRecorded(1000)
	send(rec, 1500)
	s := tr.NewEvents()
	require.Zero(t, testing.AllocsPerRun(5, func() { s.Copy(tr) }))
	made := make(chan *trace.File)
	go func() {
		var f trace.File
		s.Fill(&f, 0)
		made <- &f
	}()
	send(rec, 1500)
	f := <-made
	require.Len(t, f.Events, 1000)
	require.Equal(t, 500, f.Events[0].Tag)
	require.Contains(t, f.Events[0].Line, "trace_test.go:")
}
