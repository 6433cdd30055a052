package request

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/mpigo/mpigo/progress"
)

// list is the requests of one call, all of one rank, its engine locked.
type list struct {
	eng  *progress.Engine // nil if every handle is null
	reqs []Request
}

// lock takes the engine's lock for a call over several requests. All must be of one rank,
// also those that have become null: whose they were does not change.
func lock(call string, reqs []Request) (list, error) {
	l := list{reqs: reqs}
	for _, r := range reqs {
		switch {
		case r.o == nil || r.o.eng == l.eng:
		case l.eng == nil:
			l.eng = r.o.eng
		default:
			return list{}, fault(call, "the requests belong to several ranks")
		}
	}
	if l.eng != nil {
		l.eng.Lock()
	}
	return l, nil
}

func (l list) unlock() {
	if l.eng != nil {
		l.eng.Unlock()
	}
}

// at is the i-th live object that is active or complete, or nil.
func (l list) at(i int) *Object {
	r := l.reqs[i]
	if r.o == nil || r.o.gen != r.gen || r.o.state == Inactive {
		return nil
	}
	return r.o
}

// count of the requests that are active, complete, and complete with an error.
func (l list) count() (active, complete, failed int) {
	for i := range l.reqs {
		switch o := l.at(i); {
		case o == nil:
		case o.state == Active:
			active++
		default:
			complete++
			if o.err != nil {
				failed++
			}
		}
	}
	return
}

// await waits until need of the active requests have completed, or one has failed.
func (l list) await(ctx context.Context, need int) error {
	w := l.eng.GetWaiter(need)
	for i := range l.reqs {
		if o := l.at(i); o != nil && o.state == Active {
			o.watch(w)
		}
	}
	err := l.eng.Wait(ctx, w)
	for i := range l.reqs {
		// Also of handles that have become stale: the waiter must not be found there.
		if r := l.reqs[i]; r.o != nil {
			r.o.unwatch(w)
		}
	}
	l.eng.PutWaiter(w)
	return err
}

// take observes the i-th request if it is complete. It fills in the status, and returns the state that
// the request was found in: Complete, Active, or Inactive for a null one too. The error of an active
// one is why it will never complete, if the engine was stopped.
func (l list) take(i int, st *Status) (was State, err error) {
	switch o := l.at(i); {
	case o == nil:
		*st = Empty()
		return Inactive, nil
	case o.state == Complete:
		return Complete, o.take(st)
	default:
		*st = Empty()
		return Active, o.stoppedError()
	}
}

// takeAll takes every request, and fills in the statuses, if there are any, with their errors.
func (l list) takeAll(sts []Status) error {
	var failure *statusError
	var unseen Status
	for i := range l.reqs {
		st := &unseen
		if sts != nil {
			st = &sts[i]
		} else if o := l.at(i); o != nil && o.state == Complete && o.err == nil {
			o.observe()
			continue
		}
		was, err := l.take(i, st)
		switch {
		case err != nil:
			failure = failure.add(i, err)
		case was == Active:
			err = ErrPending
		}
		st.Err = err
	}
	if failure != nil {
		return failure
	}
	return nil
}

// stopped is the reason why nothing will come any more, or nil.
func (l list) stopped(call string) error { return wrap(call, l.eng.Stopped()) }

// wrap says which call an error ended.
func wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", call, err)
}

// statusError is what a call over several requests returns when some failed.
type statusError struct {
	failed []error // each with the index of its request
}

// mostReasons is how many different reasons an error tells.
const mostReasons = 4

// Error tells each reason once, with the first request that failed for it.
func (e *statusError) Error() string {
	var reasons []string
	firsts, counts := map[string]error{}, map[string]int{}
	for _, err := range e.failed {
		why := reason(err)
		if counts[why]++; counts[why] == 1 {
			firsts[why] = err
			reasons = append(reasons, why)
		}
	}
	var b strings.Builder
	b.WriteString(ErrInStatus.Error())
	untold := len(e.failed)
	for _, why := range reasons[:min(len(reasons), mostReasons)] {
		b.WriteString("; ")
		if n := counts[why]; n > 1 {
			fmt.Fprintf(&b, "%d requests, first of them ", n)
		}
		b.WriteString(firsts[why].Error())
		untold -= counts[why]
	}
	if untold > 0 {
		fmt.Fprintf(&b, "; and %d more", untold)
	}
	return b.String()
}

