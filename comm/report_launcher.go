package comm

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/internal/goroutines"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/pml"
)

// describer describes a rank to the launcher. It implements introspect.Describer.
type describer struct {
	job    *job
	host   string
	locker chan struct{} // holds one element while a goroutine waits for the lock
}

// newDescriber makes the describer of a rank that is a process.
func newDescriber(j *job) *describer {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return &describer{job: j, host: host, locker: make(chan struct{}, 1)}
}

// lockTimeout is how long a description waits for the rank's lock.
const lockTimeout = time.Second

// locked calls f with the lock. It returns false without calling f if another goroutine holds the
// lock for longer than lockTimeout. Only one goroutine at a time waits for the lock.
func (d *describer) locked(f func()) bool {
	timeout := time.NewTimer(lockTimeout)
	defer timeout.Stop()
	select {
	case d.locker <- struct{}{}:
	case <-timeout.C:
		return false
	}
	var isDecided atomic.Bool
	done := make(chan struct{})
	go func() {
		defer func() { <-d.locker }()
		d.job.eng.Lock()
		defer d.job.eng.Unlock()
		if isDecided.CompareAndSwap(false, true) {
			f()
			close(done)
		}
	}()
	select {
	case <-done:
	case <-timeout.C:
		if isDecided.CompareAndSwap(false, true) {
			return false
		}
		<-done
	}
	return true
}

// Progress implements introspect.Describer. It is 0 if the rank holds its lock for too long.
func (d *describer) Progress() (n uint64) {
	d.locked(func() { n = d.job.progress() })
	return n
}

// Report implements introspect.Describer. The stacks come first, so that a goroutine that runs now
// and waits later counts as running.
func (d *describer) Report() introspect.Report {
	r := introspect.Report{Rank: d.job.rank, Size: d.job.size, PID: os.Getpid(), Host: d.host}
	var before uint64
	isKnown := d.locked(func() { before = d.job.progress() })
	r.Goroutines, r.GoroutinesCut = goroutines.List()
	r.Locked = !d.locked(func() { d.job.report(&r) })
	r.Stale = !isKnown || before != r.Snapshot.Progress
	return r
}

// report fills in what a report says of the message layer. Lock held.
func (j *job) report(r *introspect.Report) {
	r.Snapshot = j.snapshot()
	r.Unreceived = j.unreceived()
	r.Rails = railsOf(j.pml.Rails(), isNoteworthy)
}

// Metrics implements introspect.Describer.
func (d *describer) Metrics(withActivity bool) introspect.Metrics {
	m := introspect.Metrics{Rank: d.job.rank, PID: os.Getpid(), Host: d.host, Nanos: d.job.eng.Now()}
	if withActivity {
		list, _ := goroutines.List()
		m.Doing = doing(list)
	}
	d.locked(func() { d.job.metrics(&m) })
	return m
}

// metrics fills in counters and rails. Their size does not grow with the job as long as no rail
// fails, because the launcher asks all ranks at once. Lock held.
func (j *job) metrics(m *introspect.Metrics) {
	m.Progress = j.progress()
	m.Counters = countersOf(j.pml.Stats())
	rails := j.pml.Rails()
	m.Rails, m.RailBytes = foldRails(railsOf(rails, isUsed(rails))), railBytes(rails)
	for _, t := range j.pml.Traffic() {
		m.SentMessages += uint64(t.Messages)
		m.SentBytes += uint64(t.Bytes)
	}
}

// DumpTrace implements introspect.Describer.
func (d *describer) DumpTrace() error { return d.job.dumpTrace(d.locked) }

// isUsed returns a filter. It leaves out rails to ranks that have left, and spare rails that were
// never used and are not needed because another rail with the same name is up.
func isUsed(list []pml.RailStatus) func(s pml.RailStatus, isPeerUp bool) bool {
	type ownEnd struct {
		peer int
		name string
	}
	up := make(map[ownEnd]bool)
	for _, s := range list {
		if s.State == "up" {
			up[ownEnd{s.Peer, s.Rail}] = true
		}
	}
	return func(s pml.RailStatus, _ bool) bool {
		wasTried := s.Cause != nil && (s.Bytes > 0 || !s.Alternate || !up[ownEnd{s.Peer, s.Rail}])
		return s.State != "closed" && (s.State == "up" || wasTried)
	}
}

// foldRails merges the rails with one name that are up, not slow, and have never failed.
func foldRails(list []introspect.Rail) (out []introspect.Rail) {
	at := make(map[string]int)
	for _, r := range list {
		r.Count = 1
		if r.State != "up" || r.Slow || r.Health < 1000 || r.Error != "" || len(r.Errors) > 0 {
			out = append(out, r)
			continue
		}
		if i, seen := at[r.Name]; seen {
			out[i].Count++
			continue
		}
		at[r.Name] = len(out)
		r.Peer, r.PeerUp = -1, false
		out = append(out, r)
	}
	return out
}

// isNoteworthy reports whether a report lists a rail. A spare rail is down at first, without a
// cause. It does not matter as long as another rail to the peer is up.
func isNoteworthy(s pml.RailStatus, isPeerUp bool) bool {
	return s.State != "up" && s.State != "closed" && (s.Cause != nil || !isPeerUp)
}

// railsOf describes the rails of a list that the filter keeps. isPeerUp is introspect.Rail.PeerUp.
func railsOf(list []pml.RailStatus, isWanted func(s pml.RailStatus, isPeerUp bool) bool) (out []introspect.Rail) {
	up := make(map[int]int) // rails by peer
	for _, s := range list {
		if s.State == "up" {
			up[s.Peer]++
		}
	}
	for _, s := range list {
		others := up[s.Peer]
		if s.State == "up" {
			others--
		}
		if !isWanted(s, others > 0) {
			continue
		}
		r := introspect.Rail{
			Name: s.Rail, Peer: s.Peer, State: s.State, Health: s.Health, PeerUp: others > 0,
			Slow: s.Slow,
		}
		for _, e := range railErrorsOf(s) {
			if r.Errors == nil {
				r.Errors = make(map[string]uint64)
			}
			r.Errors[e.what] = e.n
		}
		if s.Cause != nil {
			r.Error = userlog.OneLine(s.Cause)
		}
		out = append(out, r)
	}
	return out
}

// countersOf returns the counters by the names of their fields.
func countersOf(s pml.Stats) map[string]uint64 {
	out := make(map[string]uint64)
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Uint64:
			out[v.Type().Field(i).Name] = f.Uint()
		case reflect.Int64:
			out[v.Type().Field(i).Name] = uint64(max(f.Int(), 0))
		}
	}
	return out
}

// doing says in one line what the program's first goroutine does; "" if there is none.
func doing(list []introspect.Goroutine) string {
	if len(list) == 0 {
		return ""
	}
	first := list[0]
	for _, g := range list {
		if g.ID < first.ID {
			first = g
		}
	}
	site, ok := goroutines.Site(first.Frames)
	if !ok {
		return first.State
	}
	place := fmt.Sprintf("%s:%d", filepath.Base(site.File), site.Line)
	if call := goroutines.CallName(first.Frames); call != "" {
		return place + " " + call
	}
	return fmt.Sprintf("%s %s (%s)", place, site.Function, first.State)
}
