package mpitest

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"

	rankgoroutines "github.com/mpigo/mpigo/internal/goroutines"
	"github.com/mpigo/mpigo/internal/introspect"
)

// A goroutine inherits the pprof labels of the goroutine that starts it. So labels tell which
// goroutines belong to a run and to a rank, even if several tests run in the process at a time.
const (
	labelRun  = "mpitest"
	labelRank = "mpitest rank"
)

var rankLabel = regexp.MustCompile(`"` + labelRank + `":"(\d+)"`)

// stack is the stack of one or more goroutines.
type stack struct {
	count  int
	rank   string // empty if they belong to no rank
	frames []frame
}

type frame struct {
	function string
	place    string // file:line
}

// goroutines returns the stacks of a run's goroutines.
func goroutines(run string) []stack {
	var text bytes.Buffer
	// debug = 1 is the form that has the labels.
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		return nil // bytes.Buffer does not fail
	}
	return parseGoroutines(text.String(), run)
}

// parseGoroutines parses a goroutine profile. After a title line, each stack has a line with the
// number of goroutines and their addresses, a line with the labels, a line for each frame, and an
// empty line at the end:
//
//	2 @ 0x47d96e 0x415619 0x415432
//	# labels: {"mpitest":"0xc0001", "mpitest rank":"3"}
//	#	0x4dc216	main.block+0x16		/src/main.go:4
func parseGoroutines(text, run string) []stack {
	var out []stack
	for part := range strings.SplitSeq(text, "\n\n") {
		var s stack
		ours := false
		for line := range strings.Lines(part) {
			line = strings.TrimSpace(line)
			if labels, ok := strings.CutPrefix(line, "# labels: "); ok {
				ours = strings.Contains(labels, fmt.Sprintf("%q:%q", labelRun, run))
				if m := rankLabel.FindStringSubmatch(labels); m != nil {
					s.rank = m[1]
				}
				continue
			}
			// Several tabs may stand between function and place, to align the lines.
			if fields := strings.FieldsFunc(line, func(c rune) bool { return c == '\t' }); len(fields) == 4 {
				name := fields[2]
				if plus := strings.LastIndex(name, "+0x"); plus >= 0 {
					name = name[:plus]
				}
				s.frames = append(s.frames, frame{name, fields[3]})
				continue
			}
			if n, _, ok := strings.Cut(line, " @ "); ok {
				s.count, _ = strconv.Atoi(n)
			}
		}
		if ours {
			out = append(out, s)
		}
	}
	return out
}

// module is the prefix of all packages of the library.
const module = "github.com/mpigo/mpigo/"

// inLibrary reports whether a package that moves messages is on the stack.
func (s stack) inLibrary() bool {
	for _, f := range s.frames {
		rest, ok := strings.CutPrefix(f.function, module)
		if !ok {
			continue
		}
		switch rest[:max(strings.IndexAny(rest, "./"), 0)] {
		case "comm", "pml", "btl", "request", "progress":
			return true
		}
	}
	return false
}

// goroutine returns one of the goroutines with the stack. Their states are not known.
func (s stack) goroutine() introspect.Goroutine {
	var g introspect.Goroutine
	for _, f := range s.frames {
		colon := max(strings.LastIndexByte(f.place, ':'), 0)
		line, _ := strconv.Atoi(f.place[min(colon+1, len(f.place)):])
		g.Frames = append(g.Frames, introspect.Frame{Function: f.function, File: f.place[:colon], Line: line})
	}
	g.InCall, g.Waits = rankgoroutines.Call(g.Frames)
	return g
}

// foldedStack is a stack that goroutines of several ranks share.
type foldedStack struct {
	stack
	ranks []int
}

// foldStacks folds equal stacks of different ranks, in the order of the ranks.
func foldStacks(stacks []stack) (out []foldedStack) {
	for _, s := range stacks {
		rank, err := strconv.Atoi(s.rank)
		if err != nil {
			continue
		}
		at := slices.IndexFunc(out, func(f foldedStack) bool {
			return f.count == s.count && slices.Equal(f.frames, s.frames)
		})
		if at < 0 {
			out = append(out, foldedStack{stack: s})
			at = len(out) - 1
		}
		out[at].ranks = append(out[at].ranks, rank)
	}
	for _, f := range out {
		slices.Sort(f.ranks)
	}
	slices.SortStableFunc(out, func(a, b foldedStack) int { return cmp.Compare(a.ranks[0], b.ranks[0]) })
	return out
}

func (s stack) String() string {
	var b strings.Builder
	b.WriteString(count(s.count, "goroutine", "goroutines"))
	b.WriteString(":\n")
	for _, f := range s.frames {
		fmt.Fprintf(&b, "    %s\n        %s\n", f.function, f.place)
	}
	return b.String()
}

// count returns a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// isAsyncProgress reports whether the goroutine is the one of the library that makes progress while
// the program computes. It makes no calls of the API.
func (s stack) isAsyncProgress() bool {
	return slices.ContainsFunc(s.frames, func(f frame) bool {
		return strings.HasSuffix(f.function, "comm.(*asyncProgress).run")
	})
}
