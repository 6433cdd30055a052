package request

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// call makes one call with some requests and returns its results as text. Calls about one request
// use the first.
type call func(t *testing.T, r *rank, reqs []Request) string

var byName = map[string]call{
	"Wait": func(_ *testing.T, _ *rank, reqs []Request) string { return outcomeText(reqs[0].Wait()) },
	"WaitContext, ended": func(t *testing.T, _ *rank, reqs []Request) string {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return outcomeText(reqs[0].WaitContext(ctx))
	},
	"WaitContext, ends": func(t *testing.T, r *rank, reqs []Request) string {
		ctx, cancel := context.WithCancel(t.Context())
		r.locked(func() { r.due = append(r.due, cancel) })
		return outcomeText(reqs[0].WaitContext(ctx))
	},
	"WaitContext, nil": func(_ *testing.T, _ *rank, reqs []Request) string {
		//lint:ignore SA1012 a nil context must not panic
		return outcomeText(reqs[0].WaitContext(nil))
	},
	"Test": func(_ *testing.T, _ *rank, reqs []Request) string {
		st, done, err := reqs[0].Test()
		return doneText(done, st, err)
	},
	"GetStatus": func(_ *testing.T, _ *rank, reqs []Request) string {
		st, done, err := reqs[0].GetStatus()
		return doneText(done, st, err)
	},
	"WaitAny": func(_ *testing.T, _ *rank, reqs []Request) string {
		i, st, err := WaitAny(reqs...)
		return fmt.Sprint(i, " ", outcomeText(st, err))
	},
	"TestAny": func(_ *testing.T, _ *rank, reqs []Request) string {
		i, st, flag, err := TestAny(reqs...)
		return fmt.Sprint(flag, " ", i, " ", outcomeText(st, err))
	},
	"WaitAll": func(_ *testing.T, _ *rank, reqs []Request) string { return errorText(WaitAll(reqs...)) },
	"WaitAllStatus": func(_ *testing.T, _ *rank, reqs []Request) string {
		sts := statuses(len(reqs))
		err := WaitAllStatus(reqs, sts)
		return errorText(err) + " " + statusesText(sts)
	},
	"WaitAllStatus, nil": func(_ *testing.T, _ *rank, reqs []Request) string {
		return errorText(WaitAllStatus(reqs, nil))
	},
	"TestAll": func(_ *testing.T, _ *rank, reqs []Request) string {
		sts := statuses(len(reqs))
		flag, err := TestAll(reqs, sts)
		return fmt.Sprint(flag, " ", errorText(err), " ", statusesText(sts))
	},
	"TestAll, nil": func(_ *testing.T, _ *rank, reqs []Request) string {
		flag, err := TestAll(reqs, nil)
		return fmt.Sprint(flag, " ", errorText(err))
	},
	"WaitSome":      func(_ *testing.T, _ *rank, reqs []Request) string { return someText(WaitSome, reqs, true) },
	"WaitSome, nil": func(_ *testing.T, _ *rank, reqs []Request) string { return someText(WaitSome, reqs, false) },
	"TestSome":      func(_ *testing.T, _ *rank, reqs []Request) string { return someText(TestSome, reqs, true) },
	"TestSome, nil": func(_ *testing.T, _ *rank, reqs []Request) string { return someText(TestSome, reqs, false) },
	"Completed": func(t *testing.T, _ *rank, reqs []Request) string {
		return completedText(t.Context(), reqs, 0)
	},
	"Completed, ended": func(t *testing.T, _ *rank, reqs []Request) string {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return completedText(ctx, reqs, 0)
	},
	"Completed, first": func(t *testing.T, _ *rank, reqs []Request) string {
		return completedText(t.Context(), reqs, 1)
	},
	"Start":        func(_ *testing.T, _ *rank, reqs []Request) string { return errorText(reqs[0].Start()) },
	"StartAll":     func(_ *testing.T, _ *rank, reqs []Request) string { return errorText(StartAll(reqs...)) },
	"Cancel":       func(_ *testing.T, _ *rank, reqs []Request) string { return errorText(reqs[0].Cancel()) },
	"Free":         func(_ *testing.T, _ *rank, reqs []Request) string { return errorText(reqs[0].Free()) },
	"IsNull":       func(_ *testing.T, _ *rank, reqs []Request) string { return fmt.Sprint(reqs[0].IsNull()) },
	"IsActive":     func(_ *testing.T, _ *rank, reqs []Request) string { return fmt.Sprint(reqs[0].IsActive()) },
	"IsPersistent": func(_ *testing.T, _ *rank, reqs []Request) string { return fmt.Sprint(reqs[0].IsPersistent()) },
}

