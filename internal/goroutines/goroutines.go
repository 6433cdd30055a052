// Package goroutines lists the goroutines of a program that uses the library, from the text of
// runtime.Stack. It leaves out the goroutines of the library and of the runtime.
package goroutines

import (
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/mpigo/mpigo/internal/introspect"
)

const (
	// maxTextBytes bounds the text of the stacks. A goroutine takes about a kibibyte.
	maxTextBytes = 8 << 20
	// maxListed bounds the goroutines that List returns.
	maxListed = 1000
)

// List returns the goroutines of the program. isCut reports that there are more than it returns.
// The process stops while the runtime writes the stacks.
func List() (list []introspect.Goroutine, isCut bool) {
	text, isCut := stackText(runtime.Stack)
	list = Parse(text)
	if len(list) > maxListed {
		list, isCut = list[:maxListed], true
	}
	return list, isCut
}

// stackText returns the text that stack writes, at most maxTextBytes of it, and whether there may
// be more.
func stackText(stack func(buf []byte, all bool) int) (text string, isCut bool) {
	buf := make([]byte, 64<<10)
	n := stack(buf, true)
	for n == len(buf) && n < maxTextBytes {
		buf = make([]byte, min(4*len(buf), maxTextBytes))
		n = stack(buf, true)
	}
	return string(buf[:n]), n == len(buf)
}

// Parse parses the text of runtime.Stack, and returns the goroutines of the program in the order of
// the text. It skips parts that it cannot parse. Each goroutine has a header, two lines for each
// frame, and perhaps two for the function that started it:
//
//	goroutine 18 [chan receive, 5 minutes]:
//	main.block(0xc000012345, ...)
//		/src/main.go:4 +0x1d
//	created by main.main in goroutine 1
//		/src/main.go:3 +0x1d
func Parse(text string) []introspect.Goroutine {
	var out []introspect.Goroutine
	for part := range strings.SplitSeq(text, "\n\n") {
		if g, creator, ok := parseOne(part); ok && !IsOwn(g.Frames, creator) {
			g.InCall, g.Waits = Call(g.Frames)
			out = append(out, g)
		}
	}
	return out
}

func parseOne(text string) (g introspect.Goroutine, creator string, ok bool) {
	head, rest, _ := strings.Cut(text, "\n")
	if g.ID, g.State, g.Minutes, ok = parseHeader(head); !ok {
		return g, "", false
	}
	function := ""
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		place, isPlace := strings.CutPrefix(line, "\t")
		switch {
		case isPlace && function != "":
			if by, isCreator := strings.CutPrefix(function, "created by "); isCreator {
				creator, _, _ = strings.Cut(by, " in goroutine ")
			} else {
				g.Frames = append(g.Frames, frameOf(function, place))
			}
			function = ""
		case !isPlace:
			function = line
		}
	}
	return g, creator, true
}

// parseHeader parses the first line of a goroutine.
func parseHeader(head string) (id uint64, state string, minutes int, ok bool) {
	rest, ok := strings.CutPrefix(head, "goroutine ")
	number, rest, found := strings.Cut(rest, " ")
	id, err := strconv.ParseUint(number, 10, 64)
	begin, end := strings.IndexByte(rest, '['), strings.LastIndex(rest, "]")
	if !ok || !found || err != nil || begin < 0 || end <= begin {
		return 0, "", 0, false
	}
	state, more, _ := strings.Cut(rest[begin+1:end], ", ")
	for word := range strings.SplitSeq(more, ", ") {
		if n, isTime := strings.CutSuffix(word, " minutes"); isTime {
			if m, err := strconv.Atoi(n); err == nil && m > 0 {
				minutes = m
			}
		}
	}
	return id, state, minutes, true
}

// frameOf makes a frame from its two lines. The first has the function with its arguments, the
// second the source line and the offset in the function.
func frameOf(function, place string) introspect.Frame {
	if strings.HasSuffix(function, ")") {
		function = function[:strings.LastIndexByte(function, '(')+1]
		function = strings.TrimSuffix(function, "(")
	}
	if at := strings.LastIndex(place, " +0x"); at >= 0 {
		place = place[:at]
	}
	f := introspect.Frame{Function: function, File: place}
	if at := strings.LastIndexByte(place, ':'); at >= 0 {
		if line, err := strconv.Atoi(place[at+1:]); err == nil {
			f.File, f.Line = place[:at], line
		}
	}
	return f
}

// Module is the prefix of all packages of the library and of the programs in its module.
const Module = "github.com/mpigo/mpigo/"

// library lists the packages of the library; packages below them belong to it too. Never written.
var library = []string{
	"comm", "pml", "bml", "btl", "request", "progress",
	"internal/goroutines", "internal/introspect", "internal/jobsocket", "internal/memcopy", "internal/observe", "internal/procstate", "internal/rdma",
	"internal/relay", "internal/tunable", "internal/wireup",
}

