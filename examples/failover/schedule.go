package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/comm"
)

// schedule cuts the cables of rails and mends them.
type schedule struct {
	fabric *loop.Fabric

	mu    sync.Mutex
	ranks []*comm.Comm // guarded by mu
	made  []cut        // guarded by mu: one rank cuts, the other draws
}

// cut is a time for which a rail's cable was cut.
type cut struct {
	rail     int
	from, to time.Time
}

// steps are the rails that are cut together: one, another, two, and all. What is under way then
// waits, for up to pml.grace: 10 s, unless that is set.
var steps = [][]int{{1}, {0}, {1, 2}, {0, 1, 2}}

// join makes a rank known, before the first step.
func (s *schedule) join(world *comm.Comm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranks = append(s.ranks, world)
}

// follow takes the steps, one after the other, in about the time that there is. After each it waits until its rails are
// back: a rail is tried again after a while, which grows from one attempt in vain to the next.
func (s *schedule) follow(ctx context.Context, total time.Duration) error {
	cuts := 0
	for _, rails := range steps {
		pause(ctx, total/10)
		if ctx.Err() != nil {
			return nil // it is over already, for some other reason
		}
		from := time.Now()
		for _, rail := range rails {
			if err := s.fabric.FailLane(sender, receiver, rail, loop.Cut{}); err != nil {
				return err
			}
		}
		pause(ctx, total/16)
		for _, rail := range rails {
			if err := s.fabric.ReviveLane(sender, receiver, rail); err != nil {
				return err
			}
		}
		s.note(rails, from, time.Now())
		cuts += len(rails)
		if err := s.await(ctx, uint64(cuts)); err != nil {
			return err
		}
	}
	pause(ctx, total/10)
	return nil
}

func (s *schedule) note(rails []int, from, to time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rail := range rails {
		s.made = append(s.made, cut{rail, from, to})
	}
}

// cuts are those that were made.
func (s *schedule) cuts() []cut {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.made)
}

// await returns when both ranks have seen so many rails fail and come back.
func (s *schedule) await(ctx context.Context, cuts uint64) error {
	const patience = 20 * time.Second
	begin := time.Now()
	for ; ctx.Err() == nil; pause(ctx, lookEvery) {
		if s.seen(cuts) {
			return nil
		}
		if time.Since(begin) > patience {
			return fmt.Errorf("rails are not back %v after they were mended", patience)
		}
	}
	return nil
}

func (s *schedule) seen(cuts uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.ranks, func(rank *comm.Comm) bool {
		st := rank.Stats()
		return st.RailsFailed < cuts || st.RailsReturned < cuts
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
