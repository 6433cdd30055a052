package remote

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/procstate"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// takeUrgent returns the queued urgent frames of a link, and empties the queue.
func takeUrgent(l *link) []frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames := l.urgent
	l.urgent = nil
	return frames
}

// has reports whether a frame of the kind and stream is queued as bulk.
func (l *link) has(k kind, s stream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.bulk, func(f frame) bool { return f.kind == k && f.stream == s })
}

// newTestDaemon returns a daemon that has got its hello.
func newTestDaemon(t *testing.T, jobID string) *daemon {
	t.Helper()
	local, err := procs.NewLocal("n1", jobID, nil)
	require.NoError(t, err)
	return &daemon{up: newLink(), local: local, ranks: map[uint32]*localRank{}, files: map[uint32]*inbox{}, stop: make(chan struct{})}
}

// newTestHost returns host 3, whose link has no channel.
func newTestHost() *Host {
	h := newHost(&Cluster{}, 3, "n1")
	h.link = newLink()
	return h
}

// StartAll requests all ranks of a host before the first answer, and reports the results in order.
func TestStartAllRequestsAheadAndReportsInOrder(t *testing.T) {
	h := newTestHost()
	specs := []procs.Spec{{Rank: 4, Path: "/a", Args: []string{"a"}}, {Rank: 5, Path: "/b", Args: []string{"b"}}, {Rank: 7, Path: "/c", Args: []string{"c"}}}
	type outcome struct {
		rank, pid int
		err       error
	}
	reported := make(chan outcome)
	go func() {
		defer close(reported)
		h.StartAll(specs, func(spec procs.Spec, p *procs.Proc, err error) bool {
			o := outcome{rank: spec.Rank, err: err}
			if err == nil {
				assert.Equal(t, spec.Rank, p.Rank)
				o.pid = p.PID
			}
			reported <- o
			return false // all ranks are requested already
		})
	}()
	var requested []frame
	require.Eventually(t, func() bool { requested = append(requested, takeUrgent(h.link)...); return len(requested) == len(specs) }, time.Minute, time.Millisecond)
	for i, f := range requested {
		assert.Equal(t, kindStart, f.kind)
		assert.Equal(t, uint16(3), f.host)
		assert.Equal(t, uint32(specs[i].Rank), f.rank)
	}
	require.NoError(t, h.handle(frame{kind: kindFailed, rank: 5, payload: failure{path: "/b", errno: 2}.encode()}))
	require.NoError(t, h.handle(frame{kind: kindStarted, rank: 4, payload: started{pid: 44}.encode()}))
	assert.Equal(t, outcome{rank: 4, pid: 44}, <-reported)
	second := <-reported
	var failed *procs.StartError
	require.ErrorAs(t, second.err, &failed)
	assert.Equal(t, 5, second.rank)
	h.setLost(errors.New("host is lost"))
	third := <-reported
	assert.Equal(t, 7, third.rank)
	assert.ErrorIs(t, third.err, procs.ErrLost)
	_, more := <-reported
	assert.False(t, more)

	h.StartAll(specs[:1], func(_ procs.Spec, _ *procs.Proc, err error) bool {
		assert.ErrorIs(t, err, procs.ErrLost)
		return true
	})
}

// After report has returned false, StartAll requests no more ranks.
func TestStartAllStopsWhenTold(t *testing.T) {
	h := newTestHost()
	specs := make([]procs.Spec, 2*maxStartsAhead+10)
	for i := range specs {
		specs[i].Rank = i
	}
	reported := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.StartAll(specs, func(spec procs.Spec, p *procs.Proc, err error) bool {
			assert.NoError(t, err)
			assert.Equal(t, reported, spec.Rank)
			reported++
			return reported < 20
		})
	}()
	requested := 0
	require.Eventually(t, func() bool {
		for _, f := range takeUrgent(h.link) {
			requested++
			assert.NoError(t, h.handle(frame{kind: kindStarted, rank: f.rank, payload: started{pid: 1}.encode()}))
		}
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, time.Minute, time.Millisecond)
	assert.Equal(t, maxStartsAhead+19, reported)
	assert.Equal(t, reported, requested)
}

// A stopped rank reads nothing. Questions to it fill the stream's window at most, and delay no
// other stream. The daemon still knows the state of its process.
func TestQuestionsToStoppedRankDelayNoOtherStream(t *testing.T) {
	d := newTestDaemon(t, "test")
	defer d.local.Close()
	spec := procs.Spec{Path: "/bin/sh", Args: []string{"sh", "-c", "read line <&3; echo $line; exec sleep 1000"}}
	require.NoError(t, d.handle(frame{kind: kindStart, payload: encodeSpec(spec)}, nil))
	var got []frame
	answered := func(k kind) func() bool {
		return func() bool {
			got = append(got, takeUrgent(d.up)...)
			return slices.ContainsFunc(got, func(f frame) bool { return f.kind == k })
		}
	}
	require.Eventually(t, answered(kindStarted), time.Minute, time.Millisecond)
	proc := d.ranks[0].proc

	// The window, and again what the daemon writes to the rank's socket and so gives credit for,
	// until that is full.
	write := func(n int) {
		for ; n > 0; n -= min(n, maxDataBytes) {
			require.NoError(t, d.handle(frame{kind: kindData, stream: streamIntrospect, payload: make([]byte, min(n, maxDataBytes))}, nil))
		}
	}
	in := d.ranks[0].in[streamIntrospect]
	write(in.window)
	for quiet := 0; quiet < 50; quiet++ {
		time.Sleep(time.Millisecond)
		for _, f := range takeUrgent(d.up) {
			if f.kind == kindCredit && f.stream == streamIntrospect {
				credit, err := decodeNumber(f.payload, maxInt)
				require.NoError(t, err)
				write(credit)
				quiet = 0
			}
		}
	}
	require.ErrorIs(t, in.put([]byte("more")), ErrProtocol, "the window is full")

	require.NoError(t, d.handle(frame{kind: kindData, stream: streamPMI, payload: []byte("line\n")}, nil))
	require.Eventually(t, func() bool { return d.up.has(kindData, streamStdout) }, time.Minute, time.Millisecond)
	require.NoError(t, d.handle(frame{kind: kindSignal, payload: appendNumber(nil, int(syscall.SIGSTOP))}, nil))
	got = nil
	require.Eventually(t, func() bool {
		require.NoError(t, d.handle(frame{kind: kindAskState}, nil))
		return answered(kindState)() && got[len(got)-1].payload[0] == byte(procstate.Stopped)
	}, time.Minute, time.Millisecond)
	d.local.Kill()
	_, _, err := proc.Wait()
	require.NoError(t, err)
	for _, s := range connStreams {
		require.NoError(t, d.handle(frame{kind: kindEnd, stream: s}, nil))
	}
}

