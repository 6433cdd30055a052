package remote

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// taken are the frames that were posted and not written yet.
func takeUrgent(l *link) []frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames := l.urgent
	l.urgent = nil
	return frames
}

// All ranks of a host are asked for before the first one has answered, and what comes of each is told in order.
func TestStartAllRequestsAheadAndReportsInOrder(t *testing.T) {
	h := newHost(&Cluster{}, 3, "n1")
	h.link = newLink()
	specs := []procs.Spec{{Rank: 4, Path: "/a", Args: []string{"a"}}, {Rank: 5, Path: "/b", Args: []string{"b"}}, {Rank: 7, Path: "/c", Args: []string{"c"}}}
	type outcome struct {
		rank, pid int
		err       error
	}
	told := make(chan outcome)
	go func() {
		defer close(told)
		h.StartAll(specs, func(spec procs.Spec, p *procs.Proc, err error) bool {
			o := outcome{rank: spec.Rank, err: err}
			if err == nil {
				assert.Equal(t, spec.Rank, p.Rank)
				o.pid = p.PID
			}
			told <- o
			return false // they are on their way all the same
		})
	}()
	var asked []frame
	require.Eventually(t, func() bool { asked = append(asked, takeUrgent(h.link)...); return len(asked) == len(specs) }, time.Minute, time.Millisecond)
	for i, f := range asked {
		assert.Equal(t, kindStart, f.kind)
		assert.Equal(t, uint16(3), f.host)
		assert.Equal(t, uint32(specs[i].Rank), f.rank)
	}
	require.NoError(t, h.handle(frame{kind: kindFailed, rank: 5, payload: failure{path: "/b", errno: 2}.encode()}))
	require.NoError(t, h.handle(frame{kind: kindStarted, rank: 4, payload: appendNumber(nil, 44)}))
	assert.Equal(t, outcome{rank: 4, pid: 44}, <-told)
	second := <-told
	var failed *procs.StartError
	require.ErrorAs(t, second.err, &failed)
	assert.Equal(t, 5, second.rank)
	h.setLost(errors.New("gone"))
	third := <-told
	assert.Equal(t, 7, third.rank)
	assert.ErrorIs(t, third.err, procs.ErrLost)
	_, more := <-told
	assert.False(t, more)

	h.StartAll(specs[:1], func(_ procs.Spec, _ *procs.Proc, err error) bool {
		assert.ErrorIs(t, err, procs.ErrLost)
		return true
	})
}

// When enough have been started, no more are asked for than are on their way.
func TestStartAllStopsWhenTold(t *testing.T) {
	h := newHost(&Cluster{}, 3, "n1")
	h.link = newLink()
	specs := make([]procs.Spec, 2*maxStartsAhead+10)
	for i := range specs {
		specs[i].Rank = i
	}
	told := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.StartAll(specs, func(spec procs.Spec, p *procs.Proc, err error) bool {
			assert.NoError(t, err)
			assert.Equal(t, told, spec.Rank)
			told++
			return told < 20
		})
	}()
	asked := 0
	require.Eventually(t, func() bool {
		for _, f := range takeUrgent(h.link) {
			asked++
			assert.NoError(t, h.handle(frame{kind: kindStarted, rank: f.rank, payload: appendNumber(nil, 1)}))
		}
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, time.Minute, time.Millisecond)
	assert.Equal(t, maxStartsAhead+19, told)
	assert.Equal(t, told, asked)
}

// A daemon that cannot start a rank starts none of those that were asked for with it.
func TestDaemonStartsNoneAfterFailure(t *testing.T) {
	local, err := procs.NewLocal("n1", "test", nil)
	require.NoError(t, err)
	defer local.Close()
	d := &daemon{up: newLink(), local: local, ranks: map[uint32]*localRank{}}
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

// Nor does it when the job has been killed.
func TestDaemonStartsNoneAfterKill(t *testing.T) {
	local, err := procs.NewLocal("n1", "", nil)
	require.NoError(t, err)
	defer local.Close()
	d := &daemon{up: newLink(), local: local, ranks: map[uint32]*localRank{}}
	mark := filepath.Join(t.TempDir(), "mark")
	require.NoError(t, d.handle(frame{kind: kindKill, rank: allRanks}, nil))
	require.NoError(t, d.handle(frame{kind: kindStart, payload: encodeSpec(procs.Spec{Path: "/bin/sh", Args: []string{"sh", "-c", "echo >" + mark}})}, nil))
	answers := takeUrgent(d.up)
	require.Len(t, answers, 1)
	assert.Equal(t, kindFailed, answers[0].kind)
	assert.Empty(t, d.ranks)
	assert.NoFileExists(t, mark)
}

// A transfer that is cut off leaves nothing in the cache.
func TestDaemonEndDuringTransferLeavesCacheEmpty(t *testing.T) {
	local, err := procs.NewLocal("n1", "test", nil)
	require.NoError(t, err)
	o := newOffer("/nowhere/solver", "program")
	d := &daemon{up: newLink(), local: local, ranks: map[uint32]*localRank{}, files: map[uint32]*inbox{}, stop: make(chan struct{}),
		cache: newTestCache(t)}
	d.cache.noTmpfile = true
	require.NoError(t, d.handle(frame{kind: kindOffer, payload: o.encode()}, nil))
	require.NoError(t, d.handle(frame{kind: kindData, stream: streamFile, payload: []byte("prog")}, nil))
	coming := func() []os.DirEntry {
		files, _ := os.ReadDir(d.cache.dir)
		return files
	}
	require.Eventually(t, func() bool { return len(coming()) == 1 }, time.Minute, time.Millisecond)
	assert.Equal(t, 1, d.end(errors.New("the launcher is gone")))
	assert.Empty(t, coming())
}
