package comm

import (
	"context"
	"iter"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
)

// A full queue loses its oldest events.
func TestFullQueueOfEventsKeepsTheLatest(t *testing.T) {
	queue := make(chan Event, 3)
	e := events{queues: []eventQueue{{queue, func() bool { return true }}}}
	for rank := range 10 {
		e.tell(Event{Kind: RankFailed, Rank: rank})
	}
	e.end()
	var ranks []int
	for event := range queue {
		ranks = append(ranks, event.Rank)
	}
	assert.Equal(t, []int{7, 8, 9}, ranks)
}

// There is one event when a rail becomes slow, and one when it is no longer slow.
func TestEventsTellOfChangesOfSlowRails(t *testing.T) {
	queue := make(chan Event, maxEvents)
	e := events{queues: []eventQueue{{queue, func() bool { return true }}}}
	rails := func(slow bool) []pml.RailStatus {
		return []pml.RailStatus{
			{Peer: 1, Rail: "a"}, {Peer: 1, Rail: "b"}, {Peer: 1, Rail: "b", Remote: 1, Slow: slow}, {Peer: 2, Rail: "b"},
		}
	}
	for _, slow := range []bool{false, true, true, false, false, true} {
		e.look(rails(slow))
	}
	e.end()
	var kinds []EventKind
	for event := range queue {
		assert.Equal(t, []any{1, "b", 1}, []any{event.Rank, event.Rail, event.Remote})
		kinds = append(kinds, event.Kind)
	}
	assert.Equal(t, []EventKind{RailSlow, RailNormal, RailSlow}, kinds)
}

func TestEventKindNames(t *testing.T) {
	assert.Equal(t, "RailFailed", RailFailed.String())
	assert.Equal(t, "RankFailed", RankFailed.String())
	assert.Equal(t, "EventKind(0)", EventKind(0).String())
	assert.Equal(t, "EventKind(7)", (RankFailed + 1).String())
}

// A rank is told as failed once, and not if it has left the job in order.
func TestEventsTellOfFailedRankOnce(t *testing.T) {
	queue := make(chan Event, maxEvents)
	j := &job{events: events{queues: []eventQueue{{queue, func() bool { return true }}}}}
	j.onLost(1, ErrFinalized)
	j.onLost(2, ErrUnreachable)
	j.events.rankFailed(2, ErrProcFailed)
	j.events.end()
	var ranks []int
	for event := range queue {
		ranks = append(ranks, event.Rank)
	}
	assert.Equal(t, []int{2}, ranks)
}

// The context of a call of Events keeps nothing of a job that has ended.
func TestEventsLeaveNothingAtTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ended weak.Pointer[job]
	run(t, 1, func(w *Comm) {
		ended = weak.Make(w.job)
		w.Events(ctx)
	})
	require.Eventually(t, func() bool { runtime.GC(); return ended.Value() == nil }, 30*time.Second, time.Millisecond)
}

// A nil context never ends, and the lock is free after the call.
func TestEventsWithoutContextEndWithJob(t *testing.T) {
	var never context.Context
	var events iter.Seq[Event]
	run(t, 2, func(w *Comm) {
		all := w.Events(never)
		check(w.Barrier())
		if w.Rank() == 0 {
			events = all
		}
	})
	for e := range events {
		assert.Fail(t, "an event", "%v", e)
	}
}
