package audit

import (
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Caller is the user's line that called the library, such as "main.go:51", or "". It is the
// innermost line of a function whose name and file have none of the given prefixes. Test files
// count as the user's.
func Caller(library []string) string {
	pcs := make([]uintptr, 96)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		hasPrefix := func(prefix string) bool {
			return strings.HasPrefix(f.Function, prefix) || strings.HasPrefix(f.File, prefix)
		}
		isOurs := slices.ContainsFunc(library, hasPrefix) && !strings.HasSuffix(f.File, "_test.go")
		if !isOurs && f.File != "" {
			return filepath.Base(f.File) + ":" + strconv.Itoa(f.Line)
		}
		if !more {
			return ""
		}
	}
}
