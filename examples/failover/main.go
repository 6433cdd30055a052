// Failover streams messages from one rank to another while rails between them fail and come
// back, and draws the bandwidth over time.
//
//	go run ./examples/failover -o failover.svg
//
// Without a launcher it makes two ranks of its own, joins them by three rails in memory, and
// cuts and mends these while the messages go. As a job of two ranks it cuts nothing: it shows
// the traffic over the rails that there are, whoever else pulls at the cables.
//
//	mpirun-go --tags ibverbs -n 2 --btl self,ibverbs ./examples/failover -time 20s -every 500ms
//
// Rank 1 compares every byte with what it must be, looks at its rails, and draws.
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

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/examples/internal/cmdline"
)

// config is what the flags say.
type config struct {
	time    time.Duration // how long to stream, at least
	rate    float64       // bytes per second that the sender is held to; 0 for no limit
	every   time.Duration // over which the picture's bandwidth is a mean
	picture string        // file to write; empty for none
}

const (
	sender, receiver = 0, 1

	tagData = 1
)

func main() {
	var cfg config
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	flags.DurationVar(&cfg.time, "time", 8*time.Second, "how long messages go, at least")
	rate := flags.Float64("rate", 200, "`MB/s` that the sender is held to; 0 for no limit")
	flags.DurationVar(&cfg.every, "every", 50*time.Millisecond, "over which the bandwidth in the picture is a mean; slow rails take more")
	flags.StringVar(&cfg.picture, "o", "failover.svg", "`FILE` for the picture, which is overwritten; empty for none")
	check := func() error {
		switch {
		case flags.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		case cfg.time <= 0:
			return fmt.Errorf("-time is %v: it has to be more than nothing", cfg.time)
		case cfg.every < minEvery:
			return fmt.Errorf("-every is %v: it cannot be less than %v", cfg.every, minEvery)
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

// run is the program of one rank. Only the receiver, or the one rank that there is, writes to out.
func run(world *comm.Comm, cfg config, out io.Writer) error {
	switch world.Size() {
	case 1:
		return runLocal(cfg, out)
	case 2:
		return runRank(world, cfg, nil, out)
	}
	return fmt.Errorf("it takes 2 ranks, or 1, which makes 2 of its own; there are %d", world.Size())
}

// runLocal makes two ranks, and cuts the rails between them.
func runLocal(cfg config, out io.Writer) error {
	s := &schedule{}
	return comm.RunLocal(2,
		func(world *comm.Comm) error { return runRank(world, cfg, s, out) },
		comm.WithFabric(loop.Config{Rails: 3}),
		comm.OnFabric(func(f *loop.Fabric) { s.fabric = f }))
}

// runRank is one rank of two. The schedule is nil if nothing is to be cut.
func runRank(world *comm.Comm, cfg config, s *schedule, out io.Writer) error {
	if s != nil {
		s.join(world)
	}
	if err := world.Barrier(); err != nil { // now the rails are known
		return err
	}
	if world.Rank() == sender {
		return runSender(world, cfg, s)
	}
	return runReceiver(world, cfg, s, out)
}

func runSender(world *comm.Comm, cfg config, s *schedule) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan struct{})
	var cutting error
	go func() {
		defer close(over)
		minimum := time.After(cfg.time)
		if s != nil {
			cutting = s.follow(ctx, cfg.time)
		}
		select {
		case <-minimum:
		case <-ctx.Done():
		}
	}()
	sending := send(world, cfg.rate, over)
	cancel()
	<-over
	return errors.Join(sending, cutting)
}

func runReceiver(world *comm.Comm, cfg config, s *schedule, out io.Writer) error {
	w := watch(world)
	messages, receiving := receive(world, &w.bytes)
	rec := w.end()
	if s != nil {
		rec.cuts = s.cuts()
	}
	rec.rate, rec.every = cfg.rate, cfg.every

	// If the sender was lost, what led to it is worth a picture too.
	stats := world.Stats()
	text := rec.chart() + fmt.Sprintf("\nmessages   %d, %.1f MB, every byte checked\nrails      failed %d times, came back %d times\n",
		messages, float64(w.bytes.Load())/1e6, stats.RailsFailed, stats.RailsReturned)
	var drawing error
	if cfg.picture != "" {
		if drawing = os.WriteFile(cfg.picture, []byte(rec.draw()), 0o644); drawing == nil {
			text += fmt.Sprintf("picture    %s\n", cfg.picture)
		}
	}
	_, writing := io.WriteString(out, text)
	return errors.Join(receiving, drawing, writing)
}
