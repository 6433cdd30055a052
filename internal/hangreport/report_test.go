package hangreport

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/internal/race"
)

// goroutine returns a goroutine of the program in a state. With waits, it is in a waiting call.
func goroutine(state string, waits bool) introspect.Goroutine {
	return introspect.Goroutine{
		State: state, InCall: waits, Waits: waits,
		Frames: []introspect.Frame{{Function: "main.work", File: "/src/main.go", Line: 60}},
	}
}

// receives is the report of a rank that receives from a peer.
func receives(peer int) *introspect.Report {
	return &introspect.Report{
		Snapshot: observe.Snapshot{
			Progress: 5,
			Pending:  []observe.Pending{{Op: "recv", Peer: peer, Tag: 7, Bytes: 8, By: []int{peer}, Comm: "world"}},
			Waits: []observe.Wait{{
				Ops: []int{0}, Need: 1, Call: "Recv", Nanos: 61e9,
				Site: &observe.Site{Function: "main.main", File: "/src/main.go", Line: 51},
			}},
		},
		Goroutines: []introspect.Goroutine{goroutine("select", true)},
	}
}

// quiet are ranks that have made no progress since their reports.
func quiet(reports ...*introspect.Report) (out []Rank) {
	for _, r := range reports {
		after := r.Snapshot.Progress
		out = append(out, Rank{Report: r, After: &after})
	}
	return out
}

// cycle are two ranks that receive from each other.
func cycle() []Rank { return quiet(receives(1), receives(0)) }

func first(f Finding) string { return strings.SplitN(f.String(), "\n", 2)[0] }

func TestDeadlockIsCertainOnlyIfNothingCanGoOn(t *testing.T) {
	const deadlock = "hang: deadlock: nothing can release ranks 0, 1; rank 0 waits for rank 1, which waits for rank 0"
	for name, c := range map[string]struct {
		change func(ranks []Rank)
		kind   Kind
	}{
		"nothing else":         {func([]Rank) {}, KindDeadlock},
		"a rank has moved":     {func(r []Rank) { *r[1].After++ }, KindUnknown},
		"while it reported":    {func(r []Rank) { r[1].Report.Stale = true }, KindUnknown},
		"a rank may have":      {func(r []Rank) { r[1].After = nil }, KindUnknown},
		"a message under way":  {func(r []Rank) { r[0].Report.Snapshot.Channels = []observe.Channel{{Peer: 1, Posted: 2}} }, KindUnderWay},
		"a context may end":    {func(r []Rank) { r[0].Report.Snapshot.Waits[0].MayGiveUp = true }, KindUnknown},
		"a goroutine runs":     {func(r []Rank) { add(r[1], goroutine("running", false)) }, KindUnknown},
		"a goroutine sleeps":   {func(r []Rank) { add(r[1], goroutine("sleep", false)) }, KindUnknown},
		"on a channel":         {func(r []Rank) { add(r[1], goroutine("chan receive", false)) }, KindMayDeadlock},
		"sends on a channel":   {func(r []Rank) { add(r[1], goroutine("chan send", false)) }, KindMayDeadlock},
		"waits for condition":  {func(r []Rank) { add(r[1], goroutine("sync.Cond.Wait", false)) }, KindMayDeadlock},
		"locks a mutex":        {func(r []Rank) { add(r[1], goroutine("sync.Mutex.Lock", false)) }, KindDeadlock},
		"reads a file":         {func(r []Rank) { add(r[1], goroutine("syscall", false)) }, KindMayDeadlock},
		"waits for goroutines": {func(r []Rank) { add(r[1], goroutine("sync.WaitGroup.Wait", false)) }, KindDeadlock},
		"goroutines are cut":   {func(r []Rank) { r[1].Report.GoroutinesCut = true }, KindUnknown},
		"unknown wait":         {func(r []Rank) { add(r[1], goroutine("select", true)) }, KindUnknown},
		"operation goes on":    {func(r []Rank) { r[1].Report.Snapshot.Pending[0].By = nil }, KindUnknown},
		"no answer":            {func(r []Rank) { r[1] = Rank{Missing: NoAnswer} }, KindNoAnswer},
		"stopped":              {func(r []Rank) { r[1] = Rank{Missing: Stopped} }, KindStopped},
		"host lost":            {func(r []Rank) { r[1] = Rank{Missing: HostLost} }, KindStopped},
		"locked":               {func(r []Rank) { r[1].Report = &introspect.Report{Locked: true} }, KindComputes},
		"exited":               {func(r []Rank) { r[1] = Rank{Missing: Exited} }, KindFinalized},
	} {
		ranks := cycle()
		c.change(ranks)
		f := Analyze(ranks)
		assert.Equal(t, c.kind, f.Causes[0].Kind, "%s: %s", name, f)
		if c.kind == KindDeadlock {
			assert.Equal(t, deadlock, first(f), name)
			assert.Equal(t, []int{0, 1}, f.Causes[0].Cycle)
		} else {
			assert.NotContains(t, f.String(), "deadlock: nothing can release ranks 0, 1", name)
		}
	}
}

