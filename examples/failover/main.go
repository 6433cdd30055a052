// Failover exchanges messages between two ranks while the rails between them fail and come back,
// and draws the bandwidth over time.
//
//	go run ./examples/failover -o failover.svg
//
// Without a launcher the program makes two ranks itself, as goroutines, joins them by three rails
// in memory, and cuts and mends these rails while the messages go. As a job of two ranks it cuts
// nothing: it shows the traffic over the rails that exist while you pull cables or set interfaces
// down.
//
//	mpirun-go --tags ibverbs -n 2 --btl self,ibverbs ./examples/failover -time 20s -every 500ms
//
// Package traffic holds the messages: an ordinary MPI program that knows nothing of rails. Failover
// needs no code in a program. This one watches the rails only to draw them (package timeline).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/examples/failover/timeline"
	"github.com/mpigo/mpigo/examples/failover/traffic"
	"github.com/mpigo/mpigo/examples/internal/cmdline"
)

// config holds the flags' values.
type config struct {
	time    time.Duration // how long messages are exchanged, at least
	rate    float64       // limit in bytes per second and direction; 0 for no limit
	every   time.Duration // over which the picture's bandwidth is a mean
	picture string        // file to write; empty for none
}

const (
	rails        = 3       // that join the program's own two ranks
	largestBytes = 1 << 20 // of a message
)

func main() {
	var cfg config
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	flags.DurationVar(&cfg.time, "time", 8*time.Second, "how long messages are exchanged, at least")
	rate := flags.Float64("rate", 200, "limit of each rank's sends in `MB/s`; 0 for no limit")
	flags.DurationVar(&cfg.every, "every", 100*time.Millisecond,
		"time over which the bandwidth in the picture is a mean; slow rails need a longer one")
	flags.StringVar(&cfg.picture, "o", "failover.svg", "`FILE` for the picture, which is overwritten; empty for none")
	check := func() error {
		switch {
		case flags.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		case cfg.time <= 0:
			return fmt.Errorf("-time is %v: it must be positive", cfg.time)
		case cfg.every < timeline.MinEvery:
			return fmt.Errorf("-every is %v: it must be at least %v", cfg.every, timeline.MinEvery)
		case cfg.picture != "" && !isDir(filepath.Dir(cfg.picture)):
			return fmt.Errorf("-o is %s: there is no such directory", cfg.picture)
		case !(*rate >= 0):
			return fmt.Errorf("-rate is %v: it cannot be negative", *rate)
		}
		cfg.rate = *rate * 1e6
		return nil
	}
	comm.Run(func(world *comm.Comm) error {
		goOn, err := cmdline.Parse(world, flags, os.Args[1:], check, os.Stdout)
		if !goOn {
			return err
		}
		return run(world, cfg, os.Stdout)
	})
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// run is the program of one rank. Only rank 1, or the only rank, writes to out.
func run(world *comm.Comm, cfg config, out io.Writer) error {
	switch world.Size() {
	case 1:
		return runLocal(cfg, out)
	case 2:
		return runRank(world, cfg, nil, out)
	}
	return fmt.Errorf("the program takes 2 ranks, or 1, which makes 2 itself; there are %d", world.Size())
}

// runLocal makes two ranks and cuts the rails between them.
func runLocal(cfg config, out io.Writer) error {
	cuts := &cutter{}
	return comm.RunLocal(2,
		func(world *comm.Comm) error { return runRank(world, cfg, cuts, out) },
		comm.WithRails(rails))
}

// runRank is one rank of two. With cuts nil, no rail is cut.
func runRank(world *comm.Comm, cfg config, cuts *cutter, out io.Writer) error {
	if cuts != nil {
		cuts.join(world)
	}
	if err := world.Barrier(); err != nil { // brings the rails up
		return err
	}
	line := timeline.Start(world, 1-world.Rank())
	var exchanging, cutting error
	if world.Rank() == 0 {
		exchanging, cutting = exchangeAndCut(world, cfg, cuts, line)
	} else {
		exchanging = exchange(world, cfg, line, nil)
	}
	line.Stop()
	again := []int64{-1}
	if exchanging == nil {
		exchanging = comm.Reduce(world, []int64{world.Stats().ResentBytes}, again, comm.Sum, 1)
	}
	if world.Rank() == 0 {
		return errors.Join(exchanging, cutting)
	}
	// The picture is worth having also if the peer was lost.
	return errors.Join(exchanging, report(world, cfg, cuts, line, again[0], out))
}

// exchangeAndCut exchanges messages until all cuts are made and the time is over.
func exchangeAndCut(world *comm.Comm, cfg config, cuts *cutter, line *timeline.Timeline) (exchanging, cutting error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		minimum := time.After(cfg.time)
		if cuts != nil {
			cutting = cuts.run(ctx, world, cfg.time)
		}
		select {
		case <-minimum:
		case <-ctx.Done():
		}
	}()
	exchanging = exchange(world, cfg, line, over)
	cancel()
	<-over
	return exchanging, cutting
}

// exchange exchanges messages, round after round, until over is closed at rank 0. No error of a
// rail shows here: calls wait while no rail is up, and go on when one is back.
func exchange(world *comm.Comm, cfg config, line *timeline.Timeline, over <-chan struct{}) (err error) {
	roundBytes := 0
	messages, err := traffic.New(world, largestBytes, func(bytes int) {
		roundBytes += bytes
		line.Received(bytes)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, messages.Free()) }()
	due := time.Now()
	for last := []bool{false}; !last[0]; {
		if err := messages.Round(); err != nil {
			return err
		}
		select {
		case <-over:
			last[0] = true
		default:
		}
		if err := comm.Bcast(world, last, 0); err != nil {
			return err
		}
		due = pace(due, roundBytes, cfg.rate)
		roundBytes = 0
	}
	return nil
}

// pace sleeps until the given bytes are due at a rate, after what was due before. It returns when
// the next ones are due.
func pace(due time.Time, bytes int, rate float64) time.Time {
	const slack = 10 * time.Millisecond // how far the sender may be late and catch up
	if rate == 0 {
		return due
	}
	if late := time.Now().Add(-slack); due.Before(late) {
		due = late
	}
	due = due.Add(time.Duration(float64(bytes) / rate * 1e9))
	time.Sleep(time.Until(due))
	return due
}

// report prints what happened and writes the picture.
func report(world *comm.Comm, cfg config, cuts *cutter, line *timeline.Timeline, again int64, out io.Writer) error {
	run := timeline.Run{Rate: cfg.rate, Every: cfg.every, Again: again}
	if cuts != nil {
		run.Cuts = cuts.made()
	}
	messages, bytes := line.Total()
	stats := world.Stats()
	text := line.Chart(run) + fmt.Sprintf("\nmessages   %d, %.1f MB, every byte checked\n"+
		"rails      failed %d times, came back %d times; %.1f kB were sent again\n",
		messages, float64(bytes)/1e6, stats.RailsFailed, stats.RailsReturned, float64(max(again, 0))/1e3)
	var drawing error
	if cfg.picture != "" {
		if drawing = os.WriteFile(cfg.picture, []byte(line.Draw(run)), 0o644); drawing == nil {
			text += fmt.Sprintf("picture    %s\n", cfg.picture)
		}
	}
	_, printing := io.WriteString(out, text)
	return errors.Join(drawing, printing)
}
