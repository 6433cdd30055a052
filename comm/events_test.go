package comm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
)

// eventList has the events of a rank so far.
type eventList struct {
	mu   sync.Mutex
	list []comm.Event
	done chan struct{} // closed when there are no more
}

func collectEvents(ctx context.Context, w *comm.Comm) *eventList {
	l := &eventList{done: make(chan struct{})}
	all := w.Events(ctx)
	go func() {
		defer close(l.done)
		for e := range all {
			l.mu.Lock()
			l.list = append(l.list, e)
			l.mu.Unlock()
		}
	}()
	return l
}

// first returns the first event of a kind, nil if there is none yet.
func (l *eventList) first(kind comm.EventKind) *comm.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.list {
		if e.Kind == kind {
			return &e
		}
	}
	return nil
}

// exchangeUntil exchanges messages until all ranks have an event of a kind, and returns it.
func (l *eventList) exchangeUntil(w *comm.Comm, kind comm.EventKind) comm.Event {
	for all := []bool{false}; !all[0]; {
		shiftLong(w, 0)
		check(comm.Allreduce(w, []bool{l.first(kind) != nil}, all, comm.Land))
	}
	return *l.first(kind)
}

// TestEventsTellOfRailsAndRanks: both ranks get events when a rail has failed, when it is back, and
// at last when the other rank is unreachable.
func TestEventsTellOfRailsAndRanks(t *testing.T) {
	before := time.Now()
	run(t, 2, func(t rank, w *comm.Comm) {
		events, peer := collectEvents(context.Background(), w), 1-w.Rank()
		shiftLong(w, 0)
		if w.Rank() == 0 {
			check(w.CutRail(1))
		}
		e := events.exchangeUntil(w, comm.RailFailed)
		assert.Equal(t, []any{peer, "loop1"}, []any{e.Rank, e.Rail})
		assert.Error(t, e.Err)
		assert.False(t, e.Time.Before(before) || e.Time.After(time.Now()), e.Time)
		if w.Rank() == 0 {
			check(w.MendRail(1))
		}
		e = events.exchangeUntil(w, comm.RailReturned)
		assert.Equal(t, []any{peer, "loop1", nil}, []any{e.Rank, e.Rail, e.Err})
		check(w.Barrier())
		if w.Rank() == 0 {
			check(w.CutRail(0))
			check(w.CutRail(1))
		}
		_, err := comm.Recv(w, make([]int, 1), peer, 1)
		assert.ErrorIs(t, err, comm.ErrUnreachable)
		check(w.Finalize())
		<-events.done // the rank has left the job
		failed := events.first(comm.RankFailed)
		require.NotNil(t, failed)
		assert.Equal(t, []any{peer, ""}, []any{failed.Rank, failed.Rail})
		assert.ErrorIs(t, failed.Err, comm.ErrUnreachable)
	}, comm.WithRails(2), comm.WithGrace(50*time.Millisecond), comm.WithSetting("pml.notices", "false"))
}

// TestEventsTellOfRankThatReturns: a rank of RunLocal whose body fails is an event of the others.
func TestEventsTellOfRankThatReturns(t *testing.T) {
	errBody := errors.New("no more")
	var events [3]*eventList
	err := comm.RunLocal(3, func(w *comm.Comm) error {
		events[w.Rank()] = collectEvents(context.Background(), w)
		if err := w.Barrier(); err != nil {
			return err
		}
		if w.Rank() == 1 {
			return errBody
		}
		_, err := comm.Recv(w, make([]int, 1), 1, 0)
		return err
	})
	require.ErrorIs(t, err, errBody)
	for rank, list := range events {
		<-list.done
		e := list.first(comm.RankFailed)
		if rank == 1 {
			assert.Nil(t, e)
			continue
		}
		require.NotNil(t, e, rank)
		assert.Equal(t, 1, e.Rank)
		assert.ErrorIs(t, e.Err, errBody)
	}
}

