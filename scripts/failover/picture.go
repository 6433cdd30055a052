package main

import (
	"os"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/scripts/failover/timeline"
)

// draw has rank 1 write the picture of the run to the file of -o.
func (r *run) draw() error {
	again := []int64{0}
	if err := comm.Reduce(r.world, []int64{r.world.Stats().ResentBytes}, again, comm.Sum, 1); err != nil || r.me == 0 {
		return err
	}
	picture := r.line.Draw(timeline.Run{Rate: r.rate * 1e6, Every: r.every, Again: again[0]})
	return os.WriteFile(r.picture, []byte(picture), 0o644)
}

// pace sleeps until the given bytes are due at a rate, after what was due before. It returns when
// the next ones are due. Rate 0 is no limit.
func pace(due time.Time, bytes int, rate float64) time.Time {
	const slack = 10 * time.Millisecond // how far the sender may be late and catch up
	if rate == 0 {
		return due
	}
	if late := time.Now().Add(-slack); due.Before(late) {
		due = late
	}
	due = due.Add(time.Duration(float64(bytes) / rate * 1e9))
	time.Sleep(time.Until(due))
	return due
}
