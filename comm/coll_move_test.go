package comm

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// These tests check the collectives that move data against the standard, with every number of
// ranks, every algorithm, every root, and several lengths.

func TestBcast(t *testing.T) { forEachTuning(t, checkBcast) }

func checkBcast(w *Comm) error {
	for _, count := range countsFor(w) {
		for _, root := range rootsOf(w.Size(), count) {
			buf := make([]int32, count)
			if w.Rank() == root {
				copy(buf, marks(root, count))
			}
			what := fmt.Sprintf("%d elements from %d", count, root)
			if err := errors.Join(Bcast(w, buf, root), same(what, marks(root, count), buf)); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestGather(t *testing.T) { forEachTuning(t, checkGather) }

func checkGather(w *Comm) error {
	for _, count := range countsFor(w) {
		for _, root := range rootsOf(w.Size(), count) {
			what := fmt.Sprintf("%d elements each to %d", count, root)
			var want, out, inPlace []int32
			if w.Rank() == root {
				out = make([]int32, count*w.Size())
				inPlace = make([]int32, count*w.Size())
				for r := range w.Size() {
					want = append(want, marks(r, count)...)
				}
				copy(inPlace[root*count:], marks(root, count))
			}
			in := marks(w.Rank(), count)
			err := errors.Join(Gather(w, in, out, root), same(what, want, out),
				same(what+": in", marks(w.Rank(), count), in))
			if w.Rank() == root {
				in = nil
			}
			err = errors.Join(err, Gather(w, in, inPlace, root), same(what+" in place", want, inPlace))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func TestScatter(t *testing.T) { forEachTuning(t, checkScatter) }

func checkScatter(w *Comm) error {
	for _, count := range countsFor(w) {
		for _, root := range rootsOf(w.Size(), count) {
			what := fmt.Sprintf("%d elements each from %d", count, root)
			var in, given []int32
			if w.Rank() == root {
				in = marks(root, count*w.Size())
				given = slices.Clone(in)
			}
			out, inPlace, want := make([]int32, count), make([]int32, count), make([]int32, count)
			for i := range want {
				want[i] = mark(root, w.Rank()*count+i)
			}
			err := errors.Join(Scatter(w, in, out, root), same(what, want, out))
			if w.Rank() == root {
				err = errors.Join(err, Scatter(w, in, nil, root), same(what+": in", given, in))
			} else {
				err = errors.Join(err, Scatter(w, nil, inPlace, root), same(what+" in place", want, inPlace))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func TestAllgather(t *testing.T) { forEachTuning(t, checkAllgather) }

func checkAllgather(w *Comm) error {
	for _, count := range countsFor(w) {
		what := fmt.Sprintf("%d elements each", count)
		var want []int32
		for r := range w.Size() {
			want = append(want, marks(r, count)...)
		}
		in := marks(w.Rank(), count)
		out, inPlace := make([]int32, len(want)), make([]int32, len(want))
		copy(inPlace[w.Rank()*count:], in)
		err := errors.Join(
			Allgather(w, in, out), same(what, want, out), same(what+": in", marks(w.Rank(), count), in),
			Allgather(w, nil, inPlace), same(what+" in place", want, inPlace))
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAlltoall(t *testing.T) { forEachTuning(t, checkAlltoall) }

func checkAlltoall(w *Comm) error {
	n := w.Size()
	for _, count := range countsFor(w) {
		what := fmt.Sprintf("%d elements each", count)
		in := marks(w.Rank(), n*count)
		var want []int32
		for r := range n {
			for i := range count {
				want = append(want, mark(r, w.Rank()*count+i))
			}
		}
		out, inPlace := make([]int32, len(want)), marks(w.Rank(), n*count)
		err := errors.Join(
			Alltoall(w, in, out), same(what, want, out), same(what+": in", marks(w.Rank(), n*count), in),
			Alltoall(w, nil, inPlace), same(what+" in place", want, inPlace))
		if err != nil {
			return err
		}
	}
	return nil
}

// TestCollectivesMoveStructs: elements may have any type without pointers, of any size.
func TestCollectivesMoveStructs(t *testing.T) { forEachTuning(t, checkCollectivesOfStructs) }

func checkCollectivesOfStructs(w *Comm) error {
	type particle struct {
		Pos  [3]float64
		Kind uint8
	}
	type none struct{}
	of := func(r int) particle { return particle{[3]float64{float64(r), 1, 2}, uint8(r)} }
	n := w.Size()
	one, all := []particle{of(w.Rank())}, make([]particle, n)
	var want []particle
	for r := range n {
		want = append(want, of(r))
	}
	swapped := make([]particle, n)
	part := make([]particle, 1)
	return errors.Join(
		Allgather(w, one, all), same("allgather", want, all),
		Alltoall(w, all, swapped),
		Scatter(w, all, part, n-1), same("scatter", one, part),
		Bcast(w, one, 0), same("bcast", want[:1], one),
		Bcast(w, make([]none, 5), 0),
		Allgather(w, make([]none, 2), make([]none, 2*n)),
		Allreduce(w, make([]none, 2), make([]none, 2), func(in, inout []none) {}),
	)
}
