package comm

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/sm"
	"github.com/mpigo/mpigo/comm/internal/rails"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// hereWorld makes ranks of this process. open makes the modules of each rank; the nth modules of
// all ranks are connected.
func hereWorld(tb testing.TB, ranks int, open func(j *job, bell *progress.PipeWakeup) []btl.Module, opts ...Option) []*Comm {
	tb.Helper()
	_, settings, err := makeOptions(opts)
	require.NoError(tb, err)
	jobs, worlds := make([]*job, ranks), make([]*Comm, ranks)
	for rank := range jobs {
		bell, err := progress.NewPipeWakeup()
		require.NoError(tb, err)
		tb.Cleanup(func() { require.NoError(tb, bell.Close()) })
		idle := idlePolicy(settings, ranks, 2)
		idle.Wakeup = bell
		j := newJob(rank, ranks, settings, idle, "here")
		j.others = localRank{nil, rank}
		j.makePML(func(peer int) ([]pml.Route, error) {
			var all rails.Routes
			for i, m := range j.modules {
				card := jobs[peer].modules[i].Address()
				all.Add(pml.Route{Module: m, Local: i, Remote: i}, true, func() (btl.Endpoint, error) { return m.Connect(peer, card) })
			}
			if len(all.List) == 0 {
				return nil, errors.Join(append(all.Refused, ErrUnreachable)...)
			}
			return all.List, nil
		})
		modules := open(j, bell)
		j.eng.Lock() // which a turn of the asynchronous progress takes
		for _, m := range modules {
			j.addModule(m)
		}
		j.eng.AddPoller(j.pml)
		j.makeWorld()
		j.eng.Unlock()
		jobs[rank], worlds[rank] = j, j.world
		tb.Cleanup(func() {
			j.eng.Lock()
			defer j.eng.Unlock()
			require.NoError(tb, j.close(ErrFinalized))
		})
	}
	return worlds
}

// sharedPair makes two ranks of this process that are joined by shared memory.
func sharedPair(tb testing.TB) [2]*Comm {
	tb.Helper()
	worlds := hereWorld(tb, 2, func(j *job, bell *progress.PipeWakeup) []btl.Module {
		m, err := sm.New(sm.Config{Rank: j.rank, Size: 2, Events: j.pml, Wakeup: bell})
		require.NoError(tb, err)
		return []btl.Module{m}
	})
	return [2]*Comm(worlds)
}

// BenchmarkPath measures the processor time of a message of 8 bytes between two ranks, at the
// sender and the receiver together. The transfer from one processor to another is not included.
func BenchmarkPath(b *testing.B) {
	setUp := func(b *testing.B) (here, there *Comm, buf []byte) {
		pair := sharedPair(b)
		here, there = pair[0], pair[1]
		buf = make([]byte, 8)
		for range 4 {
			sent := make(chan error)
			go func() { sent <- Send(here, buf, 1, 0) }() // the first one waits for the connection
			_, err := Recv(there, make([]byte, 8), 0, 0)
			require.NoError(b, errors.Join(err, <-sent))
		}
		b.ReportAllocs()
		return
	}
	// The sender has to get credit now and then.
	hear := func(c *Comm, i int) {
		if i%1024 == 0 {
			c.job.eng.Lock()
			c.job.eng.Turn()
			c.job.eng.Unlock()
		}
	}
	finish := func(r request.Request, err error) {
		if err == nil {
			_, err = r.Wait()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("blocking", func(b *testing.B) {
		here, there, buf := setUp(b)
		for i := 0; b.Loop(); i++ {
			hear(here, i)
			if err := Send(here, buf, 1, 0); err != nil {
				b.Fatal(err)
			}
			if _, err := Recv(there, buf, 0, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("nonblocking", func(b *testing.B) {
		here, there, buf := setUp(b)
		for i := 0; b.Loop(); i++ {
			hear(here, i)
			finish(Isend(here, buf, 1, 0))
			finish(Irecv(there, buf, 0, 0))
		}
	})
	b.Run("persistent", func(b *testing.B) {
		here, there, buf := setUp(b)
		s, err := SendInit(here, buf, 1, 0)
		require.NoError(b, err)
		r, err := RecvInit(there, buf, 0, 0)
		require.NoError(b, err)
		for i := 0; b.Loop(); i++ {
			hear(here, i)
			finish(s, s.Start())
			finish(r, r.Start())
		}
		require.NoError(b, s.Free())
		require.NoError(b, r.Free())
	})
	b.Run("window", func(b *testing.B) {
		here, there, buf := setUp(b)
		const window = 64
		reqs := make([]request.Request, window)
		send := func() {
			for i := range reqs {
				var err error
				if reqs[i], err = Isend(here, buf, 1, 0); err != nil {
					b.Fatal(err)
				}
			}
			if err := request.WaitAll(reqs...); err != nil {
				b.Fatal(err)
			}
		}
		recv := func() {
			for i := range reqs {
				var err error
				if reqs[i], err = Irecv(there, buf, 0, 0); err != nil {
					b.Fatal(err)
				}
			}
			if err := request.WaitAll(reqs...); err != nil {
				b.Fatal(err)
			}
		}
		for i := 0; b.Loop(); i++ {
			hear(here, i)
			if i%window == 0 {
				send()
				recv()
			}
		}
	})
}
