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
	// maxNotices is the number of lines that may be printed at once; one more may follow each
	// noticeEvery. The limit is for devices that fail with many rails.
	maxNotices  = 50
	noticeEvery = int64(1e9)
	// noticeHold is the delay of a line about a failure (nanoseconds). The end of a peer's process
	// looks like a failure of its rails. During the delay the launcher ends this rank too, or this
	// rank learns that the peer has left.
	noticeHold = int64(1e9)
	// noticeWindow (nanoseconds): one line sums up what happens to a rail within this time after a
	// failure.
	noticeWindow = int64(60e9)
	// noticeLasting (nanoseconds): if a rail that has failed again stays down for this time, its
	// line is printed before the window ends.
	noticeLasting = int64(5e9)
)

// notices chooses the lines that tell the user of rails that fail or come back. The engine's lock
// guards all fields except isEnding.
type notices struct {
	told     int   // lines, less one for each noticeEvery since
	last     int64 // when told was last updated
	withheld int

	// rails has the rails that are down, or have failed in the last noticeWindow.
	rails map[noticeRail]*railNotices
	// timer runs when the first line is due, at timerAt; nil: no line is due.
	timer   *progress.Timer
	timerAt int64
	// isEnding: this rank or the job is about to end. It may be set without the lock.
	isEnding atomic.Bool
}

// noticeRail identifies a rail in notices. All rails of one interface (btl.Attrs) count as one,
// because they usually fail and return together.
type noticeRail struct {
	name      string
	peer      int
	alternate bool
}

// connection is one of the rails of an interface. Rails with the same name lead to different
// modules of the peer.
type connection struct {
	name   string
	remote int
}

// interfaceOf is the name of a rail without the suffix that distinguishes it from others of its
// interface.
func interfaceOf(rail string) string {
	name, _, _ := strings.Cut(rail, "#")
	return name
}

// railNotices has the failures of the rails of an interface, and the lines that are still to be
// printed.
type railNotices struct {
	// down has, for each failed connection, the number of the line that reported its failure; 0:
	// none has yet.
	down  map[connection]int
	lines int // number of lines about failures so far

	// failed has the connections that have failed since the last line about failures, each with the
	// number of the failure. Connections that fail within noticeHold count as one failure, which
	// began at failedAt. The last failure is event, with the cause of its first connection.
	failed   map[connection]int
	failures int
	failedAt int64
	event    pml.RailEvent
	tellAt   int64 // when they are reported at the latest
	isMore   bool  // a line about failures was printed in this window
	end      int64 // of the window in which failures are summed up

	// back has the connections whose failure, but not whose return, a line has reported. Their
	// return is reported at backAt.
	back   map[connection]bool
	backAt int64
}

