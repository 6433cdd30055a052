package comm

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// vLayout places n parts of different lengths, some of them empty: in descending order of rank,
// with gaps.
func vLayout(n, count int) (counts, displs []int, total int) {
	counts, displs = make([]int, n), make([]int, n)
	for r := n - 1; r >= 0; r-- {
		counts[r] = (r + 2) % 3 * count
		displs[r] = total + r%2
		total = displs[r] + counts[r]
	}
	return counts, displs, total + 1
}

// packed places the parts one after the other.
func packed(counts []int) (displs []int, total int) {
	for _, c := range counts {
		displs = append(displs, total)
		total += c
	}
	return displs, total
}

// hole is the value of elements between the parts.
const hole = -77

// holes is a whole without parts.
func holes(n int) []int32 { return slices.Repeat([]int32{hole}, n) }

// forEachLayout calls body with several layouts. displs is nil for one of them; where always says
// where the parts are.
func forEachLayout(w *Comm, body func(what string, counts, displs, where []int, total int) error) error {
	for _, count := range []int{0, 1, 5, 800} {
		counts, displs, total := vLayout(w.Size(), count)
		where, length := packed(counts)
		err := errors.Join(
			body(fmt.Sprintf("%d with gaps", count), counts, displs, displs, total),
			body(fmt.Sprintf("%d packed", count), counts, nil, where, length))
		if err != nil {
			return err
		}
	}
	return nil
}

func TestGathervAndScatterv(t *testing.T) { forEachTuning(t, checkGathervAndScatterv) }

func checkGathervAndScatterv(w *Comm) error {
	rank := w.Rank()
	return forEachLayout(w, func(what string, counts, displs, where []int, total int) error {
		for root := range w.Size() {
			part := marks(rank, counts[rank])
			if rank != root {
				// Other ranks ignore everything but their own part.
				got := make([]int32, counts[rank])
				err := errors.Join(
					Gatherv(w, part, nil, nil, nil, root), Gatherv(w, part, nil, nil, nil, root),
					Scatterv(w, nil, got, nil, nil, root), same(what+" scattered", part, got),
					Scatterv(w, nil, got, nil, nil, root))
				if err != nil {
					return err
				}
				continue
			}
			want := holes(total)
			for r := range w.Size() {
				copy(want[where[r]:], marks(r, counts[r]))
			}
			out, inPlace := holes(total), holes(total)
			copy(inPlace[where[rank]:], part)
			got := make([]int32, counts[rank])
			err := errors.Join(
				Gatherv(w, part, out, counts, displs, root), same(what, want, out),
				Gatherv(w, nil, inPlace, counts, displs, root), same(what+" in place", want, inPlace),
				Scatterv(w, want, got, counts, displs, root), same(what+" scattered", part, got),
				Scatterv(w, want, nil, counts, displs, root), same(what+" scattered in place", out, want))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func TestAllgatherv(t *testing.T) { forEachTuning(t, checkAllgatherv) }

func checkAllgatherv(w *Comm) error {
	rank := w.Rank()
	return forEachLayout(w, func(what string, counts, displs, where []int, total int) error {
		want := holes(total)
		for r := range w.Size() {
			copy(want[where[r]:], marks(r, counts[r]))
		}
		part := marks(rank, counts[rank])
		out, inPlace := holes(total), holes(total)
		copy(inPlace[where[rank]:], part)
		return errors.Join(
			Allgatherv(w, part, out, counts, displs), same(what, want, out),
			Allgatherv(w, nil, inPlace, counts, displs), same(what+" in place", want, inPlace))
	})
}

func TestAlltoallv(t *testing.T) { forEachTuning(t, checkAlltoallv) }

func checkAlltoallv(w *Comm) error {
	n, rank := w.Size(), w.Rank()
	// between is how many elements two ranks send each other, the same in both directions.
	between := func(count, a, b int) int { return (a + b) % 3 * count }
	for _, count := range []int{0, 1, 5, 800} {
		what := fmt.Sprintf("%d elements", count)
		scounts, rcounts := make([]int, n), make([]int, n)
		for r := range n {
			scounts[r] = between(count, rank, r) + r
			rcounts[r] = between(count, rank, r) + rank
		}
		sdispls, stotal := packed(scounts)
		rdispls := make([]int, n)
		rtotal := 0
		for r := n - 1; r >= 0; r-- { // in descending order, with gaps
			rdispls[r] = rtotal + 1
			rtotal = rdispls[r] + rcounts[r]
		}
		in, want := marks(rank, stotal), holes(rtotal)
		for r := range n {
			// Where this rank's part begins in the contribution of rank r.
			begin := 0
			for i := range rank {
				begin += between(count, r, i) + i
			}
			for i := range rcounts[r] {
				want[rdispls[r]+i] = mark(r, begin+i)
			}
		}
		out := holes(rtotal)
		err := errors.Join(
			Alltoallv(w, in, scounts, nil, out, rcounts, rdispls), same(what, want, out),
			Alltoallv(w, in, scounts, sdispls, out, rcounts, rdispls), same(what+" again", want, out))
		// In place, the parts in both directions have the same length.
		for r := range n {
			rcounts[r] = between(count, rank, r)
		}
		inPlace, want := holes(rtotal), holes(rtotal)
		for r := range n {
			for i := range rcounts[r] {
				inPlace[rdispls[r]+i] = mark(rank, r+i)
				want[rdispls[r]+i] = mark(r, rank+i)
			}
		}
		err = errors.Join(err,
			Alltoallv(w, nil, nil, nil, inPlace, rcounts, rdispls), same(what+" in place", want, inPlace))
		if err != nil {
			return err
		}
	}
	return nil
}
