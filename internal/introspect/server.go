package introspect

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Describer is a rank that describes itself. Its methods may be called from any goroutine, and take
// the rank's lock.
type Describer interface {
	Progress() uint64
	Report() Report
	Metrics() Metrics
}

// FDVariable is the environment variable with the number of the descriptor of the rank's end of its
// connection.
const FDVariable = "MPIGO_INTROSPECT_FD"

// maxQuestionBytes bounds a question.
const maxQuestionBytes = 4 << 10

// ErrProtocol means that the other end sent something that is not of this protocol.
var ErrProtocol = errors.New("not the protocol of introspection")

// greetingID is the ID of the answer that comes first, which no question has.
const greetingID = 0

// Greet tells the launcher that the rank uses the library. It comes before Serve.
func Greet(conn io.Writer) error { return write(conn, Answer{Version: Version, ID: greetingID}) }

// Serve answers the questions that come on conn until conn ends, which is nil, or a question breaks
// the protocol, which Is ErrProtocol. It does not close conn.
func Serve(conn io.ReadWriter, rank Describer) error {
	in := bufio.NewReaderSize(conn, maxQuestionBytes)
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
		if err := write(conn, answer(q, rank)); err != nil {
			return nil
		}
	}
}

func write(out io.Writer, a Answer) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

func answer(q Question, rank Describer) Answer {
	a := Answer{Version: Version, ID: q.ID}
	switch q.Want {
	case WantProgress:
		a.Progress = rank.Progress()
	case WantReport:
		r := rank.Report()
		a.Report, a.Progress = &r, r.Snapshot.Progress
	case WantMetrics:
		m := rank.Metrics()
		a.Metrics = &m
	default:
		a.Error = fmt.Sprintf("unknown question %q", q.Want)
	}
	return a
}