// reason is why a request failed, without which one it was: what the error that describes it wraps.
func reason(err error) string {
	described := errors.Unwrap(err) // that with the index
	if why := errors.Unwrap(described); why != nil && strings.HasSuffix(described.Error(), ": "+why.Error()) {
		return why.Error()
	}
	return described.Error()
}

func (e *statusError) Unwrap() []error { return append([]error{ErrInStatus}, e.failed...) }

func (e *statusError) add(i int, err error) *statusError {
	if e == nil {
		e = new(statusError)
	}
	e.failed = append(e.failed, fmt.Errorf("request %d: %w", i, err))
	return e
}

// StartAll starts every request of the list, or none: if one of them cannot be started,
// or is there twice, it is ErrRequest and nothing changes.
func StartAll(reqs ...Request) error {
	l, err := lock("start all", reqs)
	if err != nil {
		return err
	}
	defer l.unlock()
	marked := 0
	for i, r := range reqs {
		switch {
		case r.o == nil || r.o.gen != r.gen:
			err = fault("start", nullHandle)
		case r.o.marked:
			err = r.o.fault("start", "the request is in the list twice")
		default:
			err = r.o.startable()
		}
		if err != nil {
			err = fmt.Errorf("request %d: %w", i, err)
			break
		}
		r.o.marked = true
		marked++
	}
	for _, r := range reqs[:marked] {
		r.o.marked = false
	}
	if err != nil {
		return err
	}
	for _, r := range reqs {
		r.o.start()
	}
	return nil
}

// WaitAll returns when every request is complete. If one fails, it returns after one more
// turn of progress with an error that Is ErrInStatus and Is that request's error; what
// is unfinished then stays active.
func WaitAll(reqs ...Request) error { return WaitAllStatus(reqs, nil) }

// WaitAllStatus is WaitAll that fills sts, whose length is that of reqs. Null and inactive
// requests get the empty status. With ErrInStatus, each Status.Err is nil, the request's
// error, or ErrPending. sts may be nil.
func WaitAllStatus(reqs []Request, sts []Status) error {
	if sts != nil && len(sts) != len(reqs) {
		return fmt.Errorf("wait all: %w: %d statuses for %d requests", ErrCount, len(sts), len(reqs))
	}
	l, err := lock("wait all", reqs)
	if err != nil {
		return err
	}
	defer l.unlock()
	active, _, failed := l.count()
	for active > 0 && failed == 0 && err == nil {
		err = l.await(context.Background(), active) // an error is that of every active request
		active, _, failed = l.count()
	}
	if active > 0 && failed > 0 {
		l.eng.Turn()
	}
	return l.takeAll(sts)
}

// WaitAny returns when one of the requests is complete, with its index, status and own
// error. If none is active the index is Undefined, and the status empty.
func WaitAny(reqs ...Request) (index int, st Status, err error) {
	return waitAny(context.Background(), "wait any", reqs)
}

func waitAny(ctx context.Context, call string, reqs []Request) (int, Status, error) {
	l, err := lock(call, reqs)
	if err != nil {
		return Undefined, Empty(), err
	}
	defer l.unlock()
	for {
		if i := l.first(); i >= 0 {
			st, err := l.at(i).Take()
			return i, st, err
		}
		// A request may also have become null, freed by another goroutine.
		if active, _, _ := l.count(); active == 0 {
			return Undefined, Empty(), nil
		}
		if err := l.await(ctx, 1); err != nil {
			return Undefined, Empty(), wrap(call, err)
		}
	}
}

// first is the index of the request that completed first, or −1 if none is complete.
func (l list) first() int {
	first := -1
	for i := range l.reqs {
		if o := l.at(i); o != nil && o.state == Complete &&
			(first < 0 || o.ordinal < l.at(first).ordinal) {
			first = i
		}
	}
	return first
}

// WaitSome returns when at least one request is complete. It fills indices, and sts if that is
// not nil, with all that are, in list order, and returns their number; Undefined if none is
// active. indices and sts must be as long as reqs at least. If one failed the error is
// ErrInStatus and its Status.Err says why.
func WaitSome(reqs []Request, indices []int, sts []Status) (outcount int, err error) {
	return some("wait some", reqs, indices, sts, true)
}

