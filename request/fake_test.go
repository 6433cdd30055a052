package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/progress"
)

var (
	errBoom = errors.New("boom")
	errBang = errors.New("bang")
)

// message is the status of a received message: two elements of eight bytes.
var message = Status{Source: 3, Tag: 7, Count: 2, Bytes: 16}

// cancelled is the status of a cancelled operation.
var cancelled = Status{Source: AnySource, Tag: AnyTag, Cancelled: true}

// rank is an engine with operations that the test completes. The engine's lock guards it.
type rank struct {
	*progress.Engine
	due   []func() // the completions of the next turns, one a turn
	ops   []*op    // the operations that due completes
	calls []string // the calls of operations' methods
	free  []*op    // the pool
}

func newRank() *rank {
	r := &rank{Engine: progress.New(progress.Config{})}
	r.AddPoller(r)
	return r
}

// Progress implements progress.Poller.
func (r *rank) Progress() int {
	if len(r.due) == 0 {
		return 0
	}
	next := r.due[0]
	r.due = r.due[:copy(r.due, r.due[1:])]
	next()
	return 1
}

// op is an operation of the tests.
type op struct {
	Object
	rank     *rank
	name     string
	onStart  func() // may be nil
	onCancel func() // nil if Cancel does nothing
	deliver  func() // completes it with message; made once, because making it allocates
}

func (o *op) Start() {
	o.called("start")
	if o.onStart != nil {
		o.onStart()
	}
}

func (o *op) Cancel() {
	o.called("cancel")
	if o.onCancel != nil {
		o.onCancel()
	}
}

func (o *op) Release() {
	o.called("release")
	o.onStart, o.onCancel = nil, nil
	o.rank.free = append(o.rank.free, o)
}

func (o *op) Describe(err error) error { return fmt.Errorf("op %s: %w", o.name, err) }

// called records a call, for operations with a name.
func (o *op) called(what string) {
	if o.name != "" {
		o.rank.calls = append(o.rank.calls, what+" "+o.name)
	}
}

// get takes the operation from the pool that was released last, or makes one. Lock held.
func (r *rank) get(name string) *op {
	if last := len(r.free) - 1; last >= 0 {
		o := r.free[last]
		r.free = r.free[:last]
		o.name = name
		return o
	}
	o := &op{rank: r, name: name}
	o.deliver = func() { o.Complete(message, nil) }
	o.ElemBytes = 8
	o.Bind(r.Engine, o)
	return o
}

// active makes an active operation and its handle.
func (r *rank) active(name string) (*op, Request) {
	r.Lock()
	defer r.Unlock()
	o := r.get(name)
	o.Activate()
	return o, o.Handle()
}

// persistent makes an inactive persistent operation and its handle.
func (r *rank) persistent(name string) (*op, Request) {
	r.Lock()
	defer r.Unlock()
	o := r.get(name)
	o.InitPersistent()
	return o, o.Handle()
}

// locked runs f with the rank's lock.
func (r *rank) locked(f func()) {
	r.Lock()
	defer r.Unlock()
	f()
}

// turns returns the number of the rank's turns.
func (r *rank) turns() (n uint64) {
	r.locked(func() { n = r.Counters().Turns })
	return n
}

// completeLater makes a turn complete the operation, after the operations that are due before it.
func (o *op) completeLater(st Status, err error) {
	r := o.rank
	r.locked(func() {
		r.ops = append(r.ops, o)
		r.due = append(r.due, func() {
			r.ops = slices.DeleteFunc(r.ops, func(other *op) bool { return other == o })
			o.Complete(st, err)
		})
	})
}

// isDue reports whether completeLater was called and its turn has not come yet.
func (o *op) isDue() bool {
	o.rank.Lock()
	defer o.rank.Unlock()
	return slices.Contains(o.rank.ops, o)
}

// complete ends the operation now.
func (o *op) complete(st Status, err error) { o.rank.locked(func() { o.Complete(st, err) }) }

// outcomes are the errors of the states of make in which requests complete with one.
var outcomes = map[string]error{"failing": errBoom, "failed": errBoom, "banged": errBang}

// make makes a request in a state:
//
//	null       the null handle
//	stale      a handle whose object is another operation now
//	inactive   persistent and not started
//	active     under way, for ever
//	coming     active; a turn completes it, one request a turn
//	failing    active; a turn completes it with errBoom, one request a turn
//	complete   complete and not observed
//	failed     complete with errBoom and not observed
//	banged     complete with errBang and not observed
//	cancelled  complete by Cancel and not observed
//
// The prefix p- makes it persistent.
func (r *rank) make(t *testing.T, state string) Request {
	switch state {
	case "null":
		return Request{}
	case "stale":
		o, h := r.active("stale")
		o.complete(message, nil)
		_, err := h.Wait()
		require.NoError(t, err)
		again, _ := r.active("another")
		require.Same(t, o, again)
		return h
	case "inactive":
		_, h := r.persistent(state)
		return h
	}
	var o *op
	var h Request
	kind, isPersistent := strings.CutPrefix(state, "p-")
	if isPersistent {
		o, h = r.persistent(kind)
		require.NoError(t, h.Start())
	} else {
		o, h = r.active(kind)
	}
	switch kind {
	case "active":
	case "coming", "failing":
		o.completeLater(message, outcomes[kind])
	case "complete", "failed", "banged":
		o.complete(message, outcomes[kind])
	case "cancelled":
		o.onCancel = func() { o.Complete(cancelled, nil) }
		require.NoError(t, h.Cancel())
	default:
		require.Fail(t, "no state "+state)
	}
	return h
}