// TestRankWhoseCallIsOverHasALine is about ranks that spin in short calls. The call in the stack
// has often ended when the operations are listed.
func TestRankWhoseCallIsOverHasALine(t *testing.T) {
	for name, change := range map[string]func(r *introspect.Report){
		"over":         func(*introspect.Report) {},
		"and the next": func(r *introspect.Report) { r.Stale = true },
	} {
		ranks := cycle()
		ranks[1].Report.Snapshot.Waits, ranks[1].Report.Snapshot.Pending = nil, nil
		ranks[1].Report.Goroutines = []introspect.Goroutine{{
			State: "runnable", InCall: true, Waits: true,
			Frames: []introspect.Frame{
				{Function: "github.com/mpigo/mpigo/progress.(*Engine).WaitOn", File: "/lib/wait.go", Line: 5},
				{Function: "github.com/mpigo/mpigo/comm.Recv[...]", File: "/lib/recv.go", Line: 9},
				{Function: "main.main", File: "/src/main.go", Line: 19},
			},
		}}
		change(ranks[1].Report)
		assert.Equal(t, `hang: rank 1: in a call that goes on: main.go:19 Recv (runnable); rank 0 waits for it
what the ranks do:
  0: main.go:51 Recv from 1, tag 7, for 61 s
  1: main.go:19 Recv (runnable)
`, Analyze(ranks).String(), name)
	}
}

func add(r Rank, g introspect.Goroutine) { r.Report.Goroutines = append(r.Report.Goroutines, g) }

// TestFilesOfTheSameNameAreToldApart: two programs of a job may have a main.go each.
func TestFilesOfTheSameNameAreToldApart(t *testing.T) {
	ranks := cycle()
	ranks[0].Report.Snapshot.Waits[0].Site.File = "/src/master/main.go"
	add(ranks[0], introspect.Goroutine{State: "sleep", Frames: []introspect.Frame{{Function: "main.tick", File: "/src/master/tick.go", Line: 8}}})
	text := Analyze(ranks).String()
	assert.Contains(t, text, "\n  0: master/main.go:51 Recv from 1, tag 7, for 61 s\n      tick.go:8 in main.tick (sleep)\n")
	assert.Contains(t, text, "\n  1: src/main.go:51 Recv from 0, tag 7, for 61 s\n")
}

