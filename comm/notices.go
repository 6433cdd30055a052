package comm

import (
	"fmt"
	"os"
	"strings"

	"github.com/mpigo/mpigo/pml"
)

const (
	// maxNotices lines are printed at once, and one more each noticeEvery: many rails fail with one
	// device.
	maxNotices  = 50
	noticeEvery = int64(1e9)
)

// notices limits the lines that tell the user of rails that fail or come back. The engine's lock
// guards it.
type notices struct {
	told     int   // lines, less one for each noticeEvery since
	last     int64 // when told was last updated
	withheld int
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

// onRail tells the user of a rail that has failed or come back. Lock held.
func (j *job) onRail(e pml.RailEvent) {
	if r := j.recording; r != nil && r.trace != nil {
		r.trace.Rail(e.Peer, describeRail(e))
	}
	if !j.settings.Bool("pml.notices") || j.ended != nil {
		return
	}
	withheld, ok := j.notices.admit(j.eng.Now())
	if !ok {
		return
	}
	more := ""
	if withheld > 0 {
		more = fmt.Sprintf(" (%d such lines before this one are left out)", withheld)
	}
	fmt.Fprintf(os.Stderr, "mpigo: rank %d: %s%s\n", j.rank, describeRail(e), more)
}

// describeRail says in one line what happened to a rail, and what the rank does now.
func describeRail(e pml.RailEvent) string {
	switch {
	case e.Up && e.Alternate:
		return fmt.Sprintf("rail %s to another port of rank %d is up", e.Rail, e.Peer)
	case e.Up && e.Again:
		return fmt.Sprintf("rail %s to rank %d is back", e.Rail, e.Peer)
	case e.Up:
		return fmt.Sprintf("rail %s to rank %d is up, for the first time", e.Rail, e.Peer)
	}
	now := "no other rail there is up: waiting for a rail"
	switch {
	case e.Left == 1:
		now = "continuing on the one that is left"
	case e.Left > 1:
		now = fmt.Sprintf("continuing on the %d that are left", e.Left)
	}
	other := ""
	if e.Alternate {
		other = "another port of "
	}
	why := oneLine(e.Cause)
	for _, known := range []string{"rail " + e.Rail, fmt.Sprintf(" to rank %d", e.Peer), ": "} {
		why = strings.TrimPrefix(why, known)
	}
	return fmt.Sprintf("rail %s to %srank %d failed: %s; %s", e.Rail, other, e.Peer, why, now)
}

// describeErrors counts in one line what went wrong with a rail, "" if nothing did.
func describeErrors(r pml.RailStatus) string {
	var parts []string
	if r.Slow {
		parts = append(parts, "slow")
	}
	if r.Late > 0 {
		parts = append(parts, fmt.Sprintf("late: %d", r.Late))
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
