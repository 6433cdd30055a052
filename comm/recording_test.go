package comm

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/profile"
	"github.com/mpigo/mpigo/request"
)

// profiled runs body on n ranks and returns their profiles.
func profiled(t *testing.T, n int, body func(w *Comm)) []*profile.File {
	dir := t.TempDir()
	run(t, n, body, WithSetting("profile", dir))
	var files []*profile.File
	for rank := range n {
		in, err := os.Open(profile.Path(dir, rank))
		require.NoError(t, err)
		f, err := profile.Read(in)
		require.NoError(t, err)
		require.NoError(t, in.Close())
		files = append(files, f)
	}
	return files
}

// siteOf returns the calls of a name at a line.
func siteOf(t *testing.T, f *profile.File, call string, line int) profile.Site {
	for _, s := range f.Sites {
		if s.Call == call && s.Line == line {
			return s
		}
	}
	require.Failf(t, "no such site", "rank %d: %s at line %d: %+v", f.Rank, call, line, f.Sites)
	return profile.Site{}
}

// here is the line of the caller.
func here() int {
	_, _, line, _ := runtime.Caller(1)
	return line
}

func TestProfileNamesLineThatWaitsForLateSender(t *testing.T) {
	const late = 50 * time.Millisecond // after the other rank waits
	var line, barrier int
	receiver := make(chan *Comm, 1)
	files := profiled(t, 2, func(w *Comm) {
		if w.Rank() == 0 {
			other := <-receiver
			awaitPending(t.Context(), other)
			time.Sleep(late)
			check(Send(w, []int64{1}, 1, 7))
			awaitRunning(other)
			time.Sleep(late)
		} else {
			receiver <- w
			line = here() + 1
			must(Recv(w, make([]int64, 1), 0, 7))
			barrier = here() + 3
		}
		if w.Rank() == 1 {
			check(w.Barrier())
		} else {
			check(w.Barrier())
		}
	})
	s := siteOf(t, files[1], "recv", line)
	assert.Equal(t, profile.LateSender, s.State)
	assert.Greater(t, s.Waiting, 0.5*float64(late))
	assert.GreaterOrEqual(t, s.Nanos, s.Waiting)
	assert.EqualValues(t, 1, s.Calls)
	assert.Contains(t, s.File, "recording_test.go")

	b := siteOf(t, files[1], "barrier", barrier)
	assert.Equal(t, profile.LateAtBarrier, b.State)
	assert.Greater(t, b.Waiting, 0.5*float64(late))
}

// Every rank sends each other rank a number of messages of lengths that use all protocols, by all
// ways that a send can take.
func TestProfileMatrixIsExact(t *testing.T) {
	lengths := []int{0, 1, 8, 500, 5000, 70_000, 1 << 20}
	const ranks = 3
	files := profiled(t, ranks, func(w *Comm) {
		out, in := make([]byte, 1<<20), make([]byte, 1<<20)
		for to := range ranks {
			for from := range ranks {
				for _, n := range lengths {
					for range 1 + from + 2*to {
						switch {
						case from == to:
						case w.Rank() == from:
							check(Send(w, out[:n], to, 0))
							r := must(Isend(w, out[:n], to, 0))
							must(r.Wait())
							check(Ssend(w, out[:n], to, 0))
						case w.Rank() == to:
							for range 3 {
								must(Recv(w, in, from, 0))
							}
						}
					}
				}
			}
		}
	})
	sum := 0
	for _, n := range lengths {
		sum += n
	}
	for from, f := range files {
		var want []profile.Traffic
		for to := range ranks {
			if times := int64(3 * (1 + from + 2*to)); from != to {
				want = append(want, profile.Traffic{Peer: to, Messages: times * int64(len(lengths)), Bytes: times * int64(sum)})
			}
		}
		assert.Equal(t, want, f.Sent, "rank %d", from)
	}
}

func TestProfileCountsAllCalls(t *testing.T) {
	const n = 20_000
	var line int
	files := profiled(t, 2, func(w *Comm) {
		buf := make([]byte, 8)
		for range n {
			if w.Rank() == 0 {
				line = here() + 1
				check(Send(w, buf, 1, 0))
			} else {
				must(Recv(w, buf, 0, 0))
			}
		}
		reqs := make([]request.Request, 2)
		for range 100 {
			reqs[0] = must(Irecv(w, buf, 1-w.Rank(), 1))
			reqs[1] = must(Isend(w, buf[:4], 1-w.Rank(), 1))
			check(request.WaitAll(reqs...))
			_, _, _ = must(Irecv(w, buf, ProcNull, 0)).Test()
			must(must(Isend(w, buf, ProcNull, 0)).Wait())
		}
	})
	counts := func(f *profile.File) map[string]uint64 {
		out := make(map[string]uint64)
		for _, k := range f.Kinds {
			out[k.Name] = k.Calls
		}
		return out
	}
	same := map[string]uint64{"isend": 200, "irecv": 200, "wait all": 100, "test": 100, "wait": 100}
	for rank, call := range []string{"send", "recv"} {
		same[call] = n
		assert.Equal(t, same, counts(files[rank]))
		delete(same, call)
	}
	s := siteOf(t, files[0], "send", line)
	assert.InDelta(t, n, s.Calls, 1e-6*n, "the samples are scaled to the exact count")
	assert.Positive(t, s.Nanos)
	assert.InDelta(t, 8*n, s.Bytes, 1e-6*n)
}

func TestProfileOfRankThatFailsSaysWhy(t *testing.T) {
	dir := t.TempDir()
	err := RunLocal(2, func(w *Comm) error {
		if w.Rank() == 1 {
			w.Abort(3)
		}
		return w.Barrier()
	}, WithSetting("profile", dir))
	require.Error(t, err)
	in, err := os.Open(profile.Path(dir, 1))
	require.NoError(t, err)
	defer in.Close()
	f, err := profile.Read(in)
	require.NoError(t, err)
	assert.Equal(t, "rank 1 called Abort(3)", f.Error)
}

func TestProfiledMessagesAllocateNothing(t *testing.T) {
	profiled(t, 2, func(w *Comm) {
		buf := make([]byte, 8)
		exchange := func() {
			if w.Rank() == 0 {
				check(Send(w, buf, 1, 0))
				must(Recv(w, buf, 1, 0))
			} else {
				must(Recv(w, buf, 0, 0))
				check(Send(w, buf, 0, 0))
			}
		}
		const runs = 2000
		if w.Rank() == 0 {
			for range 100 {
				exchange()
			}
			assert.Zero(t, testing.AllocsPerRun(runs, exchange))
		} else {
			for range 100 + runs + 1 {
				exchange()
			}
		}
	})
}