// TestOperationsOfBlockingCallsAreNotUnwaited: the report lists operations that no call waits for.
// It leaves out operations of calls that wait for them later, and sends from a copy.
func TestOperationsOfBlockingCallsAreNotUnwaited(t *testing.T) {
	op := func(name string, sends, isAbandoned bool) observe.Pending {
		return observe.Pending{Op: name, Sends: sends, Peer: 1, Tag: 7, Comm: "world", Abandoned: isAbandoned}
	}
	for name, c := range map[string]struct {
		pending []observe.Pending
		waits   bool
		want    string
	}{
		"Sendrecv that waits for the receive": {
			[]observe.Pending{op("sendrecv", false, false), op("sendrecv", true, false)}, true, "main.go:51 Sendrecv from 1, tag 7",
		},
		"Sendrecv that does not wait yet": {
			[]observe.Pending{op("sendrecv", true, false)}, false, "in a call that goes on: sendrecv to 1, tag 7",
		},
		"a send from a copy, beside a receive": {
			[]observe.Pending{op("recv", false, false), op("send", true, true)}, true,
			"main.go:51 Sendrecv from 1, tag 7\n      sent, but not delivered yet: send to 1, tag 7",
		},
		"a send and a receive for later": {
			[]observe.Pending{op("isend", true, false), op("irecv", false, false)}, false, "no call waits for: isend to 1, tag 7; irecv from 1, tag 7",
		},
		"both halves of an Isendrecv for later": {
			[]observe.Pending{op("isendrecv", true, false), op("isendrecv", false, false)}, false,
			"no call waits for: isendrecv to 1, tag 7; isendrecv from 1, tag 7",
		},
		"a nonblocking collective for later": {
			[]observe.Pending{{Op: "ibcast", Peer: 1, Tag: 7, Comm: "world", Collective: true}}, false, "no call waits for: ibcast with 1",
		},
		"a persistent send for later":       {[]observe.Pending{op("send init", true, false)}, false, "no call waits for: send init to 1, tag 7"},
		"a receive whose request was freed": {[]observe.Pending{op("irecv", false, true)}, false, "no call waits for: irecv from 1, tag 7"},
	} {
		r := &introspect.Report{Snapshot: observe.Snapshot{Pending: c.pending}}
		if c.waits {
			r.Snapshot.Waits = []observe.Wait{{Ops: []int{0}, Need: 1, Call: "Sendrecv", Site: &observe.Site{File: "/src/main.go", Line: 51}}}
		}
		text := Analyze(quiet(r, receives(0))).String()
		_, text, _ = strings.Cut(text, "what the ranks do:\n")
		assert.True(t, strings.HasPrefix(text, "  0: "+c.want+"\n  1: "), "%s: %s", name, text)
	}
}

func TestReportOfRanksWithoutReport(t *testing.T) {
	ranks := cycle()
	ranks[1] = Rank{Missing: Stopped, PID: 4711, Host: "node7"}
	assert.Equal(t, `hang: rank 1: its process is stopped by a signal (pid 4711 on node7); kill -CONT 4711 lets it go on; rank 0 waits for it
what the ranks do:
  0: main.go:51 Recv from 1, tag 7, for 61 s
  1: stopped
`, Analyze(ranks).String())
	ranks = append(ranks, Rank{Missing: Finalized}, Rank{Missing: NoAnswer}, Rank{})
	f := Analyze(ranks)
	assert.Contains(t, f.String(), "  2: finalized\n  3, 4: no answer\n")
}