// completedText lists what Completed yields. It leaves the loop after most requests, unless most is
// 0.
func completedText(ctx context.Context, reqs []Request, most int) string {
	var words []string
	for i, st := range Completed(ctx, reqs...) {
		words = append(words, fmt.Sprint(i, ":", outcomeText(st, nil)))
		if len(words) == most {
			break
		}
	}
	return strings.Join(words, " ")
}

func doneText(done bool, st Status, err error) string {
	if !done {
		return "pending " + outcomeText(st, err)
	}
	return "done " + outcomeText(st, err)
}

func someText(f func([]Request, []int, []Status) (int, error), reqs []Request, withStatuses bool) string {
	indices := make([]int, len(reqs))
	var sts []Status
	if withStatuses {
		sts = statuses(len(reqs))
	}
	n, err := f(reqs, indices, sts)
	words := []string{fmt.Sprint(n), errorText(err)}
	for i := range max(n, 0) {
		if withStatuses {
			words = append(words, fmt.Sprint(indices[i], ":", outcomeText(sts[i], nil)))
		} else {
			words = append(words, fmt.Sprint(indices[i]))
		}
	}
	return strings.Join(words, " ")
}

// MPI's table of calls about one request. Each cell has the call's result, followed by the state of
// the request after the call if that changes:
//
//	!  observed: null, or inactive if persistent
//	+  complete
//	*  active
//	~  null
//
// "…" means that the call waits until the request is complete. The test also runs each cell with a
// persistent request, and those of null with a stale handle.
func TestCallsOverOneRequest(t *testing.T) {
	columns := []string{"null", "inactive", "active", "coming", "complete", "cancelled", "failed", "failing"}
	for _, row := range [][9]string{
		{"Wait", "empty", "empty", "…", "message!", "message!", "cancelled!", "message/boom!", "message/boom!"},
		{"WaitContext, nil", "empty", "empty", "…", "message!", "message!", "cancelled!", "message/boom!", "message/boom!"},
		{"WaitContext, ended", "empty", "empty", "canceled", "canceled", "message!", "cancelled!", "message/boom!", "canceled"},
		{"WaitContext, ends", "empty", "empty", "canceled", "message!", "message!", "cancelled!", "message/boom!", "message/boom!"},
		{"Test", "done empty", "done empty", "pending empty", "done message!", "done message!", "done cancelled!", "done message/boom!", "done message/boom!"},
		{"GetStatus", "done empty", "done empty", "pending empty", "done message+", "done message", "done cancelled", "done message/boom", "done message/boom+"},

		{"WaitAny", "-3 empty", "-3 empty", "…", "0 message!", "0 message!", "0 cancelled!", "0 message/boom!", "0 message/boom!"},
		{"TestAny", "true -3 empty", "true -3 empty", "false -3 empty", "true 0 message!", "true 0 message!", "true 0 cancelled!", "true 0 message/boom!", "true 0 message/boom!"},
		{"WaitAll", "ok", "ok", "…", "ok!", "ok!", "ok!", "instatus+boom!", "instatus+boom!"},
		{"WaitAllStatus", "ok [empty]", "ok [empty]", "…", "ok [message]!", "ok [message]!", "ok [cancelled]!", "instatus+boom [message/boom]!", "instatus+boom [message/boom]!"},
		{"WaitAllStatus, nil", "ok", "ok", "…", "ok!", "ok!", "ok!", "instatus+boom!", "instatus+boom!"},
		{"TestAll", "true ok [empty]", "true ok [empty]", "false ok [-]", "true ok [message]!", "true ok [message]!", "true ok [cancelled]!", "true instatus+boom [message/boom]!", "true instatus+boom [message/boom]!"},
		{"TestAll, nil", "true ok", "true ok", "false ok", "true ok!", "true ok!", "true ok!", "true instatus+boom!", "true instatus+boom!"},
		{"WaitSome", "-3 ok", "-3 ok", "…", "1 ok 0:message!", "1 ok 0:message!", "1 ok 0:cancelled!", "1 instatus+boom 0:message/boom!", "1 instatus+boom 0:message/boom!"},
		{"WaitSome, nil", "-3 ok", "-3 ok", "…", "1 ok 0!", "1 ok 0!", "1 ok 0!", "1 instatus+boom 0!", "1 instatus+boom 0!"},
		{"TestSome", "-3 ok", "-3 ok", "0 ok", "1 ok 0:message!", "1 ok 0:message!", "1 ok 0:cancelled!", "1 instatus+boom 0:message/boom!", "1 instatus+boom 0:message/boom!"},
		{"TestSome, nil", "-3 ok", "-3 ok", "0 ok", "1 ok 0!", "1 ok 0!", "1 ok 0!", "1 instatus+boom 0!", "1 instatus+boom 0!"},
		{"Completed", "", "", "…", "0:message!", "0:message!", "0:cancelled!", "0:message/boom!", "0:message/boom!"},
		{"Completed, ended", "", "", "", "", "0:message!", "0:cancelled!", "0:message/boom!", ""},
		{"Completed, first", "", "", "…", "0:message!", "0:message!", "0:cancelled!", "0:message/boom!", "0:message/boom!"},

		{"Start", "ErrRequest", "ok*", "ErrRequest", "ErrRequest", "ErrRequest", "ErrRequest", "ErrRequest", "ErrRequest"},
		{"StartAll", "ErrRequest", "ok*", "ErrRequest", "ErrRequest", "ErrRequest", "ErrRequest", "ErrRequest", "ErrRequest"},
		{"Cancel", "ErrRequest", "ErrRequest", "ok", "ok", "ok", "ok", "ok", "ok"},
		{"Free", "ErrRequest", "ok~", "ok~", "ok~", "ok~", "ok~", "ok~", "ok~"},
		{"IsNull", "true", "false", "false", "false", "false", "false", "false", "false"},
		{"IsActive", "false", "false", "true", "true", "true", "true", "true", "true"},
	} {
		for i, state := range columns {
			for _, state := range []string{state, "p-" + state} {
				switch state {
				case "p-null":
					state = "stale"
				case "p-inactive":
					continue
				}
				t.Run(row[0]+"/"+state, func(t *testing.T) {
					oneCell(t, row[0], state, row[1+i], row[4])
				})
			}
		}
	}
}

