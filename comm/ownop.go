package comm

import (
	"reflect"
	"runtime"
	"strings"

	"github.com/mpigo/mpigo/comm/internal/coll"
)

// ownOps remembers which operations are functions of this package. These neither panic nor end
// their goroutine, so a nonblocking or persistent collective needs no goroutine for them. The
// engine's lock guards the map. Keys are addresses of code, so the map stays small.
type ownOps map[uintptr]bool

// has reports whether the operation is a function of this package. For an operation that a generic
// function of the user passes, it may wrongly report false, because the compiler wraps the
// operation in another function.
func (o ownOps) has(op coll.Combiner) bool {
	pc := reflect.ValueOf(op).Pointer()
	is, known := o[pc]
	if !known {
		is = isOwnOp(runtime.FuncForPC(pc).Name())
		o[pc] = is
	}
	return is
}

// isOwnOp reports whether a function with this name is an operation of this package. The names of
// all instances of a generic function are the same.
func isOwnOp(name string) bool {
	op, isOwn := strings.CutPrefix(name, reflect.TypeFor[Comm]().PkgPath()+".")
	if !isOwn {
		return false
	}
	op, isGeneric := strings.CutSuffix(op, "[...]")
	if !isGeneric {
		return false
	}
	switch op {
	case "Sum", "Prod", "Min", "Max", "Land", "Lor", "Lxor", "Band", "Bor", "Bxor", "MaxLoc", "MinLoc":
		return true
	}
	return false
}
