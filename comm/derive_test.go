package comm

import (
	"errors"
	"maps"
	"slices"
	"testing"
)

// TestDifferentCallsThatMakeCommunicatorsEnd: one rank makes another call than all others. No rank
// hangs, no rank gets a communicator that works, and the next collective works.
func TestDifferentCallsThatMakeCommunicatorsEnd(t *testing.T) {
	calls := map[string]func(w *Comm) (*Comm, error){
		"dup":        func(w *Comm) (*Comm, error) { return w.Dup() },
		"split":      func(w *Comm) (*Comm, error) { return w.Split(0, 0) },
		"create":     func(w *Comm) (*Comm, error) { return w.Create(w.Group()) },
		"split by":   func(w *Comm) (*Comm, error) { return w.SplitBy(SplitCore, 0) },
		"cart":       func(w *Comm) (*Comm, error) { return w.Cart([]int{w.Size()}, []bool{true}) },
		"graph":      func(w *Comm) (*Comm, error) { return w.Graph(nil, nil) },
		"dist graph": func(w *Comm) (*Comm, error) { return w.DistGraph(map[int][]int{0: {0}}) },
		"barrier":    func(w *Comm) (*Comm, error) { return nil, w.Barrier() },
		"allgather": func(w *Comm) (*Comm, error) {
			return nil, Allgather(w, make([]byte, 8), make([]byte, 8*w.Size()))
		},
	}
	names := slices.Sorted(maps.Keys(calls))
	for _, n := range []int{2, 3} {
		run(t, n, func(w *Comm) {
			for i, usual := range names {
				for j, other := range names {
					if i == j || (usual == "split" && other == "dup") || (usual == "dup" && other == "split") {
						continue // those two do not compare
					}
					name, odd := usual, (i+j)%n
					if w.Rank() == odd {
						name = other
					}
					c, err := calls[name](w)
					switch {
					case err != nil && !errors.Is(err, ErrComm) && !errors.Is(err, ErrCount):
						failf("%s, but %s at rank %d: %w", usual, other, odd, err)
					case err == nil && c != nil:
						// Dup and Split do not compare, and may have taken the other rank's colour.
						if err := c.Barrier(); !errors.Is(err, ErrComm) && c.Size() == n {
							failf("%s, but %s at rank %d: a communicator works: %w", usual, other, odd, err)
						}
						check(c.Free())
					}
					if err := w.Barrier(); err != nil {
						failf("%s, but %s at rank %d: the next collective: %w", usual, other, odd, err)
					}
				}
			}
		})
	}
}
