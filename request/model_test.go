package request

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model is a naive model of one request, after MPI's table: no object is shared or used again.
type model struct {
	persistent bool
	state      string // null, inactive, active, complete
	err        error  // of the completion
	cancelled  bool
	when       int // time of the completion on world.clock
}

// world is a rank and its model. Handles and models have the same index.
type world struct {
	rank    *rank
	ops     []*op // the operations of the handles, while these are valid
	handles []Request
	models  []*model
	due     []func() // the effects of the next turns on the models
	clock   int
}

func (w *world) complete(m *model, err error, cancelled bool) {
	w.clock++
	m.state, m.err, m.cancelled, m.when = "complete", err, cancelled, w.clock
}

// turn makes a turn of progress on the models.
func (w *world) turn() {
	if len(w.due) > 0 {
		next := w.due[0]
		w.due = w.due[1:]
		next()
	}
}

// observe does to the i-th model what Wait and Test do to a complete request, and returns their
// result.
func (w *world) observe(i int) (string, error) {
	m := w.models[i]
	if m.persistent {
		m.state = "inactive"
	} else {
		m.state = "null"
	}
	return w.outcome(m), m.err
}

func (w *world) outcome(m *model) string {
	st := message
	if m.cancelled {
		st = cancelled
	}
	return outcomeText(st, m.err)
}

// in returns the members of list that are in a state, in list order, each once.
func (w *world) in(list []int, state string) []int {
	var found []int
	for _, i := range list {
		if w.models[i].state == state && !slices.Contains(found, i) {
			found = append(found, i)
		}
	}
	return found
}

// willComplete reports whether all, or at least one, of the active requests of a list are due.
func (w *world) willComplete(list []int, all bool) bool {
	coming := 0
	active := w.in(list, "active")
	for _, i := range active {
		if w.ops[i].isDue() {
			coming++
		}
	}
	return coming == len(active) || !all && coming > 0
}

// turnUnlessComplete makes a turn if a request of a list is active and none is complete.
func (w *world) turnUnlessComplete(list []int) {
	if len(w.in(list, "complete")) == 0 && len(w.in(list, "active")) > 0 {
		w.turn()
	}
}

// waitForOne makes turns until a request of a list is complete, or none is active. It returns false
// if that never happens.
func (w *world) waitForOne(list []int) bool {
	if len(w.in(list, "complete")) == 0 && !w.willComplete(list, false) {
		return false
	}
	for len(w.in(list, "complete")) == 0 && len(w.in(list, "active")) > 0 {
		w.turn()
	}
	return true
}

func (w *world) reqs(list []int) []Request {
	var reqs []Request
	for _, i := range list {
		reqs = append(reqs, w.handles[i])
	}
	return reqs
}

// agree checks every handle, stale ones too, against the model.
func (w *world) agree(t *rapid.T) {
	for i, m := range w.models {
		h := w.handles[i]
		require.Equal(t, m.state == "null", h.IsNull(), "request %d is null", i)
		require.Equal(t, m.state == "active" || m.state == "complete", h.IsActive(), "request %d is active", i)
		require.Equal(t, m.persistent && m.state != "null", h.IsPersistent(), "request %d is persistent", i)
		if m.state != "null" {
			w.rank.locked(func() { require.Equal(t, m.state, h.o.State().String(), "request %d", i) })
		}
	}
}

