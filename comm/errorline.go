package comm

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"github.com/mpigo/mpigo/comm/internal/audit"
	"github.com/mpigo/mpigo/request"
)

// The line of the program in an Error. The library looks for it when it makes the error, so calls
// that succeed do not pay for it.

// library has the prefixes of the library's function and file names. It is never written. The file
// counts too, because a closure of the library has the name of the user's function into which the
// compiler inlined its function.
var library = func() (prefixes []string) {
	_, file, _, _ := runtime.Caller(0)
	names, files := strings.TrimSuffix(reflect.TypeFor[Comm]().PkgPath(), "/comm"), filepath.Dir(filepath.Dir(file))
	for _, pkg := range []string{"comm", "request", "progress", "pml", "bml", "btl", "mpitest", "internal/calls"} {
		prefixes = append(prefixes, names+"/"+pkg+".", names+"/"+pkg+"/", files+"/"+pkg+"/")
	}
	// An iterator of the library may be called through the standard library.
	return append(prefixes, "runtime.", "internal/", "sync.", "context.", "iter.", "maps.", "slices.")
}()

// callerLine is the line of user code on the stack, or "" on a goroutine of the library.
func callerLine() string { return audit.Caller(library) }

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
	return callerLine(), err
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
