package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/trace"
	"github.com/mpigo/mpigo/mpirun-go/internal/records"
	"github.com/mpigo/mpigo/mpirun-go/internal/trace/tracetest"
	"github.com/mpigo/mpigo/request"
)

// write writes the trace of a job and reads it again.
func write(t require.TestingT, j *Job) *tracetest.Trace {
	var b bytes.Buffer
	require.NoError(t, j.Chrome(&b))
	c, err := tracetest.Read(&b)
	require.NoError(t, err)
	return c
}

// pingPong makes a job of two ranks on two hosts, which send each other messages. The clock of the
// second host is ahead by a time that grows.
func pingPong(ahead, drift float64, compared ...float64) *Job {
	there := func(at float64) int64 { return int64(at + ahead + drift*at) }
	a := &trace.File{Rank: 0, Size: 2, Host: "a", Written: 2_000_000}
	b := &trace.File{Rank: 1, Size: 2, Host: "b", Written: there(2_000_000)}
	for i := range 100 {
		at := float64(1000 + 10_000*i)
		n := uint32(i)
		a.Events = append(a.Events,
			trace.Event{Type: trace.Sent, At: int64(at), Track: 0, Peer: 1, Tag: 1, Number: n},
			trace.Event{Type: trace.Call, At: int64(at) - 100, Nanos: 300, Track: 0, Name: "send", Peer: 1},
			trace.Event{Type: trace.Matched, At: int64(at) + 4000, Track: 0, Peer: 1, Tag: 1, Number: n},
			trace.Event{Type: trace.Call, At: int64(at) + 300, Nanos: 3800, Track: 0, Name: "recv", Peer: 1})
		b.Events = append(b.Events,
			trace.Event{Type: trace.Matched, At: there(at + 1000), Track: 0, Peer: 0, Tag: 1, Number: n},
			trace.Event{Type: trace.Call, At: there(at + 200), Nanos: 1000, Track: 0, Name: "recv", Peer: 0},
			trace.Event{Type: trace.Sent, At: there(at + 3000), Track: 0, Peer: 0, Tag: 1, Number: n},
			trace.Event{Type: trace.Call, At: there(at + 2900), Nanos: 300, Track: 0, Name: "send", Peer: 0})
	}
	for _, at := range compared {
		b.Clocks = append(b.Clocks, trace.Clock{At: there(at), Ahead: there(at) - int64(at), Error: 500})
	}
	return &Job{Size: 2, Files: []*trace.File{a, b}}
}

func TestClocksOfHostsAreAligned(t *testing.T) {
	for name, j := range map[string]*Job{
		"equal":                     pingPong(0, 0),
		"ahead":                     pingPong(5e9, 0, 0),
		"behind":                    pingPong(-5e5, 0, 0),
		"drifting":                  pingPong(7e9, 1e-2, 0, 2e6),
		"compared with an error":    pingPong(900, 0),
		"compared with an error, 2": pingPong(-1500, 0),
	} {
		t.Run(name, func(t *testing.T) {
			c := write(t, j)
			require.Len(t, c.Flows, 200)
			for _, f := range c.Flows {
				require.InDelta(t, 1, *f[1].Ts-*f[0].Ts, 1.01, "each message takes a microsecond")
			}
		})
	}
}

func TestOperationsRailsAndOpenCalls(t *testing.T) {
	f := &trace.File{Rank: 0, Size: 1, Host: "a", Written: 9000, Events: []trace.Event{
		{Type: trace.Call, At: 100, Nanos: 50, Name: "irecv", Peer: 0, Tag: 3, Request: 1},
		{Type: trace.Begun, At: 110, Name: "irecv", Peer: 0, Tag: 3, Request: 1},
		{Type: trace.Begun, At: 160, Name: "iallreduce", Peer: -1, Tag: -1, Request: 2},
		{Type: trace.Observed, At: 700, Peer: -1, Tag: -1, Request: 1},
		{Type: trace.Observed, At: 710, Peer: -1, Tag: -1, Request: 99},
		{Type: trace.Rail, At: 800, Track: -1, Name: "rail tcp0 to rank 1 failed", Peer: 1},
		{Type: trace.Call, At: 1000, Nanos: 8000, Name: "wait all", Peer: -1, Tag: -1, Open: true},
	}}
	c := write(t, &Job{Size: 1, Files: []*trace.File{f}, Missing: nil})
	require.Len(t, c.Async, 2)
	ended := c.Async["request 0.1"]
	require.InDelta(t, 0.59, *ended[1].Ts-*ended[0].Ts, 1e-9)
	require.Equal(t, "Iallreduce", c.Async["request 0.2"][0].Name)
	require.Len(t, c.Rails, 1)
	require.Contains(t, string(c.Slices[tracetest.Thread{Pid: 0, Tid: 1}][1].Args), "not ended")
	require.Contains(t, c.Names[0], "rank 0 on a")
}

