package request

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/progress"
)

// For calls over several requests of which some fail: the result, the statuses, and the states
// after the call. Failed requests are null, or inactive if persistent. After a failure WaitAll
// makes one more turn; requests that are not complete then keep their state.
func TestCallsOverFailedRequests(t *testing.T) {
	for _, row := range []callRow{
		{"WaitAllStatus", "failed complete", "instatus+boom [message/boom message]", "null null"},
		{"WaitAllStatus", "failed banged", "instatus+boom+bang [message/boom message/bang]", "null null"},
		{"WaitAllStatus", "p-failed inactive null p-cancelled", "instatus+boom [message/boom empty empty cancelled]", "inactive inactive null inactive"},
		{"WaitAllStatus", "active failed p-active", "instatus+boom [pending message/boom pending]", "active null p-active"},
		{"WaitAllStatus", "active p-failed complete", "instatus+boom [pending message/boom message]", "active inactive null"},
		{"WaitAllStatus", "failed coming coming", "instatus+boom [message/boom message pending]", "null null active"},
		{"WaitAllStatus", "failed failing active", "instatus+boom [message/boom message/boom pending]", "null null active"},
		{"WaitAllStatus", "coming failing coming coming", "instatus+boom [message message/boom message pending]", "null null null active"},
		{"WaitAllStatus", "p-coming p-failing p-coming p-coming", "instatus+boom [message message/boom message pending]", "inactive inactive inactive p-active"},
		{"WaitAll", "coming failing coming coming", "instatus+boom", "null null null active"},
		{"WaitAll", "failed p-banged active", "instatus+boom+bang", "null inactive active"},
		{"WaitAllStatus, nil", "p-failed complete active", "instatus+boom", "inactive null active"},

		{"TestAll", "failed active", "false ok [- -]", "failed active"},
		{"TestAll", "failed p-banged complete", "true instatus+boom+bang [message/boom message/bang message]", "null inactive null"},
		{"TestAll", "complete p-failing", "true instatus+boom [message message/boom]", "null inactive"},
		{"TestAll, nil", "complete p-failed", "true instatus+boom", "null inactive"},

		{"WaitSome", "active failed p-complete p-banged", "3 instatus+boom+bang 1:message/boom 2:message 3:message/bang", "active null inactive inactive"},
		{"WaitSome", "failing active", "1 instatus+boom 0:message/boom", "null active"},
		{"WaitSome, nil", "active p-failed complete", "2 instatus+boom 1 2", "active inactive null"},
		{"TestSome", "active p-failed complete", "2 instatus+boom 1:message/boom 2:message", "active inactive null"},
		{"TestSome", "active p-failing", "1 instatus+boom 1:message/boom", "active inactive"},

		{"WaitAny", "active p-failed complete", "1 message/boom", "active inactive complete"},
		{"WaitAny", "active failing", "1 message/boom", "active null"},
		{"TestAny", "active banged", "true 1 message/bang", "active null"},
		{"TestAny", "active p-failing", "true 1 message/boom", "active inactive"},

		{"Completed", "p-failed coming p-failing banged", "0:message/boom 3:message/bang 1:message 2:message/boom", "inactive null inactive null"},
	} {
		row.after = strings.NewReplacer("failed", "complete", "banged", "complete").Replace(row.after)
		row.run(t, nil, func(t *testing.T, r *rank, reqs []Request) {
			if row.call != "WaitAllStatus" || !strings.Contains(row.want, "pending") {
				return
			}
			// The active requests can still be completed and waited for.
			for _, h := range reqs {
				if st := stateOf(t, h); st == "active" || st == "p-active" {
					o := h.o.op.(*op)
					r.locked(func() { r.due = nil })
					o.complete(message, nil)
				}
			}
			assert.NoError(t, WaitAll(reqs...))
		})
	}
}

// On a stopped engine complete requests stay complete, and no other request completes.
func TestCallsOnStoppedEngine(t *testing.T) {
	for _, row := range []callRow{
		{"Wait", "complete", "message", "null"},
		{"Wait", "active", "stopped", "active"},
		{"Wait", "p-active", "stopped", "p-active"},
		{"Wait", "inactive", "empty", "inactive"},
		{"Test", "active", "pending stopped", "active"},
		{"Test", "coming", "done message", "null"},
		{"GetStatus", "active", "pending stopped", "active"},
		{"WaitAny", "active p-complete", "1 message", "active inactive"},
		{"WaitAny", "active p-active", "-3 stopped", "active p-active"},
		{"WaitAny", "null inactive", "-3 empty", "null inactive"},
		{"TestAny", "active p-active", "false -3 stopped", "active p-active"},
		{"WaitAll", "active complete", "instatus+stopped", "active null"},
		{"WaitAllStatus", "active complete null", "instatus+stopped [stopped message empty]", "active null null"},
		{"WaitAllStatus", "active p-failed", "instatus+boom+stopped [stopped message/boom]", "active inactive"},
		{"TestAll", "active complete", "false stopped [- -]", "active complete"},
		{"WaitSome", "active p-active", "0 stopped", "active p-active"},
		{"WaitSome", "active complete", "1 ok 1:message", "active null"},
		{"TestSome", "active", "0 stopped", "active"},
		{"TestSome", "coming active", "1 ok 0:message", "null active"},
		{"Completed", "active complete null p-active inactive", "1:message 0:stopped 3:stopped", "active null null p-active inactive"},
		{"Completed, ended", "active complete", "1:message", "active null"},
		{"Start", "inactive", "ok", "p-complete"},
		{"StartAll", "inactive inactive", "ok", "p-complete p-complete"},
		{"Free", "active", "ok", "null"},
		{"Cancel", "active", "ok", "active"},
	} {
		row.run(t, func(_ *testing.T, r *rank, _ []Request) { r.Stop(nil) }, nil)
	}
}

