package comm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// EventKind is the kind of an [Event].
type EventKind uint8

const (
	RailFailed   EventKind = iota + 1 // a rail is down; other rails carry its messages
	RailReturned                      // a rail that was down is up
	RailOpened                        // a rail is up for the first time, late or at another address
	RailSlow                          // a rail delivers at under a quarter of another's rate
	RailNormal                        // a slow rail is no longer slow
	RankFailed                        // a rank has failed, or is unreachable
)

// String is the name of the constant.
func (k EventKind) String() string {
	if names := [...]string{"RailFailed", "RailReturned", "RailOpened", "RailSlow", "RailNormal", "RankFailed"}; k >= RailFailed && k <= RankFailed {
		return names[k-RailFailed]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is something that a rank has noticed about its network or another rank.
type Event struct {
	Time time.Time
	Kind EventKind
	Rank int // the other rank, as a rank of the world
	// Rail and Remote are as in RailStatus. Of RankFailed they are "" and 0.
	Rail   string
	Remote int
	Err    error // the cause, for RailFailed and RankFailed; else nil
}

// maxEvents is the capacity of a queue. Events of a job with many rails arrive together: two
// modules that fail in a job of 512 ranks give 1,022.
const maxEvents = 1024

// slowPeriod is the time between two searches for slow rails, in nanoseconds: soon enough for a
// person or a program to react.
const slowPeriod = int64(time.Second)

// Events returns an iterator over the events of this rank from now on: rails that fail, return or
// become slow, and ranks that fail. A program ranges over it in a goroutine; the loop waits for
// each event. It ends when ctx ends or, after the last event, when this rank leaves the job. A nil
// ctx never ends.
//
// The iterator has the events of all communicators. A rank notices them when it makes progress: in
// a call that waits, tests or sends, or while [Request.Done] waits. It notices only what happens to
// ranks with which it has exchanged messages; [RunLocal] also tells all ranks of a rank that fails.
// The end of a rank that has called Finalize is no event.
//
// Each call of Events has a queue of its own until ctx ends. The queue keeps the latest 1024
// events; a loop that falls further behind loses the oldest ones.
//
// A loop that was left early can be started again. Goroutines may call Events; only one at a time
// may range over an iterator.
func (c *Comm) Events(ctx context.Context) iter.Seq[Event] {
	if c.isNull() {
		return func(func(Event) bool) {}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	j := c.job
	queue := make(chan Event, maxEvents)
	j.eng.Lock()
	j.events.add(ctx, j, queue)
	j.eng.Unlock()
	return func(yield func(Event) bool) {
		for ctx.Err() == nil {
			select {
			case e, more := <-queue:
				if !more || !yield(e) {
					return
				}
			case <-ctx.Done():
			}
		}
	}
}

// events passes events on to the program. The engine's lock guards it, and is held in all methods.
type events struct {
	queues []eventQueue
	ended  bool         // the rank has left the job
	failed map[int]bool // the ranks of which RankFailed was told
	slow   map[slowRail]bool
	timer  *progress.Timer // looks for slow rails; nil: no queue
}

// eventQueue is the queue of a call of Events whose context has not ended.
type eventQueue struct {
	events    chan Event
	stopWatch func() bool // ends the wait for the end of the context
}

// slowRail names a rail of this rank that is slow.
type slowRail struct {
	peer   int
	rail   string
	remote int
}

func (e *events) add(ctx context.Context, j *job, queue chan Event) {
	if e.ended {
		close(queue)
		return
	}
	e.queues = append(e.queues, eventQueue{queue, context.AfterFunc(ctx, func() {
		j.eng.Lock()
		defer j.eng.Unlock()
		e.remove(queue)
	})})
	if e.timer == nil {
		e.slow = slowRails(j.pml.Rails())
		e.lookLater(j)
	}
}

func (e *events) remove(queue chan Event) {
	e.queues = slices.DeleteFunc(e.queues, func(q eventQueue) bool { return q.events == queue })
}

// end ends all queues: there are no more events.
func (e *events) end() {
	for _, queue := range e.queues {
		close(queue.events)
		queue.stopWatch()
	}
	e.queues, e.ended = nil, true
}

// rankFailed tells that a rank has failed, once.
func (e *events) rankFailed(rank int, why error) {
	if e.failed[rank] {
		return
	}
	if e.failed == nil {
		e.failed = make(map[int]bool)
	}
	e.failed[rank] = true
	e.tell(Event{Kind: RankFailed, Rank: rank, Err: why})
}

// onLost tells the program of a peer that is lost. A peer that leaves the job in order, when all
// ranks are done, is lost too. Lock held.
func (j *job) onLost(peer int, why error) {
	if !errors.Is(why, ErrFinalized) {
		j.events.rankFailed(peer, why)
	}
}

// tell queues an event. It drops the oldest event of a full queue.
func (e *events) tell(event Event) {
	if len(e.queues) == 0 {
		return
	}
	event.Time = time.Now()
	for _, queue := range e.queues {
		for !offer(queue.events, event) {
			select {
			case <-queue.events:
			default: // the loop has taken the oldest event meanwhile
			}
		}
	}
}

// offer queues an event if there is room.
func offer(queue chan Event, event Event) bool {
	select {
	case queue <- event:
		return true
	default:
		return false
	}
}

// lookLater looks for slow rails periodically, as long as there are queues.
func (e *events) lookLater(j *job) {
	e.timer = j.eng.After(slowPeriod, func() {
		if len(e.queues) == 0 {
			e.timer = nil
			return
		}
		e.look(j.pml.Rails())
		e.lookLater(j)
	})
}

// look tells which rails have become slow, and which are no longer slow.
func (e *events) look(rails []pml.RailStatus) {
	slow := slowRails(rails)
	for _, r := range rails {
		id := slowRailOf(r)
		switch {
		case slow[id] && !e.slow[id]:
			e.tell(Event{Kind: RailSlow, Rank: r.Peer, Rail: r.Rail, Remote: r.Remote})
		case !slow[id] && e.slow[id]:
			e.tell(Event{Kind: RailNormal, Rank: r.Peer, Rail: r.Rail, Remote: r.Remote})
		}
	}
	e.slow = slow
}

func slowRails(rails []pml.RailStatus) map[slowRail]bool {
	slow := make(map[slowRail]bool)
	for _, r := range rails {
		if r.Slow {
			slow[slowRailOf(r)] = true
		}
	}
	return slow
}

func slowRailOf(r pml.RailStatus) slowRail { return slowRail{r.Peer, r.Rail, r.Remote} }