// TestMissingReportSaysWhatIsKnown: a report guesses that a rank is stopped or overloaded only if
// the rank was asked and the state of its process is unknown.
func TestMissingReportSaysWhatIsKnown(t *testing.T) {
	const guess = "the process is stopped, overloaded, or in a call of C"
	for _, c := range []struct {
		rank Rank
		kind Kind
		want string
	}{
		{Rank{}, KindNoAnswer, "rank 1: it does not answer: " + guess},
		{Rank{Missing: NoAnswer, PID: 7, Host: "n1", Process: "running"}, KindNoAnswer,
			"rank 1: it does not answer: its process is running, and overloaded or in a call of C (pid 7 on n1)"},
		{Rank{Missing: NoAnswer, PID: 7, Process: "stopped by a debugger"}, KindNoAnswer, "rank 1: it does not answer: its process is stopped by a debugger (pid 7)"},
		{Rank{Missing: Leaving, PID: 7}, KindNoAnswer, "rank 1: its connection ended while it was asked: it finalizes or ends (pid 7)"},
		{Rank{Missing: NoReport}, KindNoAnswer, "rank 1: it answers without a report"},
		{Rank{Missing: Foreign, PID: 7}, KindNoAnswer, "rank 1: it cannot be asked: it does not use this library, or has not connected (pid 7)"},
		{Rank{Missing: OtherVersion, PID: 7}, KindNoAnswer, "rank 1: it cannot be asked: its program was built with another version of mpigo than mpirun-go (pid 7)"},
		{Rank{Missing: NotConnected}, KindNoAnswer, "rank 1: it has not connected, which Init does in programs that use this library"},
		{Rank{Missing: NotStarted, Host: "n1"}, KindLate, "rank 1: its process has not been started (on n1)"},
		{Rank{Missing: NotInited, PID: 7}, KindLate, "rank 1: it has not called Init (pid 7)"},
		{Rank{Missing: Stopped}, KindStopped, "rank 1: its process is stopped by a signal; kill -CONT lets it go on"},
		{Rank{Missing: HostLost, Host: "n1"}, KindStopped, "rank 1: its host does not answer (on n1)"},
	} {
		ranks := cycle()
		ranks[1] = c.rank
		f := Analyze(ranks)
		assert.Equal(t, c.kind, f.Causes[0].Kind)
		assert.Equal(t, "hang: "+c.want+"; rank 0 waits for it", first(f))
	}
	ranks := append(cycle(), Rank{Missing: Stopped, PID: 5, Host: "n1"}, Rank{Missing: Stopped, PID: 6, Host: "n2"})
	assert.Equal(t, "hang: ranks 2, 3: their processes are stopped by a signal (pid 5 on n1, pid 6 on n2); kill -CONT lets them go on", first(Analyze(ranks)))
}

// TestWaitForRankThatHasLeftIsNoDeadlock: the library ends such a call with an error, and the ranks
// that wait for the caller go on. A receive from any rank waits forever.
func TestWaitForRankThatHasLeftIsNoDeadlock(t *testing.T) {
	ranks := append(quiet(receives(1), receives(2)), Rank{Missing: Finalized})
	f := Analyze(ranks)
	assert.Equal(t, "hang: rank 1 waits for rank 2, which has finalized: the call ends with ErrProcFailed after about a second; rank 0 waits for it", first(f))
	assert.Equal(t, KindFinalized, f.Causes[0].Kind)
	assert.NotContains(t, f.String(), "deadlock")
	add(ranks[0], goroutine("chan receive", false))
	assert.NotContains(t, Analyze(ranks).String(), "deadlock")

	// A receive that is active in Finalize may match the message.
	sends, left := receives(1), receives(0)
	sends.Snapshot.Pending[0].Op, sends.Snapshot.Pending[0].Sends = "ssend", true
	left.Snapshot = observe.Snapshot{Ended: true, Pending: left.Snapshot.Pending}
	f = Analyze(quiet(sends, left))
	assert.NotContains(t, f.String(), "ErrProcFailed")
	left.Snapshot.Pending = nil
	f = Analyze(quiet(sends, left))
	assert.Contains(t, first(f), "rank 0 waits for rank 1, which has finalized: the call ends with ErrProcFailed")

	r := receives(-1)
	r.Snapshot.Pending[0].By = []int{1, 2}
	f = Analyze(append(quiet(r), Rank{Missing: Finalized}, Rank{Missing: Exited}))
	assert.Contains(t, first(f), "deadlock: nothing can release rank 0, which waits for a message from any rank; ranks 1, 2 have finalized")
}

func TestMismatchedCollectivesAreNamed(t *testing.T) {
	call := func(name string, root, line int) *introspect.Report {
		return &introspect.Report{Snapshot: observe.Snapshot{
			Collectives: []observe.Collective{{Comm: 1, Number: 4}},
			Waits: []observe.Wait{{
				Members: []int{0, 1}, Call: name, Site: &observe.Site{File: "main.go", Line: line},
				In: []observe.CollectiveCall{{Collective: observe.Collective{Comm: 1, Number: 3}, Name: name, CommName: "world", Root: root}},
			}},
		}, Goroutines: []introspect.Goroutine{goroutine("select", true)}}
	}
	f := Analyze(quiet(call("barrier", -1, 20), call("allreduce", -1, 30)))
	assert.Equal(t, "hang: collectives in different order in world: rank 0 calls barrier (main.go:20 barrier), rank 1 calls allreduce (main.go:30 allreduce)", first(f))
	f = Analyze(quiet(call("bcast", 0, 20), call("bcast", 1, 20)))
	assert.Contains(t, first(f), "rank 0 calls bcast with root 0 (main.go:20 bcast), rank 1 calls bcast with root 1")
}

