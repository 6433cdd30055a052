package comm

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/pml"
)

// TestDescriberReportsWaitAndMetrics: rank 1 describes rank 0, which waits for a message.
func TestDescriberReportsWaitAndMetrics(t *testing.T) {
	ranks := make(chan *job, 1)
	err := RunLocal(2, func(w *Comm) error {
		if w.Rank() == 0 {
			ranks <- w.job
			_, err := Recv(w, make([]byte, 8), 1, 7)
			return err
		}
		d := newDescriber(<-ranks)
		var r introspect.Report
		require.Eventually(t, func() bool {
			r = d.Report()
			return !r.Locked && len(r.Snapshot.Waits) > 0 // the rank may stand still with its lock
		}, 20*time.Second, time.Millisecond)
		assert.Equal(t, 0, r.Rank)
		assert.Equal(t, 2, r.Size)
		require.Len(t, r.Snapshot.Pending, 1)
		assert.Equal(t, "recv", r.Snapshot.Pending[0].Op)
		assert.NotEmpty(t, r.Goroutines)
		before := d.Progress()
		if err := Send(w, make([]byte, 8), 0, 7); err != nil {
			return err
		}
		assert.Empty(t, d.Metrics(false).Doing)
		var m introspect.Metrics
		require.Eventually(t, func() bool {
			m = d.Metrics(true)
			return m.Counters["Received"] == 1
		}, 20*time.Second, time.Millisecond)
		assert.NotEmpty(t, m.Doing)
		assert.EqualValues(t, 8, m.Counters["ReceivedBytes"])
		assert.Greater(t, m.Progress, before)
		assert.Contains(t, m.Counters, "UnexpectedPeakBytes")
		require.Len(t, m.Rails, 1)
		assert.Equal(t, 1000, m.Rails[0].Health)
		assert.Equal(t, 1, m.Rails[0].Count)
		return nil
	})
	require.NoError(t, err)
}

// TestReportLeavesOutSpareRails: a report has the rails that are not up, with what else leads to
// the peer, and no rail that is merely not in use.
func TestReportLeavesOutSpareRails(t *testing.T) {
	list := []pml.RailStatus{
		{Peer: 1, Rail: "a", State: "up"}, {Peer: 1, Rail: "spare", State: "down"}, {Peer: 1, Rail: "cut", State: "down", Cause: io.EOF},
		{Peer: 2, Rail: "a", State: "probing", Cause: io.EOF, Slow: true, PathErrors: pml.ErrorCounts{Timeout: 3}}, {Peer: 2, Rail: "spare", State: "down"},
		{Peer: 3, Rail: "a", State: "closed"}, {Peer: 4, Rail: "a", State: "up"},
	}
	assert.Equal(t, []introspect.Rail{
		{Peer: 1, Name: "cut", State: "down", Error: "EOF", PeerUp: true},
		{Peer: 2, Name: "a", State: "probing", Error: "EOF", Slow: true, Errors: map[string]uint64{"path timeout": 3}}, {Peer: 2, Name: "spare", State: "down"},
	}, railsOf(list, isNoteworthy))
	all := railsOf(list, func(pml.RailStatus, bool) bool { return true })
	assert.Len(t, all, len(list))
	assert.False(t, all[0].PeerUp)
	assert.True(t, all[1].PeerUp)
}

// TestMetricsShowSpareRailThatIsNeeded: a spare rail without a path is shown if no other rail of
// its name is up.
func TestMetricsShowSpareRailThatIsNeeded(t *testing.T) {
	list := []pml.RailStatus{
		{Peer: 1, Rail: "a", State: "up"}, {Peer: 1, Rail: "a", Remote: 1, Alternate: true, State: "down", Cause: io.EOF},
		{Peer: 2, Rail: "a", State: "down", Cause: io.ErrUnexpectedEOF}, {Peer: 2, Rail: "a", Remote: 1, Alternate: true, State: "down", Cause: io.EOF},
		{Peer: 2, Rail: "b", State: "up"}, {Peer: 2, Rail: "b", Remote: 1, Alternate: true, State: "down"},
		{Peer: 3, Rail: "a", Alternate: true, State: "closed", Cause: io.EOF},
	}
	var got []string
	for _, r := range railsOf(list, isUsed(list)) {
		got = append(got, fmt.Sprint(r.Peer, r.Name, " ", r.State, " ", r.Error))
	}
	assert.Equal(t, []string{"1a up ", "2a down unexpected EOF", "2a down EOF", "2b up "}, got)
}

// TestDescriberOfLockedRankAnswers: a rank that does not give its lock away says so.
func TestDescriberOfLockedRankAnswers(t *testing.T) {
	require.NoError(t, RunLocal(1, func(w *Comm) error {
		d := newDescriber(w.job)
		w.job.eng.Lock()
		defer w.job.eng.Unlock()
		r := d.Report()
		assert.True(t, r.Locked)
		assert.NotEmpty(t, r.Goroutines)
		assert.Zero(t, d.Progress())
		return nil
	}))
}

// TestReportsCountCollectivesAsCollectivesDo: reports compare sequence numbers of collectives.
func TestReportsCountCollectivesAsCollectivesDo(t *testing.T) {
	assert.Equal(t, coll.SequenceNumbers, observe.SequenceNumbers)
}
