// Package timeline records when messages arrive and how the rails to a peer are meanwhile, and
// draws both over time.
package timeline

import (
	"slices"
	"sync"
	"time"

	"github.com/mpigo/mpigo/comm"
)

const (
	pollEvery = 5 * time.Millisecond // how often the rails are polled

	// MinEvery is the shortest time over which a bandwidth can be a mean.
	MinEvery = 2 * pollEvery
)

// Timeline records one rank's view of a run. One goroutine calls Received and Stop. The other
// methods may be called after Stop.
type Timeline struct {
	Begin time.Time

	messages []message // in the order of time
	states   []state   // the watching goroutine's until Stop; one for each change
	end      time.Duration

	stop    chan struct{}
	running sync.WaitGroup
}

// message is a message that has arrived.
type message struct {
	at    time.Duration // since Begin
	bytes int
}

// state is how the rails are from a moment on.
type state struct {
	at    time.Duration // since Begin
	rails []rail
}

type rail struct {
	name   string
	up     bool
	health int // 0 to 1000: how far the rail is trusted
}

// Start begins to watch the rails to a peer.
func Start(world *comm.Comm, peer int) *Timeline {
	t := &Timeline{Begin: time.Now(), stop: make(chan struct{})}
	t.running.Go(func() {
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			t.observe(time.Since(t.Begin), railsTo(world, peer))
			select {
			case <-tick.C:
			case <-t.stop:
				return
			}
		}
	})
	return t
}

func railsTo(world *comm.Comm, peer int) []rail {
	var rails []rail
	for _, r := range world.Rails() {
		if r.Peer == peer && (r.State == "up" || !r.Alternate) {
			rails = append(rails, rail{r.Rail, r.State == "up", r.Health})
		}
	}
	return rails
}

// observe keeps the rails' states if they have changed.
func (t *Timeline) observe(at time.Duration, rails []rail) {
	if n := len(t.states); n == 0 || !slices.Equal(t.states[n-1].rails, rails) {
		t.states = append(t.states, state{at, rails})
	}
}

// Received records the arrival of a message.
func (t *Timeline) Received(bytes int) {
	t.messages = append(t.messages, message{time.Since(t.Begin), bytes})
}

// Stop ends the recording.
func (t *Timeline) Stop() {
	close(t.stop)
	t.running.Wait()
	t.end = time.Since(t.Begin)
}

// Total returns how many messages and bytes have arrived.
func (t *Timeline) Total() (messages, bytes int) {
	for _, m := range t.messages {
		bytes += m.bytes
	}
	return len(t.messages), bytes
}

// Rate returns the mean bandwidth between two moments, in MB/s.
func (t *Timeline) Rate(from, to time.Time) float64 {
	return t.rate(from.Sub(t.Begin), to.Sub(t.Begin))
}

func (t *Timeline) rate(from, to time.Duration) float64 {
	first, _ := slices.BinarySearchFunc(t.messages, from, func(m message, at time.Duration) int {
		return int(m.at - at)
	})
	bytes := 0
	for _, m := range t.messages[first:] {
		if m.at >= to {
			break
		}
		bytes += m.bytes
	}
	return float64(bytes) / 1e6 / (to - from).Seconds()
}

// LongestGap returns the longest time between two messages that overlaps the time from one moment
// to another. A gap that begins before it or ends after it counts as a whole.
func (t *Timeline) LongestGap(from, to time.Time) (longest time.Duration) {
	last := from.Sub(t.Begin)
	for _, m := range t.messages {
		if m.at > from.Sub(t.Begin) && last < to.Sub(t.Begin) {
			longest = max(longest, m.at-last)
		}
		last = m.at
	}
	return longest
}

// LongestGapWithin is like LongestGap, but counts only what lies between the two moments.
func (t *Timeline) LongestGapWithin(from, to time.Time) (longest time.Duration) {
	last := from.Sub(t.Begin)
	for _, m := range t.messages {
		if m.at > last && m.at < to.Sub(t.Begin) {
			longest, last = max(longest, m.at-last), m.at
		}
	}
	return longest
}

// FirstFailure returns when a rail failed for the first time since a moment; the zero time if none
// did.
func (t *Timeline) FirstFailure(since time.Time) time.Time {
	for _, e := range t.events() {
		if at := t.Begin.Add(e.at); !e.up && !at.Before(since) {
			return at
		}
	}
	return time.Time{}
}

// LastReturn returns when a rail came back for the last time since a moment; the zero time if none
// did.
func (t *Timeline) LastReturn(since time.Time) (at time.Time) {
	for _, e := range t.events() {
		if e.up && !t.Begin.Add(e.at).Before(since) {
			at = t.Begin.Add(e.at)
		}
	}
	return at
}

// NoRailUp returns when for the first time no rail was up any more; the zero time if there was no
// such moment.
func (t *Timeline) NoRailUp() time.Time {
	isUp := func(r rail) bool { return r.up }
	for i, s := range t.states {
		if i > 0 && slices.ContainsFunc(t.states[i-1].rails, isUp) && !slices.ContainsFunc(s.rails, isUp) {
			return t.Begin.Add(s.at)
		}
	}
	return time.Time{}
}

// names returns the rails' names, in the order in which they appeared.
func (t *Timeline) names() []string {
	var names []string
	for _, s := range t.states {
		for i := len(names); i < len(s.rails); i++ {
			names = append(names, s.rails[i].name)
		}
	}
	return names
}

// sample is the mean bandwidth over a piece of time.
type sample struct {
	from, to time.Duration
	mbps     float64
}

// samples cuts the recorded time into pieces of equal length. A last piece that is shorter is left
// out.
func (t *Timeline) samples(every time.Duration) []sample {
	var all []sample
	for from := time.Duration(0); from+every <= t.end; from += every {
		all = append(all, sample{from, from + every, t.rate(from, from+every)})
	}
	return all
}

// event is a rail that has failed or come back.
type event struct {
	at   time.Duration // since Begin
	rail int
	up   bool
}

func (e event) String() string {
	if e.up {
		return "is back"
	}
	return "failed"
}

// events returns the failures and returns of rails. A rail that failed and came back between two
// polls is missing.
func (t *Timeline) events() []event {
	var all []event
	for i := 1; i < len(t.states); i++ {
		before := t.states[i-1].rails
		for rail, now := range t.states[i].rails {
			if rail < len(before) && before[rail].up != now.up {
				all = append(all, event{t.states[i].at, rail, now.up})
			}
		}
	}
	return all
}
