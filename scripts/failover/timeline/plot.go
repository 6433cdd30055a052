package timeline

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/svg"
)

// The picture shows the bandwidth above, a row for each rail below it, and one axis of time for
// both. No meaning depends on colour alone: rails have names, and events have shapes.

// Run describes how a recorded run was made.
type Run struct {
	Rate  float64       // bytes per second that the sender is limited to; 0 if it is not
	Every time.Duration // over which the bandwidth in the picture is a mean
	Again int64         // bytes that were sent again; negative if not known
}

// Lengths in pixels.
const (
	width                  = 800
	chartTop, chartBottom  = 80, 334
	rowHeight, rowThick    = 28, 18
	right                  = 24
	bottomOfAxis, legendAt = 40, 22
)

// canvas is a drawing, and its axes.
type canvas struct {
	*svg.Canvas
	left float64 // x at which time begins
	most float64 // MB/s at the top of the chart
	time svg.Axis
	rate svg.Axis
}

func (c *canvas) x(at time.Duration) float64 { return c.time.At(at.Seconds()) }

// stroke is the attributes of a line.
func stroke(colour, more string) string { return `stroke="` + colour + `" ` + more }

// Draw returns the picture as SVG.
func (t *Timeline) Draw(run Run) string {
	names, samples := t.names(), t.samples(run.Every)
	c := &canvas{left: 74}
	for _, name := range names {
		c.left = max(c.left, float64(16+8*len(name)))
	}
	for _, s := range samples {
		c.most = max(c.most, 1.05*s.mbps)
	}
	if c.most == 0 {
		c.most = 1
	}
	c.time = svg.Axis{Hi: max(t.end, time.Millisecond).Seconds(), From: c.left, To: width - right}
	c.rate = svg.Axis{Hi: c.most, From: chartBottom, To: chartTop}
	rows := chartBottom + 10
	axis := rows + rowHeight*len(names)
	c.Canvas = svg.NewFile(width, axis+bottomOfAxis+legendAt*2+8, "Bandwidth over time while rails fail and come back")
	c.Label(c.left, 26, "start", 16, "Bandwidth while rails fail and come back")
	c.Label(c.left, 46, "start", 12, run.caption(c.most))
	if _, bytes := t.Total(); run.Again >= 0 {
		c.Label(c.left, 66, "start", 12,
			fmt.Sprintf("sent again, because a failed rail had it: %.1f kB of %.1f MB", float64(run.Again)/1e3, float64(bytes)/1e6))
	}
	c.grid(float64(axis))
	c.bandwidth(samples)
	if run.isNear(c.most) {
		at := c.rate.At(run.Rate / 1e6)
		c.Line(c.left, at, width-right, at, stroke(svg.Ink, `stroke-dasharray="2 4"`))
	}
	for _, e := range t.events() {
		c.mark(c.x(e.at), chartTop, float64(axis), e.up)
	}
	for i, name := range names {
		c.Label(c.left-8, middle(rows, i)+4, "end", 12, name)
		c.row(t, i, middle(rows, i))
	}
	c.Rect(c.left, chartTop, width-right-c.left, chartBottom-chartTop, stroke(svg.Edge, `fill="none"`))
	c.legend(float64(axis + bottomOfAxis + legendAt/2))
	return c.End()
}

func middle(rows, i int) float64 { return float64(rows) + rowHeight*(float64(i)+0.5) }

// caption says how the bandwidth was measured.
func (run Run) caption(most float64) string {
	s := fmt.Sprintf("received by rank 1, mean of every %d ms", run.Every.Milliseconds())
	if run.Rate > 0 {
		s += fmt.Sprintf("; the sender is limited to %g MB/s", run.Rate/1e6)
	}
	if run.isNear(most) {
		s += " (dotted)"
	}
	return s
}

// isNear reports whether the limit is so near to the bandwidth that the picture has room for it.
func (run Run) isNear(most float64) bool { return run.Rate > 0 && run.Rate/1e6 <= most }

func (c *canvas) grid(axis float64) {
	for step, v := svg.Ceil(c.most/5), 0.0; v <= c.most; v += step {
		c.Line(c.left, c.rate.At(v), width-right, c.rate.At(v), stroke(svg.Faint, ""))
		c.Label(c.left-8, c.rate.At(v)+4, "end", 11, fmt.Sprintf("%g", v))
	}
	c.Upwards(c.left-54, (chartTop+chartBottom)/2, "MB/s", `text-anchor="middle" font-size="13"`)
	c.Line(c.left, axis, width-right, axis, stroke(svg.Edge, ""))
	step := svg.Ceil(c.time.Hi / 10)
	for i := 0; float64(i)*step <= c.time.Hi; i++ {
		x := c.time.At(float64(i) * step)
		c.Line(x, chartTop, x, axis+4, stroke(svg.Faint, ""))
		c.Label(x, axis+17, "middle", 11, fmt.Sprintf("%.4g", float64(i)*step))
	}
	c.Label((c.left+width-right)/2, axis+33, "middle", 13, "seconds")
}