// The test makes random calls on a rank and on the model. Turns of progress complete operations in
// the order in which they became due, one a turn.
func TestRandomCallsAgreeWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rank: newRank(), handles: []Request{{}}, models: []*model{{state: "null"}}, ops: []*op{nil}}
		one := func(t *rapid.T) int { return rapid.IntRange(0, len(w.models)-1).Draw(t, "request") }
		some := func(t *rapid.T) []int {
			return rapid.SliceOfN(rapid.IntRange(0, len(w.models)-1), 0, 6).Draw(t, "list")
		}
		add := func(o *op, h Request, m *model) {
			w.ops, w.handles, w.models = append(w.ops, o), append(w.handles, h), append(w.models, m)
			o.onCancel = nil
		}
		startErr := func(list []int) string {
			for n, i := range list {
				if w.models[i].state != "inactive" || slices.Contains(list[:n], i) {
					return "ErrRequest"
				}
			}
			return "ok"
		}
		t.Repeat(map[string]func(*rapid.T){
			"": w.agree,
			"new": func(*rapid.T) {
				o, h := w.rank.active("")
				add(o, h, &model{state: "active"})
			},
			"newPersistent": func(*rapid.T) {
				o, h := w.rank.persistent("")
				add(o, h, &model{state: "inactive", persistent: true})
			},
			"start": func(t *rapid.T) {
				i := one(t)
				require.Equal(t, startErr([]int{i}), errorText(w.handles[i].Start()))
				if w.models[i].state == "inactive" {
					w.models[i].state = "active"
				}
			},
			"startAll": func(t *rapid.T) {
				list := some(t)
				want := startErr(list)
				require.Equal(t, want, errorText(StartAll(w.reqs(list)...)))
				if want == "ok" {
					for _, i := range list {
						w.models[i].state = "active"
					}
				}
			},
			"due": func(t *rapid.T) {
				i := one(t)
				m, o := w.models[i], w.ops[i]
				if m.state != "active" || o.isDue() {
					return
				}
				err := rapid.SampledFrom([]error{nil, nil, nil, errBoom}).Draw(t, "error")
				o.completeLater(message, err)
				w.due = append(w.due, func() {
					if m.state == "active" {
						w.complete(m, err, false)
					}
				})
			},
			"completeNow": func(t *rapid.T) {
				i := one(t)
				if m, o := w.models[i], w.ops[i]; m.state == "active" && !o.isDue() {
					o.complete(message, errBang)
					w.complete(m, errBang, false)
				}
			},
			"cancel": func(t *rapid.T) {
				i := one(t)
				m, o := w.models[i], w.ops[i]
				want := "ok"
				if m.state == "null" || m.state == "inactive" {
					want = "ErrRequest"
				}
				if m.state == "active" && !o.isDue() && rapid.Bool().Draw(t, "obeys") {
					o.onCancel = func() { o.Complete(cancelled, nil) }
					w.complete(m, nil, true)
				}
				require.Equal(t, want, errorText(w.handles[i].Cancel()))
				if o != nil {
					o.onCancel = nil
				}
			},
			"free": func(t *rapid.T) {
				i := one(t)
				want := "ok"
				if w.models[i].state == "null" {
					want = "ErrRequest"
				}
				require.Equal(t, want, errorText(w.handles[i].Free()))
				w.models[i].state = "null"
			},
			"wait": func(t *rapid.T) {
				i := one(t)
				if !w.willComplete([]int{i}, true) {
					return
				}
				for w.models[i].state == "active" {
					w.turn()
				}
				want := "empty"
				if w.models[i].state == "complete" {
					want, _ = w.observe(i)
				}
				require.Equal(t, want, outcomeText(w.handles[i].Wait()))
			},
			"waitEndedContext": func(t *rapid.T) {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				i := one(t)
				want := "empty"
				switch w.models[i].state {
				case "active":
					want = "canceled"
				case "complete":
					want, _ = w.observe(i)
				}
				require.Equal(t, want, outcomeText(w.handles[i].WaitContext(ctx)))
			},
			"test": func(t *rapid.T) {
				i := one(t)
				if w.models[i].state == "active" {
					w.turn()
				}
				call, observe := w.handles[i].Test, true
				if rapid.Bool().Draw(t, "GetStatus") {
					call, observe = w.handles[i].GetStatus, false
				}
				want := "done empty"
				switch m := w.models[i]; {
				case m.state == "active":
					want = "pending empty"
				case m.state == "complete":
					want = "done " + w.outcome(m)
					if observe {
						w.observe(i)
					}
				}
				st, done, err := call()
				require.Equal(t, want, doneText(done, st, err))
			},
			"waitAny": func(t *rapid.T) {
				list := some(t)
				if w.waitForOne(list) {
					want := w.any(list)
					i, st, err := WaitAny(w.reqs(list)...)
					require.Equal(t, want, fmt.Sprint(i, " ", outcomeText(st, err)))
				}
			},
			"testAny": func(t *rapid.T) {
				list := some(t)
				w.turnUnlessComplete(list)
				flag := len(w.in(list, "complete")) > 0 || len(w.in(list, "active")) == 0
				want := fmt.Sprint(flag, " ", w.any(list))
				i, st, got, err := TestAny(w.reqs(list)...)
				require.Equal(t, want, fmt.Sprint(got, " ", i, " ", outcomeText(st, err)))
			},
			"waitAll": func(t *rapid.T) {
				list := some(t)
				if !w.failed(list) && !w.willComplete(list, true) {
					return
				}
				for !w.failed(list) && len(w.in(list, "active")) > 0 {
					w.turn()
				}
				if w.failed(list) && len(w.in(list, "active")) > 0 {
					w.turn()
				}
				want, wantErr := w.all(list)
				sts := statuses(len(list))
				err := WaitAllStatus(w.reqs(list), sts)
				require.Equal(t, want, statusesText(sts))
				require.Equal(t, wantErr, errorText(err))
			},
			"testAll": func(t *rapid.T) {
				list := some(t)
				if len(w.in(list, "active")) > 0 {
					w.turn()
				}
				sts := statuses(len(list))
				flag, err := TestAll(w.reqs(list), sts)
				require.Equal(t, len(w.in(list, "active")) == 0, flag)
				want, wantErr := statusesText(statuses(len(list))), "ok"
				if flag {
					want, wantErr = w.all(list)
				}
				require.Equal(t, want, statusesText(sts))
				require.Equal(t, wantErr, errorText(err))
			},
			"waitSome": func(t *rapid.T) {
				list := some(t)
				if w.waitForOne(list) {
					want := w.some(list)
					require.Equal(t, want, someText(WaitSome, w.reqs(list), true))
				}
			},
			"testSome": func(t *rapid.T) {
				list := some(t)
				w.turnUnlessComplete(list)
				want := w.some(list)
				require.Equal(t, want, someText(TestSome, w.reqs(list), true))
			},
			"completed": func(t *rapid.T) {
				list := some(t)
				if !w.willComplete(list, true) {
					return
				}
				var want, got []string
				for n, i := range list {
					if w.models[i].state == "complete" {
						text, _ := w.observe(i)
						want = append(want, fmt.Sprint(n, " ", text))
					}
				}
				for len(w.in(list, "active")) > 0 {
					w.turn()
					if len(w.in(list, "complete")) > 0 {
						want = append(want, w.any(list))
					}
				}
				for n, st := range Completed(context.Background(), w.reqs(list)...) {
					got = append(got, fmt.Sprint(n, " ", outcomeText(st, nil)))
				}
				require.Equal(t, want, got)
			},
		})
	})
}