// A call whose context has ended neither waits for the call under way nor asks the daemon.
func TestStateEndsWithContextWhileAnotherCallWaits(t *testing.T) {
	h := newTestHost()
	k := newRemoteRank(h, 4, false)
	first, end := context.WithCancel(t.Context())
	done := make(chan procstate.State)
	go func() { done <- k.State(first) }()
	asked := 0
	require.Eventually(t, func() bool { asked += len(takeUrgent(h.link)); return asked == 1 }, time.Minute, time.Millisecond)
	second, cancel := context.WithCancel(t.Context())
	go func() { done <- k.State(second) }()
	cancel()
	require.Equal(t, procstate.Unknown, <-done)
	require.NoError(t, first.Err(), "the first call goes on")
	end()
	<-done
	for range 100 { // none of them asks, whatever its select prefers
		require.Equal(t, procstate.Unknown, k.State(second))
	}
	require.Empty(t, takeUrgent(h.link))
}

// The launcher asks a daemon for the state of a process, and waits for a bounded time only.
func TestStateOfRemoteRank(t *testing.T) {
	h := newTestHost()
	k := newRemoteRank(h, 4, false)
	h.ranks[4] = k
	state := make(chan procstate.State)
	go func() { state <- k.State(t.Context()) }()
	var asked []frame
	require.Eventually(t, func() bool { asked = append(asked, takeUrgent(h.link)...); return len(asked) == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, frame{kind: kindAskState, host: 3, rank: 4}, asked[0])
	for range 3 { // answers that nobody waits for are dropped
		require.NoError(t, h.handle(frame{kind: kindState, rank: 4, payload: appendNumber(nil, int(procstate.Stopped))}))
	}
	assert.Equal(t, procstate.Stopped, <-state)
	assert.ErrorIs(t, h.handle(frame{kind: kindState, rank: 4}), ErrProtocol)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, procstate.Unknown, k.State(ended))
	h.setLost(errors.New("host is lost"))
	assert.Equal(t, procstate.Unknown, k.State(t.Context()))
}

// After a failed start, the daemon starts none of the other requested ranks.
func TestDaemonStartsNoneAfterFailure(t *testing.T) {
	d := newTestDaemon(t, "test")
	defer d.local.Close()
	missing, mark := filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "mark")
	for rank, spec := range []procs.Spec{
		{Path: missing, Args: []string{"missing"}},
		{Path: "/bin/sh", Args: []string{"sh", "-c", "echo >" + mark}},
	} {
		require.NoError(t, d.handle(frame{kind: kindStart, rank: uint32(rank), payload: encodeSpec(spec)}, nil))
	}
	answers := takeUrgent(d.up)
	require.Len(t, answers, 2)
	for rank, f := range answers {
		assert.Equal(t, kindFailed, f.kind)
		assert.Equal(t, uint32(rank), f.rank)
		e, err := decodeFailure(f.payload)
		require.NoError(t, err)
		assert.Equal(t, missing, e.path)
	}
	assert.Empty(t, d.ranks)
	assert.NoFileExists(t, mark)
}

// After a kill of the job, the daemon starts no rank.
func TestDaemonStartsNoneAfterKill(t *testing.T) {
	d := newTestDaemon(t, "")
	defer d.local.Close()
	mark := filepath.Join(t.TempDir(), "mark")
	require.NoError(t, d.handle(frame{kind: kindKill, rank: allRanks}, nil))
	require.NoError(t, d.handle(frame{kind: kindStart, payload: encodeSpec(procs.Spec{Path: "/bin/sh", Args: []string{"sh", "-c", "echo >" + mark}})}, nil))
	answers := takeUrgent(d.up)
	require.Len(t, answers, 1)
	assert.Equal(t, kindFailed, answers[0].kind)
	assert.Empty(t, d.ranks)
	assert.NoFileExists(t, mark)
}

// A transfer that is cut off leaves no file in the cache.
func TestDaemonEndDuringTransferLeavesCacheEmpty(t *testing.T) {
	o := newOffer("/nowhere/solver", "program")
	d := newTestDaemon(t, "test")
	d.cache = newTestCache(t)
	d.cache.noTmpfile = true
	require.NoError(t, d.handle(frame{kind: kindOffer, payload: o.encode()}, nil))
	require.NoError(t, d.handle(frame{kind: kindData, stream: streamFile, payload: []byte("prog")}, nil))
	require.Eventually(t, func() bool { return countEntries(t, d.cache.dir) == 1 }, time.Minute, time.Millisecond)
	assert.Equal(t, 1, d.end(errors.New("the channel ended")))
	assert.Zero(t, countEntries(t, d.cache.dir))
}