// PackageOf returns the package of a function, by the name that the runtime gives it.
func PackageOf(function string) string {
	if at := strings.IndexAny(function, "[("); at >= 0 {
		function = function[:at] // type parameters and receivers may have slashes
	}
	slash := strings.LastIndexByte(function, '/') + 1
	if dot := strings.IndexByte(function[slash:], '.'); dot >= 0 {
		return function[:slash+dot]
	}
	return function
}

// InLibrary reports whether a function is the library's.
func InLibrary(function string) bool {
	pkg, ok := strings.CutPrefix(PackageOf(function), Module)
	return ok && slices.ContainsFunc(library, func(l string) bool {
		return pkg == l || strings.HasPrefix(pkg, l+"/")
	})
}

// IsProgram reports whether a function belongs to the program. It belongs to neither the library,
// nor a module that the library calls, nor the standard library, whose paths have no dot in the
// first element. Some programs have no dot there either, such as package main. So a list has the
// packages of the standard library that start goroutines or call back.
func IsProgram(function string) bool {
	if InLibrary(function) {
		return false
	}
	pkg := PackageOf(function)
	if slices.ContainsFunc(called, func(module string) bool { return strings.HasPrefix(pkg, module) }) {
		return false
	}
	first, _, _ := strings.Cut(pkg, "/")
	return strings.Contains(first, ".") || !slices.Contains(standard, first)
}

// called lists the modules whose functions the library calls. Never written.
var called = []string{"golang.org/x/sys/", "go.uber.org/atomic"}

// standard lists the first path elements of the standard library's packages that may be on the
// stack of a goroutine. Never written.
var standard = []string{
	"archive", "bufio", "bytes", "cmp", "compress", "container", "context", "crypto", "database", "debug", "embed", "encoding",
	"errors", "expvar", "flag", "fmt", "go", "hash", "html", "image", "index", "internal", "io", "iter", "log", "maps", "math", "mime",
	"net", "os", "panic", "path", "plugin", "reflect", "regexp", "runtime", "slices", "sort", "strconv", "strings", "sync", "syscall",
	"testing", "text", "time", "unicode", "unique", "unsafe", "vendor", "weak",
}

// IsOwn reports whether a goroutine belongs to the library or the runtime: the program has not
// started it, and it is in no function of the program. creator is the function that started it, or
// "" if that is unknown.
func IsOwn(frames []introspect.Frame, creator string) bool {
	if slices.ContainsFunc(frames, func(f introspect.Frame) bool { return IsProgram(f.Function) }) {
		return false
	}
	if creator != "" && IsProgram(creator) {
		return false
	}
	for i := len(frames) - 1; i >= 0; i-- { // from the entry on
		switch pkg := PackageOf(frames[i].Function); {
		case InLibrary(frames[i].Function), pkg == "os/signal", pkg == "runtime":
			return true
		case pkg == "sync", pkg == "context", pkg == "time", pkg == "runtime/pprof":
			continue // a helper that calls the goroutine's own function
		default:
			return false
		}
	}
	return creator == "" || InLibrary(creator) || PackageOf(creator) == "os/signal"
}

// waitOn is the function in which every call of the library waits.
const waitOn = Module + "progress.(*Engine).WaitOn"

// Call reports whether a goroutine is in a call of the library, and whether it waits there. A
// function of the program that the library has called, such as an operation of a reduction, does
// not count.
func Call(frames []introspect.Frame) (inCall, waits bool) {
	for _, f := range frames {
		switch {
		case IsProgram(f.Function):
			return inCall, waits
		case InLibrary(f.Function):
			inCall = true
			waits = waits || f.Function == waitOn
		}
	}
	return inCall, waits
}

// Site returns the innermost frame of the program, where the user looks first, or false if there is
// none.
func Site(frames []introspect.Frame) (introspect.Frame, bool) {
	i := slices.IndexFunc(frames, func(f introspect.Frame) bool { return IsProgram(f.Function) })
	if i < 0 {
		return introspect.Frame{}, false
	}
	return frames[i], true
}

// CallName returns the name of the call of the library that a goroutine is in, such as "Recv", or
// "". It is the outermost function of the library above the innermost function of the program.
func CallName(frames []introspect.Frame) string {
	call := ""
	for _, f := range frames {
		if IsProgram(f.Function) {
			break
		}
		if InLibrary(f.Function) {
			call = f.Function
		}
	}
	return nameOf(call)
}

// nameOf returns the name of a function without package, receiver and type parameters.
func nameOf(function string) string {
	function = strings.TrimPrefix(function, PackageOf(function))
	function, _, _ = strings.Cut(strings.TrimPrefix(function, "."), "[")
	return function[strings.LastIndexByte(function, '.')+1:]
}