// oneCell checks one cell of the table. coming is the row's cell for the state "coming".
func oneCell(t *testing.T, name, state, want, coming string) {
	r := newRank()
	reqs := []Request{r.make(t, state)}
	before := stateOf(t, reqs[0])
	var got string
	if want == "…" {
		want = coming
		o := reqs[0].o.op.(*op)
		done := spawn(func() string { return byName[name](t, r, reqs) })
		r.waiting(t, o, 1)
		assert.Equal(t, before, stateOf(t, reqs[0]), "the state during the call")
		o.complete(message, nil)
		got = within(t, done, name)
	} else {
		got = byName[name](t, r, reqs)
	}
	persistent := strings.HasPrefix(before, "p-") || before == "inactive"
	after := before
	bare := strings.TrimRight(want, "!+*~")
	switch strings.TrimPrefix(want, bare) {
	case "!":
		after = "null"
		if persistent {
			after = "inactive"
		}
	case "+":
		after = "complete"
		if persistent {
			after = "p-complete"
		}
	case "*":
		after = "p-active"
	case "~":
		after = "null"
	}
	assert.Equal(t, bare, got)
	assert.Equal(t, after, stateOf(t, reqs[0]), "the state after the call")
}

// callRow is a call with requests in some states, its result, and the states after it.
type callRow struct{ call, states, want, after string }

