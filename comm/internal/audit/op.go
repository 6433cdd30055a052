package audit

import (
	"path"
	"runtime"
	"strings"
)

// Op is what is compared of a reduction operation: the name of its function. Functions that one
// factory returns have the same name.
type Op struct {
	Name   string // "comm.Sum"; empty if there is none
	Digest uint64 // of the whole name
	// MayBeAny: the function is a literal in a generic function. The compiler makes such literals
	// too, where a generic function passes another one on. So it may be any operation.
	MayBeAny bool
}

// OpAt is the operation whose code is at an address.
func OpAt(pc uintptr) Op {
	name := ""
	if f := runtime.FuncForPC(pc); f != nil {
		name = f.Name()
	}
	return opNamed(name)
}

func opNamed(name string) Op {
	if name == "" {
		return Op{Name: "an unknown operation", MayBeAny: true}
	}
	words := make([]uint64, 0, len(name))
	for _, b := range []byte(name) {
		words = append(words, uint64(b))
	}
	return Op{
		Name: strings.ReplaceAll(path.Base(name), "[...]", ""), Digest: digest(words...),
		MayBeAny: strings.Contains(name, "[...].func"),
	}
}

func (o Op) fits(other Op) bool {
	return o.Digest == other.Digest || o.Name != "" && other.Name != "" && (o.MayBeAny || other.MayBeAny)
}
