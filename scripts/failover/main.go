// Command failover measures what a fault of the rails does to a job of two ranks. The ranks
// exchange and check messages of all kinds and sizes (package traffic). Meanwhile rank 0
// runs a program, -fault, that breaks rails and mends them. It gets the name of the case and the
// process ids of both ranks, and prints when it acts:
//
//	broken MICROSECONDS    of the system's clock
//	mended MICROSECONDS
//	inject KIND            asks rank 0 to inject an error into verbs (inject.go)
//
// Rank 0 prints one row of figures. A wrong result is an error. With -o, rank 1 also draws the
// bandwidth and the rails over time.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/observe"
	"github.com/mpigo/mpigo/scripts/failover/timeline"
	"github.com/mpigo/mpigo/scripts/failover/traffic"
)

// config holds the flags' values.
type config struct {
	name, program, label string
	devices              string
	calm, after          time.Duration
	retry, back          time.Duration
	grace                time.Duration
	lost, goesOn, silent bool
	mayStayUp            bool
	marks, verbose       bool
	picture              string
	rate                 float64
	every                time.Duration
}

func parse() (cfg config) {
	flag.StringVar(&cfg.name, "case", "none", "`CASE` for the fault program")
	flag.StringVar(&cfg.program, "fault", "./fault", "`PROGRAM` that breaks rails")
	flag.StringVar(&cfg.label, "label", "", "first column of the row")
	flag.StringVar(&cfg.devices, "netdevs", "r0,r1",
		"network devices of the rails; their counters tell whether the rails are used")
	flag.DurationVar(&cfg.calm, "calm", 3*time.Second, "time of traffic before the fault")
	flag.DurationVar(&cfg.after, "after", 0, "time of traffic after the last rail is back (default: as before the fault)")
	flag.DurationVar(&cfg.retry, "retry", 500*time.Millisecond, "time for which the devices retry before a connection fails")
	flag.DurationVar(&cfg.back, "back", 20*time.Second, "time within which all rails must be back")
	flag.DurationVar(&cfg.grace, "grace", 10*time.Second, "value of pml.grace, with -lost")
	flag.BoolVar(&cfg.lost, "lost", false, "the peer must be lost for good")
	flag.BoolVar(&cfg.goesOn, "goes-on", false, "there must be traffic during the fault")
	flag.BoolVar(&cfg.silent, "mute", false, "rank 0 sends nothing during the fault, and rank 1 only waits for it")
	flag.BoolVar(&cfg.mayStayUp, "may-stay-up", false, "rails may stay up")
	flag.BoolVar(&cfg.marks, "marks", false, "fail if a figure is above its limit; without it the row names the figure")
	flag.BoolVar(&cfg.verbose, "v", false, "print the bandwidth and the rails over time")
	flag.StringVar(&cfg.picture, "o", "", "`FILE` for a picture; empty for none")
	flag.Float64Var(&cfg.rate, "rate", 0, "limit of each rank's sends in `MB/s`; 0 for no limit")
	flag.DurationVar(&cfg.every, "every", 100*time.Millisecond, "time over which the bandwidth in the picture is a mean")
	flag.Parse()
	if cfg.after == 0 {
		cfg.after = cfg.calm
	}
	return cfg
}

func main() {
	cfg := parse()
	if cfg.rate < 0 || cfg.every < timeline.MinEvery {
		fatal(fmt.Errorf("-rate is negative, or -every below %v", timeline.MinEvery))
	}
	r := &run{config: cfg}
	r.injector.stalls = &r.stalls
	world, err := comm.Init(observe.NewOption(r.injector.hook).(comm.Option))
	if err != nil {
		fatal(err)
	}
	r.world, r.me, r.peer = world, world.Rank(), 1-world.Rank()
	r.stalls.watch()
	row, err := r.run()
	if err != nil || cfg.verbose {
		fmt.Fprintf(os.Stderr, "rank %d:\n%s%+v\n", r.me, r.line.Chart(timeline.Run{Every: 100 * time.Millisecond}), world.Rails())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "case %s, rank %d: %v\n", cfg.name, r.me, err)
		world.Abort(1)
	}
	if err := world.Finalize(); err != nil && !cfg.lost {
		fatal(err)
	}
	if row != "" {
		fmt.Println(row)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "failover:", err)
	os.Exit(1)
}

// run is one rank's part.
type run struct {
	config
	world    *comm.Comm
	me, peer int
	line     *timeline.Timeline
	stalls   stallLog
	injector injector
	fault    *fault           // rank 0's, once it has begun
	well     time.Time        // rank 0's: since when the fault is over and all rails are up
	before   map[string]int64 // rank 0's: the devices' counters at that time
}

