package profile

import (
	"fmt"
	"html/template"
	"math"

	"github.com/mpigo/mpigo/internal/svg"
)

// The pictures are SVG inside the page. They contain only numbers and fixed words.

const (
	// A picture of bars has rankWidth for each rank, within leastWidth and mostWidth, which are the
	// widths of a phone and of the page. Text keeps its size: a wider picture scrolls.
	leastWidth, mostWidth = 330, 850
	rankWidth             = 56
	axisWidth             = 76
	// maxCells is the largest number of rows of a matrix. In larger jobs a cell stands for several
	// ranks.
	maxCells = 128
)

// parts returns the parts of a rank's time, from the bottom of the bar. Each has a colour class.
func (t Times) parts() [4]float64 {
	return [4]float64{max(t.App-t.Calls, 0), t.Working, t.Moving, t.Waiting}
}

var partNames = [4]string{"program", "in calls", "moving bytes", "waiting for a partner"}

// balance draws for each rank a bar with the parts of its time.
func balance(times []Times) template.HTML {
	const height, bottom, base = 220, 46, 10 + 220
	width := float64(min(max(axisWidth+rankWidth*len(times), leastWidth), mostWidth))
	longest := 1.0
	for _, t := range times {
		longest = max(longest, t.App)
	}
	c := svg.New(int(width), height+bottom+10, "time of each rank")
	c.Upwards(12, 10+height/2, "time", `class="axis middle"`)
	c.Text(axisWidth+(width-axisWidth)/2, height+bottom+2, "rank", `class="axis middle"`)
	y := svg.Axis{Hi: longest, From: base, To: 10}
	for tick := 0.0; tick <= longest; tick += svg.Ceil(longest / 6) {
		c.Line(axisWidth, y.At(tick), width, y.At(tick), `class="grid"`)
		c.Text(axisWidth-8, y.At(tick)+4, timeText(tick), `class="axis end"`)
	}
	step := (width - axisWidth) / float64(len(times))
	bar := min(step*0.8, 48)
	every := int(math.Ceil(30 / step))
	for i, t := range times {
		x, sum := axisWidth+step*(float64(i)+0.5)-bar/2, 0.0
		title := fmt.Sprintf("rank %d on %s", t.Rank, template.HTMLEscapeString(t.Host))
		for k, part := range t.parts() {
			title += fmt.Sprintf("&#10;%s: %s", partNames[k], approximate(t.Estimated, timeText(part)))
		}
		c.Put(`<g><title>%s</title>`, title)
		for k, part := range t.parts() {
			sum += part
			c.Rect(x, y.At(sum), bar, y.At(0)-y.At(part), fmt.Sprintf(`class="part%d"`, k))
		}
		c.Put(`</g>`)
		if i%every == 0 {
			c.Text(x+bar/2, height+28, fmt.Sprint(t.Rank), `class="axis middle"`)
		}
	}
	return template.HTML(fmt.Sprintf(`<div style="width:%.0fpx">%s</div>`, width, c.End()))
}

// matrices draws the bytes and the messages that each rank has sent to each rank.
func (j *Job) matrices() (bytes, messages template.HTML) {
	group := (j.Size + maxCells - 1) / maxCells // ranks in a cell
	cells := (j.Size + group - 1) / group
	ofBytes, ofMessages := make([]float64, cells*cells), make([]float64, cells*cells)
	for _, f := range j.Files {
		for _, t := range f.Sent {
			at := f.Rank/group*cells + t.Peer/group
			ofBytes[at] += float64(t.Bytes)
			ofMessages[at] += float64(t.Messages)
		}
	}
	return heatMap(ofBytes, cells, group, bytesText), heatMap(ofMessages, cells, group, countText)
}

// heatMap draws a matrix, with a darker cell for a larger value.
func heatMap(values []float64, cells, group int, text func(float64) string) template.HTML {
	const side, left, top, legend = 290, 44, 30, 46
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	cell := float64(side) / float64(cells)
	c := svg.New(left+side+10, top+side+legend, "matrix of ranks")
	c.Text(left+side/2, 12, "receiving rank", `class="axis middle"`)
	c.Upwards(12, top+side/2, "sending rank", `class="axis middle"`)
	gap := 0.0
	if cell > 8 {
		gap = 1
	}
	for i, v := range values {
		from, to := i/cells, i%cells
		x, y := left+cell*float64(to), top+cell*float64(from)
		if v == 0 {
			c.Rect(x, y, cell-gap, cell-gap, `class="empty"`)
			continue
		}
		level := 0.12 + 0.88*v/most
		c.Put(`<g><title>%s to %s: %s</title>`, cellName(from, group), cellName(to, group), text(v))
		c.Rect(x, y, cell-gap, cell-gap, fmt.Sprintf(`class="cell" fill-opacity="%.3f"`, level))
		c.Put(`</g>`)
		if cell >= 56 {
			class := `class="value middle"`
			if level > 0.55 {
				class = `class="value middle light"`
			}
			c.Text(x+cell/2, y+cell/2+4, text(v), class)
		}
	}
	every := int(math.Ceil(22 / cell))
	for i := 0; i < cells; i += every {
		mid := cell * (float64(i) + 0.5)
		c.Text(left+mid, top-5, fmt.Sprint(i*group), `class="axis middle"`)
		c.Text(left-6, top+mid+4, fmt.Sprint(i*group), `class="axis end"`)
	}
	const y = top + side + 14
	for i := range 20 {
		c.Rect(float64(left+8*i), y, 8.5, 10, fmt.Sprintf(`class="cell" fill-opacity="%.3f"`, 0.12+0.88*float64(i)/19))
	}
	c.Text(left+170, y+9, "up to "+text(most), `class="axis"`)
	return template.HTML(c.End())
}

func cellName(i, group int) string {
	if group == 1 {
		return fmt.Sprintf("rank %d", i)
	}
	return fmt.Sprintf("ranks %d-%d", i*group, (i+1)*group-1)
}