// failed reports whether a member of list is complete with an error.
func (w *world) failed(list []int) bool {
	return slices.ContainsFunc(w.in(list, "complete"), func(i int) bool { return w.models[i].err != nil })
}

// any does the same as WaitAny, and returns its result as text.
func (w *world) any(list []int) string {
	first := -1
	for _, i := range w.in(list, "complete") {
		if first < 0 || w.models[i].when < w.models[first].when {
			first = i
		}
	}
	if first < 0 {
		return "-3 empty"
	}
	text, _ := w.observe(first)
	return fmt.Sprint(slices.Index(list, first), " ", text)
}

// all does what WaitAllStatus does, and returns its results as text.
func (w *world) all(list []int) (statuses, err string) {
	var sts []Status
	errs := map[error]bool{}
	for _, i := range list {
		st := Empty()
		switch m := w.models[i]; m.state {
		case "active":
			st.Err = ErrPending
		case "complete":
			if st = message; m.cancelled {
				st = cancelled
			}
			_, st.Err = w.observe(i)
			if st.Err != nil {
				errs[st.Err] = true
			}
		}
		sts = append(sts, st)
	}
	return statusesText(sts), failuresText(errs)
}

// some does what WaitSome does, and returns its result as text.
func (w *world) some(list []int) string {
	if len(w.in(list, "complete"))+len(w.in(list, "active")) == 0 {
		return "-3 ok"
	}
	text := ""
	n := 0
	errs := map[error]bool{}
	for at, i := range list {
		if m := w.models[i]; m.state == "complete" {
			what, err := w.observe(i)
			if err != nil {
				errs[err] = true
			}
			text += fmt.Sprint(" ", at, ":", what)
			n++
		}
	}
	return fmt.Sprint(n, " ", failuresText(errs), text)
}

func failuresText(errs map[error]bool) string {
	text := "ok"
	if len(errs) > 0 {
		text = "instatus"
	}
	for _, err := range []error{errBoom, errBang} {
		if errs[err] {
			text += "+" + err.Error()
		}
	}
	return text
}
