package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// plot is a diagram of one experiment over size. Both axes are logarithmic.
type plot struct {
	file, title, experiment, unit, axis string
}

func plots() []plot {
	return []plot{
		{"latency.svg", "One-way latency between two processes", "latency", "us", "microseconds"},
		{"bandwidth.svg", "Bandwidth between two processes, window 64", "bw", "MB/s", "MB/s"},
		{"latency-tcp.svg", "One-way latency between two processes, TCP over loopback", latencyTCP, "us", "microseconds"},
		{"bandwidth-tcp.svg", "Bandwidth between two processes, TCP over loopback, window 64", bwTCP, "MB/s", "MB/s"},
	}
}

// line is the line of one library. At each size it shows the best of its contenders.
type line struct {
	name, colour, dash string
	contenders         []string
	x, y               []float64
}

func plotLines() []line {
	return []line{
		{name: "MPICH", colour: "#7b5ea7", contenders: []string{mpichSingle, mpichTwo, mpichTCP}},
		{name: "Open MPI", colour: "#d9731a", contenders: []string{openMPISingle, openMPITwo, openMPITCP}},
		{name: "mpigo, Alloc memory", colour: "#1f8a4c", dash: "7 4", contenders: []string{oursAlloc}},
		{name: "mpigo", colour: "#1764c0", contenders: []string{ours, oursTCP}},
	}
}

// Lengths in pixels, and styles.
const (
	plotWidth, plotHeight   = 760, 460
	plotLeft, plotRight     = 74, 22
	plotTop, plotBottom     = 44, 54
	plotFont                = `font-family="Helvetica,Arial,sans-serif"`
	plotInk, plotGrid       = "#24292f", "#e3e6ea"
	legendWidth, legendLine = 176, 20
)

// draw returns the diagram as SVG, and false if nothing was measured.
func (p plot) draw(r *results) (string, bool) {
	lines := plotLines()
	lo, hi := math.Inf(1), math.Inf(-1)
	minX, maxX := math.Inf(1), math.Inf(-1)
	for i := range lines {
		l := &lines[i]
		for _, at := range r.points(p.experiment, 2) {
			b, ok := r.bestOf(at, l.contenders)
			if at.Unit != p.unit || !ok || at.Size == 0 || b.median <= 0 {
				continue
			}
			l.x, l.y = append(l.x, float64(at.Size)), append(l.y, b.median)
			lo, hi = min(lo, b.median), max(hi, b.median)
			minX, maxX = min(minX, float64(at.Size)), max(maxX, float64(at.Size))
		}
	}
	if lo > hi {
		return "", false
	}
	x := axis{math.Log2(minX), math.Log2(max(maxX, 2*minX)), plotLeft + 8, plotWidth - plotRight - 8}
	low := floorTick(lo)
	y := axis{math.Log10(low), math.Log10(max(ceilTick(hi), 2*low)), plotHeight - plotBottom, plotTop}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" fill="%s" %s role="img" aria-label="%s">`+"\n",
		plotWidth, plotHeight, plotWidth, plotHeight, plotInk, plotFont, html.EscapeString(p.title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, plotHeight)
	text(&b, plotLeft, 26, "start", 16, p.title)
	drawGrid(&b, x, y)
	text(&b, (plotLeft+plotWidth-plotRight)/2, plotHeight-12, "middle", 13, "message size")
	fmt.Fprintf(&b, `<text transform="translate(18 %d) rotate(-90)" text-anchor="middle" font-size="13">%s</text>`+"\n",
		(plotTop+plotHeight-plotBottom)/2, p.axis)
	for _, l := range lines {
		drawLine(&b, l, x, y)
	}
	drawLegend(&b, lines)
	b.WriteString("</svg>\n")
	return b.String(), true
}

// axis maps a logarithm to a coordinate.
type axis struct{ lo, hi, from, to float64 }

func (a axis) at(logarithm float64) float64 {
	return a.from + (logarithm-a.lo)/(a.hi-a.lo)*(a.to-a.from)
}

