package main

import "math"

// block is one rank's part of the plate, with a rim that is one cell wide. The rim holds copies of
// the neighbours' edges, or the cold outside of the plate.
type block struct {
	span
	stride int       // cells from one row to the next: the columns and both sides of the rim
	now    []float64 // temperatures from 0 to 1
	next   []float64 // temperatures after the step
	flow   []float64 // rate of heat from the neighbours; 0: the temperature stays
}

// flowRate is below 1/4, where the scheme becomes unstable.
const flowRate = 0.2

// newBlock returns a block that is cold except for the heating wires.
func newBlock(cfg config, s span) *block {
	b := &block{span: s, stride: s.cols + 2}
	cells := (s.rows + 2) * b.stride
	b.now, b.next, b.flow = make([]float64, cells), make([]float64, cells), make([]float64, cells)
	for r := range s.rows {
		for c := range s.cols {
			i := b.at(r, c)
			if heated(s.row+r, s.col+c, cfg.rows, cfg.cols) {
				b.now[i], b.next[i] = 1, 1
			} else {
				b.flow[i] = flowRate
			}
		}
	}
	return b
}

// at returns the index of a cell. Row and column −1, row b.rows and column b.cols are in the rim.
func (b *block) at(row, col int) int { return (row+1)*b.stride + col + 1 }

// stepInside computes the cells that do not touch the rim. It returns the largest change.
func (b *block) stepInside() float64 { return b.step(1, b.rows-1, 1, b.cols-1) }

// stepEdges computes the other cells. In a block that is one cell wide it computes some cells
// twice, from the same values.
func (b *block) stepEdges() float64 {
	return max(
		b.step(0, 1, 0, b.cols),
		b.step(b.rows-1, b.rows, 0, b.cols),
		b.step(0, b.rows, 0, 1),
		b.step(0, b.rows, b.cols-1, b.cols),
	)
}

// step computes the cells in rows r0 ≤ r < r1 and columns c0 ≤ c < c1. It returns the largest
// change.
func (b *block) step(r0, r1, c0, c1 int) float64 {
	worst := 0.0
	for r := r0; r < r1; r++ {
		for i, end := b.at(r, c0), b.at(r, c1); i < end; i++ {
			t := b.now[i]
			// The conversions forbid the compiler to fuse multiplications and additions, which
			// would round differently, maybe in one loop and not in another.
			around := b.now[i-b.stride] + b.now[i+b.stride] + b.now[i-1] + b.now[i+1]
			change := float64(b.flow[i] * (around - float64(4*t)))
			b.next[i] = t + change
			if c := math.Abs(change); c > worst {
				worst = c
			}
		}
	}
	return worst
}

func (b *block) swap() { b.now, b.next = b.next, b.now }

// own returns the temperatures of the block without the rim, row by row.
func (b *block) own() []float64 {
	cells := make([]float64, 0, b.cells())
	for r := range b.rows {
		cells = append(cells, b.now[b.at(r, 0):b.at(r, b.cols)]...)
	}
	return cells
}

// wires draws the letters that heat the plate.
var wires = [...]string{
	"#   #  ####   ###   ###    ### ",
	"## ##  #   #   #   #   #  #   #",
	"# # #  #   #   #   #      #   #",
	"# # #  ####    #   #  ##  #   #",
	"#   #  #       #   #   #  #   #",
	"#   #  #       #   #   #  #   #",
	"#   #  #      ###   ###    ### ",
}

// heated reports whether a heating wire runs through a cell of the plate. The letters are in the
// middle, and as large as possible.
func heated(row, col, rows, cols int) bool {
	const margin = 3 // around the letters at least, in points of the letters
	high, wide := float64(len(wires)), float64(len(wires[0]))
	points := max((high+2*margin)/float64(rows), (wide+2*margin)/float64(cols)) // for each cell
	y := high/2 + (float64(row)+0.5-float64(rows)/2)*points
	x := wide/2 + (float64(col)+0.5-float64(cols)/2)*points
	if y < 0 || x < 0 || y >= high || x >= wide || wires[int(y)][int(x)] != '#' {
		return false
	}
	dy, dx := y-math.Floor(y)-0.5, x-math.Floor(x)-0.5
	return float64(dx*dx)+float64(dy*dy) < 0.08
}