// TestSharedMemoryNeedsOnlyRanksThatAreLate: a rank that has called the collective may have changed
// the memory, even if it is now in Finalize. The waiting rank may not have seen the change yet.
func TestSharedMemoryNeedsOnlyRanksThatAreLate(t *testing.T) {
	for _, needsAll := range []bool{true, false} {
		for next, want := range map[int]Kind{4: KindUnknown, 3: KindFinalized} {
			at := observe.Collective{Comm: 1, Number: 3}
			waits := receives(1)
			waits.Snapshot.Collectives = []observe.Collective{{Comm: 1, Number: 4}}
			w := &waits.Snapshot.Waits[0]
			w.Shared, w.Members, w.In = true, []int{0, 1}, []observe.CollectiveCall{{Collective: at, Name: "barrier"}}
			if needsAll {
				w.Collective = &at
			}
			left := &introspect.Report{Snapshot: observe.Snapshot{Ended: true, Collectives: []observe.Collective{{Comm: 1, Number: next}}}}
			f := Analyze(quiet(waits, left))
			got := slices.ContainsFunc(f.Causes, func(c Cause) bool { return c.Kind == want })
			assert.True(t, got, "%v %d %s: %s", needsAll, next, want, f)
		}
	}
}

// TestNearMissIsCauseOnlyOfDeadlock: a rank that may still be released may receive the message
// later.
func TestNearMissIsCauseOnlyOfDeadlock(t *testing.T) {
	for _, m := range []struct {
		message observe.Message
		miss    string
	}{
		{observe.Message{Source: 1, Tag: 8, Comm: "world"}, "another tag"},
		{observe.Message{Source: 1, Tag: 7, Comm: "half"}, "another communicator"},
		{observe.Message{Source: 0, Tag: 7, Comm: "world"}, "another source"},
		{observe.Message{Source: 0, Tag: 9, Comm: "world"}, ""},
	} {
		ranks := cycle()
		ranks[0].Report.Unreceived = []observe.Message{m.message}
		f := Analyze(ranks)
		if m.miss == "" {
			assert.Equal(t, KindDeadlock, f.Causes[0].Kind, f)
			continue
		}
		assert.Equal(t, KindNearMiss, f.Causes[0].Kind, f)
		assert.True(t, strings.HasSuffix(first(f), "that has arrived has "+m.miss), f)
		add(ranks[1], goroutine("running", false))
		f = Analyze(ranks)
		assert.NotEqual(t, KindNearMiss, f.Causes[0].Kind, f)
		require.Len(t, f.Notes, 1)
		assert.Contains(t, f.Notes[0], m.miss)
	}
}

// TestRailsThatAreDownAreCausesOrNotes: a rail is a cause if operations wait for it, which they do
// only if no other rail to the peer is up.
func TestRailsThatAreDownAreCausesOrNotes(t *testing.T) {
	ranks := cycle()
	ranks[0].Report.Rails = []introspect.Rail{{Name: "tcp eth0", Peer: 1, State: "down", Error: "connection refused"}}
	f := Analyze(ranks)
	assert.Equal(t, []string{"at rank 0: rail tcp eth0 to rank 1 is down: connection refused"}, f.Notes)
	ranks[0].Report.Snapshot.Pending[0].By = nil
	ranks[0].Report.Rails[0].PeerUp = true
	f = Analyze(ranks)
	assert.NotEqual(t, KindUnreachable, f.Causes[0].Kind, f)
	assert.Equal(t, []string{"at rank 0: rail tcp eth0 to rank 1 is down: connection refused"}, f.Notes)
	ranks[0].Report.Rails[0].PeerUp = false
	f = Analyze(ranks)
	assert.Equal(t, "hang: rank 0 does not reach rank 1: rail tcp eth0 to rank 1 is down: connection refused", first(f))
	assert.Empty(t, f.Notes)
}

