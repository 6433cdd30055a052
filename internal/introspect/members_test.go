package introspect

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// connTo returns a connection to a rank. If rank is nil, the other end is not served.
func connTo(t *testing.T, rank Describer) *Conn {
	launcher, end := net.Pipe()
	if rank != nil {
		go func() { _ = Serve(end, rank) }()
	}
	c := NewConn(launcher)
	t.Cleanup(func() {
		c.Close()
		end.Close()
	})
	return c
}

func process(text string, isStopped bool) func(context.Context) (string, bool) {
	return func(context.Context) (string, bool) { return text, isStopped }
}

func TestAskAllNamesRanksThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := connTo(t, nil)
		gone.Close()
		begin := time.Now()
		peers := []Peer{
			{Member: Member{Rank: 0, PID: 10}, Conn: connTo(t, &rank{progress: 7}), Process: process("never looked at", true)},
			{Member: Member{Rank: 1}, Conn: connTo(t, nil), Process: process("stopped by a signal", true)},
			{Member: Member{Rank: 2}, Conn: gone},
			{Member: Member{Rank: 3, State: StateNotInited}, Process: process("sleeping", false)},
			{Member: Member{Rank: 4, State: StateExited}},
			{Member: Member{Rank: 5}, Conn: gone, Process: process("exited", false)},
		}
		members := AskAll(t.Context(), WantReport, peers)
		assert.Equal(t, lookAfter+watchTime, time.Since(begin), "nobody waits longer for a process that is stopped")
		assert.EqualValues(t, 7, members[0].Report.Snapshot.Progress)
		assert.EqualValues(t, 7, *members[0].After)
		members[0].Report, members[0].After = nil, nil
		assert.Equal(t, []Member{
			{Rank: 0, PID: 10, State: StateAnswered, Progress: 7},
			{Rank: 1, State: StateSilent, Process: "stopped by a signal"},
			{Rank: 2, State: StateLeaving},
			{Rank: 3, State: StateNotInited, Process: "sleeping"},
			{Rank: 4, State: StateExited},
			{Rank: 5, State: StateLeaving, Process: "exited"},
		}, members)

		begin = time.Now()
		members = AskAll(t.Context(), WantReport, []Peer{
			{Member: Member{Rank: 0}, Conn: connTo(t, nil), Process: process("running", false)},
			{Member: Member{Rank: 1}, Conn: connTo(t, nil)},
		})
		assert.Equal(t, AnswerTimeout, time.Since(begin))
		assert.Equal(t, []Member{{Rank: 0, State: StateSilent, Process: "running"}, {Rank: 1, State: StateSilent}}, members)

		members = AskAll(t.Context(), "weather", []Peer{{Conn: connTo(t, &rank{})}})
		assert.Equal(t, []Member{{State: StateAnswered, Error: `unknown question "weather"`}}, members)
	})
}

// slow is a rank that makes progress at some time.
type slow struct {
	rank
	at time.Time
}

func (r *slow) Progress() uint64 {
	if time.Now().Before(r.at) {
		return 7
	}
	return 8
}

func TestAskAllWatchesRanksUntilOneMakesProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		peers := []Peer{
			{Conn: connTo(t, &rank{progress: 7})},
			{Conn: connTo(t, &slow{rank{progress: 7}, begin.Add(watchTime / 2)})},
		}
		members := AskAll(t.Context(), WantReport, peers)
		assert.EqualValues(t, 7, *members[0].After)
		assert.EqualValues(t, 7, members[1].Report.Snapshot.Progress)
		assert.EqualValues(t, 8, *members[1].After)
		assert.Equal(t, watchTime/2, time.Since(begin))

		begin = time.Now()
		AskAll(t.Context(), WantReport, peers[:1])
		assert.Equal(t, watchTime, time.Since(begin))
		begin = time.Now()
		AskAll(t.Context(), WantMetrics, peers[:1])
		assert.Zero(t, time.Since(begin))
	})
}
