package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mpigo/mpigo/comm"
)

const (
	lookEvery = 5 * time.Millisecond // at the rails
	minEvery  = 2 * lookEvery        // for a mean
)

// record is what was seen of a run.
type record struct {
	begin time.Time
	looks []look
	cuts  []cut // that this program has made
	every time.Duration
	rate  float64 // that the sender was held to, in bytes per second; 0 if it was not
}

// look is what was seen at one moment.
type look struct {
	at    time.Duration // since the beginning
	bytes int64         // received by then
	rails []comm.RailStatus
}

// watcher looks at the rails and the count of bytes, beside the goroutine that receives.
type watcher struct {
	bytes atomic.Int64 // received; the receiver adds to it

	record  record // the goroutine's, until it has ended
	stop    chan struct{}
	running sync.WaitGroup
}

func watch(world *comm.Comm) *watcher {
	w := &watcher{record: record{begin: time.Now()}, stop: make(chan struct{})}
	w.running.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			w.record.looks = append(w.record.looks, look{time.Since(w.record.begin), w.bytes.Load(), railsToSender(world)})
			select {
			case <-tick.C:
			case <-w.stop:
				return
			}
		}
	})
	return w
}

// end returns what was seen.
func (w *watcher) end() record {
	close(w.stop)
	w.running.Wait()
	return w.record
}

// railsToSender leaves out a rank's way to itself.
func railsToSender(world *comm.Comm) []comm.RailStatus {
	return slices.DeleteFunc(world.Rails(), func(r comm.RailStatus) bool { return r.Peer != sender })
}

// names of the rails.
func (r record) names() []string {
	var names []string
	for _, l := range r.looks {
		for i := len(names); i < len(l.rails); i++ {
			names = append(names, l.rails[i].Rail)
		}
	}
	return names
}

func (r record) span() time.Duration { return r.looks[len(r.looks)-1].at }

// sample is the bandwidth over a piece of time.
type sample struct {
	from, to time.Duration
	mbps     float64
}

// samples cuts the time in pieces of a length, or a little more where the looks were late, as on a busy machine:
// what is divided by is the time that it really was.
func (r record) samples(every time.Duration) []sample {
	var out []sample
	last := r.looks[0]
	for _, l := range r.looks {
		if took := l.at - last.at; took >= every-lookEvery/2 {
			out = append(out, sample{last.at, l.at, float64(l.bytes-last.bytes) / 1e6 / took.Seconds()})
			last = l
		}
	}
	return out
}

// event is a rail that has failed or come back.
type event struct {
	at   time.Duration
	rail int
	up   bool
}

func (e event) String() string {
	if e.up {
		return "is back"
	}
	return "failed"
}

// events are those that could be told from one look to the next.
func (r record) events() []event {
	var out []event
	for i, l := range r.looks[1:] {
		for rail, s := range l.rails {
			if was := r.looks[i].rails; rail < len(was) && (was[rail].State == "up") != (s.State == "up") {
				out = append(out, event{l.at, rail, s.State == "up"})
			}
		}
	}
	return out
}
