package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
)

// View is the state of a job at a moment. The rates are averages since the previous View; in the
// first View, since the job began.
type View struct {
	Time    time.Time      `json:"time"`
	Seconds float64        `json:"seconds"` // over which the rates are averages
	Job     jobsocket.Info `json:"job"`
	// OutBytes, OutMessages and Operations are sums over all ranks.
	OutBytes    float64 `json:"out_bytes_per_second"`
	OutMessages float64 `json:"out_messages_per_second"`
	Operations  float64 `json:"operations_per_second"`
	// RailBytes has the bytes per second of all ranks, by rail name.
	RailBytes map[string]float64 `json:"rail_bytes_per_second,omitempty"`
	Ranks     []Rank             `json:"ranks"` // the worst first
	// History has Operations in each of the last HistorySeconds seconds, the oldest first. It
	// begins at the first View, whose own rate is an average of all time before.
	History []float64 `json:"-"`
}

// Severity says how bad the state of a rank is.
type Severity uint8

const (
	Fine     Severity = iota
	RailDown          // a rail is not up, is slow, or has less than full health
	Gone              // the rank does not answer, cannot be asked, or is lost
)

// Rank is a rank in a View. The rates are per second.
type Rank struct {
	Rank        int      `json:"rank"`
	Host        string   `json:"host"`
	PID         int      `json:"pid"`
	State       string   `json:"state"` // introspect.State
	Severity    Severity `json:"-"`
	Doing       string   `json:"doing,omitempty"`
	Trouble     string   `json:"trouble,omitempty"` // why it is not Fine
	InBytes     float64  `json:"in_bytes_per_second"`
	OutBytes    float64  `json:"out_bytes_per_second"`
	InMessages  float64  `json:"in_messages_per_second"`
	OutMessages float64  `json:"out_messages_per_second"`
	// Operations are messages sent and received, and operations completed. Collectives may go
	// through shared memory, without messages.
	Operations float64   `json:"operations_per_second"`
	History    []float64 `json:"-"` // of Operations, as View.History
	// Rails counts the rails that were up or failed, to ranks that have not finalized. RailsUp of
	// them are up. RailsSlow of the rails that are up take no traffic, because others are much
	// faster. Health is the lowest health of these rails, from 0 to 1000.
	Rails           int    `json:"rails"`
	RailsUp         int    `json:"rails_up"`
	RailsSlow       int    `json:"rails_slow,omitempty"`
	Health          int    `json:"health"`
	UnexpectedBytes uint64 `json:"unexpected_bytes"`
}

// HistorySeconds is the length of the history in a View.
const HistorySeconds = 60

// Tracker makes Views. It keeps the last answers of ranks that have finalized.
type Tracker struct {
	last    map[int]introspect.Metrics
	totals  map[int]total // by rank, at the last View
	rails   map[string]uint64
	at      time.Time
	began   time.Time         // the first View
	history []float64         // of the job
	ofRank  map[int][]float64 // by rank
}

// extend adds a rate of some seconds to a history. Views that have the shorter history may still be
// in use: their elements stay as they are.
func extend(history []float64, rate float64, seconds int) []float64 {
	for range min(seconds, HistorySeconds) {
		history = append(history, rate)
	}
	return history[max(len(history)-HistorySeconds, 0):]
}

// secondsAt returns the number of whole seconds from the first View to a time.
func (t *Tracker) secondsAt(at time.Time) int {
	return int(at.Sub(t.began).Round(time.Second).Seconds())
}

// total counts the bytes, messages and operations of a rank since the job began.
type total struct{ inBytes, outBytes, inMessages, outMessages, operations uint64 }

// Update makes the next View, from the answers of a job that came at now.
func (t *Tracker) Update(job jobsocket.Info, members []introspect.Member, now time.Time) View {
	since := t.at
	if since.IsZero() {
		since, t.ofRank = job.Started, make(map[int][]float64)
		t.began, t.at = now, now
	}
	// A View takes longer than a second if a rank does not answer.
	seconds := t.secondsAt(now) - t.secondsAt(t.at)
	t.last = keep(t.last, members)
	totals := totalsOf(t.last)
	v := View{Time: now, Seconds: max(now.Sub(since).Seconds(), 1e-3), Job: job, Ranks: []Rank{}}
	for _, m := range members {
		r := describe(m)
		before, after := t.totals[m.Rank], totals[m.Rank]
		r.InBytes, r.OutBytes = v.rate(before.inBytes, after.inBytes), v.rate(before.outBytes, after.outBytes)
		r.InMessages, r.OutMessages = v.rate(before.inMessages, after.inMessages), v.rate(before.outMessages, after.outMessages)
		v.OutBytes += r.OutBytes
		v.OutMessages += r.OutMessages
		r.Operations = v.rate(before.operations, after.operations)
		v.Operations += r.Operations
		r.History = extend(t.ofRank[m.Rank], r.Operations, seconds)
		t.ofRank[m.Rank] = r.History
		v.Ranks = append(v.Ranks, r)
	}
	t.history = extend(t.history, v.Operations, seconds)
	v.History = t.history
	slices.SortStableFunc(v.Ranks, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Rank, b.Rank))
	})
	rails := railBytes(t.last)
	for name, bytes := range rails {
		if v.RailBytes == nil {
			v.RailBytes = make(map[string]float64)
		}
		v.RailBytes[name] = v.rate(t.rails[name], bytes)
	}
	t.totals, t.rails, t.at = totals, rails, now
	return v
}

