// Command terminal draws what a program has written to a terminal, as an SVG picture. It reads the
// output and writes the picture. After a sequence that moves the cursor home, a new picture begins.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/mpigo/mpigo/internal/svg"
)

func main() {
	columns := flag.Int("columns", 100, "longer lines are wrapped")
	label := flag.String("label", "a terminal", "what the picture shows, for people who do not see it")
	flag.Parse()
	text, err := io.ReadAll(os.Stdin)
	if err != nil || *columns < 1 {
		fmt.Fprintln(os.Stderr, "usage: terminal [-columns N] [-label TEXT] <OUTPUT >PICTURE")
		os.Exit(1)
	}
	fmt.Print(draw(lastScreen(string(text)), *columns, *label))
}

// Lengths in pixels. The picture has the width of the columns in every font, because each run of
// text has a fixed length.
const (
	columnWidth, lineHeight = 8, 19
	margin                  = 14
)

// Colors of the picture, which has a dark background on every page.
const (
	background = "#14181e"
	plain      = "#dfe4ea"
)

// run is a text in one style.
type run struct{ text, style string }

// styles are the attributes for the sequences that select a style (ECMA-48, Select Graphic
// Rendition).
func styles() map[string]string {
	return map[string]string{
		"1": `fill="#ffffff" font-weight="bold"`, "31": `fill="#ff7b72"`, "33": `fill="#e3b341"`, "36": `fill="#56d4dd"`,
	}
}

// control matches a control sequence. Only those that end with m have an effect.
var control = regexp.MustCompile(`\x1b\[([?0-9;]*)([A-Za-z])`)

// lastScreen returns the text of the last complete screen. The screen that is drawn while the
// program ends may be incomplete.
func lastScreen(text string) string {
	const home, normal = "\x1b[H", "\x1b[?1049l"
	text, _, _ = strings.Cut(text, normal)
	if i := strings.LastIndex(text, home); i >= 0 {
		text = text[i+len(home):]
	}
	return text
}

// parse divides a text into lines of runs, wrapped at a number of columns.
func parse(text string, columns int) (lines [][]run) {
	known, style := styles(), ""
	text = strings.TrimRight(strings.ReplaceAll(text, "\r", ""), "\n")
	for _, line := range strings.Split(text, "\n") {
		var runs []run
		used := 0
		add := func(part string) {
			for _, c := range part {
				if c < ' ' {
					continue
				}
				if used == columns {
					lines, runs, used = append(lines, runs), nil, 0
				}
				if n := len(runs); n == 0 || runs[n-1].style != style {
					runs = append(runs, run{style: style})
				}
				runs[len(runs)-1].text += string(c)
				used++
			}
		}
		for line != "" {
			at := control.FindStringSubmatchIndex(line)
			if at == nil {
				add(line)
				break
			}
			add(line[:at[0]])
			if line[at[4]:at[5]] == "m" {
				style = known[line[at[2]:at[3]]]
			}
			line = line[at[1]:]
		}
		lines = append(lines, runs)
	}
	return lines
}

// draw draws a text.
func draw(text string, columns int, label string) string {
	lines := parse(text, columns)
	c := svg.NewFile(2*margin+columns*columnWidth, 2*margin+len(lines)*lineHeight, label)
	c.Put(`<rect width="100%%" height="100%%" fill="%s"/>`, background)
	c.Put(`<g font-family="ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="13" fill="%s">`, plain)
	for i, line := range lines {
		x := float64(margin)
		for _, r := range line {
			width := float64(utf8.RuneCountInString(r.text) * columnWidth)
			if strings.TrimSpace(r.text) != "" {
				// Browsers drop spaces at the ends, but not those that do not break.
				c.Text(x, float64(margin+i*lineHeight+14), strings.ReplaceAll(r.text, " ", "\u00a0"), fmt.Sprintf(`textLength="%.0f" lengthAdjust="spacingAndGlyphs" %s`, width, r.style))
			}
			x += width
		}
	}
	c.Put(`</g>`)
	return c.End()
}
