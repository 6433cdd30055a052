package simulation

import (
	"fmt"
	"io"
	"slices"
)

// Shrunk is a small part of a plan that still fails.
type Shrunk struct {
	plan    *plan
	Failure *Failure
	// Actions is the number of actions that are left, Faults how many of them are faults.
	Actions, Faults int
	// Runs is the number of simulations that shrinking took.
	Runs int

	fails func(*plan) *Failure
}

// maxShrinkRuns bounds shrinking.
const maxShrinkRuns = 3000

// Shrink removes actions from the plan of a seed, faults first, as long as the same invariant is
// broken.
func Shrink(seed uint64, t Transport) *Shrunk {
	return shrink(draw(seed, t), func(p *plan) *Failure { return p.run(nil).Failure })
}

func shrink(p *plan, fails func(*plan) *Failure) *Shrunk {
	s := &Shrunk{plan: p, Failure: fails(p), fails: fails}
	if s.Failure == nil {
		return s
	}
	for before := -1; before != len(s.plan.actions); {
		before = len(s.plan.actions)
		s.without(action.isFault)
		s.without(func(a action) bool { return !a.isFault() })
	}
	s.Actions = len(s.plan.actions)
	for _, a := range s.plan.actions {
		if a.isFault() {
			s.Faults++
		}
	}
	return s
}

// without removes actions of one sort: half of them at a time, then a quarter, and so on.
func (s *Shrunk) without(is func(action) bool) {
	which := s.selected(is)
	for n := len(which); n > 0; n /= 2 {
		for at := 0; at+n <= len(which) && s.Runs < maxShrinkRuns; {
			if s.try(which[at : at+n]) {
				which = s.selected(is)
			} else {
				at += n
			}
		}
	}
}

func (s *Shrunk) selected(are func(action) bool) (which []int) {
	for i, a := range s.plan.actions {
		if are(a) {
			which = append(which, i)
		}
	}
	return which
}

// try removes actions by index if the plan still fails without them, and reports whether it does.
func (s *Shrunk) try(out []int) bool {
	q := *s.plan
	q.actions = nil
	for i, a := range s.plan.actions {
		if !slices.Contains(out, i) {
			q.actions = append(q.actions, a)
		}
	}
	s.Runs++
	f := s.fails(&q)
	if f == nil || f.Invariant != s.Failure.Invariant {
		return false
	}
	s.plan, s.Failure = &q, f
	return true
}

// Write writes the actions that are left, and the ladder of their run.
func (s *Shrunk) Write(to io.Writer) {
	if s.Failure == nil {
		return
	}
	fmt.Fprintf(to, "shrunk in %d runs to %d actions, of which %d are faults:\n", s.Runs, s.Actions, s.Faults)
	for _, a := range s.plan.actions {
		fmt.Fprintln(to, " ", a)
	}
	s.plan.run(to)
}
