package request

import (
	"context"
	"iter"
	"math"

	"github.com/mpigo/mpigo/internal/calls"
)

// Completed yields the requests as they complete. Each comes with its index and a status, whose Err
// is the request's own error. Requests that are complete at the call come first, in list order; the
// others come in order of completion. The iteration ends when no request is active any more, or
// when ctx ends; requests that were not yielded keep their state.
//
// If the rank is shut down, Completed yields the requests that are still active with the reason in
// Err; they stay active. If the requests belong to several ranks, it yields only index 0, with
// ErrRequest.
func Completed(ctx context.Context, reqs ...Request) iter.Seq2[int, Status] {
	if ctx == nil {
		ctx = context.Background()
	}
	return func(yield func(int, Status) bool) {
		before, err := completions(calls.Completed, reqs)
		if err != nil {
			st := Empty()
			st.Err = err
			yield(0, st)
			return
		}
		for i, r := range reqs {
			if st, done := r.takeBefore(before); done && !yield(i, st) {
				return
			}
		}
		for {
			i, st, err := waitAny(ctx, calls.Completed, reqs)
			if i == Undefined {
				if err != nil && ctx.Err() == nil {
					yieldStopped(reqs, yield)
				}
				return
			}
			st.Err = err
			if !yield(i, st) {
				return
			}
		}
	}
}

// completions returns how many operations of the rank have completed.
func completions(call calls.ID, reqs []Request) (uint64, error) {
	l, err := lock(call, reqs)
	if err != nil || l.eng == nil {
		return 0, err
	}
	defer l.unlock()
	return l.eng.Counters().Done, nil
}

// takeBefore observes the request's completion if it was among the first completions of the rank.
func (r Request) takeBefore(completions uint64) (Status, bool) {
	o := r.enter()
	if o == nil {
		return Empty(), false
	}
	defer o.eng.Unlock()
	if o.state != Complete || o.ordinal > completions {
		return Empty(), false
	}
	st, err := o.Take()
	st.Err = err
	return st, true
}

// yieldStopped yields the requests of a rank that was shut down: complete ones as usual, active
// ones with the reason.
func yieldStopped(reqs []Request, yield func(int, Status) bool) {
	for i, r := range reqs {
		st, done := r.takeBefore(math.MaxUint64)
		if o := r.enter(); !done && o != nil {
			if o.state == Active {
				st.Err = o.stoppedError()
			}
			o.eng.Unlock()
		}
		if (done || st.Err != nil) && !yield(i, st) {
			return
		}
	}
}
