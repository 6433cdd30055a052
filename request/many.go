package request

import (
	"context"
	"fmt"
	"runtime"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/progress"
)

// list is the requests of one call. All belong to one rank, whose engine is locked.
type list struct {
	eng    *progress.Engine // nil if every handle is null
	reqs   []Request        // of the call; for audited handles, of the operations' objects
	offset int              // of reqs in the list of the call
	record *calls.Call      // of the call; nil if calls are not recorded
	// handles keeps the audited handles reachable during the call; nil if the handles are not
	// audited.
	handles *Request
}

// lock takes the engine's lock for a call over several requests. All, stale ones too, must belong
// to one rank. Either all handles of a rank are audited, or none is.
func lock(call calls.ID, reqs []Request) (list, error) {
	l, areAudited := list{reqs: reqs}, false
	for _, r := range reqs {
		switch {
		case r.o == nil || r.o.eng == l.eng:
		case l.eng == nil:
			l.eng = r.o.eng
			areAudited = r.o.target != nil
		default:
			return list{}, newError(call, "the requests belong to several ranks")
		}
	}
	if l.eng != nil {
		l.eng.Lock()
	}
	if areAudited {
		l.resolve()
	}
	if l.eng != nil && l.eng.Calls != nil {
		l.record = l.begin(call)
	}
	return l, nil
}

func (l list) unlock() {
	if l.eng == nil {
		return
	}
	runtime.KeepAlive(l.handles)
	if l.record != nil {
		l.eng.Calls.End(l.record)
	}
	l.eng.Unlock()
}

// at returns the i-th object if it is active or complete, else nil.
func (l list) at(i int) *Object {
	r := l.reqs[i]
	if r.o == nil || r.o.gen != r.gen || r.o.state == Inactive {
		return nil
	}
	return r.o
}

// count counts the requests that are active, complete, and complete with an error.
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

// await waits until need of the active requests have completed, or one of them has failed. It is
// Engine.WaitFor for several objects: as a Condition, the list would be allocated.
func (l list) await(ctx context.Context, need int) error {
	w := l.eng.GetWaiter(need)
	for i := range l.reqs {
		if o := l.at(i); o != nil && o.state == Active {
			o.watch(w)
		}
	}
	err := l.eng.Wait(ctx, w)
	for i := range l.reqs {
		// Stale handles too: their objects must not signal the waiter any more.
		if r := l.reqs[i]; r.o != nil {
			r.o.unwatch(w)
		}
	}
	l.eng.PutWaiter(w)
	return err
}

// take observes the i-th request if it is complete, and sets *st. It returns the previous state:
// Complete, Active, or Inactive, also for a null request. The error of an active request is that of
// a stopped engine.
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

