package profile

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// The pictures are SVG inside the page. Numbers and fixed words are all that goes into them.

const (
	pictureWidth = 860
	axisWidth    = 64
	// maxCells is how many rows a matrix has at most. In larger jobs a cell stands for several
	// ranks.
	maxCells = 128
)

// parts of a rank's time: the classes of the colours, from the bottom.
func (t Times) parts() [4]float64 {
	return [4]float64{max(t.App-t.Calls, 0), t.Working, t.Moving, t.Waiting}
}

var partNames = [4]string{"program", "in calls", "moving bytes", "waiting for a partner"}

// balance draws a bar for each rank, of the parts of its time.
func balance(times []Times) template.HTML {
	const height, bottom = 220, 28
	longest := 1.0
	for _, t := range times {
		longest = max(longest, t.App)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="time of each rank">`, pictureWidth, height+bottom+10)
	for tick := 0.0; tick <= longest; tick += tickOf(longest) {
		y := 10 + height - float64(height)*tick/longest
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="axis end" x="%d" y="%.1f">%s</text>`,
			axisWidth, pictureWidth, y, y, axisWidth-8, y+4, timeText(tick))
	}
	step := float64(pictureWidth-axisWidth) / float64(len(times))
	bar := min(step*0.8, 48)
	every := int(math.Ceil(30 / step))
	for i, t := range times {
		x, y := axisWidth+step*(float64(i)+0.5)-bar/2, float64(10+height)
		fmt.Fprintf(&b, `<g><title>rank %d on %s`, t.Rank, template.HTMLEscapeString(t.Host))
		for k, part := range t.parts() {
			fmt.Fprintf(&b, "&#10;%s: %s", partNames[k], approximate(t.Estimated, timeText(part)))
		}
		b.WriteString(`</title>`)
		for k, part := range t.parts() {
			h := float64(height) * part / longest
			y -= h
			fmt.Fprintf(&b, `<rect class="part%d" x="%.1f" y="%.2f" width="%.1f" height="%.2f"/>`, k, x, y, bar, h)
		}
		b.WriteString(`</g>`)
		if i%every == 0 {
			fmt.Fprintf(&b, `<text class="axis middle" x="%.1f" y="%d">%d</text>`, x+bar/2, height+bottom, t.Rank)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// tickOf is a round distance of ticks on an axis up to most: 1, 2 or 5 times a power of ten.
func tickOf(most float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(most/4)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= most/6 {
			return n * power
		}
	}
	return 10 * power
}

// matrices draws what each rank has sent to each rank: bytes, and messages.
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
	const side, left, top, legend = 340, 44, 30, 46
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	cell := float64(side) / float64(cells)
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="matrix of ranks">`, left+side+10, top+side+legend)
	fmt.Fprintf(&b, `<text class="axis middle" x="%d" y="12">receiver</text><text class="axis middle" transform="translate(12 %d) rotate(-90)">sender</text>`,
		left+side/2, top+side/2)
	gap := 0.0
	if cell > 8 {
		gap = 1
	}
	for i, v := range values {
		from, to := i/cells, i%cells
		class, level := "empty", 0.0
		if v > 0 {
			class, level = "cell", 0.12+0.88*v/most
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"`, class, left+cell*float64(to), top+cell*float64(from), cell-gap, cell-gap)
		if v > 0 {
			fmt.Fprintf(&b, ` fill-opacity="%.3f"><title>%s to %s: %s</title></rect>`, level, cellName(from, group), cellName(to, group), text(v))
			if cell >= 56 {
				dark := ""
				if level > 0.55 {
					dark = " light"
				}
				fmt.Fprintf(&b, `<text class="value middle%s" x="%.1f" y="%.1f">%s</text>`, dark, left+cell*(float64(to)+0.5), top+cell*(float64(from)+0.5)+4, text(v))
			}
		} else {
			b.WriteString("/>")
		}
	}
	every := int(math.Ceil(22 / cell))
	for i := 0; i < cells; i += every {
		mid := cell * (float64(i) + 0.5)
		fmt.Fprintf(&b, `<text class="axis middle" x="%.1f" y="%d">%d</text><text class="axis end" x="%d" y="%.1f">%d</text>`,
			left+mid, top-5, i*group, left-6, top+mid+4, i*group)
	}
	y := top + side + 14
	for i := range 20 {
		fmt.Fprintf(&b, `<rect class="cell" fill-opacity="%.3f" x="%d" y="%d" width="8.5" height="10"/>`, 0.12+0.88*float64(i)/19, left+8*i, y)
	}
	fmt.Fprintf(&b, `<text class="axis" x="%d" y="%d">up to %s</text></svg>`, left+170, y+9, text(most))
	return template.HTML(b.String())
}

func cellName(i, group int) string {
	if group == 1 {
		return fmt.Sprintf("rank %d", i)
	}
	return fmt.Sprintf("ranks %d-%d", i*group, (i+1)*group-1)
}
