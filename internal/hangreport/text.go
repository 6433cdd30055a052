package hangreport

import (
	"fmt"
	"strings"
	"unicode"
)

const (
	// mostCauses bounds the causes in the text, and mostLines the lines about ranks, so that a
	// report fits a screen.
	mostCauses, mostLines = 4, 26
	// mostColumns bounds a line.
	mostColumns = 220
)

// String is the finding as text for people. The causes come first.
func (f Finding) String() string { return f.Text("hang: ") }

// Text is String with another beginning of the first line.
func (f Finding) Text(first string) string {
	var b strings.Builder
	for i, c := range f.Causes {
		if i == mostCauses {
			fmt.Fprintf(&b, "  and %s\n", count(len(f.Causes)-i, "more cause", "more causes"))
			break
		}
		begin := "  "
		if i == 0 {
			begin = first
		}
		b.WriteString(begin + shorten(c.Text) + "\n")
	}
	b.WriteString("what the ranks do:\n")
	lines, ranks := 0, 0
	for i, g := range f.Groups {
		if lines+len(g.Lines) > mostLines && i > 0 {
			fmt.Fprintf(&b, "  and %s\n", count(f.Size-ranks, "more rank", "more ranks"))
			break
		}
		name := Ranks(g.Ranks) + ": "
		for j, line := range g.Lines {
			if j > 0 {
				name = "    "
			}
			b.WriteString("  " + shorten(name+line) + "\n")
		}
		lines += len(g.Lines)
		ranks += len(g.Ranks)
	}
	for _, n := range f.Notes {
		b.WriteString("note: " + shorten(n) + "\n")
	}
	return b.String()
}

// shorten cuts a line that is too long. It replaces control characters, because ranks may send any,
// and a terminal would obey them.
func shorten(line string) string {
	line = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, line)
	if r := []rune(line); len(r) > mostColumns {
		return string(r[:mostColumns-1]) + "…"
	}
	return line
}
