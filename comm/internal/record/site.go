package record

import (
	"runtime"

	"github.com/mpigo/mpigo/comm/internal/userline"
)

// frame is a line of the program.
type frame struct {
	function, file string
	line           int
}

// locator finds the user's line of a call on the stack.
type locator struct {
	// known has the frame of each known program counter; nil: it is inside the library.
	known map[uintptr]*frame
	pcs   [32]uintptr
	empty frame
}

func newLocator() *locator { return &locator{known: make(map[uintptr]*frame)} }

// find returns the user's line of the call that the goroutine is in.
func (l *locator) find() *frame {
	for _, pc := range l.pcs[:runtime.Callers(3, l.pcs[:])] {
		f, seen := l.known[pc]
		if !seen {
			f = look(pc)
			l.known[pc] = f
		}
		if f != nil {
			return f
		}
	}
	return &l.empty
}

// look returns the innermost function at a program counter, inlined ones included, outside the
// library; nil if there is none.
func look(pc uintptr) *frame {
	frames := runtime.CallersFrames([]uintptr{pc})
	for {
		f, more := frames.Next()
		if f.Function != "" && !userline.IsLibrary(&f) {
			return &frame{f.Function, f.File, f.Line}
		}
		if !more {
			return nil
		}
	}
}