// TestReportOfManyDifferentRanksFitsScreen: ranks that cannot be folded are cut off in the text,
// and are complete in JSON.
func TestReportOfManyDifferentRanksFitsScreen(t *testing.T) {
	var reports []*introspect.Report
	for i := range 64 {
		r := receives((i*7 + 1) % 64)
		r.Snapshot.Pending[0].Tag = i
		reports = append(reports, r)
	}
	f := Analyze(quiet(reports...))
	assert.LessOrEqual(t, strings.Count(f.String(), "\n"), 40)
	assert.Contains(t, f.String(), "\n  and 38 more ranks\n")
	text, err := json.Marshal(f)
	require.NoError(t, err)
	var back Finding
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, f, back)
	assert.Len(t, back.Groups, 64)
}

func TestRanksFoldsRuns(t *testing.T) {
	assert.Equal(t, "0-3, 7, 9, 10", Ranks([]int{3, 1, 0, 2, 7, 10, 9, 9}))
	assert.Equal(t, "", Ranks(nil))
}

// TestRanksOfOneMomentShareALine: short times are rounded, so that ranks do not differ in them.
func TestRanksOfOneMomentShareALine(t *testing.T) {
	ranks := cycle()
	ranks[0].Report.Snapshot.Waits[0].Nanos, ranks[1].Report.Snapshot.Waits[0].Nanos = 961e6, 963e6
	assert.Contains(t, Analyze(ranks).String(), "  0, 1: main.go:51 Recv from rank+1, tag 7, for 960 ms\n")
	for nanos, want := range map[int64]string{999e3: "", 42e6: "42 ms", 994e6: "990 ms", 995e6: "1 s", 61e9: "61 s", 1e13: "167 min", 2e13: "6 h"} {
		assert.Equal(t, want, age(nanos))
	}
}

// TestTextHasNoControlCharacters: names in reports may have any control characters, including C1
// controls and DEL.
func TestTextHasNoControlCharacters(t *testing.T) {
	ranks := cycle()
	ranks[0].Report.Snapshot.Pending[0].Comm = "a\x1b[2J\u009b2J\x7f\u0085b"
	text := Analyze(ranks).String()
	assert.NotRegexp(t, `[^\n\P{Cc}]`, text)
	assert.Contains(t, text, "in a [2J 2J  b")
}

// collidingReports are pairs of reports of ranks that do different things. Their names would make
// the two look alike in a concatenation.
func collidingReports() (pairs [][2]*introspect.Report) {
	pending := func(ops ...observe.Pending) *introspect.Report {
		return &introspect.Report{Snapshot: observe.Snapshot{Pending: ops}}
	}
	outside := func(functions ...string) *introspect.Report {
		r := new(introspect.Report)
		for _, f := range functions {
			r.Goroutines = append(r.Goroutines, introspect.Goroutine{Frames: []introspect.Frame{{Function: f, File: "a.go", Line: 1}}})
		}
		return r
	}
	return [][2]*introspect.Report{
		{
			pending(observe.Pending{Op: "a", Tag: 1}, observe.Pending{Op: "b", Tag: 2}),
			pending(observe.Pending{Op: "a from 0, tag 1|b", Tag: 2}),
		},
		{outside("main.f", "main.g"), outside("main.f\na.go:1 in main.g")},
		{
			pending(observe.Pending{Op: "a", Tag: 1}, observe.Pending{Op: "b", Tag: 2}),
			pending(observe.Pending{Op: "a", Tag: 1, Comm: "c|b from 0, tag 2"}),
		},
		{
			pending(observe.Pending{Op: "a", Tag: 1, Comm: "c|b from 0, tag 2"}),
			pending(observe.Pending{Op: "a", Tag: 1, Comm: "c"}, observe.Pending{Op: "b", Tag: 2}),
		},
	}
}

