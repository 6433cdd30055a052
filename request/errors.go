package request

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mpigo/mpigo/internal/calls"
)

var (
	// ErrRequest: the state of the request does not permit the call.
	ErrRequest = errors.New("invalid request")
	// ErrPending: the operation has neither completed nor failed.
	ErrPending = errors.New("still pending")
	// ErrInStatus: some requests failed; Status.Err of each has its error.
	ErrInStatus = errors.New("some requests failed")
	// ErrCount: a negative count, or a slice of the wrong length.
	ErrCount = errors.New("invalid count")
	// ErrTruncate: the message was longer than the receive's buffer.
	ErrTruncate = errors.New("message truncated")
	// ErrComm: not a communicator, or a communicator that does not permit the call.
	ErrComm = errors.New("invalid communicator")
	// ErrUnreachable: no rail leads to the peer.
	ErrUnreachable = errors.New("peer unreachable")
	// ErrProcFailed: the peer's process has ended, or is about to.
	ErrProcFailed = errors.New("peer process failed")
)

// wrap puts the name of the call in front of an error. It returns nil for nil.
func wrap(call calls.ID, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: %w", call, err)
}

// statusError is the error of a call over several requests of which some failed. It Is ErrInStatus
// and each request's error.
type statusError struct {
	failed []error // each with the index of its request
}

// maxReasons is the number of different reasons that an error text lists.
const maxReasons = 4

// Error lists each reason once, with the first request that failed for it.
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
	rest := len(e.failed)
	separator := ": "
	for _, why := range reasons[:min(len(reasons), maxReasons)] {
		b.WriteString(separator)
		separator = "; "
		if n := counts[why]; n > 1 {
			fmt.Fprintf(&b, "%d requests, first of them ", n)
		}
		b.WriteString(firsts[why].Error())
		rest -= counts[why]
	}
	if rest > 0 {
		fmt.Fprintf(&b, "; and %d more", rest)
	}
	return b.String()
}

// reason returns why a request failed: the innermost part of err's text that does not name the
// request or its operation.
func reason(err error) string {
	described := errors.Unwrap(err) // without the index
	if why := errors.Unwrap(described); why != nil && strings.HasSuffix(described.Error(), ": "+why.Error()) {
		return why.Error()
	}
	return described.Error()
}

func (e *statusError) Unwrap() []error { return append([]error{ErrInStatus}, e.failed...) }

// add appends the error of the i-th request. e may be nil.
func (e *statusError) add(i int, err error) *statusError {
	if e == nil {
		e = new(statusError)
	}
	e.failed = append(e.failed, fmt.Errorf("request %d: %w", i, err))
	return e
}
