package comm

import (
	"fmt"

	"github.com/mpigo/mpigo/comm/internal/userline"
	"github.com/mpigo/mpigo/request"
)

// The line of the program in an Error. The library looks for it when it makes the error, so calls
// that succeed do not pay for it.

// startedError is, in checked mode, an operation's error with the line that started the operation.
// Only lineOf and errors.Is look at it.
type startedError struct {
	error
	line string
}

func (e *startedError) Unwrap() error { return e.error }

// withReason adds a reason to an error. The line of a start stays.
func withReason(err, why error) error {
	if s, ok := err.(*startedError); ok {
		return &startedError{withReason(s.error, why), s.line}
	}
	return fmt.Errorf("%w; %w", err, why)
}

// lineOf returns the line that belongs to an error, and the error without it. The line is that of
// the operation's start if it is known, and otherwise the goroutine's current line.
func lineOf(err error) (string, error) {
	if s, ok := err.(*startedError); ok {
		return s.line, s.error
	}
	return userline.Caller(), err
}

// about describes a request in a text that is not the error of a call, and therefore has no line.
// Lock held.
func about(o *request.Object, what error) error { return withoutLine(o.About(what)) }

// withoutLine is an error without a line, because another call, or no call, was running when it was
// made.
func withoutLine(err error) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	bare := *e
	bare.Line = ""
	return &bare
}
