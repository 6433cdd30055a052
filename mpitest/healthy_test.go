package mpitest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/collprogram"
	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/race"
)

// healthySeeds are the seeds of TestHealthyProgramIsNoDeadlock: from first to below end.
func healthySeeds(t *testing.T) (first, end uint64) {
	text := os.Getenv("MPIGO_TEST_HANG_SEEDS")
	if text == "" {
		return 0, race.Some(uint64(300))
	}
	_, err := fmt.Sscanf(text, "%d-%d", &first, &end)
	require.NoError(t, err, "MPIGO_TEST_HANG_SEEDS=FIRST-END")
	return first, end
}

// TestHealthyProgramIsNoDeadlock: reports that are taken at random moments of random programs
// without errors never call ranks deadlocked.
func TestHealthyProgramIsNoDeadlock(t *testing.T) {
	first, end := healthySeeds(t)
	reports, waiting := 0, 0
	for seed := first; seed < end; seed++ {
		n := 2 + int(seed%7)
		run := collprogram.New(seed, n).Run
		if seed%2 == 0 {
			run = messages{seed, n}.run
		}
		j := startJob(t, n, func(_ *job, w *comm.Comm) error { return run(w) })
		for isOver := false; !isOver; {
			f := j.find(func(ranks []hangreport.Rank) {
				reports++
				waits := 0
				for _, r := range ranks {
					waits += min(1, len(r.Report.Snapshot.Waits))
				}
				if waits >= n-1 {
					waiting++
				}
			})
			for _, c := range f.Causes {
				require.NotContains(t, []hangreport.Kind{hangreport.KindDeadlock, hangreport.KindFinalized}, c.Kind, "seed %d: %s", seed, f)
			}
			select {
			case err := <-j.ended:
				require.NoError(t, err, "seed %d", seed)
				isOver = true
			default:
			}
		}
	}
	t.Logf("%d reports of %d programs; in %d of them all ranks but one at most waited", reports, end-first, waiting)
	require.Greater(t, reports, int(end-first))
	require.Positive(t, waiting)
}

// messages is a random program of messages. All ranks do the same steps.
type messages struct {
	seed  uint64
	ranks int
}

func (m messages) run(w *comm.Comm) error {
	steps := rand.New(rand.NewPCG(m.seed, 1))
	own := rand.New(rand.NewPCG(m.seed, uint64(2+w.Rank())))
	for tag := range 10 + steps.IntN(20) {
		kind, shift, size := steps.IntN(8), 1+steps.IntN(m.ranks-1), sizes[steps.IntN(len(sizes))]
		if own.IntN(4) == 0 {
			time.Sleep(time.Duration(own.IntN(300)) * time.Microsecond)
		}
		if err := step(w, kind, shift, size, tag); err != nil {
			return err
		}
	}
	return nil
}

// sizes are lengths of messages, by which they go in different ways.
var sizes = []int{0, 8, 3000, 70_000, 1 << 20}

// step is one step of a rank: it sends to the rank that is shift ranks ahead, and receives from the
// one behind.
func step(w *comm.Comm, kind, shift, size, tag int) error {
	to, from := (w.Rank()+shift)%w.Size(), (w.Rank()+w.Size()-shift)%w.Size()
	out, in := make([]byte, size), make([]byte, size)
	receive := func() error {
		_, err := comm.Recv(w, in, from, tag)
		return err
	}
	sendAfter := func(send func() (comm.Request, error)) error {
		r, err := send()
		if err != nil {
			return err
		}
		if err := receive(); err != nil {
			return err
		}
		_, err = r.Wait()
		return err
	}
	switch kind {
	case 0:
		_, err := comm.Sendrecv(w, out, to, tag, in, from, tag)
		return err
	case 1:
		return sendAfter(func() (comm.Request, error) { return comm.Isend(w, out, to, tag) })
	case 2:
		return sendAfter(func() (comm.Request, error) { return comm.Issend(w, out, to, tag) })
	case 3: // one rank after the other
		if w.Rank() == 0 {
			if err := comm.Ssend(w, out, 1, tag); err != nil {
				return err
			}
			_, err := comm.Recv(w, in, w.Size()-1, tag)
			return err
		}
		if _, err := comm.Recv(w, in, w.Rank()-1, tag); err != nil {
			return err
		}
		return comm.Send(w, out, (w.Rank()+1)%w.Size(), tag)
	case 4: // messages of any rank
		if w.Rank() > 0 {
			return comm.Send(w, out, 0, tag)
		}
		for range w.Size() - 1 {
			if _, err := comm.Recv(w, in, comm.AnySource, tag); err != nil {
				return err
			}
		}
		return nil
	case 5: // any of several
		send, err := comm.Isend(w, out, to, tag)
		if err != nil {
			return err
		}
		recv, err := comm.Irecv(w, in, from, tag)
		if err != nil {
			return err
		}
		for range 2 {
			if _, _, err := comm.WaitAny(send, recv); err != nil {
				return err
			}
		}
		return nil
	case 6: // by two goroutines
		sent := make(chan error, 1)
		go func() { sent <- comm.Send(w, out, to, tag) }()
		err := receive()
		if sendErr := <-sent; err == nil {
			err = sendErr
		}
		return err
	default:
		st, err := comm.Isend(w, out, to, tag)
		if err != nil {
			return err
		}
		if _, err := w.Probe(from, tag); err != nil {
			return err
		}
		if err := receive(); err != nil {
			return err
		}
		if _, err := st.Wait(); err != nil {
			return err
		}
		return w.Barrier()
	}
}
