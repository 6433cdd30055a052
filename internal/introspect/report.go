package introspect

import "github.com/mpigo/mpigo/internal/observe"

// Version is the version of questions, answers and reports.
const Version = 2

// Want is what a question asks for.
type Want string

const (
	// WantProgress asks for Answer.Progress alone, which costs the rank almost nothing.
	WantProgress Want = "progress"
	// WantReport asks for everything: operations, waits, stacks, rails.
	WantReport Want = "report"
	// WantMetrics asks for Answer.Metrics: counters and rails, without stacks and operations.
	WantMetrics Want = "metrics"
	// WantActivity asks for the same with Metrics.Doing, for which the rank has to stop and write
	// its stacks.
	WantActivity Want = "activity"
	// WantTrace asks a rank that records a trace to write the file now. The answer, without more,
	// comes when the file is written.
	WantTrace Want = "trace"
)

// Question is what the launcher asks.
type Question struct {
	Version int    `json:"v"`
	ID      uint64 `json:"id"`
	Want    Want   `json:"want"`
}

// Answer is what the rank answers.
type Answer struct {
	Version  int      `json:"v"`
	ID       uint64   `json:"id"`
	Progress uint64   `json:"progress"` // as observe.Rank.Progress
	Report   *Report  `json:"report,omitempty"`
	Metrics  *Metrics `json:"metrics,omitempty"`
	// Error says why there is no more, such as a question that the rank does not know.
	Error string `json:"error,omitempty"`
}

// Report is a rank's description of itself. All ranks in it are ranks of the job.
type Report struct {
	Rank int    `json:"rank"`
	Size int    `json:"size"`
	PID  int    `json:"pid"`
	Host string `json:"host"`
	// Locked: the rank holds its lock for longer than a second, so Snapshot, Unreceived and Rails
	// are missing. It is in a turn of progress, or in an operation of a reduction.
	Locked     bool              `json:"locked,omitempty"`
	Snapshot   observe.Snapshot  `json:"snapshot"`
	Unreceived []observe.Message `json:"unreceived,omitempty"`
	Rails      []Rail            `json:"rails,omitempty"`
	// Goroutines of the program, without those that the library and the runtime have for
	// themselves.
	Goroutines []Goroutine `json:"goroutines,omitempty"`
	// Stale: the rank has made progress after Goroutines and before Snapshot, or may have. So a
	// goroutine may have left the call that it is in.
	Stale bool `json:"stale,omitempty"`
	// GoroutinesCut: the program has more goroutines than Goroutines lists.
	GoroutinesCut bool `json:"goroutines_cut,omitempty"`
}

// Rail is the state of a rail. A Report has the rails that are not up, except unused ones: rails
// without an error while another rail to the peer is up. Metrics have the rails that are up or have
// failed, to peers that have not finalized.
type Rail struct {
	Name string `json:"name"` // as comm.RailStatus has it
	// Peer is -1 in Metrics for the rails of a name that are up, not slow, and have never failed.
	// One Rail stands for all of them. Count is their number, and 1 for others in Metrics.
	Peer   int    `json:"peer"`
	Count  int    `json:"count,omitempty"`
	State  string `json:"state"`
	Health int    `json:"health"`          // 0 to 1000
	Error  string `json:"error,omitempty"` // the last one
	// Slow is the field of comm.RailStatus. Errors counts its errors by side and kind, such as
	// "path timeout", without zeros.
	Slow   bool              `json:"slow,omitempty"`
	Errors map[string]uint64 `json:"errors,omitempty"`
	// PeerUp: another rail to the peer is up.
	PeerUp bool `json:"peer_up,omitempty"`
}

// Goroutine is the state of a goroutine of the program.
type Goroutine struct {
	ID uint64 `json:"id"`
	// State is the runtime's word: running, runnable, chan receive, select, sleep, syscall, …
	State   string  `json:"state"`
	Minutes int     `json:"minutes,omitempty"` // for how long it has been blocked
	Frames  []Frame `json:"frames"`            // innermost first
	// InCall: it is in a call of the library. Waits: that call waits for its operations.
	InCall bool `json:"in_call,omitempty"`
	Waits  bool `json:"waits,omitempty"`
}

// Frame is one function on a stack.
type Frame struct {
	Function string `json:"function"`
	File     string `json:"file"`
	Line     int    `json:"line"`
}

// Metrics are the counters of a rank.
type Metrics struct {
	Rank  int    `json:"rank"`
	PID   int    `json:"pid"`
	Host  string `json:"host"`
	Nanos int64  `json:"nanos"` // of the rank's monotonic clock, for rates
	// Doing describes in one line the activity of the program's main goroutine. It is "" if that is
	// unknown, or was not asked for (WantActivity).
	Doing string `json:"doing,omitempty"`
	// Progress is as observe.Rank.Progress.
	Progress uint64 `json:"progress"`
	// Counters by the names of the fields of comm.Stats.
	Counters map[string]uint64 `json:"counters"`
	Rails    []Rail            `json:"rails,omitempty"`
	// SentMessages and SentBytes count what the rank has sent since the job began, collectives
	// included. The counters have the same for received messages.
	SentMessages uint64 `json:"sent_messages"`
	SentBytes    uint64 `json:"sent_bytes"`
	// RailBytes are those of comm.RailStatus by the name of the rail.
	RailBytes map[string]uint64 `json:"rail_bytes,omitempty"`
}
