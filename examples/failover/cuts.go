package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/examples/failover/timeline"
)

// cutter cuts the cables of rails in memory and mends them.
type cutter struct {
	mu    sync.Mutex
	ranks []*comm.Comm   // guarded by mu
	cuts  []timeline.Cut // guarded by mu
}

// railsToCut lists the rails that are cut together. With no rail left, messages wait for one, up to
// the time of the setting pml.grace, which is 10 s by default.
var railsToCut = [][]int{{1}, {0}, {1, 2}, {0, 1, 2}} // never written

const (
	pollEvery = 5 * time.Millisecond

	// patience is how long both ranks may take to notice a cut or a mended rail. The library tries
	// a failed rail again after a pause that grows up to half a second.
	patience = 20 * time.Second
)

// join makes a rank known. Each rank calls it before the first cut.
func (c *cutter) join(world *comm.Comm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranks = append(c.ranks, world)
}

// run makes all cuts, one after the other, in about the given time. It cuts and mends the rails of
// all ranks through the world of one of them. It returns early, without an error, if ctx ends.
func (c *cutter) run(ctx context.Context, world *comm.Comm, total time.Duration) error {
	cuts := uint64(0)
	for _, rails := range railsToCut {
		pause(ctx, total/10)
		if ctx.Err() != nil {
			return nil
		}
		from := time.Now()
		for _, rail := range rails {
			if err := world.CutRail(rail); err != nil {
				return err
			}
		}
		cuts += uint64(len(rails))
		pause(ctx, total/16)
		if err := c.await(ctx, "noticed a cut", func(s comm.Stats) bool { return s.RailsFailed >= cuts }); err != nil {
			return err
		}
		for _, rail := range rails {
			if err := world.MendRail(rail); err != nil {
				return err
			}
		}
		c.keep(rails, from, time.Now())
		if err := c.await(ctx, "got a mended rail back", func(s comm.Stats) bool { return s.RailsReturned >= cuts }); err != nil {
			return err
		}
	}
	pause(ctx, total/10)
	return nil
}

func (c *cutter) keep(rails []int, from, to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rail := range rails {
		c.cuts = append(c.cuts, timeline.Cut{Rail: rail, From: from, To: to})
	}
}

// made returns the cuts so far.
func (c *cutter) made() []timeline.Cut {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.cuts)
}

// await waits until a condition holds at both ranks.
func (c *cutter) await(ctx context.Context, what string, holds func(comm.Stats) bool) error {
	for deadline := time.Now().Add(patience); ctx.Err() == nil; pause(ctx, pollEvery) {
		if c.all(holds) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a rank has not %s for %v", what, patience)
		}
	}
	return nil
}

func (c *cutter) all(holds func(comm.Stats) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(c.ranks, func(world *comm.Comm) bool { return !holds(world.Stats()) })
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