// run makes the call and compares its result. The functions, which may be nil, run before the call
// and at the end.
func (row callRow) run(t *testing.T, before, after func(t *testing.T, r *rank, reqs []Request)) {
	t.Run(row.call+" "+row.states, func(t *testing.T) {
		r := newRank()
		reqs := r.makeAll(t, row.states)
		if before != nil {
			before(t, r, reqs)
		}
		assert.Equal(t, row.want, byName[row.call](t, r, reqs))
		assert.Equal(t, row.after, statesOf(t, reqs))
		if after != nil {
			after(t, r, reqs)
		}
	})
}

// The results of calls over lists of requests, and the states after the call. errors_test.go has
// the lists with failed requests.
func TestCallsOverSeveralRequests(t *testing.T) {
	for _, row := range []callRow{
		// No active request.
		{"WaitAny", "", "-3 empty", ""},
		{"TestAny", "", "true -3 empty", ""},
		{"WaitAll", "", "ok", ""},
		{"WaitAllStatus", "", "ok []", ""},
		{"TestAll", "", "true ok []", ""},
		{"WaitSome", "", "-3 ok", ""},
		{"TestSome", "", "-3 ok", ""},
		{"Completed", "", "", ""},
		{"StartAll", "", "ok", ""},
		{"WaitAny", "null inactive stale inactive", "-3 empty", "null inactive null inactive"},
		{"TestAny", "null inactive stale inactive", "true -3 empty", "null inactive null inactive"},
		{"WaitAllStatus", "null inactive stale", "ok [empty empty empty]", "null inactive null"},
		{"TestAll", "null inactive stale", "true ok [empty empty empty]", "null inactive null"},
		{"WaitSome", "null inactive stale", "-3 ok", "null inactive null"},
		{"TestSome", "null inactive stale", "-3 ok", "null inactive null"},
		{"Completed", "null inactive stale", "", "null inactive null"},

		// Calls for one of several.
		{"WaitAny", "active null coming", "2 message", "active null null"},
		{"WaitAny", "active inactive p-coming coming", "2 message", "active inactive inactive active"},
		{"WaitAny", "active p-complete coming", "1 message", "active inactive active"},
		{"WaitAny", "coming complete", "1 message", "active null"},
		{"TestAny", "active null coming", "true 2 message", "active null null"},
		{"TestAny", "active p-active", "false -3 empty", "active p-active"},
		{"TestAny", "coming complete", "true 1 message", "active null"},
		{"TestAny", "coming p-cancelled", "true 1 cancelled", "active inactive"},

		// Calls for all.
		{"WaitAllStatus", "coming null p-coming inactive complete cancelled", "ok [message empty message empty message cancelled]", "null null inactive inactive null null"},
		{"WaitAll", "coming p-coming null inactive stale p-complete", "ok", "null inactive null inactive null inactive"},
		{"TestAll", "complete p-complete p-cancelled null", "true ok [message message cancelled empty]", "null inactive inactive null"},
		{"TestAll", "complete p-complete coming", "true ok [message message message]", "null inactive null"},
		{"TestAll", "complete p-complete active", "false ok [- - -]", "complete p-complete active"},
		{"TestAll", "coming coming null", "false ok [- - -]", "complete active null"},

		// Calls for some.
		{"WaitSome", "active complete null p-complete inactive cancelled", "3 ok 1:message 3:message 5:cancelled", "active null null inactive inactive null"},
		{"WaitSome", "active coming coming", "1 ok 1:message", "active null active"},
		{"WaitSome", "complete coming", "1 ok 0:message", "null active"},
		{"TestSome", "active complete null p-complete", "2 ok 1:message 3:message", "active null null inactive"},
		{"TestSome", "active coming coming", "1 ok 1:message", "active null active"},
		{"TestSome", "active active p-active", "0 ok", "active active p-active"},

		// In order of completion, after the complete ones in list order.
		{"Completed", "coming complete null p-coming p-complete inactive", "1:message 4:message 0:message 3:message", "null null null inactive inactive inactive"},
		{"Completed", "p-coming coming", "0:message 1:message", "inactive null"},
		{"Completed, first", "coming complete p-complete", "1:message", "active null p-complete"},
		{"Completed, ended", "coming complete p-complete", "1:message 2:message", "active null inactive"},

		// Start.
		{"StartAll", "inactive inactive inactive", "ok", "p-active p-active p-active"},
		{"StartAll", "inactive null", "ErrRequest", "inactive null"},
		{"StartAll", "inactive stale inactive", "ErrRequest", "inactive null inactive"},
		{"StartAll", "inactive p-active", "ErrRequest", "inactive p-active"},
		{"StartAll", "inactive p-complete", "ErrRequest", "inactive p-complete"},
		{"StartAll", "inactive active", "ErrRequest", "inactive active"},
	} {
		row.run(t, nil, nil)
	}
}

