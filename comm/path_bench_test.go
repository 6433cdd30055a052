package comm

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/sm"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// sharedPair makes two ranks of this process that are joined by shared memory.
func sharedPair(tb testing.TB) [2]*Comm {
	tb.Helper()
	worlds := localWorld(tb, 2, func(j *job, wakeup *progress.PipeWakeup) []btl.Module {
		return []btl.Module{must(sm.New(sm.Config{Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup}))}
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
	progress := func(c *Comm, i int) {
		if i%1024 == 0 {
			c.job.eng.Lock()
			c.job.eng.Turn()
			c.job.eng.Unlock()
		}
	}
	finish := func(r request.Request, err error) {
		check(err)
		must(r.Wait())
	}
	b.Run("blocking", func(b *testing.B) {
		here, there, buf := setUp(b)
		for i := 0; b.Loop(); i++ {
			progress(here, i)
			check(Send(here, buf, 1, 0))
			must(Recv(there, buf, 0, 0))
		}
	})
	b.Run("nonblocking", func(b *testing.B) {
		here, there, buf := setUp(b)
		for i := 0; b.Loop(); i++ {
			progress(here, i)
			finish(Isend(here, buf, 1, 0))
			finish(Irecv(there, buf, 0, 0))
		}
	})
	b.Run("persistent", func(b *testing.B) {
		here, there, buf := setUp(b)
		s, r := must(SendInit(here, buf, 1, 0)), must(RecvInit(there, buf, 0, 0))
		for i := 0; b.Loop(); i++ {
			progress(here, i)
			finish(s, s.Start())
			finish(r, r.Start())
		}
		check(errors.Join(s.Free(), r.Free()))
	})
	// Of a window, each of the four parts is measured too.
	b.Run("window", func(b *testing.B) {
		here, there, buf := setUp(b)
		reqs := make([]request.Request, rateWindow)
		var parts [4]time.Duration
		for i := 0; b.Loop(); i++ {
			progress(here, i)
			if i%rateWindow > 0 {
				continue
			}
			began := time.Now()
			part := func(p int) {
				parts[p] += time.Since(began)
				began = time.Now()
			}
			for i := range reqs {
				reqs[i] = must(Isend(here, buf, 1, 0))
			}
			part(0)
			check(request.WaitAll(reqs...))
			part(1)
			for i := range reqs {
				reqs[i] = must(Irecv(there, buf, 0, 0))
			}
			part(2)
			check(request.WaitAll(reqs...))
			part(3)
		}
		for i, name := range []string{"isend", "waitsends", "irecv", "waitrecvs"} {
			b.ReportMetric(float64(parts[i].Nanoseconds())/float64(b.N), name+"-ns")
		}
	})
}

const rateWindow = 64

// BenchmarkRate measures the time of a message of 8 bytes in a stream of windows from one rank to
// another one.
func BenchmarkRate(b *testing.B) {
	pair := sharedPair(b)
	windows := func(c *Comm, n int, one func(c *Comm, reqs []request.Request, buf []byte), end func(c *Comm, done []byte)) {
		reqs, buf, done := make([]request.Request, rateWindow), make([]byte, 8), make([]byte, 4)
		for range n {
			one(c, reqs, buf)
			check(request.WaitAll(reqs...))
			end(c, done)
		}
	}
	exchange := func(n int) {
		sent := make(chan struct{})
		go func() {
			windows(pair[0], n, func(c *Comm, reqs []request.Request, buf []byte) {
				for i := range reqs {
					reqs[i] = must(Isend(c, buf, 1, 1))
				}
			}, func(c *Comm, done []byte) { must(Recv(c, done, 1, 2)) })
			close(sent)
		}()
		windows(pair[1], n, func(c *Comm, reqs []request.Request, buf []byte) {
			for i := range reqs {
				reqs[i] = must(Irecv(c, buf, 0, 1))
			}
		}, func(c *Comm, done []byte) { check(Send(c, done, 0, 2)) })
		<-sent
	}
	exchange(100)
	b.ResetTimer()
	exchange(b.N/rateWindow + 1)
}
