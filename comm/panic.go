package comm

import (
	"fmt"
	"runtime/debug"
)

// PanicError is the error of a panic of the program's that the library has recovered. errors.As
// finds it
//
//   - in the error of a request, if the operation of a nonblocking or persistent reduction has
//     panicked at this rank;
//   - in the error of RunLocal, if the body of a rank has panicked.
//
// It wraps the value if that is an error.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine that has panicked, as of debug.Stack
	// Line is where an operation has panicked, as "main.go:51". It is empty for the body of a rank.
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

// newRankPanic makes the error of a rank, in the deferred function that has recovered its panic.
func newRankPanic(value any) *PanicError { return &PanicError{Value: value, Stack: debug.Stack()} }

// newOperationPanic is newRankPanic of an operation.
func newOperationPanic(value any) *PanicError {
	e := newRankPanic(value)
	e.Line = callerLine()
	return e
}