// nameOf names connections of an interface for a line about all of them.
func nameOf[T any](connections map[connection]T) string {
	name := ""
	for c := range connections {
		name = c.name
	}
	if len(connections) > 1 {
		name = fmt.Sprintf("%s (%d connections)", interfaceOf(name), len(connections))
	}
	return name
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

// noticeLine is a line about a rail: a warning if the rail has failed.
type noticeLine struct {
	text  string // "": none
	level slog.Level
}

// add handles an event. It returns a line to print at once, or none.
func (n *notices) add(e pml.RailEvent, now int64) (line noticeLine) {
	key, c := noticeRail{interfaceOf(e.Rail), e.Peer, e.Alternate}, connection{e.Rail, e.Remote}
	r := n.rails[key]
	if e.Up {
		if r != nil {
			if _, wasDown := r.down[c]; wasDown {
				return r.returned(c, now)
			}
		}
		if !e.Again && e.Rail != key.name {
			return line // the interface's first rail reports it
		}
		return noticeLine{describeRail(e), slog.LevelInfo}
	}
	if r == nil {
		r = &railNotices{down: map[connection]int{}, failed: map[connection]int{}, back: map[connection]bool{}}
		if n.rails == nil {
			n.rails = map[noticeRail]*railNotices{}
		}
		n.rails[key] = r
	}
	r.fail(c, e, now)
	return line
}

// fail notes that a connection has failed.
func (r *railNotices) fail(c connection, e pml.RailEvent, now int64) {
	if r.failures == 0 {
		r.tellAt, r.isMore = r.end, true
		if now >= r.end {
			r.tellAt, r.isMore, r.end = now+noticeHold, false, now+noticeWindow
		}
	}
	if r.failures == 0 || r.failed[c] == r.failures || now >= r.failedAt+noticeHold {
		r.failures++
		r.failedAt, r.event = now, e
	}
	r.event.Left = e.Left
	r.failed[c], r.down[c] = r.failures, 0
	delete(r.back, c)
}

// returned notes that a connection is back. Connections whose failure one line has reported are
// reported together, once all of them are back, or after noticeHold.
func (r *railNotices) returned(c connection, now int64) (line noticeLine) {
	told := r.down[c]
	delete(r.down, c)
	if told == 0 {
		return line // the line about the failure says so
	}
	if len(r.back) == 0 {
		r.backAt = now + noticeHold
	}
	r.back[c] = true
	for _, other := range r.down {
		if other == told {
			return line
		}
	}
	return r.tellBack()
}

// tellBack returns the line about the connections that are back.
func (r *railNotices) tellBack() noticeLine {
	line := noticeLine{describeReturn(r.event, nameOf(r.back)), slog.LevelInfo}
	clear(r.back)
	return line
}

// failuresDue is the time at which the failures since the last line are reported.
func (r *railNotices) failuresDue() int64 {
	for c := range r.failed {
		if _, isDown := r.down[c]; isDown && r.isMore {
			return min(r.tellAt, r.failedAt+noticeLasting)
		}
	}
	return r.tellAt
}

// tellFailures returns the lines about the failures that no line has reported yet.
func (r *railNotices) tellFailures(now int64) (lines []noticeLine) {
	r.lines++
	back := map[connection]bool{}
	for c := range r.failed {
		if _, isDown := r.down[c]; isDown {
			r.down[c] = r.lines
		} else {
			back[c] = true
		}
	}
	name := nameOf(r.failed)
	if r.isMore || r.failures > 1 {
		lines = append(lines, noticeLine{r.summary(name, len(back)), slog.LevelWarn})
		r.end = now + noticeWindow
	} else {
		lines = append(lines, noticeLine{describeFailure(r.event, name), slog.LevelWarn})
		if len(back) > 0 {
			lines = append(lines, noticeLine{describeReturn(r.event, nameOf(back)), slog.LevelInfo})
		}
	}
	r.failures = 0
	clear(r.failed)
	return lines
}

// due returns the lines that are due now, and the time of the next ones; 0: never. isOver reports
// whether a peer is about to end or has ended: no more lines report its rails.
func (n *notices) due(now int64, isOver func(peer int) bool) (lines []noticeLine, next int64) {
	keys := slices.SortedFunc(maps.Keys(n.rails), func(a, b noticeRail) int {
		return cmp.Or(a.peer-b.peer, cmp.Compare(a.name, b.name), compareBool(a.alternate, b.alternate))
	})
	for _, key := range keys {
		r := n.rails[key]
		if isOver(key.peer) {
			delete(n.rails, key)
			continue
		}
		if len(r.back) > 0 && now >= r.backAt {
			lines = append(lines, r.tellBack())
		}
		if r.failures > 0 && now >= r.failuresDue() {
			lines = append(lines, r.tellFailures(now)...)
		}
		at := int64(0)
		switch {
		case r.failures > 0:
			at = r.failuresDue()
		case now < r.end:
			at = r.end
		}
		if len(r.back) > 0 && (at == 0 || r.backAt < at) {
			at = r.backAt
		}
		if at == 0 && len(r.down) == 0 {
			delete(n.rails, key)
		}
		if at != 0 && (next == 0 || at < next) {
			next = at
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

// summary says in one line what has failed since the last line about failures, and how many of
// these connections are back.
func (r *railNotices) summary(name string, back int) string {
	now := "it is down"
	switch down := len(r.failed) - back; {
	case down == 0:
		now = "it is up"
	case back > 0:
		now = fmt.Sprintf("%d of them down", down)
	}
	times := fmt.Sprintf("%d times", r.failures)
	switch {
	case r.isMore && r.failures == 1:
		times = "once more"
	case r.isMore:
		times = fmt.Sprintf("%d more times", r.failures)
	}
	return fmt.Sprintf("%s failed %s in the last minute, the last time because of: %s; %s", describeName(r.event, name), times, describeCause(r.event), now)
}

// onRail tells the user and the program of a rail that has failed or come back. Lock held.
func (j *job) onRail(e pml.RailEvent) {
	if r := j.recording; r != nil && r.trace != nil {
		r.trace.Rail(e.Peer, describeRail(e))
	}
	switch {
	case !e.Up:
		j.events.tell(Event{Kind: RailFailed, Rank: e.Peer, Rail: e.Rail, Remote: e.Remote, Err: e.Cause})
	case e.Again:
		j.events.tell(Event{Kind: RailReturned, Rank: e.Peer, Rail: e.Rail, Remote: e.Remote})
	default:
		j.events.tell(Event{Kind: RailOpened, Rank: e.Peer, Rail: e.Rail, Remote: e.Remote})
	}
	if !j.settings.Bool("pml.notices") || j.ended != nil {
		return
	}
	n := &j.notices
	if line := n.add(e, j.eng.Now()); line.text != "" { // the line about a return
		j.printNotice(line)
	}
	if len(n.rails) > 0 && (n.timer == nil || n.timerAt > j.eng.Now()+noticeHold) {
		j.tellAt(j.eng.Now() + noticeHold)
	}
}

// tellAt makes a timer print the lines that are due at a time. Lock held.
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
		j.printNotice(line)
	}
	if next != 0 {
		j.tellAt(next)
	}
}

// tellRest prints the lines that are not due yet, when the rank leaves a job in which no rank has
// failed. Lock held.
func (j *job) tellRest() {
	lines, _ := j.notices.due(math.MaxInt64, func(int) bool { return j.notices.isEnding.Load() })
	for _, line := range lines {
		j.printNotice(line)
	}
}

// printNotice prints a line unless there were too many. Lock held.
func (j *job) printNotice(line noticeLine) {
	withheld, ok := j.notices.admit(j.eng.Now())
	if !ok {
		return
	}
	more := ""
	if withheld > 0 {
		more = fmt.Sprintf(" (%d such lines before this one are left out)", withheld)
	}
	j.log.Log(line.level, line.text+more)
}

// describeRail says in one line what happened to a rail, and what the rank does now.
func describeRail(e pml.RailEvent) string {
	switch {
	case !e.Up:
		return describeFailure(e, e.Rail)
	case e.Alternate:
		return describeName(e, e.Rail) + " is up"
	case e.Again:
		return describeReturn(e, e.Rail)
	}
	return describeName(e, e.Rail) + " is up, for the first time"
}

// describeReturn says that rails with this name are back. The event is about one of them.
func describeReturn(e pml.RailEvent, name string) string { return describeName(e, name) + " is back" }

// describeFailure says that rails with this name have failed. The event is the last failure.
func describeFailure(e pml.RailEvent, name string) string {
	now := "no other rail there is up: waiting for a rail"
	switch {
	case e.Left == 1:
		now = "continuing on the remaining one"
	case e.Left > 1:
		now = fmt.Sprintf("continuing on the remaining %d", e.Left)
	}
	return fmt.Sprintf("%s failed: %s; %s", describeName(e, name), describeCause(e), now)
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

// describeErrors counts the errors of a rail in one line, "" if there were none.
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

// railErrorCount is the number of a rail's errors of one side and kind, such as "path timeout".
type railErrorCount struct {
	what string
	n    uint64
}

// railErrorsOf lists the errors of a rail by side and kind. It leaves out counts of zero.
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

// railErrors has a line for each rail that had errors.
func railErrors(rank int, rails []pml.RailStatus) string {
	var b strings.Builder
	for _, r := range rails {
		if what := describeErrors(r); what != "" {
			fmt.Fprintf(&b, "mpigo: rank %d:   %s\n", rank, what)
		}
	}
	return b.String()
}
