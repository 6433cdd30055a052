// Package svg writes drawings.
package svg

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Colours and font of the drawings that stand alone.
const (
	Ink, Faint, Edge = "#24292f", "#e3e6ea", "#9aa2ab"
	Blue, Green, Red = "#1764c0", "#1f8a4c", "#b3261e"
)

// Canvas is a drawing that is being written. Lengths are in pixels. The last argument of a method
// is further attributes, as they stand in the element.
type Canvas struct{ b strings.Builder }

// New begins a drawing that is part of a page, which has its styles.
func New(width, height int, label string) *Canvas { return begin(width, height, label, "") }

// NewFile begins a drawing that stands alone.
func NewFile(width, height int, label string) *Canvas {
	c := begin(width, height, label, fmt.Sprintf(` xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" fill="%s" font-family="Helvetica,Arial,sans-serif"`, width, height, Ink))
	c.Rect(0, 0, float64(width), float64(height), `fill="#ffffff"`)
	return c
}

func begin(width, height int, label, attrs string) *Canvas {
	c := &Canvas{}
	c.Put(`<svg viewBox="0 0 %d %d"%s role="img" aria-label="%s">`, width, height, attrs, html.EscapeString(label))
	return c
}

// End ends the drawing, and returns it.
func (c *Canvas) End() string {
	c.Put("</svg>")
	return c.b.String()
}

// Put writes elements as they are.
func (c *Canvas) Put(format string, args ...any) { fmt.Fprintf(&c.b, format+"\n", args...) }

func (c *Canvas) Line(x1, y1, x2, y2 float64, attrs string) {
	c.Put(`<line x1="%s" y1="%s" x2="%s" y2="%s" %s/>`, num(x1), num(y1), num(x2), num(y2), attrs)
}

func (c *Canvas) Rect(x, y, width, height float64, attrs string) {
	c.Put(`<rect x="%s" y="%s" width="%s" height="%s" %s/>`, num(x), num(y), num(width), num(height), attrs)
}

func (c *Canvas) Text(x, y float64, s, attrs string) {
	c.Put(`<text x="%s" y="%s" %s>%s</text>`, num(x), num(y), attrs, html.EscapeString(s))
}

// Label writes a text of a size. The anchor is start, middle or end.
func (c *Canvas) Label(x, y float64, anchor string, size int, s string) {
	c.Text(x, y, s, fmt.Sprintf(`text-anchor="%s" font-size="%d"`, anchor, size))
}

// Upwards writes a text that runs upwards, with its middle at a point.
func (c *Canvas) Upwards(x, y float64, s, attrs string) {
	c.Put(`<text transform="translate(%s %s) rotate(-90)" %s>%s</text>`, num(x), num(y), attrs, html.EscapeString(s))
}

// num writes a length with two digits after the point, at most.
func num(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

// Points are the points of a line.
type Points []float64 // x and y in turn

// String writes them as the attribute points.
func (p Points) String() string {
	words := make([]string, 0, len(p)/2)
	for i := 0; i+1 < len(p); i += 2 {
		words = append(words, num(p[i])+","+num(p[i+1]))
	}
	return strings.Join(words, " ")
}

// Ceil rounds up to a round number: 1, 2 or 5 times a power of ten.
func Ceil(v float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*ten >= v {
			return f * ten
		}
	}
	return 10 * ten
}

// Axis maps the values from Lo to Hi to lengths.
type Axis struct{ Lo, Hi, From, To float64 }

func (a Axis) At(v float64) float64 { return a.From + (v-a.Lo)/(a.Hi-a.Lo)*(a.To-a.From) }