// floorTick rounds down to a tick. The reciprocals of ticks are ticks.
func floorTick(v float64) float64 { return 1 / ceilTick(1/v) }

// ceilTick rounds up to a tick of the vertical axis: 1, 2 or 5 times a power of ten.
func ceilTick(v float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*ten >= v {
			return f * ten
		}
	}
	return 10 * ten
}

func drawGrid(b *strings.Builder, x, y axis) {
	top, bottom := y.to, y.from
	var lines strings.Builder
	for e := math.Ceil(x.lo); e <= x.hi+1e-9; e++ {
		at := x.at(e)
		fmt.Fprintf(&lines, "M%.1f %.1fV%.1f", at, top, bottom)
		if int(e)%2 == 0 || x.hi-x.lo < 8 {
			text(b, at, bottom+18, "middle", 11, shortSize(1<<int(e)))
		}
	}
	for ten := math.Floor(y.lo); ten <= y.hi; ten++ {
		for _, f := range []float64{1, 2, 5} {
			v := math.Log10(f) + ten
			if v < y.lo-1e-9 || v > y.hi+1e-9 {
				continue
			}
			at := y.at(v)
			fmt.Fprintf(&lines, "M%d %.1fH%d", plotLeft, at, plotWidth-plotRight)
			text(b, plotLeft-8, at+4, "end", 11, tickName(f*math.Pow(10, ten)))
		}
	}
	fmt.Fprintf(b, `<path d="%s" stroke="%s"/>`+"\n", lines.String(), plotGrid)
	fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="%d" height="%.1f" fill="none" stroke="#9aa2ab"/>`+"\n",
		plotLeft, top, plotWidth-plotRight-plotLeft, bottom-top)
}

func drawLine(b *strings.Builder, l line, x, y axis) {
	if len(l.x) == 0 {
		return
	}
	var points, dots strings.Builder
	for i := range l.x {
		cx, cy := x.at(math.Log2(l.x[i])), y.at(math.Log10(l.y[i]))
		fmt.Fprintf(&points, "%.1f,%.1f ", cx, cy)
		fmt.Fprintf(&dots, "M%.1f %.1fh0", cx, cy)
	}
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2.2" stroke-linejoin="round"%s points="%s"/>`+"\n",
		l.colour, l.dashes(), points.String())
	fmt.Fprintf(b, `<path d="%s" stroke="%s" stroke-width="5.6" stroke-linecap="round"/>`+"\n", dots.String(), l.colour)
}

func (l line) dashes() string {
	if l.dash == "" {
		return ""
	}
	return fmt.Sprintf(` stroke-dasharray="%s"`, l.dash)
}

// drawLegend names the lines, mpigo first, in the corner that is empty in all diagrams.
func drawLegend(b *strings.Builder, lines []line) {
	var shown []line
	for i := len(lines) - 1; i >= 0; i-- {
		if len(lines[i].x) > 0 {
			shown = append(shown, lines[i])
		}
	}
	const left, top = plotLeft + 14, plotTop + 12
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="#ffffff" fill-opacity="0.9" stroke="%s"/>`+"\n",
		left, top, legendWidth, legendLine*len(shown)+10, plotGrid)
	for i, l := range shown {
		at := top + 15 + legendLine*i
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2.2"%s/>`+"\n",
			left+8, at, left+34, at, l.colour, l.dashes())
		text(b, left+42, float64(at+4), "start", 12, l.name)
	}
}

func text(b *strings.Builder, x, y float64, anchor string, size int, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>`+"\n",
		x, y, anchor, size, html.EscapeString(s))
}

func tickName(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%g k", v/1000)
	case v >= 1:
		return fmt.Sprintf("%g", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// shortSize returns a size that fits below a tick.
func shortSize(bytes int) string {
	return strings.TrimSuffix(strings.ReplaceAll(strings.ReplaceAll(sizeName(bytes), " ", ""), "i", ""), "B")
}