func (c *canvas) bandwidth(samples []sample) {
	if len(samples) == 0 {
		return
	}
	var line svg.Points
	for _, s := range samples {
		line = append(line, c.x(s.from), c.rate.At(s.mbps), c.x(s.to), c.rate.At(s.mbps))
	}
	first, last := line[0], line[len(line)-2]
	c.Put(`<polygon fill="%s" fill-opacity="0.15" points="%.1f,%d %s %.1f,%d"/>`, svg.Blue, first, chartBottom, line, last, chartBottom)
	c.Put(`<polyline fill="none" stroke="%s" stroke-width="1.6" points="%s"/>`, svg.Blue, line)
}

// mark draws a vertical line where a rail failed or came back.
func (c *canvas) mark(x, top, bottom float64, up bool) {
	how := stroke(svg.Red, `stroke-dasharray="5 3"`)
	if up {
		how = stroke(svg.Green, "")
	}
	c.Line(x, top, x, bottom, how)
}

// sign draws the event in the rail's row: a cross for a failure, a ring for a return.
func (c *canvas) sign(x, y float64, up bool) {
	if up {
		c.Put(`<circle cx="%.1f" cy="%.1f" r="4.5" fill="#ffffff" stroke="%s" stroke-width="2"/>`, x, y, svg.Green)
		return
	}
	c.Put(`<path d="M%.1f %.1fl9 9m0 -9l-9 9" stroke="%s" stroke-width="2.4"/>`, x-4.5, y-4.5, svg.Red)
}

// row draws the life of a rail: a bar while the rail is up, as thick as its health.
func (c *canvas) row(t *Timeline, rail int, y float64) {
	c.Line(c.left, y, width-right, y, stroke(svg.Edge, `stroke-dasharray="1 3"`))
	for i, begin := 0, 0; i < len(t.states); i++ {
		to, health := t.end, t.health(begin, rail)
		if i+1 < len(t.states) {
			if t.health(i+1, rail) == health {
				continue
			}
			to = t.states[i+1].at
		}
		if health > 0 {
			c.bar(c.x(t.states[begin].at), c.x(to), y, health)
		}
		begin = i + 1
	}
	for _, e := range t.events() {
		if e.rail == rail {
			c.sign(c.x(e.at), y, e.up)
		}
	}
}

// health returns a rail's health in a state, and 0 while the rail is not up.
func (t *Timeline) health(state, rail int) int {
	if rails := t.states[state].rails; rail < len(rails) && rails[rail].up {
		return max(rails[rail].health, 1)
	}
	return 0
}

func (c *canvas) bar(from, to, y float64, health int) {
	const full = 1000
	thick := 2 + (rowThick-2)*float64(health)/full
	c.Rect(from, y-thick/2, to-from, thick, `fill="`+svg.Green+`" fill-opacity="0.55"`)
}

// legend explains the signs.
func (c *canvas) legend(y float64) {
	x := c.left
	c.Line(x, y, x+26, y, stroke(svg.Blue, `stroke-width="2"`))
	c.Label(x+34, y+4, "start", 12, "bandwidth")
	for i, s := range []string{"a rail failed", "a rail is back"} {
		at := x + float64(130*(i+1))
		c.mark(at+13, y-10, y+10, i == 1)
		c.sign(at+13, y, i == 1)
		c.Label(at+34, y+4, "start", 12, s)
	}
	y += legendAt
	for i, health := range []int{125, 500, 1000} {
		c.bar(x+float64(9*i), min(x+float64(9*(i+1)), x+26), y, health)
	}
	c.Label(x+34, y+4, "start", 12, "up; a thinner bar: a rail that has failed is trusted again bit by bit")
}

// Chart returns the same for a terminal: a line for each piece of time, with what happened in it.
func (t *Timeline) Chart(run Run) string {
	const lines, bar = 24, 40
	every := max(run.Every, (t.end / lines).Round(run.Every))
	names, samples, events := t.names(), t.samples(every), t.events()
	if len(samples) == 0 {
		return ""
	}
	most := 0.0
	for _, s := range samples {
		most = max(most, s.mbps)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%8s %8s\n", "until s", "MB/s")
	for i, s := range samples {
		filled := 0
		if most > 0 {
			filled = int(math.Round(s.mbps / most * bar))
		}
		var said []string
		for _, e := range events {
			if e.at > s.from && (e.at <= s.to || i == len(samples)-1) {
				said = append(said, names[e.rail]+" "+e.String())
			}
		}
		line := fmt.Sprintf("%8.2f %8.1f |%s%s| %s", s.to.Seconds(), s.mbps,
			strings.Repeat("#", filled), strings.Repeat(" ", bar-filled), strings.Join(said, ", "))
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	return b.String()
}
