package comm

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// EventKind is what an [Event] tells of.
type EventKind uint8

const (
	RailFailed   EventKind = iota + 1 // a rail is down; its messages go on by other ones
	RailReturned                      // a rail that was down is up
	RailOpened                        // a rail is up for the first time, late or as another one
	RailSlow                          // a rail delivers less than a quarter of what others do
	RailNormal                        // a slow rail is not slow any more
	RankFailed                        // a rank has failed, or cannot be reached any more
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
	Rank int    // the other rank, as a rank of the world
	Rail string // as in RailStatus; "" if Kind is RankFailed
	Err  error  // why, of RailFailed and RankFailed; else nil
}

// maxEvents is how many events wait for a loop that does not come for them. Those of a job with
// many rails come together: two modules that fail in a job of 512 ranks give 1,022.
const maxEvents = 1024

// slowPeriod is how often rails are looked at for slow ones, in nanoseconds: as often as their
// rates are worth a line to a person.
const slowPeriod = int64(time.Second)

// Events returns the events of this rank from now on, to range over in a goroutine: rails that
// fail, return or become slow, and ranks that fail. The loop waits for each event. It ends when ctx
// ends, and, after the last event, when this rank leaves the job.
//
// Events are those of the whole job, whatever the communicator. A rank notices them when it makes
// progress: in a call that waits, tests or sends, or while [Request.Done] waits. Each call of
// Events has a queue of its own until ctx ends, which keeps the latest 1024 events: of a loop that
// falls further behind, the oldest are lost. A loop that was left can be begun again. Goroutines
// may call Events; only one may range over what it returns.
func (c *Comm) Events(ctx context.Context) iter.Seq[Event] {
	if c.isNull() {
		return func(func(Event) bool) {}
	}
	j := c.job
	queue := make(chan Event, maxEvents)
	j.eng.Lock()
	j.events.add(j, queue)
	j.eng.Unlock()
	context.AfterFunc(ctx, func() {
		j.eng.Lock()
		defer j.eng.Unlock()
		j.events.remove(queue)
	})
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

// events passes on what a rank notices. The engine's lock guards it, and is held in all methods.
type events struct {
	queues []chan Event // of the calls of Events whose context has not ended
	ended  bool         // the rank has left the job
	slow   map[slowRail]bool
	timer  *progress.Timer // looks for slow rails; nil: nobody asks
}

// slowRail names a rail of this rank that is slow.
type slowRail struct {
	peer int
	rail string
}

func (e *events) add(j *job, queue chan Event) {
	if e.ended {
		close(queue)
		return
	}
	e.queues = append(e.queues, queue)
	if e.timer == nil {
		e.slow = slowRails(j.pml.Rails())
		e.lookLater(j)
	}
}

func (e *events) remove(queue chan Event) {
	e.queues = slices.DeleteFunc(e.queues, func(q chan Event) bool { return q == queue })
}

// end ends all queues: nothing more happens.
func (e *events) end() {
	for _, queue := range e.queues {
		close(queue)
	}
	e.queues, e.ended = nil, true
}

// tell queues an event. Of a full queue, the oldest one goes.
func (e *events) tell(kind EventKind, rank int, rail string, why error) {
	if len(e.queues) == 0 {
		return
	}
	event := Event{Time: time.Now(), Kind: kind, Rank: rank, Rail: rail, Err: why}
	for _, queue := range e.queues {
		for {
			select {
			case queue <- event:
			default:
				select {
				case <-queue:
				default: // the loop has taken it meanwhile
				}
				continue
			}
			break
		}
	}
}

// lookLater looks for slow rails again and again, until nobody asks.
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

// look tells which rails have become slow, and which are not slow any more.
func (e *events) look(rails []pml.RailStatus) {
	slow := slowRails(rails)
	for _, r := range rails {
		id := slowRail{r.Peer, r.Rail}
		switch {
		case slow[id] && !e.slow[id]:
			e.tell(RailSlow, r.Peer, r.Rail, nil)
		case !slow[id] && e.slow[id]:
			e.tell(RailNormal, r.Peer, r.Rail, nil)
		}
	}
	e.slow = slow
}

func slowRails(rails []pml.RailStatus) map[slowRail]bool {
	slow := make(map[slowRail]bool)
	for _, r := range rails {
		if r.Slow {
			slow[slowRail{r.Peer, r.Rail}] = true
		}
	}
	return slow
}
