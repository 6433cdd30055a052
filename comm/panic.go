package comm

import (
	"fmt"
	"runtime/debug"

	"github.com/mpigo/mpigo/comm/internal/userline"
)

// PanicError is the error of a panic in the user's code that the library has recovered. errors.As
// finds it
//
//   - in the error of a request, if the operation of a nonblocking or persistent reduction has
//     panicked at this rank;
//   - in the error of RunLocal, if the body of a rank has panicked.
//
// It wraps the value if that is an error.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine that panicked, as from debug.Stack
	// Line is where an operation panicked, as in "main.go:51". It is empty for the body of a rank.
	Line string
}

// Error returns one line, without the stack.
func (e *PanicError) Error() string {
	if e.Line != "" {
		return fmt.Sprintf("the operation panicked at %s: %v", e.Line, e.Value)
	}
	return fmt.Sprintf("panic: %v", e.Value)
}

// Unwrap returns the value, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// newRankPanic makes the error of a rank. The deferred function that has recovered the panic calls
// it.
func newRankPanic(value any) *PanicError { return &PanicError{Value: value, Stack: debug.Stack()} }

// newOperationPanic is newRankPanic for an operation.
func newOperationPanic(value any) *PanicError {
	e := newRankPanic(value)
	e.Line = userline.Caller()
	return e
}
