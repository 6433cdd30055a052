package diagnose

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/jobsocket"
	"github.com/mpigo/mpigo/internal/observe"
)

func goroutine(state string, inCall bool) introspect.Goroutine {
	return introspect.Goroutine{ID: 1, State: state, Minutes: 3, InCall: inCall,
		Frames: []introspect.Frame{{Function: "main.main", File: "/src/main.go", Line: 7}}}
}

func answered(rank int, state string, inCall bool) introspect.Member {
	return introspect.Member{Rank: rank, PID: 10 + rank, Host: "n1", State: introspect.StateAnswered,
		Report: &introspect.Report{Rank: rank, Goroutines: []introspect.Goroutine{goroutine(state, inCall)}}}
}

func TestMissingNamesWhyThereIsNoReport(t *testing.T) {
	for _, c := range []struct {
		member introspect.Member
		want   hangreport.Missing
	}{
		{answered(0, "running", false), ""},
		{introspect.Member{State: introspect.StateSilent, PID: 7}, hangreport.NoAnswer},
		{introspect.Member{State: introspect.StateSilent, Process: "sleeping"}, hangreport.NoAnswer},
		{introspect.Member{State: introspect.StateSilent}, hangreport.NotConnected},
		{introspect.Member{State: introspect.StateAnswered, Error: "unknown question"}, hangreport.NoReport},
		{introspect.Member{State: introspect.StateNotBegun}, hangreport.NotStarted},
		{introspect.Member{State: introspect.StateSilent, Process: Stopped}, hangreport.Stopped},
		{introspect.Member{State: introspect.StateSilent, Process: "exited"}, hangreport.Exited},
		{introspect.Member{State: introspect.StateNotInited, Process: "sleeping"}, hangreport.NotInited},
		{introspect.Member{State: introspect.StateNotInited, Process: Stopped}, hangreport.Stopped},
		{introspect.Member{State: introspect.StateFinalized}, hangreport.Finalized},
		{introspect.Member{State: introspect.StateExited}, hangreport.Exited},
		{introspect.Member{State: introspect.StateLost}, hangreport.HostLost},
		{introspect.Member{State: introspect.StateForeign}, hangreport.Foreign},
		{introspect.Member{State: introspect.StateLeaving}, hangreport.Leaving},
		{introspect.Member{State: introspect.StateVersion, Error: "version 9"}, hangreport.OtherVersion},
		{introspect.Member{State: introspect.StateLeaving, Process: "exited"}, hangreport.Exited},
	} {
		assert.Equal(t, c.want, missing(c.member), "%+v", c.member)
	}
}

func TestIsComputingOnlyIfNoRankIsInACall(t *testing.T) {
	computing, exited := answered(0, "running", false), introspect.Member{State: introspect.StateExited}
	assert.True(t, IsComputing([]introspect.Member{computing, exited, answered(2, "sleep", false)}))
	waiting := answered(1, "sleep", false)
	waiting.Report.Snapshot.Waits = []observe.Wait{{Need: 1}}
	for _, other := range []introspect.Member{
		waiting, answered(1, "running", true), answered(1, "chan receive", false),
		{State: introspect.StateSilent},
	} {
		assert.False(t, IsComputing([]introspect.Member{computing, other}), "%+v", other)
	}
	assert.False(t, IsComputing([]introspect.Member{exited}))
}

func TestTextSaysThatRanksMakeProgress(t *testing.T) {
	after := uint64(8)
	locked := false
	text := func(kind hangreport.Kind, before uint64) string {
		m := answered(0, "running", true)
		m.Report.Locked = locked
		m.Report.Snapshot.Progress, m.After = before, &after
		r := Report{Finding: hangreport.Finding{Causes: []hangreport.Cause{{Kind: kind, Text: "why"}}}, Members: []introspect.Member{m}}
		return r.Text()
	}
	assert.Equal(t, "hang: why\nwhat the ranks do:\n", text(hangreport.KindUnknown, 8))
	assert.Equal(t, "no hang: ranks make progress\nwhat the ranks do:\n", text(hangreport.KindUnknown, 7))
	for _, kind := range []hangreport.Kind{
		hangreport.KindLate, hangreport.KindMayDeadlock, hangreport.KindComputes, hangreport.KindUnderWay, hangreport.KindAwaitsOthers,
	} {
		assert.Equal(t, "hang: why\nwhat the ranks do:\n", text(kind, 8))
		assert.Equal(t, "no hang: ranks make progress\nat this moment: why\nwhat the ranks do:\n", text(kind, 7))
	}
	for _, kind := range []hangreport.Kind{hangreport.KindStopped, hangreport.KindDeadlock, hangreport.KindMismatch, hangreport.KindNoAnswer} {
		assert.Equal(t, "hang: why\nwhat the ranks do:\n", text(kind, 7), "other ranks may go on")
	}
	locked = true
	assert.Equal(t, "hang: why\nwhat the ranks do:\n", text(hangreport.KindComputes, 0), "its progress was not known")
}

