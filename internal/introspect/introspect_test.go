package introspect

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/observe"
)

// rank is a rank that answers at once.
type rank struct {
	progress  uint64
	dumped    int
	dumpError error
}

func (r *rank) Progress() uint64 { return r.progress }

func (r *rank) Report() Report {
	return Report{Rank: 3, Snapshot: observe.Snapshot{Progress: r.progress}, Goroutines: []Goroutine{
		{ID: 1, State: "running", Frames: []Frame{{Function: "main.main", File: "main.go", Line: 7}}},
	}}
}

func (r *rank) Metrics(withActivity bool) Metrics {
	m := Metrics{Rank: 3, Counters: map[string]uint64{"Received": 5}}
	if withActivity {
		m.Doing = "main.go:7 Recv"
	}
	return m
}

func (r *rank) DumpTrace() error {
	if r.dumpError == nil {
		r.dumped++
	}
	return r.dumpError
}

func TestAskEachQuestion(t *testing.T) {
	launcher, end := net.Pipe()
	r := &rank{progress: 42}
	go func() {
		_ = Greet(end)
		_ = Serve(end, r)
	}()
	c := NewConn(launcher)
	defer c.Close()
	require.Eventually(t, c.HasGreeted, time.Minute, time.Millisecond)

	a, err := c.Ask(t.Context(), WantProgress)
	require.NoError(t, err)
	require.EqualValues(t, 42, a.Progress)
	require.Nil(t, a.Report)

	a, err = c.Ask(t.Context(), WantReport)
	require.NoError(t, err)
	require.Equal(t, (&rank{progress: 42}).Report(), *a.Report)
	require.EqualValues(t, 42, a.Progress)

	a, err = c.Ask(t.Context(), WantMetrics)
	require.NoError(t, err)
	require.EqualValues(t, 5, a.Metrics.Counters["Received"])
	require.Empty(t, a.Metrics.Doing)

	a, err = c.Ask(t.Context(), WantActivity)
	require.NoError(t, err)
	require.EqualValues(t, 5, a.Metrics.Counters["Received"])
	require.Equal(t, "main.go:7 Recv", a.Metrics.Doing)

	_, err = c.Ask(t.Context(), WantTrace)
	require.NoError(t, err)
	require.Equal(t, 1, r.dumped)
	r.dumpError = errors.New("no room")
	_, err = c.Ask(t.Context(), WantTrace)
	require.ErrorContains(t, err, "no room")

	_, err = c.Ask(t.Context(), "weather")
	require.ErrorContains(t, err, `unknown question "weather"`)
}

func TestAskOfStoppedRankEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		launcher, end := net.Pipe()
		defer end.Close()
		c := NewConn(launcher)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.Ask(ctx, WantReport)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// Questions to a rank that does not read leave one goroutine behind, which ends with the
// connection.
func TestQuestionsToRankThatDoesNotReadDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		launcher, end := net.Pipe()
		defer end.Close()
		c := NewConn(launcher)
		defer c.Close()
		before := runtime.NumGoroutine()
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := c.Ask(ctx, WantProgress)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before+2)
	})
}

func TestAskOfRankThatLeavesFails(t *testing.T) {
	launcher, end := net.Pipe()
	c := NewConn(launcher)
	defer c.Close()
	go func() {
		_, _ = end.Read(make([]byte, 1))
		end.Close()
	}()
	_, err := c.Ask(t.Context(), WantReport)
	require.ErrorIs(t, err, ErrGone)
	_, err = c.Ask(t.Context(), WantReport)
	require.ErrorIs(t, err, ErrGone)
	require.True(t, c.IsGone())
	require.False(t, c.HasGreeted())
}

func TestLateAnswerIsDropped(t *testing.T) {
	launcher, end := net.Pipe()
	c := NewConn(launcher)
	defer c.Close()
	go func() {
		buf := make([]byte, 1024)
		_, _ = end.Read(buf)
		_, _ = end.Write([]byte(`{"v":2,"id":900,"progress":1}` + "\n" + `{"v":2,"id":1,"progress":2}` + "\n"))
	}()
	a, err := c.Ask(t.Context(), WantProgress)
	require.NoError(t, err)
	require.EqualValues(t, 2, a.Progress)
}