func TestMessageInNoCallGetsASlice(t *testing.T) {
	j := pingPong(0, 0)
	for _, f := range j.Files {
		var rest []trace.Event
		for i, e := range f.Events {
			if e.Type != trace.Call || i%3 == 0 { // most calls were dropped
				rest = append(rest, e)
			}
		}
		f.Events = rest
	}
	require.Len(t, write(t, j).Flows, 200)
}

// Whatever is in the files of ranks, the trace is right.
func TestRandomFilesMakeTraceThatIsRight(t *testing.T) {
	types := []trace.Type{trace.Call, trace.Sent, trace.Matched, trace.Begun, trace.Observed, trace.Rail}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		j := &Job{Size: 3}
		for rank := range 3 {
			f := &trace.File{Rank: rank, Size: 3, Host: string(rune('a' + rank/2)), Written: 5000}
			for range r.IntN(60) {
				f.Events = append(f.Events, trace.Event{
					Type: types[r.IntN(len(types))], At: r.Int64N(5000), Nanos: r.Int64N(400), Track: r.IntN(4) - 1, Name: "send",
					Peer: r.IntN(3), Number: uint32(r.IntN(5)), Request: uint64(r.IntN(6)),
				})
			}
			if r.IntN(2) == 0 {
				f.Clocks = []trace.Clock{{At: 1, Ahead: r.Int64N(900) - 450}, {At: 5000, Ahead: r.Int64N(900) - 450}}
			}
			j.Files = append(j.Files, f)
		}
		write(t, j)
	}
}