// A handle may be in a list several times. When one entry has observed the request, it is null, or
// inactive, for the next.
func TestSameRequestSeveralTimesInList(t *testing.T) {
	for _, row := range []struct{ call, state, want, after string }{
		{"WaitAny", "coming", "0 message", "null"},
		{"WaitAny", "p-coming", "0 message", "inactive"},
		{"WaitAllStatus", "coming", "ok [message empty empty]", "null"},
		{"WaitAllStatus", "p-coming", "ok [message empty empty]", "inactive"},
		{"WaitAllStatus", "failing", "instatus+boom [message/boom empty empty]", "null"},
		{"TestAll", "p-complete", "true ok [message empty empty]", "inactive"},
		{"WaitSome", "coming", "1 ok 0:message", "null"},
		{"WaitSome", "p-coming", "1 ok 0:message", "inactive"},
		{"TestSome", "coming", "1 ok 0:message", "null"},
		{"TestAny", "p-coming", "true 0 message", "inactive"},
		{"Completed", "coming", "0:message", "null"},
		{"Completed", "p-complete", "0:message", "inactive"},
		{"StartAll", "inactive", "ErrRequest", "inactive"},
	} {
		t.Run(row.call+" "+row.state, func(t *testing.T) {
			r := newRank()
			h := r.make(t, row.state)
			assert.Equal(t, row.want, byName[row.call](t, r, []Request{h, h, h}))
			assert.Equal(t, row.after, stateOf(t, h))
			r.locked(func() { assert.Equal(t, 1, len(r.free)+len(r.live(h)), "number of objects") })
		})
	}
}

// live returns the object of h unless it is in the pool.
func (r *rank) live(h Request) []*Object {
	if h.o.state == Idle {
		return nil
	}
	return []*Object{h.o}
}

func TestAnyTakesFirstCompleted(t *testing.T) {
	r := newRank()
	order := []int{3, 0, 4, 1, 2}
	var ops []*op
	var reqs []Request
	for range order {
		o, h := r.active("")
		ops, reqs = append(ops, o), append(reqs, h)
	}
	for _, i := range order {
		ops[i].complete(message, nil)
	}
	for n, want := range order {
		var i int
		var st Status
		var err error
		if n%2 == 0 {
			i, st, err = WaitAny(reqs...)
		} else {
			var flag bool
			i, st, flag, err = TestAny(reqs...)
			assert.True(t, flag)
		}
		assert.NoError(t, err)
		assert.Equal(t, message, st)
		assert.Equal(t, want, i)
	}
}

