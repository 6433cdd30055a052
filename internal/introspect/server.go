package introspect

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"go.uber.org/atomic"
)

// Describer is a rank that describes itself. Its methods may be called from any goroutine, and take
// the rank's lock.
type Describer interface {
	Progress() uint64
	Report() Report
	// Metrics has Metrics.Doing only if withActivity.
	Metrics(withActivity bool) Metrics
	// DumpTrace writes the trace that the rank records, and returns when the file is complete.
	DumpTrace() error
}

// FDVariable is the environment variable with the number of the descriptor of the rank's end of its
// connection.
const FDVariable = "MPIGO_INTROSPECT_FD"

// maxQuestionBytes bounds a question.
const maxQuestionBytes = 4 << 10

// ErrProtocol means that the other end has broken this protocol.
var ErrProtocol = errors.New("not the protocol of introspection")

// greetingID is the ID of the answer that comes first, which no question has.
const greetingID = 0

// greeting is an answer to no question, or one to a question, which has no Goodbye.
type greeting struct {
	Answer
	Goodbye bool `json:"goodbye,omitempty"`
}

// Greet tells the launcher that the rank uses the library. It comes before Serve.
func Greet(conn io.Writer) error { return write(conn, Answer{Version: Version, ID: greetingID}) }

// SayGoodbye tells the launcher that the rank finalizes. It is the last message on connections
// whose end alone does not show this.
func SayGoodbye(conn io.Writer) error {
	text, err := json.Marshal(greeting{Answer: Answer{Version: Version, ID: greetingID}, Goodbye: true})
	if err == nil {
		_, err = conn.Write(append(text, '\n'))
	}
	return err
}

// Serve answers the questions on conn. It returns nil when conn ends, and an error that Is
// ErrProtocol when a question breaks the protocol. It does not close conn. A trace is written on a
// goroutine of its own, which may outlive Serve, because a file system may hang; other questions
// are answered meanwhile.
func Serve(conn io.ReadWriter, rank Describer) error {
	in := bufio.NewReaderSize(conn, maxQuestionBytes)
	s := &server{out: conn, rank: rank}
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("introspect: a question of more than %d bytes: %w", maxQuestionBytes, ErrProtocol)
		case err != nil:
			return nil // the launcher has closed the connection, or is gone
		}
		var q Question
		if err := json.Unmarshal(line, &q); err != nil {
			return fmt.Errorf("introspect: %w: %w", err, ErrProtocol)
		}
		if err := s.serve(q); err != nil {
			return nil
		}
	}
}

// server is the rank's end of a connection.
type server struct {
	rank      Describer
	isTracing atomic.Bool // a trace is being written

	mu  sync.Mutex // guards out
	out io.Writer
}

// serve answers a question. Its error is that of the connection.
func (s *server) serve(q Question) error {
	switch {
	case q.Want != WantTrace || q.Version != Version:
	case !s.isTracing.CompareAndSwap(false, true):
		return s.send(Answer{Version: Version, ID: q.ID, Error: "the rank still writes its last trace"})
	default:
		go func() {
			a := answer(q, s.rank)
			s.isTracing.Store(false)
			_ = s.send(a)
		}()
		return nil
	}
	return s.send(answer(q, s.rank))
}

func (s *server) send(a Answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return write(s.out, a)
}

func write(out io.Writer, a Answer) error {
	text, err := marshal(a)
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// maxUnreceived bounds the messages in a report that were not received.
const maxUnreceived = 10_000

// marshal encodes an answer. It leaves out what makes the answer longer than maxAnswerBytes.
func marshal(a Answer) ([]byte, error) {
	text, err := json.Marshal(a)
	if err != nil || len(text) < maxAnswerBytes || a.Report == nil {
		return text, err
	}
	short := *a.Report
	short.Unreceived, short.Goroutines, short.GoroutinesCut = nil, nil, true
	a.Report = &short
	if text, err = json.Marshal(a); err != nil || len(text) < maxAnswerBytes {
		return text, err
	}
	// Waits refer to pending operations, so neither is cut.
	a.Error = fmt.Sprintf("%d operations under way do not fit into a report", len(short.Snapshot.Pending))
	a.Report = nil
	return json.Marshal(a)
}

func answer(q Question, rank Describer) Answer {
	a := Answer{Version: Version, ID: q.ID}
	if q.Version != Version {
		a.Error = fmt.Sprintf("the question has version %d, and this rank understands %d", q.Version, Version)
		return a
	}
	switch q.Want {
	case WantProgress:
		a.Progress = rank.Progress()
	case WantReport:
		r := rank.Report()
		r.Unreceived = r.Unreceived[:min(len(r.Unreceived), maxUnreceived)]
		a.Report, a.Progress = &r, r.Snapshot.Progress
	case WantMetrics, WantActivity:
		m := rank.Metrics(q.Want == WantActivity)
		a.Metrics = &m
	case WantTrace:
		if err := rank.DumpTrace(); err != nil {
			a.Error = err.Error()
		}
	default:
		a.Error = fmt.Sprintf("unknown question %q", q.Want)
	}
	return a
}