// TestTextOfRankWhoseCallIsOver: ranks that spin in short calls may show the same progress twice.
func TestTextOfRankWhoseCallIsOver(t *testing.T) {
	after := uint64(8)
	for state, want := range map[string]string{
		"runnable": "no hang: ranks make progress\nat this moment: rank 0: in a call that goes on: main.go:7 in main.main (runnable for 3 min)\n",
		"IO wait":  "hang: rank 0: in a call that goes on: main.go:7 in main.main (IO wait for 3 min)\n",
	} {
		m := answered(0, state, true)
		m.Report.Goroutines[0].Waits, m.Report.Snapshot.Progress, m.After = true, 8, &after
		assert.Contains(t, New(jobsocket.Info{}, []introspect.Member{m}).Text(), want)
	}
}

func TestTextOfJobThatComputes(t *testing.T) {
	computes, exited := answered(0, "running", false), introspect.Member{State: introspect.StateExited}
	assert.Contains(t, New(jobsocket.Info{}, []introspect.Member{computes, exited}).Text(), "all ranks compute: rank 0: in no call that waits: main.go:7 ")
	polls := answered(1, "running", true)
	assert.Contains(t, New(jobsocket.Info{}, []introspect.Member{computes, polls}).Text(), "hang: ")
}

// TestNewSurvivesBugInAnalysis: a panic would end the launcher, and with it the job.
func TestNewSurvivesBugInAnalysis(t *testing.T) {
	f := analyze(3, func() hangreport.Finding { panic("index out of range") })
	assert.Equal(t, 3, f.Size)
	r := Report{Finding: f, Members: []introspect.Member{answered(0, "running", true)}}
	assert.Contains(t, r.Text(), "hang: the reports of the ranks could not be analyzed, because of a bug in mpirun-go: index out of range\n")
}

func TestWriteDirHasAFileForEachRank(t *testing.T) {
	waiting := answered(0, "select", true)
	waiting.Report.Snapshot = observe.Snapshot{
		Pending: []observe.Pending{{Op: "recv", Peer: 1, Tag: 7, Bytes: 8, Phase: "posted", Comm: "world"}},
		Waits: []observe.Wait{
			{Ops: []int{0, 99}, Need: 1}, // 99: a rank may say what it likes
			{
				Need: 0, Call: "Allreduce", Nanos: 3e9, Site: &observe.Site{File: "/src/main.go", Line: 19},
				In: []observe.CollectiveCall{{Name: "allreduce", CommName: "world", Root: -1}},
			},
		},
	}
	waiting.Report.Unreceived = []observe.Message{{Source: 1, Tag: 8, Bytes: 16, Comm: "world"}}
	waiting.Report.Rails = []introspect.Rail{{Name: "tcp:eth0", Peer: 1, State: "down"}}
	stopped := introspect.Member{Rank: 1, PID: 11, Host: "n2", State: introspect.StateSilent, Process: Stopped}
	r := New(jobsocket.Info{Name: "mpigo-1-a", Command: "solver"}, []introspect.Member{waiting, stopped})
	assert.True(t, r.HasAnswers())
	dir := filepath.Join(t.TempDir(), "a", "b")
	require.NoError(t, r.WriteDir(dir))
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	assert.Contains(t, read("report.txt"), "job mpigo-1-a: solver\nhang: rank 1: its process is stopped by a signal (pid 11 on n2); kill -CONT 11 lets it go on")
	for _, line := range []string{
		"rank 0, pid 10, on n1: answered\n", "  recv; it needs 1 of:\n    recv from 1, tag 7 (posted)\n",
		"  main.go:19 Allreduce in world, for 3 s; it needs 0 of:\n", "from rank 1, tag 8, 16 bytes, in world",
		"tcp:eth0 to rank 1: down", "goroutine 1 [select, 3m0s]:\nmain.main\n\t/src/main.go:7\n",
	} {
		assert.Contains(t, read("rank.0.txt"), line)
	}
	assert.Equal(t, "rank 1, pid 11, on n2: no answer\nits process: stopped by a signal\n", read("rank.1.txt"))
	var back Report
	require.NoError(t, json.Unmarshal([]byte(read("report.json")), &back))
	assert.Equal(t, *r, back)

	var text bytes.Buffer
	require.NoError(t, r.JSON(&text))
	assert.Equal(t, text.String(), read("report.json"))
}