// Requests that complete while the loop's body runs are yielded in order of completion.
func TestCompletedYieldsInOrderOfCompletion(t *testing.T) {
	r := newRank()
	first := r.make(t, "complete")
	b, hb := r.active("")
	c, hc := r.active("")
	var got []int
	for i := range Completed(t.Context(), first, hb, hc) {
		if got = append(got, i); i == 0 {
			c.complete(message, nil)
			b.complete(message, nil)
		}
	}
	assert.Equal(t, []int{0, 2, 1}, got)
}

func TestCompletedYieldsRestartedRequestAgain(t *testing.T) {
	r := newRank()
	o, h := r.persistent("")
	o.onStart = func() { r.due = append(r.due, o.deliver) }
	require.NoError(t, h.Start())
	rounds := 0
	for i, st := range Completed(context.Background(), Request{}, h) {
		assert.Equal(t, 1, i)
		assert.Equal(t, message, st)
		if rounds++; rounds < 5 {
			require.NoError(t, h.Start())
		}
	}
	assert.Equal(t, 5, rounds)
	assert.Equal(t, "inactive", stateOf(t, h))
}

// The Test family makes a turn of progress only if a request is active; the Wait family makes none
// if it need not wait.
func TestCallsTurnOnlyIfNeeded(t *testing.T) {
	for _, row := range []struct {
		call, states string
		want         uint64
	}{
		{"Test", "null", 0},
		{"Test", "inactive", 0},
		{"Test", "complete", 0},
		{"Test", "active", 1},
		{"GetStatus", "active", 1},
		{"GetStatus", "complete", 0},
		{"TestAny", "active active", 1},
		{"TestAny", "active complete", 0},
		{"TestAll", "active complete active", 1},
		{"TestAll", "complete complete", 0},
		{"TestSome", "active active", 1},
		{"TestSome", "active complete", 0},
		{"Wait", "complete", 0},
		{"WaitAny", "active complete", 0},
		{"WaitSome", "active complete", 0},
		{"WaitAll", "complete inactive null", 0},
		{"WaitAll", "failed active", 1},
		{"WaitContext, ended", "active", 0},
	} {
		t.Run(row.call+" "+row.states, func(t *testing.T) {
			r := newRank()
			reqs := r.makeAll(t, row.states)
			before := r.turns()
			byName[row.call](t, r, reqs)
			assert.Equal(t, row.want, r.turns()-before)
		})
	}
}

// Each call gets two complete requests, and slices of the given lengths, −1 for nil.
func TestWrongLengthsFail(t *testing.T) {
	type lengths struct{ indices, sts int }
	callsOf := map[string]func(reqs []Request, indices []int, sts []Status) error{
		"WaitAllStatus": func(reqs []Request, _ []int, sts []Status) error { return WaitAllStatus(reqs, sts) },
		"TestAll":       func(reqs []Request, _ []int, sts []Status) error { return errOf(TestAll(reqs, sts)) },
		"WaitSome": func(reqs []Request, indices []int, sts []Status) error {
			return errOf(WaitSome(reqs, indices, sts))
		},
		"TestSome": func(reqs []Request, indices []int, sts []Status) error {
			return errOf(TestSome(reqs, indices, sts))
		},
	}
	for _, row := range []struct {
		call        string
		wrong, good []lengths
	}{
		{"WaitAllStatus", []lengths{{0, 1}, {0, 3}, {0, 0}}, []lengths{{0, 2}, {0, -1}}},
		{"TestAll", []lengths{{0, 1}, {0, 3}}, []lengths{{0, 2}, {0, -1}}},
		{"WaitSome", []lengths{{1, 2}, {-1, 2}, {2, 1}, {2, 0}}, []lengths{{2, 2}, {3, 3}, {2, -1}}},
		{"TestSome", []lengths{{1, 2}, {-1, -1}, {2, 1}}, []lengths{{2, 2}, {3, -1}}},
	} {
		for i, n := range append(slices.Clone(row.wrong), row.good...) {
			t.Run(fmt.Sprint(row.call, n), func(t *testing.T) {
				reqs := newRank().makeAll(t, "complete complete")
				var indices []int
				var sts []Status
				if n.indices >= 0 {
					indices = make([]int, n.indices)
				}
				if n.sts >= 0 {
					sts = statuses(n.sts)
				}
				err := callsOf[row.call](reqs, indices, sts)
				if i < len(row.wrong) {
					assert.ErrorIs(t, err, ErrCount)
					assert.Equal(t, statuses(len(sts)), append([]Status{}, sts...), "the statuses after ErrCount")
					assert.Equal(t, "complete complete", statesOf(t, reqs))
				} else {
					assert.NoError(t, err)
					assert.Equal(t, "null null", statesOf(t, reqs))
				}
			})
		}
	}
}

