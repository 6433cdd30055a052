package comm

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

const (
	// maxNotices lines are printed at once, and one more each noticeEvery: many rails fail with one
	// device.
	maxNotices  = 50
	noticeEvery = int64(1e9)
	// noticeHold is how long a line about a failure waits (nanoseconds). The end of a peer's
	// process looks like a failure of its rails. In that time the launcher ends this rank too, or
	// the peer is known to have left.
	noticeHold = int64(1e9)
	// noticeWindow (nanoseconds): after a rail has failed, what happens to it within this time is
	// summed up in one line.
	noticeWindow = int64(60e9)
	// noticeLasting (nanoseconds): a rail that has failed again, and stays down for so long, is
	// summed up before the window ends.
	noticeLasting = int64(5e9)
)

// notices chooses the lines that tell the user of rails that fail or come back. The engine's lock
// guards it, but for isEnding.
type notices struct {
	told     int   // lines, less one for each noticeEvery since
	last     int64 // when told was last updated
	withheld int

	rails map[noticeRail]*railNotices // those that have failed in the last noticeWindow
	down  map[noticeRail]*downRails   // those that have failed and are not back
	// timer is for what is due first, at timerAt; nil: nothing is.
	timer   *progress.Timer
	timerAt int64
	// isEnding: this rank, or the job, is about to end. It may be set without the lock.
	isEnding atomic.Bool
}

// noticeRail tells the rails of a rank apart. The rails of one interface (btl.Attrs) are one here:
// they fail and return together as a rule.
type noticeRail struct {
	name      string
	peer      int
	alternate bool
}

// downRails are the rails of an interface that are down.
type downRails struct {
	names map[string]bool
	most  int // of them that were down at one time, since all were up
}

// name of these rails, given that of one of them, for a line about all.
func (d *downRails) name(of string) string {
	if d.most < 2 {
		return of
	}
	return fmt.Sprintf("%s (%d connections)", interfaceOf(of), d.most)
}

// interfaceOf is the name of a rail without what tells it from others of its interface.
func interfaceOf(rail string) string {
	name, _, _ := strings.Cut(rail, "#")
	return name
}

// railNotices is what is still to be said of a rail that has failed.
type railNotices struct {
	held     []notice // to be told at holdEnd: the first failure, and perhaps its end
	holdEnd  int64    // 0: nothing is held
	end      int64    // of the window
	failures int      // in the window, after the first
	last     notice   // what happened last
	failure  notice   // the last failure
	failedAt int64    // when it was
}

// notice is an event, and the name of the rails that it is about.
type notice struct {
	pml.RailEvent
	name string
}

// admit reports whether a line may be printed now, and how many were withheld before it.
func (n *notices) admit(now int64) (withheld int, ok bool) {
	if passed := int((now - n.last) / noticeEvery); passed > 0 {
		n.told, n.last = max(n.told-passed, 0), now
	}
	if n.told >= maxNotices {
		n.withheld++
		return 0, false
	}
	n.told++
	withheld, n.withheld = n.withheld, 0
	return withheld, true
}

// add takes an event. It returns the line that is to be told at once, "" if none is. Of an
// interface with several rails, those that fail within noticeHold are one failure, and its end is
// that of the last one.
func (n *notices) add(event pml.RailEvent, now int64) (line string) {
	key := noticeRail{interfaceOf(event.Rail), event.Peer, event.Alternate}
	down := n.note(key, event)
	if event.Up && (len(down.names) > 0 || !event.Again && event.Rail != key.name) {
		return ""
	}
	e := notice{event, down.name(event.Rail)}
	r := n.rails[key]
	switch {
	case r == nil && e.Up:
		return e.describe()
	case r == nil:
		if n.rails == nil {
			n.rails = map[noticeRail]*railNotices{}
		}
		n.rails[key] = &railNotices{held: []notice{e}, holdEnd: now + noticeHold, end: now + noticeWindow, last: e, failure: e, failedAt: now}
		return ""
	}
	r.last = e
	switch {
	case !e.Up && len(down.names) > 1 && now < r.failedAt+noticeHold:
		e.RailEvent.Rail, e.Cause = r.failure.Rail, r.failure.Cause // the first says why
		r.failure = e
		if i := len(r.held) - 1; i >= 0 && !r.held[i].Up {
			r.held[i] = e
		}
	case !e.Up:
		r.failures++
		r.failure, r.failedAt = e, now
	case r.failures > 0: // the summary says so
	case r.holdEnd == 0:
		return e.describe()
	default:
		r.held = append(r.held, e)
	}
	return ""
}

