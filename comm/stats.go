package comm

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// counter is one number that a rank prints at Finalize.
type counter struct {
	name  string // the field of Stats or progress.Counters, in snake case
	value uint64
	unit  string // in JSON too; times are in ns
}

// printedCounters lists all counters of a rank, in the order of printing.
func printedCounters(e progress.Counters, s pml.Stats) []counter {
	return []counter{
		{"sent_inline", s.SentInline, "messages"},
		{"sent_eager", s.SentEager, "messages"},
		{"sent_rendezvous", s.SentRendezvous, "messages"},
		{"sent_get", s.SentGet, "messages"},
		{"sent_put", s.SentPut, "messages"},
		{"received", s.Received, "messages"},
		{"received_bytes", uint64(s.ReceivedBytes), "B"},
		{"received_get", s.ReceivedGet, "messages"},
		{"received_put", s.ReceivedPut, "messages"},
		{"unread", s.Unread, "messages"},
		{"unwritten", s.Unwritten, "messages"},
		{"throttled", s.Throttled, "messages"},
		{"deferred", s.Deferred, "messages"},
		{"unexpected", s.Unexpected, "messages"},
		{"unexpected_bytes", uint64(s.UnexpectedBytes), "B"},
		{"unexpected_peak_bytes", uint64(s.UnexpectedPeakBytes), "B"},
		{"early", s.Early, "fragments"},
		{"duplicates", s.Duplicates, "fragments"},
		{"retries", s.Retries, "operations"},
		{"rails_failed", s.RailsFailed, "rails"},
		{"rails_returned", s.RailsReturned, "rails"},
		{"resent", s.Resent, "fragments"},
		{"resent_bytes", uint64(s.ResentBytes), "B"},
		{"restarts", s.Restarts, "transfers"},
		{"stale_fragments", s.StaleFragments, "fragments"},
		{"twice_bytes", uint64(s.TwiceBytes), "bytes"},
		{"local_errors", s.LocalErrors, "errors"},
		{"path_errors", s.PathErrors, "errors"},
		{"remote_errors", s.RemoteErrors, "errors"},
		{"refused", s.Refused, "operations"},
		{"unregistered", s.Unregistered, "buffers"},
		{"switch_nanos", uint64(s.SwitchNanos), "ns"},
		{"malformed", s.Malformed, "fragments"},
		{"illegal", s.Illegal, "transitions"},
		{"done", e.Done, "operations"},
		{"turns", e.Turns, "times"},
		{"events", e.Events, "events"},
		{"yields", e.Yields, "times"},
		{"sleeps", e.Sleeps, "times"},
		{"parks", e.Parks, "times"},
	}
}

// printStats prints the rank's counters in the form that the setting stats selects. Lock held.
func (j *job) printStats() {
	form, _ := tunable.ParseStats(j.settings.String("stats")) // tunables permit no other
	counters, rails := printedCounters(j.eng.Counters(), j.pml.Stats()), j.pml.Rails()
	switch form {
	case tunable.StatsTable:
		_, _ = io.WriteString(os.Stderr, statsTable(j.rank, counters, rails)+railErrors(j.rank, rails))
	case tunable.StatsJSON:
		_, _ = os.Stderr.Write(statsJSON(j.rank, j.size, counters, railBytes(rails)))
	}
}

// railBytes is the number of bytes by rail name. The rails with one name belong to one module of
// this rank.
func railBytes(rails []pml.RailStatus) map[string]uint64 {
	out := make(map[string]uint64)
	for _, r := range rails {
		out[r.Rail] += uint64(r.Bytes)
	}
	return out
}

// statsTable is a table of the counters that are not 0, and of the bytes by rail. Each line names
// the rank, because lines of other ranks may come in between. printStats writes the table with one
// call, so that few do.
func statsTable(rank int, counters []counter, rails []pml.RailStatus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "mpigo: rank %d: counters:\n", rank)
	for _, c := range counters {
		if c.value == 0 {
			continue
		}
		value, unit := strconv.FormatUint(c.value, 10), c.unit
		if unit == "ns" {
			value, unit = strconv.FormatFloat(float64(c.value)/1e6, 'f', 3, 64), "ms"
		}
		name := strings.TrimSuffix(strings.TrimSuffix(c.name, "_nanos"), "_bytes")
		fmt.Fprintf(&b, tableLine, rank, strings.ReplaceAll(name, "_", " "), value, unit)
	}
	bytes := railBytes(rails)
	for _, name := range slices.Sorted(maps.Keys(bytes)) {
		if n := bytes[name]; n > 0 {
			fmt.Fprintf(&b, tableLine, rank, "rail "+name, strconv.FormatUint(n, 10), "B")
		}
	}
	return b.String()
}

const tableLine = "mpigo: rank %d:   %-15s  %11s %s\n"

// statsJSON is an object with all counters, and the bytes by rail, on one line.
func statsJSON(rank, size int, counters []counter, rails map[string]uint64) []byte {
	values := make(map[string]uint64, len(counters))
	for _, c := range counters {
		values[c.name] = c.value
	}
	text, _ := json.Marshal(struct { // JSON has all these types, so there is no error
		MPIGo     string            `json:"mpigo"`
		Rank      int               `json:"rank"`
		Size      int               `json:"size"`
		Counters  map[string]uint64 `json:"counters"`
		RailBytes map[string]uint64 `json:"rail_bytes"`
	}{"stats", rank, size, values, rails})
	return append(text, '\n')
}
