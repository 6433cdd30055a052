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

// message is the status of what the tests receive: two elements of eight bytes.
var message = Status{Source: 3, Tag: 7, Count: 2, Bytes: 16}

// cancelled is the status of what was cancelled.
var cancelled = Status{Source: AnySource, Tag: AnyTag, Cancelled: true}

// rank is an engine with operations whose fate the test decides. Guarded by the engine's
// lock.
type rank struct {
	*progress.Engine
	due   []func() // what the next turns bring, one a turn
	ops   []*op    // that one of due completes
	calls []string // what operations were asked to do
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

// op is an operation.
type op struct {
	Object
	rank     *rank
	name     string
	onStart  func() // nil for nothing
	onCancel func() // nil if it cannot be cancelled
	deliver  func() // completes it with message, made once
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

// called notes a call, for operations with a name.
func (o *op) called(what string) {
	if o.name != "" {
		o.rank.calls = append(o.rank.calls, what+" "+o.name)
	}
}

// get takes an operation out of the pool, the one first that was put back last. Lock held.
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

// active makes an active operation, and its handle.
func (r *rank) active(name string) (*op, Request) {
	r.Lock()
	defer r.Unlock()
	o := r.get(name)
	o.Activate()
	return o, o.Handle()
}

// persistent makes an inactive operation, and its handle.
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

// turns is how often the rank was polled.
func (r *rank) turns() (n uint64) {
	r.locked(func() { n = r.Counters().Turns })
	return n
}

// comes has a turn complete the operation, after those that were to come before.
func (o *op) comes(st Status, err error) {
	r := o.rank
	r.locked(func() {
		r.ops = append(r.ops, o)
		r.due = append(r.due, func() {
			r.ops = slices.DeleteFunc(r.ops, func(other *op) bool { return other == o })
			o.Complete(st, err)
		})
	})
}

// isComing reports whether comes was called and the turn is yet to come.
func (o *op) isComing() bool {
	o.rank.Lock()
	defer o.rank.Unlock()
	return slices.Contains(o.rank.ops, o)
}

// complete ends the operation now.
func (o *op) complete(st Status, err error) { o.rank.locked(func() { o.Complete(st, err) }) }

// make brings a request into a state:
//
//	null       the null handle
//	stale      a handle whose object has become another operation meanwhile
//	inactive   persistent and not started
//	active     under way, for ever
//	coming     to be completed by a turn, one request a turn
//	failing    to fail likewise
//	complete   complete and not observed
//	failed     likewise, with errBoom
//	banged     likewise, with errBang
//	cancelled  likewise, by Cancel
//
// p- before it makes it persistent.
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
	case "coming":
		o.comes(message, nil)
	case "failing":
		o.comes(message, errBoom)
	case "complete":
		o.complete(message, nil)
	case "failed":
		o.complete(message, errBoom)
	case "banged":
		o.complete(message, errBang)
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

// stateOf names the state of a handle, after having checked that all that tells of it agrees.
func stateOf(t *testing.T, r Request) string {
	if r.IsNull() {
		assert.False(t, r.IsActive())
		assert.False(t, r.IsPersistent())
		return "null"
	}
	r.o.eng.Lock()
	state, persistent := r.o.State(), r.o.Persistent()
	assert.True(t, state == Active || r.o.waiter == nil && len(r.o.crowd) == 0, "nobody waits for what is not active")
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

// say gives a status and an error their names in the tables of these tests.
func say(st Status, err error) string {
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
		return sayError(err)
	}
	return what + "/" + sayError(err)
}

// sayAll is say for several.
func sayAll(sts []Status) string {
	var words []string
	for _, st := range sts {
		words = append(words, say(st, nil))
	}
	return "[" + strings.Join(words, " ") + "]"
}

// sayError lists which of the errors that the tests know err is.
func sayError(err error) string {
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

// unused is what the tests put where a call must not write.
var unused = Status{Source: -99}

// statuses is room for n statuses.
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
		waiters := len(o.crowd)
		if o.waiter != nil {
			waiters++
		}
		return waiters == n
	}, fmt.Sprintf("%d goroutines wait", n))
}

// spawn runs f on a goroutine and gives what it returns.
func spawn[T any](f func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- f() }()
	return done
}

// within fails the test if what is sent on done does not come.
func within[T any](t *testing.T, done <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-done:
		return v
	case <-time.After(time.Minute):
		require.FailNow(t, "does not end: "+what)
		panic("unreachable")
	}
}
