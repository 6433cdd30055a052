package collprogram

import (
	"context"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/request"
)

// wait completes one operation.
func (r *runner) wait(i int) error {
	st, err := r.pending[i].Wait()
	if err != nil {
		return err
	}
	return r.completed([]int{i}, []request.Status{st})
}

// completed checks the results of operations, by their places in pending. If sts is nil, it does
// not check statuses.
func (r *runner) completed(places []int, sts []request.Status) error {
	done := make([]func(*request.Status) error, len(places))
	for k, i := range places {
		done[k] = r.pending[i].done
	}
	gone := slices.Sorted(slices.Values(places))
	for _, i := range slices.Backward(gone) {
		r.pending = slices.Delete(r.pending, i, i+1)
	}
	for k, f := range done {
		var st *request.Status
		if sts != nil {
			st = &sts[k]
		}
		if err := f(st); err != nil {
			return err
		}
	}
	return nil
}

// completeSome waits or tests for some operations, by a random call.
func (r *runner) completeSome() error {
	some := r.Perm(len(r.pending))[:1+r.IntN(len(r.pending))] // places in pending
	reqs := make([]request.Request, len(some))
	for k, i := range some {
		reqs[k] = r.pending[i].Request
	}
	sts, indices := make([]request.Status, len(some)), make([]int, len(some))
	// of maps indices into reqs to places in pending.
	of := func(indices []int) []int {
		places := make([]int, len(indices))
		for k, i := range indices {
			places[k] = some[i]
		}
		return places
	}
	one := func(i int, st request.Status) error {
		if i < 0 || i >= len(some) {
			return errNothingCompleted
		}
		return r.completed([]int{some[i]}, []request.Status{st})
	}
	switch r.IntN(10) {
	case 0:
		return r.wait(some[0])
	case 1:
		for range 1 + r.IntN(20) {
			if _, there, err := reqs[0].GetStatus(); err != nil || there && !reqs[0].IsActive() {
				return fmt.Errorf("get status: active %v, %w", reqs[0].IsActive(), err)
			}
			st, done, err := reqs[0].Test()
			if err != nil {
				return err
			}
			if done {
				return one(0, st)
			}
		}
	case 2:
		if slices.ContainsFunc(some, func(i int) bool { return r.pending[i].isAnySource }) {
			return nil
		}
		if err := request.WaitAll(reqs...); err != nil {
			return err
		}
		return r.completed(some, nil)
	case 3:
		if err := request.WaitAllStatus(reqs, sts); err != nil {
			return err
		}
		return r.completed(some, sts)
	case 4:
		i, st, err := request.WaitAny(reqs...)
		if err != nil {
			return err
		}
		return one(i, st)
	case 5:
		n, err := request.WaitSome(reqs, indices, sts)
		if err != nil {
			return err
		}
		if n < 1 {
			return errNothingCompleted
		}
		return r.completed(of(indices[:n]), sts)
	case 6:
		done, err := request.TestAll(reqs, sts)
		if err != nil || !done {
			return err
		}
		return r.completed(some, sts)
	case 7:
		i, st, done, err := request.TestAny(reqs...)
		if err != nil || !done {
			return err
		}
		return one(i, st)
	case 8:
		n, err := request.TestSome(reqs, indices, sts)
		if err != nil {
			return err
		}
		return r.completed(of(indices[:n]), sts)
	case 9:
		var order []int
		clear(sts)
		for i, st := range request.Completed(context.Background(), reqs...) {
			if st.Err != nil {
				return st.Err
			}
			sts[len(order)] = st
			order = append(order, i)
		}
		if len(order) != len(reqs) {
			return errNothingCompleted
		}
		return r.completed(of(order), sts)
	}
	return nil
}
