// Command collprogram runs random programs of collectives and messages (package collprogram), seed
// after seed, until one fails or all are done. Launched, it runs each seed in all processes of the
// job. With -local it runs ranks of this process, one to eight, by the seed.
//
//	go run ./scripts/collprogram -local -seeds 10000
//	go run ./scripts/collprogram -local -first 4711 -seeds 1 -ranks 5 -list
//	mpirun-go -n 4 ./scripts/collprogram -seeds 200
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/collprogram"
)

// options are the flags.
type options struct {
	seeds, first uint64
	steps, ranks int
	list         bool
	limit        time.Duration
}

func main() {
	var o options
	flag.Uint64Var(&o.seeds, "seeds", 1000, "how many seeds to run")
	flag.Uint64Var(&o.first, "first", 1, "the first seed")
	flag.IntVar(&o.steps, "steps", 1<<30, "how many steps of each program to run")
	flag.BoolVar(&o.list, "list", false, "list the steps of each program")
	flag.DurationVar(&o.limit, "limit", 2*time.Minute, "after how long a program hangs")
	flag.IntVar(&o.ranks, "ranks", 0, "with -local: the number of ranks; 0: by the seed")
	local := flag.Bool("local", false, "run ranks of this process")
	workers := flag.Int("j", runtime.NumCPU(), "with -local: how many programs to run at a time")
	flag.Parse()
	if flag.NArg() > 0 || *workers < 1 || o.ranks < 0 {
		flag.Usage()
		os.Exit(2)
	}
	if !*local {
		comm.Run(o.launched)
		return
	}
	if err := o.local(*workers); err != nil {
		fmt.Fprintln(os.Stderr, "collprogram:", err)
		os.Exit(1)
	}
}

// program makes the program of a seed.
func (o *options) program(seed uint64, ranks int) *collprogram.Program {
	p := collprogram.New(seed, ranks)
	p.Cut(o.steps)
	return p
}

// watch ends the process, with the stacks of its goroutines, if a program hangs.
func (o *options) watch(p *collprogram.Program) *time.Timer {
	return time.AfterFunc(o.limit, func() {
		fmt.Fprintf(os.Stderr, "collprogram: seed %d with %d ranks hangs\n", p.Seed, p.Ranks)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		os.Exit(3)
	})
}

// launched runs all seeds in the world of a job.
func (o *options) launched(world *comm.Comm) error {
	began, steps := time.Now(), 0
	for seed := o.first; seed < o.first+o.seeds; seed++ {
		p := o.program(seed, world.Size())
		if o.list && world.Rank() == 0 {
			fmt.Print(p)
		}
		steps += p.Len()
		watch := o.watch(p)
		err := p.Run(world)
		watch.Stop()
		if err != nil {
			return err
		}
	}
	if world.Rank() == 0 {
		report(world.Size(), o.seeds, steps, began)
	}
	return nil
}

// report prints what was run. ranks is 0 if it differs.
func report(ranks int, seeds uint64, steps int, began time.Time) {
	of := "1 to 8"
	if ranks > 0 {
		of = fmt.Sprint(ranks)
	}
	fmt.Printf("%d programs of %d steps with %s ranks gave the results of the model in %.0f s\n",
		seeds, steps, of, time.Since(began).Seconds())
}

// local runs all seeds with ranks of this process, several at a time.
func (o *options) local(workers int) error {
	var (
		next, steps atomic.Int64
		failed      = make(chan error, workers)
		group       sync.WaitGroup
		began       = time.Now()
	)
	for range workers {
		group.Go(func() {
			for len(failed) == 0 {
				i := uint64(next.Add(1) - 1)
				if i >= o.seeds {
					return
				}
				ranks := o.ranks
				if ranks == 0 {
					ranks = 1 + int((o.first+i)%8)
				}
				p := o.program(o.first+i, ranks)
				if o.list {
					fmt.Print(p)
				}
				steps.Add(int64(p.Len()))
				watch := o.watch(p)
				err := comm.RunLocal(ranks, p.Run)
				watch.Stop()
				if err != nil {
					failed <- err
				}
			}
		})
	}
	group.Wait()
	close(failed)
	var err error
	for e := range failed {
		err = errors.Join(err, e)
	}
	if err == nil {
		report(o.ranks, o.seeds, int(steps.Load()), began)
	}
	return err
}
