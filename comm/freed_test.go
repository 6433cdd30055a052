package comm

import (
	"testing"

	"github.com/mpigo/mpigo/internal/race"
	"github.com/stretchr/testify/assert"
)

// TestUseOfCommunicatorFreedLongAgoFails: one rank has freed the communicator, and thousands of
// others have come and gone. Where the rank calls Dup or CreateGroup meanwhile, its peer calls that
// only after the error.
func TestUseOfCommunicatorFreedLongAgoFails(t *testing.T) {
	others := 2000
	if race.Brief() {
		others = 200
	}
	for name, during := range map[string]func(w *Comm) (*Comm, error){
		"nothing":      func(w *Comm) (*Comm, error) { return w, nil },
		"dup":          (*Comm).Dup,
		"split":        func(w *Comm) (*Comm, error) { return w.Split(0, -w.Rank()) },
		"create group": func(w *Comm) (*Comm, error) { return w.CreateGroup(w.Group(), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 2, func(w *Comm) {
				made := []*Comm{must(w.Dup()), must(w.CreateGroup(w.Group(), 7)), must(w.Split(0, -w.Rank()))}
				// A collective of the parent that goes on, which one rank has called first.
				pending := must(w.Dup())
				if w.Rank() == 1 {
					for _, c := range made {
						check(c.Free())
					}
				}
				early := func() (*Comm, func()) {
					c, r, err := pending.Idup()
					check(err)
					return c, func() { must(r.Wait()) }
				}
				var c *Comm
				var wait func()
				if w.Rank() == 1 {
					c, wait = early()
				}
				for i := range others {
					var d *Comm
					if i%10 == 0 {
						d = must(w.CreateGroup(w.Group(), 7))
					} else {
						d = must(w.Dup())
					}
					check(d.Free())
				}
				// Another one, which came after the collective that goes on.
				last := must(w.Dup())
				made = append(made, last)
				if w.Rank() == 1 {
					check(last.Free())
				} else {
					for _, c := range made {
						other := 1 - c.Rank()
						assert.ErrorIs(t, Ssend(c, []int{1}, other, 0), ErrComm)
						assert.ErrorIs(t, c.Barrier(), ErrComm)
						check(c.Free())
					}
					c, wait = early()
				}
				d := must(during(w))
				check(d.Barrier())
				wait()
				check(c.Barrier())
				check(c.Free())
			})
		})
	}
}

// TestFreedCommunicatorsLeaveNoState: the time of Free does not depend on the number of
// communicators, and the remaining ones keep their order.
func TestFreedCommunicatorsLeaveNoState(t *testing.T) {
	run(t, 2, func(w *Comm) {
		var all []*Comm
		for range 2000 {
			all = append(all, must(w.Dup()))
		}
		before := locked(w, func() int { return len(w.job.pml.Contexts()) })
		for i := range all {
			check(all[(i*7)%len(all)].Free())
		}
		after := locked(w, func() int { return len(w.job.pml.Contexts()) })
		assert.Equal(t, before-2*len(all), after)
		assert.LessOrEqual(t, after, 4)
	})
}