func TestCallsOverRequestsOfTwoRanksFail(t *testing.T) {
	for _, row := range []struct{ call, want string }{
		{"WaitAny", "-3 ErrRequest"},
		{"TestAny", "false -3 ErrRequest"},
		{"WaitAll", "ErrRequest"},
		{"WaitAllStatus", "ErrRequest [- - -]"},
		{"TestAll", "false ErrRequest [- - -]"},
		{"WaitSome", "0 ErrRequest"},
		{"TestSome", "0 ErrRequest"},
		{"StartAll", "ErrRequest"},
		{"Completed", "0:ErrRequest"},
	} {
		t.Run(row.call, func(t *testing.T) {
			a, b := newRank(), newRank()
			reqs := []Request{a.make(t, "complete"), {}, b.make(t, "complete")}
			assert.Equal(t, row.want, byName[row.call](t, a, reqs))
			assert.Equal(t, "complete null complete", statesOf(t, reqs))
		})
	}
}

func TestStateString(t *testing.T) {
	for state, want := range map[State]string{
		Idle: "idle", Inactive: "inactive", Active: "active", Complete: "complete", 9: "state 9",
	} {
		assert.Equal(t, want, state.String())
	}
}

func TestStatusCount(t *testing.T) {
	for _, row := range []struct {
		name      string
		bytes     int64
		elemBytes int
		want      int
	}{
		{"no bytes", 0, 8, 0},
		{"whole elements", 24, 8, 3},
		{"a fraction of an element", 25, 8, 3},
		{"less than one element", 7, 8, 0},
		{"unknown element size", 24, 0, -1},
		{"unknown element size, no bytes", 0, 0, 0},
		{"more than 2 GiB", 1 << 33, 1, 1 << 33},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRank()
			o, h := r.active("")
			o.ElemBytes = row.elemBytes
			o.complete(Status{Source: 1, Bytes: row.bytes, Count: 99, Err: errBoom}, nil)
			st, err := h.Wait()
			require.NoError(t, err)
			assert.Equal(t, Status{Source: 1, Bytes: row.bytes, Count: row.want}, st)
		})
	}
}

func TestCount(t *testing.T) {
	type triple [3]byte
	check := func(want int, wantOK bool) func(n int, ok bool) {
		return func(n int, ok bool) {
			t.Helper()
			assert.Equal(t, want, n)
			assert.Equal(t, wantOK, ok)
		}
	}
	check(3, true)(Count[uint64](Status{Bytes: 24}))
	check(3, false)(Count[uint64](Status{Bytes: 25}))
	check(0, false)(Count[uint64](Status{Bytes: 7}))
	check(0, true)(Count[uint64](Status{}))
	check(8, true)(Count[triple](Status{Bytes: 24}))
	check(1<<33, true)(Count[byte](Status{Bytes: 1 << 33}))
	check(0, true)(Count[struct{}](Status{}))
	check(0, false)(Count[struct{}](Status{Bytes: 1}))
}