// run exchanges messages until the fault is over and all rails are back, and returns rank 0's row.
func (r *run) run() (row string, err error) {
	r.line = timeline.Start(r.world, r.peer)
	err = r.exchange()
	end := time.Now()
	r.line.Stop()
	switch {
	case err != nil && r.lost:
		return r.judgeLoss(end, err)
	case err != nil:
		return "", err
	}
	if r.picture != "" {
		if err := r.draw(); err != nil {
			return "", err
		}
	}
	return r.report(end)
}

func (r *run) exchange() error {
	largestBytes := 4 << 20
	if r.rate > 0 {
		largestBytes = 1 << 20 // a longer one would take long
	}
	due, roundBytes := time.Now(), 0
	messages, err := traffic.New(r.world, largestBytes, func(bytes int) {
		roundBytes += bytes
		r.line.Received(bytes)
	})
	if err != nil {
		return err
	}
	pids := make([]int, 2)
	if err := comm.Allgather(r.world, []int{os.Getpid()}, pids); err != nil {
		return err
	}
	for over := []bool{false}; !over[0]; {
		if err := messages.Round(); err != nil {
			return err
		}
		if r.me == 0 && r.fault == nil && time.Since(r.line.Begin) > r.calm {
			if r.fault, err = startFault(r.program, r.name, pids, &r.injector); err != nil {
				return err
			}
			if r.silent {
				if err := r.sendNothing(); err != nil {
					return err
				}
			}
		}
		up := []bool{r.me == 1 || r.fault != nil && r.fault.isOver()}
		up[0] = up[0] && r.allUp()
		if err := comm.Allreduce(r.world, nil, up, comm.Land); err != nil {
			return err
		}
		if r.me == 0 && r.fault != nil && r.fault.isOver() {
			if over[0], err = r.isDone(up[0]); err != nil {
				return err
			}
		}
		if err := comm.Bcast(r.world, over, 0); err != nil {
			return err
		}
		due, roundBytes = pace(due, roundBytes, r.rate*1e6), 0
	}
	return messages.Free()
}

// isDone tells rank 0 whether all rails have been up for long enough, and were used. A slow
// machine may take longer for that.
func (r *run) isDone(up bool) (bool, error) {
	switch {
	case !up:
		r.well = time.Time{}
		if mended := r.fault.mendedAt(); time.Since(mended) > r.back {
			return false, fmt.Errorf("a rail is not back %v after all was mended: %+v", r.back, r.world.Rails())
		}
	case r.well.IsZero():
		r.well, r.before = time.Now(), sentBytes(r.devices)
	}
	if r.well.IsZero() || time.Since(r.well) < r.after {
		return false, nil
	}
	_, err := r.usedRails()
	return err == nil || time.Since(r.well) > r.back, nil
}

// sendNothing makes the peer wait with nothing under way while the fault comes and goes. If the
// fault stays, this rank waits for the peer as well.
func (r *run) sendNothing() error {
	const tagNever = 3000 // the peer sends nothing under it
	if r.lost {
		_, err := comm.Recv(r.world, make([]uint64, 1), r.peer, tagNever)
		return err
	}
	for !r.fault.isOver() {
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// allUp reports whether every rail to the peer is up, but for those that stand in for others.
func (r *run) allUp() bool {
	for _, rail := range r.world.Rails() {
		if rail.Peer == r.peer && rail.State != "up" && !rail.Alternate {
			return false
		}
	}
	return true
}

// judgeLoss checks that the error of a call names the lost peer and the reason, and came in time.
func (r *run) judgeLoss(at time.Time, err error) (string, error) {
	var e *comm.Error
	if !errors.Is(err, comm.ErrUnreachable) || !errors.As(err, &e) {
		return "", fmt.Errorf("not ErrUnreachable: %w", err)
	}
	failed, which, limit := r.line.NoRailUp(), "last", r.grace+time.Second
	if failed.IsZero() {
		// The rails fail in turns and come back between; the device reports the last failure late.
		failed, which, limit = r.line.FirstFailure(r.line.Begin), "first", limit+r.retry
	}
	took, result := at.Sub(failed), "ok"
	limit += r.stalls.within(took, failed, at)
	switch late := fmt.Sprintf("the error came only %v after the %s rail had failed", took, which); {
	case failed.IsZero() || took > 3*r.grace || r.marks && took > limit:
		return "", fmt.Errorf("%s: %w", late, err)
	case took > limit:
		result += "; above the limit: " + late
	}
	if e.Peer != r.peer && !namesRank(err, r.peer) {
		return "", fmt.Errorf("the error does not name the peer: %w", err)
	}
	return fmt.Sprintf("| %s, rank %d | lost %.0f ms after its %s rail failed: %v | %s |",
		r.name, r.me, float64(took)/1e6, which, err, result), nil
}
