package introspect

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Member is a rank of a job as an asker knows it, with its answer if there is one.
type Member struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"` // on its host
	State State  `json:"state"`
	// Process is the state of the process of a rank that has not answered, in a few words such as
	// "stopped by a signal". It is empty if it is unknown.
	Process  string `json:"process,omitempty"`
	Progress uint64 `json:"progress,omitempty"`
	// After is the progress of the rank some time after all ranks had reported. If it equals the
	// progress in the report, the rank was in the reported state all that time.
	After   *uint64  `json:"after,omitempty"`
	Report  *Report  `json:"report,omitempty"`
	Metrics *Metrics `json:"metrics,omitempty"`
	// Error says what is wrong with the answer.
	Error string `json:"error,omitempty"`
}

// State is what an asker knows about a rank.
type State string

const (
	StateAnswered  State = "answered"
	StateSilent    State = "no answer"        // was asked, and did not answer in time
	StateNotInited State = "not inited"       // has not called Init
	StateForeign   State = "foreign"          // has joined the job, but does not use this library
	StateVersion   State = "version mismatch" // cannot be asked (ErrVersion)
	StateFinalized State = "finalized"        // has left the job by Finalize
	StateExited    State = "exited"           // its process has ended
	StateLost      State = "lost"             // its host or the connection to it was lost
	StateNotBegun  State = "not started"      // its process has not been started
	StateLeaving   State = "leaving"          // its connection ended while it was asked
)

// Peer is a rank to ask.
type Peer struct {
	// Member is what is known. State counts only if the rank cannot be asked.
	Member Member
	// Conn is nil if the rank cannot be asked.
	Conn *Conn
	// Process looks at the process of the rank on its host. isStopped says that the process cannot
	// answer. Process returns when ctx ends. It is nil if the process cannot be examined.
	Process func(ctx context.Context) (text string, isStopped bool)
}

const (
	// AnswerTimeout is the time that the ranks of a job have for their answers.
	AnswerTimeout = 5 * time.Second
	// TraceTimeout is the time that they have to write their traces. Many ranks may share a
	// processor, and each takes it for a third of a second for 100,000 events.
	TraceTimeout = 30 * time.Second
)

// lookAfter is the time after which AskAll looks at the process of a rank that has not answered. If
// the process is stopped, there is no point in waiting longer.
const lookAfter = 500 * time.Millisecond

const (
	// afterTimeout is the time that ranks which have reported have for Member.After.
	afterTimeout = time.Second
	// watchTime is how long ranks are watched if none makes progress: the ranks of a healthy job
	// may wait for a processor, or for a message, at the moment of the reports.
	watchTime   = 200 * time.Millisecond
	watchPeriod = 50 * time.Millisecond
)

// AskAll asks all peers at once, and waits for at most AnswerTimeout, or TraceTimeout for
// WantTrace, or until ctx ends. The result has an element for each peer, in their order. If reports
// are wanted, it asks those that have reported for their progress again, for up to watchTime until
// one has made some, and for at most one more second.
func AskAll(ctx context.Context, want Want, peers []Peer) []Member {
	members := askAll(ctx, want, peers)
	if want == WantReport {
		askAfter(ctx, peers, members)
	}
	return members
}

// askAfter sets Member.After of the ranks that have reported.
func askAfter(ctx context.Context, peers []Peer, members []Member) {
	ctx, cancel := context.WithTimeout(ctx, afterTimeout)
	defer cancel()
	for end := time.Now().Add(watchTime); ; {
		askProgress(ctx, peers, members)
		if ctx.Err() != nil || !time.Now().Before(end) || !slices.ContainsFunc(members, hasReported) || slices.ContainsFunc(members, hasMoved) {
			return
		}
		select {
		case <-time.After(watchPeriod):
		case <-ctx.Done():
			return
		}
	}
}

func hasReported(m Member) bool { return m.Report != nil }

// hasMoved reports whether a rank has made progress since its report. The report of a rank that
// held its lock has no progress.
func hasMoved(m Member) bool {
	return m.Report != nil && !m.Report.Locked && m.After != nil && *m.After > m.Report.Snapshot.Progress
}

// askProgress sets Member.After of the ranks that have reported to what it is now.
func askProgress(ctx context.Context, peers []Peer, members []Member) {
	var all sync.WaitGroup
	for i := range members {
		if m := &members[i]; m.Report != nil {
			all.Add(1)
			go func() {
				defer all.Done()
				m.After = nil // unless it answers this time
				if a, err := peers[i].Conn.Ask(ctx, WantProgress); err == nil {
					m.After = &a.Progress
				}
			}()
		}
	}
	all.Wait()
}

func askAll(ctx context.Context, want Want, peers []Peer) []Member {
	limit := AnswerTimeout
	if want == WantTrace {
		limit = TraceTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	members := make([]Member, len(peers))
	var all sync.WaitGroup
	for i, p := range peers {
		if p.Conn == nil && p.Process == nil {
			members[i] = p.Member
			continue
		}
		// The asker may be a rank itself. A goroutine that sync.WaitGroup.Go has started would look
		// like one of the program's in its report.
		all.Add(1)
		go func() {
			defer all.Done()
			members[i] = p.ask(ctx, want)
		}()
	}
	all.Wait()
	return members
}

// ask asks one peer.
func (p Peer) ask(all context.Context, want Want) Member {
	m := p.Member
	if p.Conn == nil {
		m.Process, _ = p.Process(all)
		return m
	}
	ctx, stop := context.WithCancel(all)
	looked := make(chan string, 1)
	if p.Process == nil {
		looked <- ""
	} else {
		go func() {
			text := ""
			defer func() { looked <- text }()
			select {
			case <-time.After(lookAfter):
			case <-ctx.Done():
				return
			}
			stopped := false
			if text, stopped = p.Process(ctx); stopped {
				stop()
			}
		}()
	}
	a, err := p.Conn.Ask(ctx, want)
	stop()
	process := <-looked
	switch {
	case errors.Is(err, ErrGone):
		if m.State = StateLeaving; p.Process != nil {
			m.Process, _ = p.Process(all)
		}
	case errors.Is(err, ErrVersion):
		m.State, m.Error = StateVersion, err.Error()
	case err != nil && a.Error == "":
		m.State, m.Process = StateSilent, process
		if errors.Is(err, ErrProtocol) {
			m.Error = err.Error()
		}
	default:
		m.State = StateAnswered
		m.Progress, m.Report, m.Metrics, m.Error = a.Progress, a.Report, a.Metrics, a.Error
	}
	return m
}