// Start on a stopped engine completes the request with the error, without a call of its operation.
func TestStartOnStoppedEngineFails(t *testing.T) {
	r := newRank()
	_, h := r.persistent("p")
	r.Stop(errBang)
	require.NoError(t, h.Start())
	st, err := h.Wait()
	assert.Equal(t, Empty(), st)
	assert.ErrorIs(t, err, errBang)
	assert.Equal(t, "inactive", stateOf(t, h))
	assert.Empty(t, r.calls)
}

func TestStopDuringWaitEndsIt(t *testing.T) {
	for _, row := range []struct{ call, want string }{
		{"Wait", "stopped"},
		{"WaitAny", "-3 stopped"},
		{"WaitAllStatus", "instatus+stopped [stopped stopped]"},
		{"WaitSome", "0 stopped"},
		{"Completed", "0:stopped 1:stopped"},
	} {
		t.Run(row.call, func(t *testing.T) {
			r := newRank()
			reqs := r.makeAll(t, "active p-active")
			done := spawn(func() string { return byName[row.call](t, r, reqs) })
			r.waiting(t, reqs[0].o.op.(*op), 1)
			r.Stop(nil)
			assert.Equal(t, row.want, within(t, done, row.call))
			assert.Equal(t, "active p-active", statesOf(t, reqs))
		})
	}
}

func TestErrorTexts(t *testing.T) {
	r := newRank()
	a, ha := r.active("a")
	_, hb := r.active("b")
	c, hc := r.active("c")
	a.complete(message, errBoom)
	c.complete(message, errBang)
	err := WaitAll(ha, hb, hc)
	assert.EqualError(t, err, "some requests failed: request 0: op a: boom; request 2: op c: bang")

	var many []Request
	for i := range 10 {
		o, h := r.active(fmt.Sprint(i))
		o.complete(message, errBoom)
		many = append(many, h)
	}
	assert.EqualError(t, WaitAll(many...), "some requests failed: 10 requests, first of them request 0: op 0: boom")

	many = nil
	for i := range 10 {
		o, h := r.active(fmt.Sprint(i))
		o.complete(message, fmt.Errorf("reason %d", max(i-1, 0)))
		many = append(many, h)
	}
	assert.EqualError(t, WaitAll(many...), "some requests failed: 2 requests, first of them request 0: op 0: reason 0; request 2: op 2: reason 1; "+
		"request 3: op 3: reason 2; request 4: op 4: reason 3; and 5 more")

	_, hp := r.persistent("p")
	for _, row := range []struct {
		err  error
		want string
	}{
		{Request{}.Start(), "start: invalid request: the handle is null"},
		{hb.Start(), "op b: start: invalid request: the request is not persistent"},
		{StartAll(hp, hp), "request 1: op p: start: invalid request: the request is in the list twice"},
		{hp.Cancel(), "op p: cancel: invalid request: the request is inactive"},
		{Request{}.Cancel(), "cancel: invalid request: the handle is null"},
		{Request{}.Free(), "free: invalid request: the handle is null"},
		{WaitAll(hp, newRank().make(t, "inactive")), "wait all: invalid request: the requests belong to several ranks"},
		{WaitAllStatus([]Request{hp}, []Status{}), "wait all: invalid count: 0 statuses for 1 requests"},
	} {
		assert.EqualError(t, row.err, row.want)
	}
	_, err = WaitSome([]Request{hp}, nil, nil)
	assert.EqualError(t, err, "wait some: invalid count: 1 requests, room for 0 indices and 0 statuses")

	r.Stop(nil)
	_, err = hb.Wait()
	assert.EqualError(t, err, "op b: progress engine stopped")
	assert.EqualError(t, WaitAll(hb), "some requests failed: request 0: op b: progress engine stopped")
	_, _, err = WaitAny(hb)
	assert.EqualError(t, err, "wait any: progress engine stopped")
	assert.ErrorIs(t, err, progress.ErrStopped)
}

// One request fails, before the call or during it, and another one never completes. The engine
// would spin for longer than any test.
func TestWaitAllWithFailureStopsSpinning(t *testing.T) {
	for _, before := range []bool{false, true} {
		r := &rank{Engine: progress.New(progress.Config{SpinTurns: 1 << 40})}
		r.AddPoller(r)
		_, never := r.active("")
		fails, h := r.active("")
		if before {
			fails.complete(message, errBoom)
		} else {
			r.locked(func() { r.due = append(r.due, func() { fails.Complete(message, errBoom) }) })
		}
		assert.ErrorIs(t, WaitAll(never, h), errBoom)
		assert.LessOrEqual(t, r.Counters().Turns, uint64(3))
	}
}

// The error of a list names the request, though those before it were taken earlier.
func TestWaitAllNamesFailedRequestAfterCompleteOnes(t *testing.T) {
	r := &rank{Engine: progress.New(progress.Config{})}
	r.AddPoller(r)
	good, first := r.active("")
	bad, second := r.active("")
	good.complete(message, nil)
	bad.complete(message, errBoom)
	sts := make([]Status, 2)
	err := WaitAllStatus([]Request{first, second}, sts)
	assert.ErrorContains(t, err, "request 1")
	assert.NoError(t, sts[0].Err)
	assert.ErrorIs(t, sts[1].Err, errBoom)
}
