package audit

import (
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// Op identifies a reduction operation for the comparison: by the name of its function, or the line
// of a function literal. A literal has several names if the compiler has inlined the function
// around it. Functions that one factory returns have the same line.
type Op struct {
	Name   string // "comm.Sum", "the function at main.go:12"; empty if there is none
	Digest uint64 // of the whole name
	// MayBeAny: the function is a literal in a generic function. The compiler also makes such a
	// literal where a generic function passes another one on, so it may be any operation.
	MayBeAny bool
}

// OpAt is the operation with code at an address.
func OpAt(pc uintptr) Op {
	f := runtime.FuncForPC(pc)
	if f == nil {
		return Op{Name: "an unknown operation", MayBeAny: true}
	}
	file, line := f.FileLine(f.Entry())
	return opOf(f.Name(), file, line)
}

// literal matches the names of function literals, and of the functions that the compiler makes of
// them.
var literal = regexp.MustCompile(`\.func\d+`)

// opOf is the operation of a function with this name, which begins at this line.
func opOf(name, file string, line int) Op {
	if !literal.MatchString(name) {
		return Op{Name: strings.ReplaceAll(path.Base(name), "[...]", ""), Digest: digestOfText(name)}
	}
	at := ":" + strconv.Itoa(line)
	return Op{
		Name: "the function at " + filepath.Base(file) + at, Digest: digestOfText(file + at),
		MayBeAny: strings.Contains(name, "[...].func"),
	}
}

func digestOfText(s string) uint64 {
	words := make([]uint64, 0, len(s))
	for _, b := range []byte(s) {
		words = append(words, uint64(b))
	}
	return digest(words...)
}

func (o Op) fits(other Op) bool {
	return o.Digest == other.Digest || o.Name != "" && other.Name != "" && (o.MayBeAny || other.MayBeAny)
}
