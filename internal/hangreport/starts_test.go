package hangreport

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/observe"
)

// inStart is the report of one of two ranks, which waits in a start of the persistent collective
// with a number.
func inStart(rank, number int, start uint64, name string) *introspect.Report {
	r := receives(1 - rank)
	at := observe.Collective{Comm: 1, Number: number, Start: start}
	r.Snapshot.Pending[0].Op, r.Snapshot.Pending[0].Collective = name, true
	r.Snapshot.Collectives = []observe.Collective{{Comm: 1, Number: 9}}
	r.Snapshot.Starts = []observe.Collective{at}
	w := &r.Snapshot.Waits[0]
	w.Call, w.Members = "Wait", []int{0, 1}
	w.In = []observe.CollectiveCall{{
		Collective: at, Name: "persistent " + name, CommName: "world", Root: -1,
		Init: &observe.Site{Function: "main.main", File: "/src/main.go", Line: 30}, Awaits: []int{1 - rank},
	}}
	return r
}

// TestRankThatHasNotMadeStartIsNamed: the starts of a rank count, and not its Init call.
func TestRankThatHasNotMadeStartIsNamed(t *testing.T) {
	const late = "rank 1 has not started the persistent allreduce of main.go:30 in world"
	const does = "rank 0 waits for it at main.go:51 Wait; rank 1: main.go:51 Recv from 0, tag 7, for 61 s"
	for name, c := range map[string]struct {
		start  uint64
		starts []observe.Collective // of rank 1
		want   string
	}{
		"the first":            {1, []observe.Collective{{Comm: 1, Number: 3}}, late + ": " + does},
		"a later one":          {5, []observe.Collective{{Comm: 1, Number: 3, Start: 4}}, late + " again: " + does},
		"it has made it":       {1, []observe.Collective{{Comm: 1, Number: 3, Start: 1}}, ""},
		"it is ahead":          {1, []observe.Collective{{Comm: 1, Number: 3, Start: 2}}, ""},
		"it has freed it":      {1, nil, ""},
		"others are kept":      {1, []observe.Collective{{Comm: 1, Number: 4}, {Comm: 2, Number: 3}}, ""},
		"one of several":       {1, []observe.Collective{{Comm: 1, Number: 2, Start: 9}, {Comm: 1, Number: 3}}, late + ": " + does},
		"another one is later": {2, []observe.Collective{{Comm: 1, Number: 3, Start: 2}, {Comm: 1, Number: 4}}, ""},
	} {
		other := receives(0)
		other.Snapshot.Collectives, other.Snapshot.Starts = []observe.Collective{{Comm: 1, Number: 9}}, c.starts
		f := Analyze(quiet(inStart(0, 3, c.start, "allreduce"), other))
		var texts []string
		for _, cause := range f.Causes {
			if cause.Kind == KindLate {
				texts = append(texts, cause.Text)
			}
		}
		const line = "  0: main.go:51 Wait for persistent allreduce of main.go:30 in world"
		if c.want == "" {
			assert.Empty(t, texts, name)
			assert.Contains(t, f.String(), line+", for 61 s\n", name)
		} else {
			assert.Equal(t, []string{c.want}, texts, name)
			assert.Contains(t, f.String(), line+", not started by 1, for 61 s\n", name)
		}
	}
}

// TestRanksThatWaitInStartsOfEachOtherAreDeadlocked: different collectives are no cause, because
// starts have no order.
func TestRanksThatWaitInStartsOfEachOtherAreDeadlocked(t *testing.T) {
	a, b := inStart(0, 3, 1, "allreduce"), inStart(1, 4, 1, "barrier")
	a.Snapshot.Starts = append(a.Snapshot.Starts, observe.Collective{Comm: 1, Number: 4})
	b.Snapshot.Starts = append(b.Snapshot.Starts, observe.Collective{Comm: 1, Number: 3})
	for _, comm := range []uint64{1, 2} { // of the second one
		for _, at := range []*observe.Collective{&a.Snapshot.Starts[1], &b.Snapshot.Starts[0], &b.Snapshot.Waits[0].In[0].Collective} {
			at.Comm = comm
		}
		f := Analyze(quiet(a, b))
		var texts []string
		for _, c := range f.Causes {
			texts = append(texts, c.Text)
		}
		assert.Equal(t, []string{
			"deadlock: nothing can release ranks 0, 1; rank 0 waits for rank 1, which waits for rank 0",
			"rank 1 has not started the persistent allreduce of main.go:30 in world: rank 0 waits for it at main.go:51 Wait; " +
				"rank 1: main.go:51 Wait for persistent barrier of main.go:30 in world, not started by 0, for 61 s",
			"rank 0 has not started the persistent barrier of main.go:30 in world: rank 1 waits for it at main.go:51 Wait; " +
				"rank 0: main.go:51 Wait for persistent allreduce of main.go:30 in world, not started by 1, for 61 s",
		}, texts)
	}
}

// TestLateStartsOfSeveralRequests: a call that waits for several starts blames each rank only for
// those in which it waits for that rank, and starts of one line together make one cause.
func TestLateStartsOfSeveralRequests(t *testing.T) {
	r := inStart(0, 3, 1, "allreduce")
	r.Snapshot.Starts = nil
	w := &r.Snapshot.Waits[0]
	first := w.In[0]
	w.In = nil
	for number := range 10 {
		in := first
		in.Number = number
		if number >= 8 { // this rank waits for no rank in them
			in.Name, in.Awaits = "persistent bcast", nil
		}
		w.In = append(w.In, in)
		r.Snapshot.Starts = append(r.Snapshot.Starts, in.Collective)
	}
	w.Collective = &first.Collective
	other := receives(0)
	other.Snapshot.Collectives = []observe.Collective{{Comm: 1, Number: 10}}
	for number := range 10 {
		other.Snapshot.Starts = append(other.Snapshot.Starts, observe.Collective{Comm: 1, Number: number})
	}
	var texts []string
	for _, c := range Analyze(quiet(r, other)).Causes {
		if c.Kind == KindLate {
			texts = append(texts, c.Text)
		}
	}
	assert.Len(t, texts, 1)
	assert.Regexp(t, `^rank 1 has not started the persistent allreduce of main.go:30 in world: rank 0 waits for it at .* \(8 times\)$`, texts[0])
}
