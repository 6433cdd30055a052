package comm

import (
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"github.com/mpigo/mpigo/comm/internal/audit"
	"github.com/mpigo/mpigo/request"
)

// The line of the program in an Error. It is looked for when the error is made, so that calls that
// succeed do not pay for it.

// library has how the names of the functions and files begin that are not the user's. It is never
// written. A closure of the library has the name of the user's function into which the compiler has
// inlined its function, so the file counts too.
var library = func() (prefixes []string) {
	_, file, _, _ := runtime.Caller(0)
	names, files := strings.TrimSuffix(reflect.TypeFor[Comm]().PkgPath(), "/comm"), filepath.Dir(filepath.Dir(file))
	for _, pkg := range []string{"comm", "request", "progress", "pml", "bml", "btl", "mpitest", "internal/calls"} {
		prefixes = append(prefixes, names+"/"+pkg+".", names+"/"+pkg+"/", files+"/"+pkg+"/")
	}
	return append(prefixes, "runtime.", "internal/", "sync.")
}()

// callerLine is the user's line on the stack, or "" if the goroutine is the library's.
func callerLine() string { return audit.Caller(library) }

// startedError is, in checked mode, the error of an operation that was started at a line. Only
// lineOf and errors.Is look at it.
type startedError struct {
	error
	line string
}

func (e *startedError) Unwrap() error { return e.error }

// lineOf returns the line that belongs to an error, and the error without it. The line is that of
// the start if it is known, and otherwise the one that the goroutine is at.
func lineOf(err error) (string, error) {
	if s, ok := err.(*startedError); ok {
		return s.line, s.error
	}
	return callerLine(), err
}

// about describes a request, for a text that is not the error of a call. So it has no line. Lock
// held.
func about(o *request.Object, what error) error { return withoutLine(o.About(what)) }

// withoutLine is an error that was made when the goroutine was in another call of the program, or
// in none.
func withoutLine(err error) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	bare := *e
	bare.Line = ""
	return &bare
}