// makeAll makes a list of requests from their states.
func (r *rank) makeAll(t *testing.T, states string) []Request {
	var reqs []Request
	for _, state := range strings.Fields(states) {
		reqs = append(reqs, r.make(t, state))
	}
	return reqs
}

// stateOf names the state of a handle. It checks that all methods that report the state agree.
func stateOf(t *testing.T, r Request) string {
	if r.IsNull() {
		assert.False(t, r.IsActive())
		assert.False(t, r.IsPersistent())
		return "null"
	}
	r.o.eng.Lock()
	state, persistent := r.o.State(), r.o.Persistent()
	assert.True(t, state == Active || r.o.waiter == nil && len(r.o.moreWaiters) == 0, "a request that is not active has waiters")
	r.o.eng.Unlock()
	assert.Equal(t, state == Active || state == Complete, r.IsActive())
	assert.Equal(t, persistent, r.IsPersistent())
	if persistent && state != Inactive {
		return "p-" + state.String()
	}
	return state.String()
}

// statesOf names the states of several handles.
func statesOf(t *testing.T, reqs []Request) string {
	var names []string
	for _, r := range reqs {
		names = append(names, stateOf(t, r))
	}
	return strings.Join(names, " ")
}

// outcomeText names a status and an error as the tables of these tests do.
func outcomeText(st Status, err error) string {
	if st.Err != nil {
		if err != nil {
			return fmt.Sprintf("both an error and a Status.Err: %v, %v", err, st.Err)
		}
		err, st.Err = st.Err, nil
	}
	what := fmt.Sprintf("%+v", st)
	switch st {
	case Empty():
		what = "empty"
	case message:
		what = "message"
	case cancelled:
		what = "cancelled"
	case unused:
		what = "-"
	}
	if err == nil {
		return what
	}
	if what == "empty" {
		return errorText(err)
	}
	return what + "/" + errorText(err)
}

// statusesText is outcomeText of several statuses.
func statusesText(sts []Status) string {
	var words []string
	for _, st := range sts {
		words = append(words, outcomeText(st, nil))
	}
	return "[" + strings.Join(words, " ") + "]"
}

// errorText lists the known errors that err Is.
func errorText(err error) string {
	if err == nil {
		return "ok"
	}
	var words []string
	for _, known := range []struct {
		err  error
		name string
	}{
		{ErrInStatus, "instatus"},
		{ErrRequest, "ErrRequest"},
		{ErrCount, "ErrCount"},
		{ErrPending, "pending"},
		{errBoom, "boom"},
		{errBang, "bang"},
		{context.Canceled, "canceled"},
		{progress.ErrStopped, "stopped"},
	} {
		if errors.Is(err, known.err) {
			words = append(words, known.name)
		}
	}
	if len(words) == 0 {
		return "unknown error " + err.Error()
	}
	return strings.Join(words, "+")
}

// errOf returns the error of two results.
func errOf[T any](_ T, err error) error { return err }

// unused fills the statuses that a call must not write.
var unused = Status{Source: -99}

// statuses makes n unused statuses.
func statuses(n int) []Status { return slices.Repeat([]Status{unused}, n) }

// eventually waits until cond holds under the rank's lock.
func (r *rank) eventually(t *testing.T, cond func() bool, what string) {
	t.Helper()
	require.Eventually(t, func() bool {
		r.Lock()
		defer r.Unlock()
		return cond()
	}, time.Minute, 100*time.Microsecond, what)
}

// waiting waits until n goroutines wait for the object.
func (r *rank) waiting(t *testing.T, o *op, n int) {
	t.Helper()
	r.eventually(t, func() bool {
		waiters := len(o.moreWaiters)
		if o.waiter != nil {
			waiters++
		}
		return waiters == n
	}, fmt.Sprintf("%d goroutines wait", n))
}

// spawn runs f on a goroutine and sends its result on the channel.
func spawn[T any](f func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- f() }()
	return done
}

// within returns the value sent on done, and fails the test if none comes within a minute.
func within[T any](t *testing.T, done <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-done:
		return v
	case <-time.After(time.Minute):
		require.FailNow(t, what+" does not end within a minute")
		panic("unreachable")
	}
}
