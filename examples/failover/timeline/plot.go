package timeline

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"
)

// The picture shows the bandwidth above, a row for each rail below it, and one axis of time for
// both. No meaning depends on colour alone: rails have names, and events have shapes.

// Run describes how a recorded run was made.
type Run struct {
	Rate  float64       // bytes per second that the sender is limited to; 0 if it is not
	Every time.Duration // over which the bandwidth in the picture is a mean
	Cuts  []Cut         // made by the program itself
	Again int64         // bytes that were sent again; negative if not known
}

// Cut is a time in which a rail's cable was cut.
type Cut struct {
	Rail     int
	From, To time.Time
}

// Lengths in pixels.
const (
	width                  = 800
	chartTop, chartBottom  = 80, 334
	rowHeight, rowThick    = 28, 18
	right                  = 24
	bottomOfAxis, legendAt = 40, 22
)

// Styles.
const (
	ink, faint, edge = "#24292f", "#e3e6ea", "#9aa2ab"
	blue, green, red = "#1764c0", "#1f8a4c", "#b3261e"
	font             = `font-family="Helvetica,Arial,sans-serif"`
)

// canvas is an SVG that is being written.
type canvas struct {
	strings.Builder
	left int           // x at which time begins
	span time.Duration // of the time axis
	most float64       // MB/s at the top of the chart
}