// TestRanksThatDoDifferentThingsAreNotFolded also checks that no report makes Analyze panic.
func TestRanksThatDoDifferentThingsAreNotFolded(t *testing.T) {
	for _, pair := range collidingReports() {
		for _, order := range [][]*introspect.Report{{pair[0], pair[1]}, {pair[1], pair[0]}} {
			assert.Len(t, Analyze(quiet(order...)).Groups, 2)
		}
	}
}

// FuzzAnalyze: reports come over a wire.
func FuzzAnalyze(f *testing.F) {
	for _, pair := range collidingReports() {
		a, err := json.Marshal(pair[0])
		require.NoError(f, err)
		b, err := json.Marshal(pair[1])
		require.NoError(f, err)
		f.Add(a, b, uint8(0))
		f.Add(b, a, uint8(0))
	}
	for _, seed := range []any{receives(1), receives(-1), receives(9)} {
		text, err := json.Marshal(seed)
		require.NoError(f, err)
		f.Add(text, text, uint8(0))
	}
	f.Add([]byte(`{"snapshot":{"waits":[{"ops":[-1,7],"need":1,"members":[-1,5],"in":[{"comm":1,"root":-9}],"collective":{"comm":1}}],`+
		`"collectives":[{"comm":1}],"channels":[{"peer":-1,"posted":1},{"peer":1,"posted":1}],"pending":[{"peer":77}]}}`),
		[]byte(`{"rails":[{"peer":-1}],"snapshot":{"pending":[{"peer":0,"by":[-1,99]}]}}`), uint8(1))
	f.Fuzz(func(t *testing.T, a, b []byte, more uint8) {
		ranks := make([]Rank, 2+more%4)
		for i, text := range [][]byte{a, b} {
			r := new(introspect.Report)
			if json.Unmarshal(text, r) == nil {
				ranks[i] = Rank{Report: r, After: &r.Snapshot.Progress}
			}
		}
		finding := Analyze(ranks)
		require.NotEmpty(t, finding.Causes)
		require.NotEmpty(t, finding.String())
	})
}

// lateToBarrier is a job in which one rank computes and all others wait for it in a barrier, half
// of them in shared memory.
func lateToBarrier(n int) []Rank {
	at := observe.Collective{Comm: 1, Number: 3}
	var members []int
	for i := range n {
		members = append(members, i)
	}
	var reports []*introspect.Report
	for i := range n - 1 {
		r := receives((i + 1) % n)
		p, w := &r.Snapshot.Pending[0], &r.Snapshot.Waits[0]
		p.Op, p.Collective = "barrier", true
		r.Snapshot.Collectives = []observe.Collective{{Comm: 1, Number: 4}}
		w.Members, w.Collective, w.In = members, &at, []observe.CollectiveCall{{Collective: at, Name: "barrier", CommName: "world", Root: -1, Awaits: members}}
		w.Shared = i%2 == 0
		reports = append(reports, r)
	}
	late := &introspect.Report{Goroutines: []introspect.Goroutine{goroutine("running", false)}}
	late.Snapshot.Collectives = []observe.Collective{at}
	return quiet(append(reports, late)...)
}

// processorTime returns the processor time of this process.
func processorTime(t *testing.T) time.Duration {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestAnalyzeOfManyRanksIsFast: the time must not grow with the cube of the number of ranks.
// Analyze takes a quarter of a second of processor time; a cubic search takes eight seconds. With
// the race detector both take several times as long.
func TestAnalyzeOfManyRanksIsFast(t *testing.T) {
	limit := 4 * time.Second
	if race.Enabled {
		limit *= 4
	}
	ranks := lateToBarrier(1024)
	begin := processorTime(t)
	f := Analyze(ranks)
	assert.Less(t, processorTime(t)-begin, limit)
	assert.Equal(t, KindLate, f.Causes[0].Kind, f)
	assert.Contains(t, first(f), "rank 1023 has not called barrier in world: ranks 0-1022 wait for it", f)
}
