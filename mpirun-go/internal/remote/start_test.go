package remote

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	require.NoError(t, h.handle(frame{kind: kindStarted, rank: 4, payload: appendNumber(nil, 44)}))
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
			assert.NoError(t, h.handle(frame{kind: kindStarted, rank: f.rank, payload: appendNumber(nil, 1)}))
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
