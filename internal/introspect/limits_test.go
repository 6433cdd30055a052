package introspect

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/observe"
)

// busyRank is a rank with very long lists.
type busyRank struct {
	rank
	unreceived, pending int
}

func (r *busyRank) Report() Report {
	s := observe.Snapshot{Progress: 5, Pending: make([]observe.Pending, r.pending)}
	return Report{Snapshot: s, Unreceived: make([]observe.Message, r.unreceived)}
}

func TestReportOfBusyRankFitsIntoAnswer(t *testing.T) {
	for _, c := range []struct {
		rank       busyRank
		unreceived int
		fails      bool
	}{
		{busyRank{unreceived: 1000}, 1000, false},
		{busyRank{unreceived: maxUnreceived + 1}, maxUnreceived, false},
		{busyRank{pending: 250_000, unreceived: 1000}, 0, true},
	} {
		launcher, end := net.Pipe()
		go func() { _ = Serve(end, &c.rank) }()
		conn := NewConn(launcher)
		a, err := conn.Ask(t.Context(), WantReport)
		assert.EqualValues(t, 5, a.Progress)
		if c.fails {
			assert.ErrorContains(t, err, "250000 operations under way do not fit into a report")
		} else {
			require.NoError(t, err)
			assert.Len(t, a.Report.Unreceived, c.unreceived)
		}
		assert.False(t, conn.IsGone(), "the next question is answered")
		conn.Close()
		end.Close()
	}
}

func TestMarshalLeavesOutStacksBeforeOperations(t *testing.T) {
	r := Report{Snapshot: observe.Snapshot{Pending: make([]observe.Pending, 3)}}
	r.Goroutines = []Goroutine{{State: strings.Repeat("x", maxAnswerBytes)}}
	text, err := marshal(Answer{ID: 7, Report: &r})
	require.NoError(t, err)
	var a Answer
	require.NoError(t, json.Unmarshal(text, &a))
	assert.Len(t, a.Report.Snapshot.Pending, 3)
	assert.Empty(t, a.Report.Goroutines)
	assert.True(t, a.Report.GoroutinesCut)
	assert.Len(t, r.Goroutines, 1, "the rank's report is not changed")
}

// A connection needs no more memory after a long report.
func TestConnKeepsNoLargeBuffer(t *testing.T) {
	launcher, end := net.Pipe()
	defer end.Close()
	c := NewConn(launcher)
	defer c.Close()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	require.NoError(t, Greet(end))
	before := heap()
	line := append([]byte(`{"v":2,"id":1,"error":"`+strings.Repeat("x", maxAnswerBytes/2)), "\"}\n"...)
	_, err := end.Write(line)
	require.NoError(t, err)
	line = nil
	require.NoError(t, Greet(end)) // it has read the long line
	require.Less(t, heap()-before, int64(maxAnswerBytes/16))
	runtime.KeepAlive(line)
}

func TestAnswerThatNobodyWaitsForIsNotDecoded(t *testing.T) {
	launcher, end := net.Pipe()
	c := NewConn(launcher)
	defer c.Close()
	require.NoError(t, Greet(end))
	_, err := fmt.Fprintf(end, "%s\n", strings.Repeat("x", maxGoodbyeBytes+1))
	require.NoError(t, err)
	require.NoError(t, Greet(end))
	assert.False(t, c.IsGone())
}

func TestStoppedRankGetsFewQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		launcher, end := net.Pipe()
		defer end.Close()
		c := NewConn(launcher)
		defer c.Close()
		questions := make(chan Question, 100)
		go func() { // as the buffer of a socket
			defer close(questions)
			for in := bufio.NewScanner(end); in.Scan(); {
				var q Question
				_ = json.Unmarshal(in.Bytes(), &q)
				questions <- q
			}
		}()
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := c.Ask(ctx, WantProgress)
			return err
		}
		for range 20 {
			require.ErrorIs(t, ask(), context.DeadlineExceeded)
		}
		require.Len(t, questions, maxUnanswered)
		for range maxUnanswered { // it goes on
			require.NoError(t, write(end, Answer{Version: Version, ID: (<-questions).ID}))
		}
		go func() { _ = write(end, Answer{Version: Version, ID: (<-questions).ID}) }()
		require.NoError(t, ask())
	})
}

func TestOnlyOrderlyEndCounts(t *testing.T) {
	for name, c := range map[string]struct {
		sent           string
		ended, goodbye bool
	}{
		"no word":          {"", false, false},
		"greeting":         {`{"v":2}` + "\n", true, false},
		"goodbye":          {`{"v":2}` + "\n" + `{"v":2,"goodbye":true}` + "\n", true, true},
		"part of a line":   {`{"v":2}` + "\n" + `{"v":2,"go`, false, false},
		"broken protocol":  {`{"v":2}` + "\n" + "hello\n", false, false},
		"endless line":     {`{"v":2}` + "\n" + strings.Repeat("x", maxAnswerBytes+bufferBytes), false, false},
		"goodbye in reply": {`{"v":2}` + "\n" + `{"v":2,"id":9,"goodbye":true}` + "\n", true, false},
	} {
		launcher, end := net.Pipe()
		conn := NewConn(launcher)
		_, _ = end.Write([]byte(c.sent)) // fails if the other end has had enough
		end.Close()
		<-conn.gone
		assert.Equal(t, c.ended, conn.HasEnded(), name)
		assert.Equal(t, c.goodbye, conn.HasSaidGoodbye(), name)
	}
	launcher, end := net.Pipe()
	conn := NewConn(launcher)
	require.NoError(t, SayGoodbye(end))
	end.Close()
	<-conn.gone
	assert.True(t, conn.HasSaidGoodbye())
}