// TestSome is WaitSome that makes one turn of progress instead of waiting: outcount may be 0.
func TestSome(reqs []Request, indices []int, sts []Status) (outcount int, err error) {
	return some("test some", reqs, indices, sts, false)
}

func some(call string, reqs []Request, indices []int, sts []Status, wait bool) (int, error) {
	if len(indices) < len(reqs) || sts != nil && len(sts) < len(reqs) {
		return 0, fmt.Errorf("%s: %w: %d requests, room for %d indices and %d statuses",
			call, ErrCount, len(reqs), len(indices), len(sts))
	}
	l, err := lock(call, reqs)
	if err != nil {
		return 0, err
	}
	defer l.unlock()
	active, complete, _ := l.count()
	// Again, because another goroutine may take, or free, what this one waits for.
	for again := true; again && active > 0 && complete == 0 && err == nil; again = wait {
		if wait {
			err = wrap(call, l.await(context.Background(), 1))
		} else {
			l.eng.Poll()
			err = l.stopped(call)
		}
		active, complete, _ = l.count()
	}
	if active+complete == 0 {
		return Undefined, nil
	}
	n := 0
	var failure *statusError
	for i := range reqs {
		var st Status
		was, err := l.take(i, &st)
		if was != Complete {
			continue
		}
		if err != nil {
			failure = failure.add(i, err)
		}
		indices[n] = i
		if sts != nil {
			st.Err = err
			sts[n] = st
		}
		n++
	}
	switch {
	case failure != nil:
		return n, failure
	case n == 0:
		return 0, err
	}
	return n, nil
}

// TestAll makes progress and reports whether every request is complete. If so it is
// as WaitAllStatus; if not, nothing changes. sts is nil or as long as reqs.
func TestAll(reqs []Request, sts []Status) (flag bool, err error) {
	if sts != nil && len(sts) != len(reqs) {
		return false, fmt.Errorf("test all: %w: %d statuses for %d requests", ErrCount, len(sts), len(reqs))
	}
	l, err := lock("test all", reqs)
	if err != nil {
		return false, err
	}
	defer l.unlock()
	active, _, _ := l.count()
	if active > 0 {
		l.eng.Poll()
		active, _, _ = l.count()
	}
	if active > 0 {
		return false, l.stopped("test all")
	}
	return true, l.takeAll(sts)
}

// TestAny makes progress and reports whether one of the requests is complete, with its
// index, status and own error. If none is active, flag is true and the index Undefined.
func TestAny(reqs ...Request) (index int, st Status, flag bool, err error) {
	l, err := lock("test any", reqs)
	if err != nil {
		return Undefined, Empty(), false, err
	}
	defer l.unlock()
	active, complete, _ := l.count()
	if active > 0 && complete == 0 {
		l.eng.Poll()
		active, complete, _ = l.count()
	}
	switch {
	case active+complete == 0:
		return Undefined, Empty(), true, nil
	case complete == 0:
		return Undefined, Empty(), false, l.stopped("test any")
	}
	i := l.first()
	st, err = l.at(i).Take()
	return i, st, true, err
}

// Completed yields the requests as they complete, each with its index and a status whose
// Err is the request's own error: what is complete already in list order, the rest in order
// of completion. It ends when none is active any more or when ctx ends; what it has not
// yielded stays as it is. When the rank is shut down, all that is still active is yielded
// with the reason in Err, and stays active. If the list is of several ranks, the one index
// 0 is yielded with ErrRequest.
func Completed(ctx context.Context, reqs ...Request) iter.Seq2[int, Status] {
	if ctx == nil {
		ctx = context.Background()
	}
	return func(yield func(int, Status) bool) {
		before, err := completions("completed", reqs)
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
			i, st, err := waitAny(ctx, "completed", reqs)
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

// completions is how many operations of the rank have completed so far.
func completions(call string, reqs []Request) (uint64, error) {
	l, err := lock(call, reqs)
	if err != nil || l.eng == nil {
		return 0, err
	}
	defer l.unlock()
	return l.eng.Counters().Done, nil
}

// takeBefore observes a completion that was one of the first so many of the rank.
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

// yieldStopped yields all that is active of a rank that was shut down.
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
