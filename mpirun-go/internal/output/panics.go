package output

import (
	"bytes"
	"regexp"
)

// panicText finds the lines of a panic or fatal error of the Go runtime, and of the stacks of the
// goroutines. Its zero value is outside of one.
type panicText struct{ inside bool }

var (
	panicBegin = regexp.MustCompile(`^(panic: |fatal error: |SIG(ABRT|BUS|FPE|ILL|QUIT|SEGV|SYS|TRAP): |runtime: (goroutine stack exceeds|out of memory|program exceeds)|unexpected fault address )`)
	// libraryPanic matches the line by which package comm reports a panic before the stacks.
	libraryPanic = regexp.MustCompile(`^mpigo: rank \d+: panic: `)
	// panicLine matches a line that may follow: an empty line, a further cause, the header of a
	// goroutine, a call, its position or its creator, and the registers that a signal prints.
	panicLine = regexp.MustCompile(`^($|\s|goroutine \d+ |panic: |fatal error: |\[|.*\)$|created by |runtime|PC=|[a-z0-9]+ +0x[0-9a-f]+$|exit status \d|\.\.\.)`)
)

// contains reports whether the line at the start of rest belongs to a panic. It has to be called
// for each line in order.
func (p *panicText) contains(rest []byte) bool {
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	if len(line) > maxPanicLine {
		line = line[:maxPanicLine]
	}
	if libraryPanic.Match(line) { // it names the rank itself
		p.inside = true
		return false
	}
	p.inside = panicBegin.Match(line) || p.inside && panicLine.Match(line)
	return p.inside
}

// maxPanicLine is the length up to which a line is examined.
const maxPanicLine = 4 << 10
