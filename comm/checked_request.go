package comm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/comm/internal/audit"
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/comm/internal/userline"
	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// watch is what checked mode knows of an operation under way. The engine's lock guards it. It
// implements request.Auditor and pml.MatchAuditor.
//
// A buffer that is sent must not change until a call has observed the completion (MPI 4.1, section
// 3.7.2); reading it is allowed. A buffer that is received into must not change until a message
// has matched; after that, the message changes it.
type watch struct {
	line     string     // of the call that started the operation
	typ      audit.Type // of the elements that are received
	sends    []audit.Buffer
	recv     audit.Buffer
	fault    error // found before the operation ended
	released bool  // the buffers are the user's again
	madeSync bool  // a standard send that checked mode has made synchronous
	told     bool  // a warning has said that the request is lost

	// If the user has the request:
	object *request.Object
	of     *checker
	place  int // in of.watched
}

var _ pml.MatchAuditor = (*watch)(nil)

// newWatch makes the watch of an operation that begins now, with the buffers that it sends. Lock
// held.
func newWatch(sends ...[]byte) *watch {
	w := &watch{line: startLine()}
	for _, mem := range sends {
		w.sends = append(w.sends, audit.Watch(mem))
	}
	return w
}

// startLine is the user's line on the stack, for a text.
func startLine() string { return cmp.Or(userline.Caller(), unknownLine) }

const unknownLine = "an unknown line"

// Started implements request.Auditor.
func (w *watch) Started() {
	w.line, w.fault, w.released = startLine(), nil, false
	for i := range w.sends {
		w.sends[i].Again()
	}
	w.recv.Again()
}

// Matched implements pml.MatchAuditor.
func (w *watch) Matched(source int, kind uint8) {
	switch sent := audit.Kind(kind); {
	case !w.recv.IsIntact():
		w.fault = w.changed("before a message arrived, by the program or by another receive")
	case !sent.Fits(w.typ.Kind):
		w.fault = fmt.Errorf("%w: rank %d sent %v, this rank receives %v", ErrType, source, sent, w.typ)
	}
}

// Completed implements request.Auditor.
func (w *watch) Completed(err error) error {
	switch {
	case w.fault != nil && (err == nil || errors.Is(err, ErrTruncate)):
		return w.started(w.fault)
	case err != nil:
		return w.started(err)
	}
	return w.Look()
}

// Look implements request.Auditor.
func (w *watch) Look() error {
	if w.released || !slices.ContainsFunc(w.sends, func(b audit.Buffer) bool { return !b.IsIntact() }) {
		return nil
	}
	return w.started(w.changed("before a call reported the operation as complete"))
}

// started adds to an error the line that started the operation.
func (w *watch) started(err error) error {
	if w.line == unknownLine {
		return &startedError{err, ""}
	}
	return &startedError{err, w.line}
}

// Released implements request.Auditor.
func (w *watch) Released() { w.released = true }

// changed is the error of a buffer that was written to.
func (w *watch) changed(when string) error {
	return fmt.Errorf("%w: it was written to %s", ErrBuffer, when)
}

// holds reports whether some of mem belongs to the operation.
func (w *watch) holds(mem []byte) bool {
	uses := func(b audit.Buffer) bool { return coll.Overlap(mem, b.Mem()) }
	return !w.released && (uses(w.recv) || slices.ContainsFunc(w.sends, uses))
}

// Ended implements request.Auditor.
func (w *watch) Ended() {
	w.sends, w.recv = nil, audit.Buffer{}
	if w.of == nil {
		return
	}
	all := w.of.watched
	last := len(all) - 1
	all[w.place], all[last] = all[last], nil
	if w.place < last {
		all[w.place].place = w.place
	}
	w.of.watched, w.of, w.object = all[:last], nil, nil
}

// handle is the handle of a request that is watched. Lock held.
func (k *checker) handle(j *job, o *request.Object, w *watch) Request {
	w.object, w.of, w.place = o, k, len(k.watched)
	k.watched = append(k.watched, w)
	return o.AuditedHandle(func(a request.Auditor) { j.tellLost(a) })
}

// isOutstanding reports whether the user still has to wait for the request. Lock held.
func (w *watch) isOutstanding() bool { return w.object != nil && w.object.Outstanding() }

// user is an error that names the request to which some of mem belongs, or nil. Lock held.
func (k *checker) user(mem []byte) error {
	for _, w := range k.watched {
		if w.isOutstanding() && w.holds(mem) {
			return about(w.object, fmt.Errorf("started at %s, and not waited for", w.line))
		}
	}
	return nil
}

// tellLost warns the user of a request that no variable holds any more.
func (j *job) tellLost(a request.Auditor) {
	j.eng.Lock()
	defer j.eng.Unlock()
	w := a.(*watch)
	if j.ended != nil || w.told || !w.isOutstanding() {
		return
	}
	w.told = true
	j.check.tell(j, about(w.object, fmt.Errorf("the request is lost: it was started at %s, nothing has waited for it, and no variable holds it any more", w.line)))
}

// tellUnobserved warns the user, in Finalize, of requests that no call has waited for. Lock held.
func (j *job) tellUnobserved() {
	for _, w := range j.check.watched {
		if w.isOutstanding() && !w.told {
			j.check.tell(j, about(w.object, fmt.Errorf("nothing has waited for the request, which was started at %s", w.line)))
		}
	}
}

// tellUser warns the user. Lock held.
func tellUser(j *job, what error) {
	j.log.Warn(userlog.OneLine(what))
}

// nobody replaces tellUser where the library must not warn.
func nobody(*job, error) {}

// withLine describes a request, with the line that started it if that is known. Lock held.
func withLine(o *request.Object, what error) string {
	text := about(o, what).Error()
	if w, ok := o.Auditor().(*watch); ok {
		text += "; started at " + w.line
	}
	return text
}
