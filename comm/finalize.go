package comm

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/request"
)

// activeCollectives are the nonblocking collectives and the starts of persistent ones that are
// under way when the rank calls Finalize. Some of them still complete there.
type activeCollectives []activeCollective

type activeCollective struct {
	object *request.Object
	handle Request // stale once a call has observed the end of a nonblocking collective
}

// activeCollectives lists them. Lock held.
func (j *job) activeCollectives() (list activeCollectives) {
	var last *state
	for _, caller := range j.pml.Contexts() {
		s := stateOf(caller)
		if s == last { // both contexts of a communicator follow each other
			continue
		}
		last = s
		for _, run := range s.team.Active() {
			list = append(list, activeCollective{&run.Object, run.Handle()})
		}
	}
	return list
}

var errNotComplete = errors.New("it was not complete when Finalize was called")

// incomplete is the error of the first collective that has failed, or that will never complete
// because all ranks are in Finalize. It says how many more there are. Lock held.
func (list activeCollectives) incomplete() error {
	text, more := "", 0
	for _, c := range list {
		what := c.object.Failure()
		switch {
		case c.object.Handle() != c.handle:
			continue
		case c.object.State() == request.Active:
			what = errNotComplete
		case what == nil:
			continue
		}
		if text != "" {
			more++
			continue
		}
		text = withLine(c.object, what)
		if what != errNotComplete {
			text += fmt.Sprintf(" (%v)", errNotComplete)
		}
		if w, ok := c.object.Auditor().(*watch); ok {
			w.told = true
		}
	}
	switch {
	case text == "":
		return nil
	case more > 0:
		text = fmt.Sprintf("%s, and %d more", text, more)
	}
	return fmt.Errorf("%w: %s", ErrPending, text)
}