// takeAll takes every request. It sets the statuses, with their errors, unless sts is nil.
func (l list) takeAll(sts []Status) error {
	var failure *statusError
	var unused Status
	for i := range l.reqs {
		st := &unused
		if sts != nil {
			st = &sts[i]
		} else if o := l.at(i); o != nil && o.state == Complete && o.err == nil {
			o.observe()
			continue
		}
		was, err := l.take(i, st)
		switch {
		case err != nil:
			failure = failure.add(l.offset+i, err)
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

// stopped returns the error of a stopped engine, else nil.
func (l list) stopped(call calls.ID) error { return wrap(call, l.eng.Stopped()) }

// StartAll starts every request of the list, in order. If a request cannot be started, or is in the
// list twice, it returns ErrRequest and starts none.
func StartAll(reqs ...Request) error {
	l, err := lock(calls.StartAll, reqs)
	if err != nil {
		return err
	}
	defer l.unlock()
	reqs = l.reqs
	marked := 0
	for i, r := range reqs {
		switch {
		case r.o == nil || r.o.gen != r.gen:
			err = newError(calls.Start, nullHandle)
		case r.o.marked:
			err = r.o.newError(calls.Start, "the request is in the list twice")
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
	for i, r := range reqs {
		// A start may release the lock for a while, and another goroutine may use a request then.
		if r.o.gen != r.gen {
			return fmt.Errorf("request %d: %w", i, newError(calls.Start, nullHandle))
		}
		if err := r.o.startable(); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		if l.handles != nil {
			r.o.auditStart()
		}
		r.o.start()
	}
	return nil
}

// WaitAll waits until every request is complete. If one fails, WaitAll makes one more turn of
// progress and returns an error that Is ErrInStatus and Is each failed request's error. Requests
// that are not complete then stay active.
func WaitAll(reqs ...Request) error { return WaitAllStatus(reqs, nil) }

// WaitAllStatus is WaitAll that also sets sts, which must be as long as reqs, or nil. Null and
// inactive requests get the empty status. With ErrInStatus, each Status.Err is nil, the request's
// error, or ErrPending.
func WaitAllStatus(reqs []Request, sts []Status) error {
	if sts != nil && len(sts) != len(reqs) {
		return fmt.Errorf("%v: %w: %d statuses for %d requests", calls.WaitAll, ErrCount, len(sts), len(reqs))
	}
	l, err := lock(calls.WaitAll, reqs)
	if err != nil {
		return err
	}
	defer l.unlock()
	first := l.takeInOrder(sts)
	if first == len(reqs) {
		return nil
	}
	l.reqs, l.offset = l.reqs[first:], first
	if sts != nil {
		sts = sts[first:]
	}
	return l.waitAll(sts)
}

// takeInOrder takes requests from the beginning of the list, and waits for each of them without
// releasing the lock (Engine.Spin). It stops at the first request that has failed or takes too
// long, and returns its index.
func (l list) takeInOrder(sts []Status) int {
	hasSpun, failed := false, uint64(0)
	for i := 0; i < len(l.reqs); i++ {
		r := l.reqs[i]
		o := r.o
		if o != nil && o.gen == r.gen {
			if o.state == Complete && o.pool != nil {
				o.takeAtOnce()
				if sts != nil {
					sts[i] = Empty()
				}
				continue
			}
			if o.state == Active {
				if !hasSpun {
					if _, _, before := l.count(); before > 0 {
						return i
					}
					hasSpun, failed = true, l.eng.Failed()
				}
				if n := l.takeRun(i, sts); n > 0 { // also where Spin does not spin
					i += n - 1
					if l.eng.Failed() != failed {
						return i + 1
					}
					continue
				}
				l.eng.Spin(&o.active, o.ahead)
				if l.eng.Failed() != failed {
					return i
				}
			}
			// A poller may have abandoned it.
			if o.gen == r.gen && (o.state == Active || o.err != nil) {
				return i
			}
		}
		switch {
		case o == nil || o.gen != r.gen || o.state == Inactive:
			if sts != nil {
				sts[i] = Empty()
			}
		case sts != nil:
			_ = o.take(&sts[i])
		default:
			o.observe()
		}
	}
	return len(l.reqs)
}

// takeRun asks the shortcut of the i-th request, which is active, for that request and the
// following ones. It returns the number of requests that the shortcut has taken.
func (l list) takeRun(i int, sts []Status) int {
	o := l.reqs[i].o
	if o.short == nil || o.waiter != nil || o.ending != 0 {
		return 0
	}
	var st *Status
	if sts != nil {
		st, sts = &sts[i], sts[i:]
	}
	n := o.short.TakeRun(l.reqs[i:], sts)
	if n < 0 {
		n = 0
		if o.takeShort(st) {
			n = 1
		}
	}
	return n
}

// waitAll is WaitAllStatus with the lock held.
func (l list) waitAll(sts []Status) (err error) {
	active, _, failed := l.count()
	for active > 0 && failed == 0 && err == nil {
		err = l.await(context.Background(), active) // takeAll returns it for every active request
		active, _, failed = l.count()
	}
	if active > 0 && failed > 0 {
		l.eng.Turn()
	}
	return l.takeAll(sts)
}

// WaitAny waits until one of the requests is complete and returns its index, status and own error.
// If several are complete, it returns the one that completed first. If none is active, the index is
// Undefined and the status is empty.
func WaitAny(reqs ...Request) (index int, st Status, err error) {
	return waitAny(context.Background(), calls.WaitAny, reqs)
}

func waitAny(ctx context.Context, call calls.ID, reqs []Request) (int, Status, error) {
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
		// Another goroutine may have freed a request meanwhile.
		if active, _, _ := l.count(); active == 0 {
			return Undefined, Empty(), nil
		}
		if err := l.await(ctx, 1); err != nil {
			return Undefined, Empty(), wrap(call, err)
		}
	}
}

// first returns the index of the request that completed first, or −1 if none is complete.
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

// WaitSome waits until at least one request is complete. It sets indices, and sts unless nil, for
// all complete requests, in list order, and returns their number, or Undefined if no request is
// active. indices and sts must be at least as long as reqs. If a request failed, WaitSome returns
// ErrInStatus, and its Status.Err has the error.
func WaitSome(reqs []Request, indices []int, sts []Status) (outcount int, err error) {
	return some(calls.WaitSome, reqs, indices, sts, true)
}

// TestSome is WaitSome with one turn of progress instead of a wait; outcount may be 0.
func TestSome(reqs []Request, indices []int, sts []Status) (outcount int, err error) {
	return some(calls.TestSome, reqs, indices, sts, false)
}

func some(call calls.ID, reqs []Request, indices []int, sts []Status, wait bool) (int, error) {
	if len(indices) < len(reqs) || sts != nil && len(sts) < len(reqs) {
		return 0, fmt.Errorf("%v: %w: %d requests, room for %d indices and %d statuses",
			call, ErrCount, len(reqs), len(indices), len(sts))
	}
	l, err := lock(call, reqs)
	if err != nil {
		return 0, err
	}
	defer l.unlock()
	active, complete, _ := l.count()
	// Another goroutine may take or free the requests that this one waits for, hence the loop.
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

// TestAll makes progress and reports whether every request is complete. If so, it does as
// WaitAllStatus; if not, it changes nothing. sts must be as long as reqs, or nil.
func TestAll(reqs []Request, sts []Status) (flag bool, err error) {
	if sts != nil && len(sts) != len(reqs) {
		return false, fmt.Errorf("%v: %w: %d statuses for %d requests", calls.TestAll, ErrCount, len(sts), len(reqs))
	}
	l, err := lock(calls.TestAll, reqs)
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
		return false, l.stopped(calls.TestAll)
	}
	return true, l.takeAll(sts)
}

// TestAny makes progress and reports whether one of the requests is complete; if so, it does as
// WaitAny. If none is active, flag is true and the index is Undefined.
func TestAny(reqs ...Request) (index int, st Status, flag bool, err error) {
	l, err := lock(calls.TestAny, reqs)
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
		return Undefined, Empty(), false, l.stopped(calls.TestAny)
	}
	i := l.first()
	st, err = l.at(i).Take()
	return i, st, true, err
}
