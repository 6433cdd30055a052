package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/mpigo/mpigo/internal/svg"
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
		{name: "mpigo, Alloc memory", colour: svg.Green, dash: "7 4", contenders: []string{oursAlloc}},
		{name: "mpigo", colour: svg.Blue, contenders: []string{ours, oursTCP}},
	}
}

// Lengths in pixels.
const (
	plotWidth, plotHeight   = 760, 460
	plotLeft, plotRight     = 74, 22
	plotTop, plotBottom     = 44, 54
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
	x := svg.Axis{Lo: math.Log2(minX), Hi: math.Log2(max(maxX, 2*minX)), From: plotLeft + 8, To: plotWidth - plotRight - 8}
	low := 1 / svg.Ceil(1/lo) // the reciprocals of ticks are ticks
	y := svg.Axis{Lo: math.Log10(low), Hi: math.Log10(max(svg.Ceil(hi), 2*low)), From: plotHeight - plotBottom, To: plotTop}
	c := svg.NewFile(plotWidth, plotHeight, p.title)
	c.Label(plotLeft, 26, "start", 16, p.title)
	drawGrid(c, x, y)
	c.Label((plotLeft+plotWidth-plotRight)/2, plotHeight-12, "middle", 13, "message size")
	c.Upwards(18, (plotTop+plotHeight-plotBottom)/2, p.axis, `text-anchor="middle" font-size="13"`)
	for _, l := range lines {
		drawLine(c, l, x, y)
	}
	drawLegend(c, lines)
	return c.End(), true
}

func drawGrid(c *svg.Canvas, x, y svg.Axis) {
	const left, right, grid = plotLeft, plotWidth - plotRight, `stroke="` + svg.Faint + `"`
	top, bottom := y.To, y.From
	for e := math.Ceil(x.Lo); e <= x.Hi+1e-9; e++ {
		at := x.At(e)
		c.Line(at, top, at, bottom, grid)
		if int(e)%2 == 0 || x.Hi-x.Lo < 8 {
			c.Label(at, bottom+18, "middle", 11, shortSize(1<<int(e)))
		}
	}
	for ten := math.Floor(y.Lo); ten <= y.Hi; ten++ {
		for _, f := range []float64{1, 2, 5} {
			v := math.Log10(f) + ten
			if v < y.Lo-1e-9 || v > y.Hi+1e-9 {
				continue
			}
			at := y.At(v)
			c.Line(left, at, right, at, grid)
			c.Label(left-8, at+4, "end", 11, tickName(f*math.Pow(10, ten)))
		}
	}
	c.Rect(left, top, right-left, bottom-top, `fill="none" stroke="`+svg.Edge+`"`)
}

func drawLine(c *svg.Canvas, l line, x, y svg.Axis) {
	if len(l.x) == 0 {
		return
	}
	var points svg.Points
	for i := range l.x {
		points = append(points, x.At(math.Log2(l.x[i])), y.At(math.Log10(l.y[i])))
	}
	c.Put(`<polyline fill="none" %s stroke-linejoin="round" points="%s"/>`, l.stroke(), points)
	for i := 0; i < len(points); i += 2 {
		c.Put(`<circle cx="%.1f" cy="%.1f" r="2.8" fill="%s"/>`, points[i], points[i+1], l.colour)
	}
}

func (l line) stroke() string {
	s := fmt.Sprintf(`stroke="%s" stroke-width="2.2"`, l.colour)
	if l.dash != "" {
		s += fmt.Sprintf(` stroke-dasharray="%s"`, l.dash)
	}
	return s
}

// drawLegend names the lines, mpigo first, in the corner that is empty in all diagrams.
func drawLegend(c *svg.Canvas, lines []line) {
	var shown []line
	for i := len(lines) - 1; i >= 0; i-- {
		if len(lines[i].x) > 0 {
			shown = append(shown, lines[i])
		}
	}
	const left, top = plotLeft + 14, plotTop + 12
	c.Rect(left, top, legendWidth, float64(legendLine*len(shown)+10), `rx="4" fill="#ffffff" fill-opacity="0.9" stroke="`+svg.Faint+`"`)
	for i, l := range shown {
		at := float64(top + 15 + legendLine*i)
		c.Line(left+8, at, left+34, at, l.stroke())
		c.Label(left+42, at+4, "start", 12, l.name)
	}
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