func FuzzTraceOfRank(f *testing.F) {
	var b bytes.Buffer
	j := pingPong(0, 0)
	j.Files[0].Events = j.Files[0].Events[:9]
	require.NoError(f, j.Files[0].Write(&b))
	f.Add(b.Bytes())
	f.Add([]byte(`{"v":1,"rank":0,"size":1,"host":"a","events":[{"t":"sent","at":4611686018427387903,"peer":0,"track":-1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := trace.Read(bytes.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, trace.ErrFormat)
			return
		}
		j := &Job{Size: file.Size, Files: []*trace.File{file}}
		require.NoError(t, j.HTML(&bytes.Buffer{}))
		require.NoError(t, j.Chrome(&bytes.Buffer{}))
	})
}

// Ranks with several goroutines each send messages of all protocols, by blocking, nonblocking and
// persistent calls and in collectives. The trace has all messages.
func TestTraceOfProgram(t *testing.T) {
	dir := t.TempDir()
	const ranks, rounds, threads = 3, 10, 2
	err := comm.RunLocal(ranks, func(w *comm.Comm) error {
		right, left := (w.Rank()+1)%ranks, (w.Rank()+ranks-1)%ranks
		var all sync.WaitGroup
		errs := make([]error, threads)
		for thread := range threads {
			all.Go(func() {
				for i := range rounds {
					out, in := make([]byte, 100<<(i%3*5)), make([]byte, 1<<20)
					r, _ := comm.Irecv(w, in, left, thread)
					s, _ := comm.Isend(w, out, right, thread)
					if err := request.WaitAll(r, s); err != nil {
						errs[thread] = err
						return
					}
				}
			})
		}
		all.Wait()
		sum := []int{0}
		for range rounds {
			if err := comm.Allreduce(w, []int{1}, sum, comm.Sum); err != nil {
				return err
			}
		}
		r, err := comm.Iallreduce(w, []int{1}, sum, comm.Sum)
		if err == nil {
			_, err = r.Wait()
		}
		p, _ := comm.SendInit(w, []int{1}, right, 9)
		for range rounds {
			_ = p.Start()
			if _, e := comm.Recv(w, sum, left, 9); e != nil {
				return e
			}
			_, _ = p.Wait()
		}
		for _, e := range errs {
			if e != nil {
				err = e
			}
		}
		return err
	}, comm.WithSetting("trace", dir))
	require.NoError(t, err)
	j, err := Load(t.Context(), dir, records.Job{})
	require.NoError(t, err)
	require.Empty(t, j.Missing)
	sent, calls := 0, map[string]int{}
	for _, f := range j.Files {
		require.Zero(t, f.Dropped)
		for _, e := range f.Events {
			if e.Type == trace.Sent {
				sent++
			}
			calls[e.Name]++
			if e.Name == "allreduce" || e.Name == "iallreduce" {
				require.Equal(t, []int{-1, -1}, []int{e.Peer, e.Tag}, "it has neither a peer nor a tag")
			}
		}
	}
	c := write(t, j)
	require.Len(t, c.Flows, sent, "each message has both ends")
	require.GreaterOrEqual(t, sent, ranks*rounds*(threads+1))
	require.Len(t, c.Async, ranks*(rounds*threads*2+1+rounds), "sends and receives, Iallreduce, starts")
	require.Equal(t, ranks*rounds, calls["allreduce"])
	threadsOf := 0
	for at, list := range c.Slices {
		if at.Tid > 0 {
			threadsOf++
		}
		for _, s := range list {
			if s.Name == "WaitAll" {
				require.Contains(t, string(s.Args), "trace_test.go:")
			}
		}
	}
	require.GreaterOrEqual(t, threadsOf, ranks)
}

// A rank keeps only the last events, whatever it does.
func TestTraceIsBounded(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, comm.RunLocal(2, func(w *comm.Comm) error {
		for i := range 5000 {
			buf := []int{i}
			if w.Rank() == 0 {
				if err := comm.Send(w, buf, 1, i); err != nil {
					return err
				}
			} else if _, err := comm.Recv(w, buf, 0, i); err != nil {
				return err
			}
		}
		return nil
	}, comm.WithSetting("trace", dir), comm.WithSetting("trace.events", "500")))
	j, err := Load(t.Context(), dir, records.Job{})
	require.NoError(t, err)
	for _, f := range j.Files {
		require.Len(t, f.Events, 500)
		require.Greater(t, f.Dropped, uint64(9000))
		last := f.Events[len(f.Events)-1]
		require.Equal(t, 4999, last.Tag, fmt.Sprint(last))
	}
	write(t, j)
}

func TestLoadNamesRanksWithoutTrace(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(t.Context(), dir, records.Job{})
	require.ErrorContains(t, err, "has no trace")
	f, err := os.Create(trace.Path(dir, 2))
	require.NoError(t, err)
	require.NoError(t, (&trace.File{Rank: 2, Size: 4, Host: "a"}).Write(f))
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(trace.Path(dir, 0), []byte("{"), 0o666))
	j, err := Load(t.Context(), dir, records.Job{Size: 4})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 3}, j.Missing)
	require.Len(t, j.Why, 1)
}

func TestLoadSaysWhyNoFileCanBeRead(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(trace.Path(dir, 0), []byte("{"), 0o666))
	f, err := os.Create(trace.Path(dir, 1))
	require.NoError(t, err)
	require.NoError(t, (&trace.File{Rank: 1, Size: 4, Host: "a"}).Write(f))
	require.NoError(t, f.Close())
	_, err = Load(t.Context(), dir, records.Job{Size: 2})
	require.EqualError(t, err, dir+" has no trace that can be read: rank 0: not a trace of this version: unexpected EOF; "+
		"rank 1: its file is of another job")
}

func TestLoadAndWriteEndWithContext(t *testing.T) {
	dir, why := t.TempDir(), errors.New("the job ends")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := Load(ctx, dir, records.Job{})
	require.Equal(t, why, err)
	_, err = pingPong(0, 0).Write(ctx, dir)
	require.ErrorIs(t, err, why)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestTraceHasNamesOfTable: each call that is in a file has its name in Go in the trace.
func TestTraceHasNamesOfTable(t *testing.T) {
	f := &trace.File{Rank: 0, Size: 1, Host: "a", Written: 1 << 30}
	var want, got []string
	for _, id := range calls.All() {
		if id.Go() != "" && id.String() != "" {
			f.Events = append(f.Events, trace.Event{Type: trace.Call, At: int64(1000 * len(want)), Nanos: 500, Name: id.String(), Peer: -1, Tag: -1})
			want = append(want, id.Go())
		}
	}
	c := write(t, &Job{Size: 1, Files: []*trace.File{f}})
	for _, s := range c.Slices[tracetest.Thread{Pid: 0, Tid: 1}] {
		got = append(got, s.Name)
	}
	require.Equal(t, want, got)
}