func TestAnswerThatIsNoJSONEndsTheConnection(t *testing.T) {
	launcher, end := net.Pipe()
	c := NewConn(launcher)
	defer c.Close()
	go func() {
		_, _ = end.Read(make([]byte, 1024))
		_, _ = end.Write([]byte("hello\n"))
	}()
	_, err := c.Ask(t.Context(), WantProgress)
	require.ErrorIs(t, err, ErrProtocol)
}

func FuzzServe(f *testing.F) {
	f.Add(`{"v":2,"id":1,"want":"report"}`)
	f.Add(strings.Repeat("x", maxQuestionBytes+1))
	f.Fuzz(func(t *testing.T, line string) {
		launcher, end := net.Pipe()
		served := make(chan error, 1)
		go func() {
			served <- Serve(end, &rank{})
			end.Close()
		}()
		go func() {
			go func() { _, _ = io.Copy(io.Discard, launcher) }() // reads the answer
			_, _ = launcher.Write([]byte(line + "\n"))
			launcher.Close()
		}()
		if err := <-served; err != nil {
			require.ErrorIs(t, err, ErrProtocol)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"v":2,"id":1,"progress":2}`))
	f.Add([]byte(`{"v":2,"id":1,"report":{"snapshot":{"Waits":[{"Ops":[7]}]}}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		launcher, end := net.Pipe()
		c := NewConn(launcher)
		defer c.Close()
		go func() {
			_, _ = end.Read(make([]byte, 1024))
			_, _ = end.Write(append(line, '\n'))
			end.Close()
		}()
		_, err := c.Ask(t.Context(), WantProgress) // any result, but one
		_ = err
	})
}

// An answer of another version is not even parsed. The connection stays open, because the rank may
// live longer than the asker.
func TestAnswerOfAnotherVersionIsAnError(t *testing.T) {
	for name, greeting := range map[string]string{
		"greeting": `{"v":9,"id":"zero"}` + "\n",
		"answer":   `{"v":2,"id":0}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			launcher, end := net.Pipe()
			c := NewConn(launcher)
			defer c.Close()
			_, err := end.Write([]byte(greeting))
			require.NoError(t, err)
			require.Eventually(t, c.HasGreeted, time.Minute, time.Millisecond)
			go func() {
				_, _ = end.Read(make([]byte, 1024))
				_, _ = end.Write([]byte(`{"v":9,"id":1,"progress":"none","metrics":[7]}` + "\n"))
			}()
			for range 2 {
				_, err := c.Ask(t.Context(), WantMetrics)
				require.ErrorIs(t, err, ErrVersion)
				require.ErrorContains(t, err, "the rank answers in version 9, and this end understands 2")
			}
			require.False(t, c.IsGone())
			m := AskAll(t.Context(), WantReport, []Peer{{Member: Member{Rank: 4}, Conn: c}})
			require.Equal(t, StateVersion, m[0].State)
			require.Nil(t, m[0].Report)
			require.Contains(t, m[0].Error, "version 9")
		})
	}
}

func TestQuestionOfAnotherVersionIsRefused(t *testing.T) {
	a := answer(Question{Version: Version + 1, ID: 4, Want: WantProgress}, &rank{progress: 42})
	require.EqualValues(t, 4, a.ID)
	require.ErrorContains(t, errors.New(a.Error), "the question has version 3")
	require.Zero(t, a.Progress)
}

// hungRank is a rank whose traces are not written until release is closed.
type hungRank struct {
	rank
	begun, release chan struct{}
}

func (r *hungRank) DumpTrace() error {
	close(r.begun)
	<-r.release
	return nil
}

// TestTraceThatHangsHoldsUpNoQuestion: the other questions are answered, and a second trace is
// refused.
func TestTraceThatHangsHoldsUpNoQuestion(t *testing.T) {
	launcher, end := net.Pipe()
	r := &hungRank{rank{progress: 42}, make(chan struct{}), make(chan struct{})}
	go func() {
		_ = Greet(end)
		_ = Serve(end, r)
	}()
	c := NewConn(launcher)
	defer c.Close()
	first := make(chan error, 1)
	go func() {
		_, err := c.Ask(t.Context(), WantTrace)
		first <- err
	}()
	<-r.begun
	_, err := c.Ask(t.Context(), WantTrace)
	require.ErrorContains(t, err, "still writes its last trace")
	a, err := c.Ask(t.Context(), WantProgress)
	require.NoError(t, err)
	require.EqualValues(t, 42, a.Progress)
	close(r.release)
	require.NoError(t, <-first)
}