// rate is the increase of a counter per second.
func (v *View) rate(before, after uint64) float64 {
	if after < before {
		return 0
	}
	return float64(after-before) / v.Seconds
}

// keep updates the known metrics with the metrics of members.
func keep(known map[int]introspect.Metrics, members []introspect.Member) map[int]introspect.Metrics {
	if known == nil {
		known = map[int]introspect.Metrics{}
	}
	for _, m := range members {
		// A rank that holds its lock for too long has no counters.
		if m.Metrics != nil && len(m.Metrics.Counters) > 0 {
			known[m.Rank] = *m.Metrics
		}
	}
	return known
}

func totalsOf(known map[int]introspect.Metrics) map[int]total {
	totals := map[int]total{}
	for rank, m := range known {
		totals[rank] = total{m.Counters["ReceivedBytes"], m.SentBytes, m.Counters["Received"], m.SentMessages, m.Progress}
	}
	return totals
}

// railBytes adds up the bytes of all ranks by the names of the rails.
func railBytes(known map[int]introspect.Metrics) map[string]uint64 {
	sums := map[string]uint64{}
	for _, m := range known {
		for name, bytes := range m.RailBytes {
			sums[name] += bytes
		}
	}
	return sums
}

// describe makes a Rank without rates.
func describe(m introspect.Member) Rank {
	r := Rank{Rank: m.Rank, Host: clean(m.Host), PID: m.PID, State: string(m.State), Health: 1000}
	switch m.State {
	case introspect.StateVersion:
		r.Severity, r.Trouble = Gone, "cannot be asked: it uses another version of mpigo"
		return r
	case introspect.StateSilent, introspect.StateLost:
		r.Severity, r.Trouble = Gone, string(m.State)
		if m.Process != "" {
			r.Trouble += ", " + clean(m.Process)
		}
		return r
	}
	if m.Metrics == nil {
		return r
	}
	r.Doing, r.UnexpectedBytes = clean(m.Metrics.Doing), m.Metrics.Counters["UnexpectedBytes"]
	for _, rail := range m.Metrics.Rails {
		count := max(rail.Count, 1)
		r.Rails += count
		if rail.State == "up" {
			r.RailsUp += count
		}
		if rail.State != "up" || rail.Health < 1000 {
			if health := railHealth(rail); r.Severity == Fine || health < r.Health {
				r.Trouble = railTrouble(rail)
			}
			r.Severity = RailDown
		} else if rail.Slow {
			if r.RailsSlow += count; r.Severity == Fine {
				r.Severity, r.Trouble = RailDown, railTrouble(rail)
			}
		}
		r.Health = min(r.Health, railHealth(rail))
	}
	return r
}

// railHealth returns the health of a rail, which is 0 if the rail is not up.
func railHealth(rail introspect.Rail) int {
	if rail.State != "up" {
		return 0
	}
	return rail.Health
}

func railTrouble(rail introspect.Rail) string {
	text := fmt.Sprintf("%s to %d is %s", rail.Name, rail.Peer, rail.State)
	switch {
	case rail.State == "up" && rail.Slow:
		text = fmt.Sprintf("%s to %d is slow, so other rails carry its traffic", rail.Name, rail.Peer)
	case rail.State == "up":
		text += fmt.Sprintf(" again, health %d", rail.Health)
	}
	if rail.Error != "" {
		why := strings.TrimPrefix(rail.Error, "rail "+rail.Name)
		why = strings.TrimPrefix(why, fmt.Sprintf(" to rank %d", rail.Peer))
		text += ": " + strings.TrimPrefix(why, ": ")
	}
	return clean(text)
}

// clean removes control characters, which a terminal would interpret: the text comes from the
// ranks.
func clean(text string) string {
	return strings.Map(func(c rune) rune {
		if c == unicode.ReplacementChar || !unicode.IsGraphic(c) {
			return -1
		}
		return c
	}, text)
}