// TestEventsEndWithContextAndGoOnAfterBreak: a loop that was left continues with the next event,
// and no loop outlives its context.
func TestEventsEndWithContextAndGoOnAfterBreak(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		ctx, cancel := context.WithCancel(context.Background())
		all := w.Events(ctx)
		twin := collectEvents(ctx, w)
		shiftLong(w, 0)
		if w.Rank() == 0 {
			check(w.CutRail(1))
		}
		twin.exchangeUntil(w, comm.RailFailed)
		if w.Rank() == 0 {
			check(w.MendRail(1))
		}
		twin.exchangeUntil(w, comm.RailReturned)
		for _, want := range []comm.EventKind{comm.RailFailed, comm.RailReturned} {
			for e := range all {
				assert.Equal(t, want, e.Kind)
				break
			}
		}
		check(w.Barrier())
		time.AfterFunc(time.Millisecond, cancel)
		for e := range all {
			assert.Fail(t, "an event", "%v", e)
		}
		<-twin.done
		for range w.Events(ctx) {
			assert.Fail(t, "an event after the end of the context")
		}
	}, comm.WithRails(2), comm.WithSetting("pml.notices", "false"))
}

// TestJobsThatEndInOrderHaveNoEvents: ranks leave one after the other, and close their rails.
func TestJobsThatEndInOrderHaveNoEvents(t *testing.T) {
	for range 50 {
		var events [4]*eventList
		run(t, 4, func(t rank, w *comm.Comm) {
			events[w.Rank()] = collectEvents(context.Background(), w)
			for r := range w.Size() { // all ranks are in touch
				must(comm.Sendrecv(w, []int{1}, r, 0, []int{0}, r, 0))
			}
			check(w.Barrier())
		})
		for _, list := range events {
			<-list.done
			require.Empty(t, list.list)
		}
	}
}

// eventsProgram breaks a connection of the rank, and continues until both ranks have the events of
// its failure and return.
func eventsProgram(w *comm.Comm) error {
	events := collectEvents(context.Background(), w)
	for range 10 { // so that all connections are made
		ringRound(w, 1)
	}
	if w.Rank() == 0 {
		check(unix.Shutdown(connections()[0], unix.SHUT_RDWR))
	}
	failed, back := events.exchangeUntil(w, comm.RailFailed), events.exchangeUntil(w, comm.RailReturned)
	fmt.Println(w.Rank(), strings.HasPrefix(failed.Rail, "tcp:"), failed.Rail == back.Rail, failed.Err != nil)
	return nil
}

// Two processes get events of a broken TCP connection.
func TestEventsBetweenProcesses(t *testing.T) {
	got := launcher(t)(2, "events", "--btl", "self,tcp", "--set", "tcp.include=127.0.0.1,127.0.0.2", "--set", "pml.notices=false")
	require.Equal(t, outcome{status: 0, stdout: got.stdout}, got)
	assert.Contains(t, got.stdout, "0 true true true\n")
	assert.Contains(t, got.stdout, "1 true true true\n")
}

// logBuffer collects the records of the ranks of a process.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// TestLoggerHasNoticesOfRails: the line about a failed rail is a record of the program's logger.
func TestLoggerHasNoticesOfRails(t *testing.T) {
	var out logBuffer
	run(t, 2, func(t rank, w *comm.Comm) {
		events := collectEvents(context.Background(), w)
		shiftLong(w, 0)
		if w.Rank() == 0 {
			check(w.CutRail(1))
		}
		events.exchangeUntil(w, comm.RailFailed)
	}, comm.WithRails(2), comm.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
	var ranks []int
	for line := range strings.Lines(out.b.String()) {
		var record struct {
			Level, Msg string
			Rank       int
		}
		require.NoError(t, json.Unmarshal([]byte(line), &record), line)
		assert.Equal(t, "WARN", record.Level)
		assert.Contains(t, record.Msg, fmt.Sprintf("rail loop1 to rank %d failed: ", 1-record.Rank))
		ranks = append(ranks, record.Rank)
	}
	assert.ElementsMatch(t, []int{0, 1}, ranks)
}

// loggedMain fails, and logs the error to standard output.
func loggedMain() {
	comm.Run(func(w *comm.Comm) error {
		return errors.New("out of\npaper")
	}, comm.WithLogger(slog.New(slog.NewTextHandler(stdout{}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))))
}

type stdout struct{}

func (stdout) Write(p []byte) (int, error) { return fmt.Print(string(p)) }

// Run tells the logger, and not standard error, why it ends the job. The launcher's line stays.
func TestLoggerHasErrorOfRun(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	got := execute(t, "logged", self)
	assert.Equal(t, outcome{1, "level=ERROR msg=\"out of; paper\" rank=0\n", ""}, got)
}
