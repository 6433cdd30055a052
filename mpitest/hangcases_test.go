package mpitest

import (
	"context"
	"fmt"
	"regexp"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/hangcases"
	"github.com/mpigo/mpigo/internal/hangreport"
	"github.com/mpigo/mpigo/internal/observe"
)

// job is a job of ranks of this process that reports are asked of.
type job struct {
	*run
	end    chan struct{} // closed when the ranks are to end
	fabric *loop.Fabric
	ended  chan error
}

// startJob starts body as n ranks.
func startJob(t testing.TB, n int, body func(j *job, w *comm.Comm) error, opts ...comm.Option) *job {
	j := &job{run: newRun(t, nil), end: make(chan struct{}), ended: make(chan error, 1)}
	opts = append(slices.Clone(opts),
		observed(func(h *observe.Hook) { h.Attach = j.attach }), comm.OnFabric(func(f *loop.Fabric) { j.fabric = f }))
	go pprof.Do(context.Background(), pprof.Labels(labelRun, j.id), func(ctx context.Context) {
		j.ended <- comm.RunLocal(n, func(w *comm.Comm) error {
			pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(labelRank, strconv.Itoa(w.Rank()))))
			return body(j, w)
		}, opts...)
	})
	<-j.attached
	return j
}

// errEnded ends the calls of a job.
var errEnded = fmt.Errorf("%w: the test has ended", comm.ErrProcFailed)

// finish ends the job.
func (j *job) finish() {
	close(j.end)
	j.stop(errEnded)
	<-j.ended
}

// find asks the ranks, and explains what they say.
func (j *job) find(change func(ranks []hangreport.Rank)) hangreport.Finding {
	ranks, _ := j.reports()
	change(ranks)
	return hangreport.Analyze(ranks)
}

// env is the environment of a rank that is a goroutine. A rank that stops blocks, and the test
// replaces its report.
func (j *job) env() hangcases.Env {
	return hangcases.Env{
		Stop: func() { <-j.end },
		Compute: func() {
			for x := uint32(1); ; x = x*1664525 + 1013904223 {
				select {
				case <-j.end:
					return
				default:
				}
			}
		},
		CutRail: func() {
			if err := j.fabric.FailLane(0, 1, 0, loop.Cut{}); err != nil {
				panic(err)
			}
		},
	}
}

// TestHangReportNamesCause: the first three lines of the report name the cause of each hang, and
// the report fits a screen.
func TestHangReportNamesCause(t *testing.T) {
	for _, c := range hangcases.Cases() {
		for _, n := range []int{2, 8, 64} {
			t.Run(fmt.Sprintf("%s/%d", c.Name, n), func(t *testing.T) {
				// The rail is tried again for as long as the test runs.
				j := startJob(t, n, func(j *job, w *comm.Comm) error { return c.Body(w, j.env()) },
					comm.WithSetting("pml.grace", "1h"), comm.WithSetting("pml.notices", "false"))
				defer j.finish()
				change := func([]hangreport.Rank) {}
				if c.Name == "stopped" {
					change = func(ranks []hangreport.Rank) { ranks[n-1] = hangreport.Rank{Missing: hangreport.Stopped} }
				}
				deadline := time.Now().Add(time.Minute)
				for {
					f := j.find(change)
					missing := missingFrom(f, c.Want(n))
					if len(missing) == 0 && len(f.Groups) <= 4 {
						assert.LessOrEqual(t, strings.Count(f.String(), "\n"), 40, f.String())
						if testing.Verbose() {
							t.Log("\n" + f.String())
						}
						return
					}
					if time.Now().After(deadline) {
						require.Failf(t, "no such cause, or not folded", "%q\n%s", missing, f)
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
	}
}

// TestOnlyRanksThatAreNeededAreLateForStart: rank 0, the root, and rank 3 do not start a broadcast.
// Nothing comes of rank 3, so no other rank waits for it, also in checked mode. That the
// communicator is freed changes nothing.
func TestOnlyRanksThatAreNeededAreLateForStart(t *testing.T) {
	for _, checked := range []string{"false", "true"} {
		j := startJob(t, 4, func(j *job, w *comm.Comm) error {
			d, err := w.Dup()
			if err != nil {
				return err
			}
			d.SetName("duplicate")
			r, err := comm.BcastInit(d, []int{0}, 0)
			if err != nil {
				return err
			}
			if err := d.Free(); err != nil {
				return err
			}
			if w.Rank()%3 == 0 {
				<-j.end
				return nil
			}
			if err := r.Start(); err != nil {
				return err
			}
			_, err = r.Wait()
			return err
		}, comm.WithSetting("check", checked))
		want := `rank 0 has not started the persistent bcast of hangcases_test.go:\d+ in duplicate: ranks 1, 2 wait for it at hangcases_test.go:\d+ Wait`
		require.Eventually(t, func() bool {
			f := j.find(func([]hangreport.Rank) {})
			assert.NotContains(t, f.String(), "ranks 0, 3 have not started")
			return len(missingFrom(f, []string{want})) == 0
		}, time.Minute, 5*time.Millisecond)
		j.finish()
	}
}

// missingFrom lists the expressions that none of the first three lines matches.
func missingFrom(f hangreport.Finding, want []string) (missing []string) {
	lines := strings.Split(f.String(), "\n")
	first := lines[:min(3, len(lines))]
	for _, expr := range want {
		if !slices.ContainsFunc(first, regexp.MustCompile(expr).MatchString) {
			missing = append(missing, expr)
		}
	}
	return missing
}
