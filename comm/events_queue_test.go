package comm

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/pml"
)

// A full queue loses its oldest events.
func TestFullQueueOfEventsKeepsTheLatest(t *testing.T) {
	queue := make(chan Event, 3)
	e := events{queues: []chan Event{queue}}
	for rank := range 10 {
		e.tell(RankFailed, rank, "", nil)
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
	e := events{queues: []chan Event{queue}}
	rails := func(slow bool) []pml.RailStatus {
		return []pml.RailStatus{{Peer: 1, Rail: "a"}, {Peer: 1, Rail: "b", Slow: slow}, {Peer: 2, Rail: "b"}}
	}
	for _, slow := range []bool{false, true, true, false, false, true} {
		e.look(rails(slow))
	}
	e.end()
	var kinds []EventKind
	for event := range queue {
		assert.Equal(t, []any{1, "b"}, []any{event.Rank, event.Rail})
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
