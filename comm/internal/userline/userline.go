// Package userline finds the line of the user's program that called the library, for errors,
// profiles and traces.
package userline

import (
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// library has the prefixes of the library's function and file names. It is never written. The file
// counts too, because a closure of the library has the name of the user's function into which the
// compiler inlined its function.
var library = func() (prefixes []string) {
	type here struct{}
	const self = "/comm/internal/userline"
	_, file, _, _ := runtime.Caller(0)
	names, files := strings.TrimSuffix(reflect.TypeFor[here]().PkgPath(), self), strings.TrimSuffix(filepath.ToSlash(filepath.Dir(file)), self)
	for _, pkg := range []string{"comm", "request", "progress", "pml", "bml", "btl", "mpitest", "internal/calls"} {
		prefixes = append(prefixes, names+"/"+pkg+".", names+"/"+pkg+"/", files+"/"+pkg+"/")
	}
	// An iterator of the library may be called through the standard library.
	return append(prefixes, "runtime.", "internal/", "sync.", "context.", "iter.", "maps.", "slices.")
}()

// IsLibrary reports whether a frame of the stack belongs to the library or to the runtime. Test
// files are the user's.
func IsLibrary(f *runtime.Frame) bool {
	hasPrefix := func(prefix string) bool {
		return strings.HasPrefix(f.Function, prefix) || strings.HasPrefix(f.File, prefix)
	}
	return slices.ContainsFunc(library, hasPrefix) && !strings.HasSuffix(f.File, "_test.go")
}

// Caller is the line that called the library, such as "main.go:51": the innermost line that is the
// user's. It is "" on a goroutine of the library.
func Caller() string {
	pcs := make([]uintptr, 96)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if f.File != "" && !IsLibrary(&f) {
			return filepath.Base(f.File) + ":" + strconv.Itoa(f.Line)
		}
		if !more {
			return ""
		}
	}
}