// note notes which rails of an interface are down after an event.
func (n *notices) note(key noticeRail, e pml.RailEvent) *downRails {
	d := n.down[key]
	if d == nil {
		d = &downRails{names: map[string]bool{}}
	}
	if e.Up {
		if delete(d.names, e.Rail); len(d.names) == 0 {
			delete(n.down, key)
		}
		return d
	}
	if n.down == nil {
		n.down = map[noticeRail]*downRails{}
	}
	n.down[key], d.names[e.Rail] = d, true
	d.most = max(d.most, len(d.names))
	return d
}

// due returns the lines that are to be told by now, and when the next are; 0: never. isOver reports
// whether a peer is about to end or has ended: nothing more is said of its rails.
func (n *notices) due(now int64, isOver func(peer int) bool) (lines []string, next int64) {
	keys := slices.SortedFunc(maps.Keys(n.rails), func(a, b noticeRail) int {
		return cmp.Or(a.peer-b.peer, cmp.Compare(a.name, b.name), compareBool(a.alternate, b.alternate))
	})
	for _, key := range keys {
		r := n.rails[key]
		if isOver(key.peer) {
			delete(n.rails, key)
			delete(n.down, key)
			continue
		}
		if r.holdEnd != 0 && now >= r.holdEnd {
			for _, e := range r.held {
				lines = append(lines, e.describe())
			}
			r.held, r.holdEnd = nil, 0
		}
		isDown := r.failures > 0 && !r.last.Up
		switch {
		case now >= r.end && r.failures == 0:
			delete(n.rails, key)
			continue
		case now >= r.end, isDown && now >= r.failedAt+noticeLasting:
			lines = append(lines, r.summary())
			r.failures, r.end, isDown = 0, now+noticeWindow, false
		}
		lasting := int64(0)
		if isDown {
			lasting = r.failedAt + noticeLasting
		}
		for _, at := range []int64{r.holdEnd, r.end, lasting} {
			if at != 0 && (next == 0 || at < next) {
				next = at
			}
		}
	}
	return lines, next
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// summary says in one line what happened to the rail since the last line about it.
func (r *railNotices) summary() string {
	now := "it is down"
	if r.last.Up {
		now = "it is up"
	}
	times := "once more"
	if r.failures > 1 {
		times = fmt.Sprintf("%d more times", r.failures)
	}
	return fmt.Sprintf("%s failed %s in the last minute, the last time because of: %s; %s", describeName(r.failure.RailEvent, r.failure.name), times, describeCause(r.failure.RailEvent), now)
}

// onRail tells the user and the program of a rail that has failed or come back. Lock held.
func (j *job) onRail(e pml.RailEvent) {
	if r := j.recording; r != nil && r.trace != nil {
		r.trace.Rail(e.Peer, describeRail(e))
	}
	switch {
	case !e.Up:
		j.events.tell(RailFailed, e.Peer, e.Rail, e.Cause)
	case e.Again:
		j.events.tell(RailReturned, e.Peer, e.Rail, nil)
	default:
		j.events.tell(RailOpened, e.Peer, e.Rail, nil)
	}
	if !j.settings.Bool("pml.notices") || j.ended != nil {
		return
	}
	n := &j.notices
	if line := n.add(e, j.eng.Now()); line != "" { // a return
		j.printNotice(slog.LevelInfo, line)
	}
	if len(n.rails) > 0 && (n.timer == nil || n.timerAt > j.eng.Now()+noticeHold) {
		j.tellAt(j.eng.Now() + noticeHold)
	}
}

// tellAt has what is due then printed. Lock held.
func (j *job) tellAt(at int64) {
	n := &j.notices
	if n.timer != nil {
		j.eng.StopTimer(n.timer)
	}
	n.timerAt = at
	n.timer = j.eng.After(at-j.eng.Now(), j.tellDue)
}

// tellDue prints the lines that are due. Lock held.
func (j *job) tellDue() {
	n := &j.notices
	n.timer = nil
	isOver := func(peer int) bool { return j.ended != nil || n.isEnding.Load() || j.pml.IsOver(peer) }
	lines, next := n.due(j.eng.Now(), isOver)
	for _, line := range lines {
		j.printNotice(slog.LevelWarn, line)
	}
	if next != 0 {
		j.tellAt(next)
	}
}

// tellRest prints what is not due yet when the rank leaves a job in which no rank has failed. Lock
// held.
func (j *job) tellRest() {
	lines, _ := j.notices.due(math.MaxInt64, func(int) bool { return j.notices.isEnding.Load() })
	for _, line := range lines {
		j.printNotice(slog.LevelWarn, line)
	}
}

// printNotice prints a line unless there were too many. Lock held.
func (j *job) printNotice(level slog.Level, line string) {
	withheld, ok := j.notices.admit(j.eng.Now())
	if !ok {
		return
	}
	more := ""
	if withheld > 0 {
		more = fmt.Sprintf(" (%d such lines before this one are left out)", withheld)
	}
	j.log.Log(level, line+more)
}

// describeRail says in one line what happened to a rail, and what the rank does now.
func describeRail(e pml.RailEvent) string { return notice{e, e.Rail}.describe() }

// describe is describeRail under the name of the notice.
func (e notice) describe() string {
	switch {
	case e.Up && e.Alternate:
		return fmt.Sprintf("rail %s to another port of rank %d is up", e.name, e.Peer)
	case e.Up && e.Again:
		return fmt.Sprintf("rail %s to rank %d is back", e.name, e.Peer)
	case e.Up:
		return fmt.Sprintf("rail %s to rank %d is up, for the first time", e.name, e.Peer)
	}
	now := "no other rail there is up: waiting for a rail"
	switch {
	case e.Left == 1:
		now = "continuing on the one that is left"
	case e.Left > 1:
		now = fmt.Sprintf("continuing on the %d that are left", e.Left)
	}
	return fmt.Sprintf("%s failed: %s; %s", describeName(e.RailEvent, e.name), describeCause(e.RailEvent), now)
}

// describeName names the rail of an event, given its own name.
func describeName(e pml.RailEvent, name string) string {
	other := ""
	if e.Alternate {
		other = "another port of "
	}
	return fmt.Sprintf("rail %s to %srank %d", name, other, e.Peer)
}

// describeCause is why the rail has failed, without its name.
func describeCause(e pml.RailEvent) string {
	why := userlog.OneLine(e.Cause)
	for _, known := range []string{"rail " + e.Rail, fmt.Sprintf(" to rank %d", e.Peer), ": "} {
		why = strings.TrimPrefix(why, known)
	}
	return why
}

// describeErrors counts in one line what went wrong with a rail, "" if nothing did.
func describeErrors(r pml.RailStatus) string {
	var parts []string
	if r.Slow {
		parts = append(parts, "slow")
	}
	for _, e := range railErrorsOf(r) {
		parts = append(parts, fmt.Sprintf("%s errors: %d", e.what, e.n))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("rail %s to rank %d: %s", r.Rail, r.Peer, strings.Join(parts, ", "))
}

// railErrorCount is how many errors of a side and kind a rail had: "path timeout".
type railErrorCount struct {
	what string
	n    uint64
}

// railErrorsOf lists the errors of a rail by side and kind, without those that it did not have.
func railErrorsOf(r pml.RailStatus) (out []railErrorCount) {
	for _, side := range []struct {
		name   string
		counts pml.ErrorCounts
	}{{"local", r.LocalErrors}, {"path", r.PathErrors}, {"remote", r.RemoteErrors}} {
		c := side.counts
		for _, kind := range []railErrorCount{{"path", c.Path}, {"device", c.Device}, {"timeout", c.Timeout}, {"protocol", c.Protocol}} {
			if kind.n > 0 {
				out = append(out, railErrorCount{side.name + " " + kind.what, kind.n})
			}
		}
	}
	return out
}

// railErrors has a line for each rail with which something went wrong.
func railErrors(rank int, rails []pml.RailStatus) string {
	var b strings.Builder
	for _, r := range rails {
		if what := describeErrors(r); what != "" {
			fmt.Fprintf(&b, "mpigo: rank %d:   %s\n", rank, what)
		}
	}
	return b.String()
}