func (c *canvas) put(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

func (c *canvas) text(x, y float64, anchor string, size int, s string) {
	c.put(`<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d" fill="%s" %s>%s</text>`,
		x, y, anchor, size, ink, font, html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, stroke, more string) {
	c.put(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" %s/>`, x1, y1, x2, y2, stroke, more)
}

func (c *canvas) x(at time.Duration) float64 {
	return float64(c.left) + at.Seconds()/c.span.Seconds()*float64(width-right-c.left)
}

func (c *canvas) y(mbps float64) float64 {
	return chartBottom - mbps/c.most*(chartBottom-chartTop)
}

// Draw returns the picture as SVG.
func (t *Timeline) Draw(run Run) string {
	names, samples := t.names(), t.samples(run.Every)
	c := &canvas{left: 74, span: max(t.end, time.Millisecond)}
	for _, name := range names {
		c.left = max(c.left, 16+8*len(name))
	}
	for _, s := range samples {
		c.most = max(c.most, 1.05*s.mbps)
	}
	if c.most == 0 {
		c.most = 1
	}
	rows := chartBottom + 10
	axis := rows + rowHeight*len(names)
	height := axis + bottomOfAxis + legendAt*2 + 8

	c.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
		`aria-label="Bandwidth over time while rails fail and come back">`, width, height, width, height)
	c.put(`<defs><pattern id="cut" width="7" height="7" patternUnits="userSpaceOnUse" `+
		`patternTransform="rotate(45)"><rect width="7" height="7" fill="#fbeceb"/>`+
		`<line x1="0" y1="0" x2="0" y2="7" stroke="%s" stroke-width="1.6"/></pattern></defs>`, red)
	c.put(`<rect width="%d" height="%d" fill="#ffffff"/>`, width, height)
	c.text(float64(c.left), 26, "start", 16, "Bandwidth while rails fail and come back")
	c.text(float64(c.left), 46, "start", 12, run.caption(c.most))
	if _, bytes := t.Total(); run.Again >= 0 {
		c.text(float64(c.left), 66, "start", 12,
			fmt.Sprintf("sent again, because a failed rail had it: %.1f kB of %.1f MB", float64(run.Again)/1e3, float64(bytes)/1e6))
	}
	c.grid(axis)
	c.bandwidth(samples)
	if run.isNear(c.most) {
		at := c.y(run.Rate / 1e6)
		c.line(float64(c.left), at, width-right, at, ink, `stroke-dasharray="2 4"`)
	}
	for _, e := range t.events() {
		c.mark(c.x(e.at), chartTop, float64(axis), e.up)
	}
	for i, name := range names {
		c.text(float64(c.left)-8, middle(rows, i)+4, "end", 12, name)
		c.row(t, run.Cuts, i, middle(rows, i))
	}
	c.put(`<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="%s"/>`,
		c.left, chartTop, width-right-c.left, chartBottom-chartTop, edge)
	c.legend(len(run.Cuts) > 0, float64(axis+bottomOfAxis+legendAt/2))
	c.put("</svg>")
	return c.String()
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

func (c *canvas) grid(axis int) {
	for step, v := nice(c.most/5), 0.0; v <= c.most; v += step {
		c.line(float64(c.left), c.y(v), width-right, c.y(v), faint, "")
		c.text(float64(c.left)-8, c.y(v)+4, "end", 11, fmt.Sprintf("%g", v))
	}
	c.put(`<text transform="translate(%d %d) rotate(-90)" text-anchor="middle" font-size="13" fill="%s" %s>MB/s</text>`,
		c.left-54, (chartTop+chartBottom)/2, ink, font)
	c.line(float64(c.left), float64(axis), width-right, float64(axis), edge, "")
	step := nice(c.span.Seconds() / 10)
	for i := 0; float64(i)*step <= c.span.Seconds(); i++ {
		x := c.x(time.Duration(float64(i) * step * 1e9))
		c.line(x, chartTop, x, float64(axis)+4, faint, "")
		c.text(x, float64(axis)+17, "middle", 11, fmt.Sprintf("%.4g", float64(i)*step))
	}
	c.text(float64(c.left+width-right)/2, float64(axis)+33, "middle", 13, "seconds")
}

// nice rounds up to 1, 2 or 5 times a power of ten.
func nice(v float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*ten >= v {
			return f * ten
		}
	}
	return 10 * ten
}

func (c *canvas) bandwidth(samples []sample) {
	if len(samples) == 0 {
		return
	}
	var line strings.Builder
	for _, s := range samples {
		fmt.Fprintf(&line, "%.1f,%.1f %.1f,%.1f ", c.x(s.from), c.y(s.mbps), c.x(s.to), c.y(s.mbps))
	}
	first, last := c.x(samples[0].from), c.x(samples[len(samples)-1].to)
	c.put(`<polygon fill="%s" fill-opacity="0.15" points="%.1f,%d %s%.1f,%d"/>`,
		blue, first, chartBottom, line.String(), last, chartBottom)
	c.put(`<polyline fill="none" stroke="%s" stroke-width="1.6" points="%s"/>`, blue, line.String())
}

// mark draws a vertical line where a rail failed or came back.
func (c *canvas) mark(x, top, bottom float64, up bool) {
	if up {
		c.line(x, top, x, bottom, green, `stroke-width="1"`)
		return
	}
	c.line(x, top, x, bottom, red, `stroke-width="1" stroke-dasharray="5 3"`)
}

// sign draws the event in the rail's row: a cross for a failure, a ring for a return.
func (c *canvas) sign(x, y float64, up bool) {
	if up {
		c.put(`<circle cx="%.1f" cy="%.1f" r="4.5" fill="#ffffff" stroke="%s" stroke-width="2"/>`, x, y, green)
		return
	}
	c.put(`<path d="M%.1f %.1fl9 9m0 -9l-9 9" stroke="%s" stroke-width="2.4"/>`, x-4.5, y-4.5, red)
}

// row draws the life of a rail: a bar while the rail is up, as thick as its health.
func (c *canvas) row(t *Timeline, cuts []Cut, rail int, y float64) {
	c.line(float64(c.left), y, width-right, y, edge, `stroke-dasharray="1 3"`)
	for _, cut := range cuts {
		if cut.Rail == rail {
			from, to := c.x(cut.From.Sub(t.Begin)), c.x(cut.To.Sub(t.Begin))
			c.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="url(#cut)"/>`,
				from, y-rowThick/2, to-from, rowThick)
		}
	}
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
	c.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="0.55"/>`, from, y-thick/2, to-from, thick, green)
}

// legend explains the signs.
func (c *canvas) legend(hasCuts bool, y float64) {
	x := float64(c.left)
	entry := func(room float64, s string, sign func(x float64)) {
		sign(x)
		c.text(x+34, y+4, "start", 12, s)
		x += room
	}
	entry(130, "bandwidth", func(x float64) { c.line(x, y, x+26, y, blue, `stroke-width="2"`) })
	entry(130, "a rail failed", func(x float64) {
		c.mark(x+13, y-10, y+10, false)
		c.sign(x+13, y, false)
	})
	entry(130, "a rail is back", func(x float64) {
		c.mark(x+13, y-10, y+10, true)
		c.sign(x+13, y, true)
	})
	if hasCuts {
		entry(0, "cut by this program", func(x float64) {
			c.put(`<rect x="%.1f" y="%.1f" width="26" height="%d" fill="url(#cut)"/>`,
				x, y-rowThick/2, rowThick)
		})
	}
	x, y = float64(c.left), y+legendAt
	entry(0, "up; a thinner bar: a rail that has failed is trusted again bit by bit", func(x float64) {
		c.bar(x, x+9, y, 125)
		c.bar(x+9, x+18, y, 500)
		c.bar(x+18, x+26, y, 1000)
	})
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
