package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mpigo/mpigo/comm"
)

// The four directions. d^1 is the opposite of d.
const (
	north = iota
	south
	west
	east
	directions
)

// grid arranges the ranks on the plate: rank r is in row r/q and column r%q.
type grid struct {
	p, q       int // rows and columns of ranks
	rows, cols int // of the plate
}

// span is the place of a block on the plate.
type span struct {
	row, col, rows, cols int
}

func (s span) cells() int { return s.rows * s.cols }

// newGrid returns the grid of the configuration, or else the one with the shortest cuts.
func newGrid(ranks int, cfg config) (grid, error) {
	best := grid{rows: cfg.rows, cols: cfg.cols}
	if cfg.p > 0 {
		best.p, best.q = cfg.p, cfg.q
		switch {
		case cfg.p*cfg.q != ranks:
			return best, fmt.Errorf("-grid is %dx%d, which needs %d ranks, but there are %d", cfg.p, cfg.q, cfg.p*cfg.q, ranks)
		case cfg.p > cfg.rows || cfg.q > cfg.cols:
			return best, fmt.Errorf("a plate of %dx%d is too small for %dx%d ranks", cfg.rows, cfg.cols, cfg.p, cfg.q)
		}
		return best, nil
	}
	shortest := -1
	for p := 1; p <= ranks; p++ {
		q := ranks / p
		if p*q != ranks || p > cfg.rows || q > cfg.cols {
			continue
		}
		if cuts := (p-1)*cfg.cols + (q-1)*cfg.rows; shortest < 0 || cuts < shortest {
			shortest = cuts
			best.p, best.q = p, q
		}
	}
	if shortest < 0 {
		return best, fmt.Errorf("a plate of %dx%d is too small for %d ranks", cfg.rows, cfg.cols, ranks)
	}
	return best, nil
}

// span returns the place of a rank's block. Blocks differ by at most one row and one column.
func (g grid) span(rank int) span {
	i, j := rank/g.q, rank%g.q
	row, col := i*g.rows/g.p, j*g.cols/g.q
	return span{row, col, (i+1)*g.rows/g.p - row, (j+1)*g.cols/g.q - col}
}

// neighbours returns the neighbours of a rank by direction, and ProcNull beyond the plate. A send
// to ProcNull does nothing, and a receive from it leaves the buffer as it was.
func (g grid) neighbours(rank int) [directions]int {
	i, j := rank/g.q, rank%g.q
	at := func(i, j int) int {
		if i < 0 || i >= g.p || j < 0 || j >= g.q {
			return comm.ProcNull
		}
		return i*g.q + j
	}
	return [directions]int{north: at(i-1, j), south: at(i+1, j), west: at(i, j-1), east: at(i, j+1)}
}

// parseShape parses "ROWSxCOLUMNS".
func parseShape(s string) (rows, cols int, err error) {
	a, b, ok := strings.Cut(s, "x")
	if ok {
		rows, err = strconv.Atoi(a)
		if err == nil {
			cols, err = strconv.Atoi(b)
		}
	}
	if !ok || err != nil || rows < 1 || cols < 1 {
		return 0, 0, fmt.Errorf("%q is not of the form ROWSxCOLUMNS, such as 360x720", s)
	}
	return rows, cols, nil
}
