package main

import (
	"bytes"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/mpitest"
)

// naive computes the plate as a whole. It shares only the wires and the rate with the program.
func naive(rows, cols, steps int) (plate []float64, residual float64) {
	plate = make([]float64, rows*cols)
	for i := range plate {
		if heated(i/cols, i%cols, rows, cols) {
			plate[i] = 1
		}
	}
	at := func(p []float64, r, c int) float64 {
		if r < 0 || c < 0 || r >= rows || c >= cols {
			return 0
		}
		return p[r*cols+c]
	}
	for range steps {
		next := make([]float64, len(plate))
		residual = 0
		for i := range plate {
			r, c := i/cols, i%cols
			next[i] = plate[i]
			if !heated(r, c, rows, cols) {
				around := at(plate, r-1, c) + at(plate, r+1, c) + at(plate, r, c-1) + at(plate, r, c+1)
				change := float64(flowRate * (around - float64(4*plate[i])))
				next[i] += change
				residual = max(residual, math.Abs(change))
			}
		}
		plate = next
	}
	return plate, residual
}

// heat runs the program and returns its output, without the line about the picture, and the
// picture.
func heat(t *testing.T, n int, cfg config) (string, []byte) {
	t.Helper()
	var out bytes.Buffer
	cfg.picture = filepath.Join(t.TempDir(), "plate.png")
	mpitest.Run(t, n, func(t testing.TB, world *comm.Comm) {
		require.NoError(t, run(world, cfg, &out))
	})
	picture, err := os.ReadFile(cfg.picture)
	require.NoError(t, err)
	printed, found := strings.CutSuffix(out.String(), "picture    "+cfg.picture+"\n")
	assert.True(t, found, "the output names the file")
	return printed, picture
}

func TestOutputIsTheSameForAnyGrid(t *testing.T) {
	for _, plate := range []struct{ rows, cols, steps int }{
		{16, 16, 0}, {17, 41, 1}, {37, 50, 120}, {16, 101, 33},
	} {
		cells, residual := naive(plate.rows, plate.cols, plate.steps)
		want := fmt.Sprintf("plate      %d x %d\nsteps      %d\nresidual   %v\nmean       %v\n",
			plate.rows, plate.cols, plate.steps, residual, mean(cells))
		assert.Positive(t, mean(cells), "a small plate has wires, too")
		cfg := config{rows: plate.rows, cols: plate.cols, steps: plate.steps, tolerance: -1}
		out, picture := heat(t, 1, cfg)
		assert.Equal(t, want, out)
		for _, g := range [][3]int{{2}, {4}, {6}, {16}, {4, 1, 4}, {4, 4, 1}, {6, 3, 2}, {16, 16, 1}, {5, 1, 5}} {
			cfg.p, cfg.q = g[1], g[2]
			gotOut, gotPicture := heat(t, g[0], cfg)
			assert.Equal(t, want, gotOut, "%v", g)
			assert.True(t, bytes.Equal(picture, gotPicture), "%v: the picture differs", g)
		}
	}
}

func TestRunStopsWhenNothingChanges(t *testing.T) {
	var out, progress bytes.Buffer
	cfg := config{rows: 12, cols: 12, steps: 1_000_000, tolerance: 1e-6, progress: &progress}
	mpitest.Run(t, 4, func(t testing.TB, world *comm.Comm) {
		require.NoError(t, run(world, cfg, &out))
	})
	assert.Regexp(t, `steps      [1-9]00\n`, out.String())
	assert.NotContains(t, out.String(), "picture")
	assert.Contains(t, progress.String(), "heat2d: step 100 of 1000000, residual ")
}

func TestWritePicture(t *testing.T) {
	_, picture := heat(t, 2, config{rows: 36, cols: 72})
	img, err := png.Decode(bytes.NewReader(picture))
	require.NoError(t, err)
	assert.Equal(t, 72, img.Bounds().Dx())
	assert.Equal(t, 36, img.Bounds().Dy())
	for i := range 36 * 72 {
		want := colours[0]
		if heated(i/72, i%72, 36, 72) {
			want = colours[len(colours)-1]
		}
		require.Equal(t, want, img.At(i%72, i/72))
	}
	assert.Equal(t, colours[0], colour(-1))
	assert.Equal(t, colours[len(colours)-1], colour(2))
}

func TestRunWithWrongConfigFails(t *testing.T) {
	for _, c := range []struct {
		n    int
		cfg  config
		want string
	}{
		{4, config{rows: 100, cols: 100, p: 2, q: 3}, "-grid is 2x3, which needs 6 ranks, but there are 4"},
		{4, config{rows: 3, cols: 100, p: 4, q: 1}, "a plate of 3x100 is too small for 4x1 ranks"},
		{7, config{rows: 3, cols: 6}, "a plate of 3x6 is too small for 7 ranks"},
		{1, config{rows: 3, cols: 6, picture: "/no/such/folder/x.png"}, "no such file"},
	} {
		err := comm.RunLocal(c.n, func(world *comm.Comm) error { return run(world, c.cfg, &bytes.Buffer{}) })
		assert.ErrorContains(t, err, c.want)
	}
	for _, bad := range []string{"", "3", "x", "3x", "0x3", "3x-1", "3x4x5", "ax4"} {
		_, _, err := parseShape(bad)
		assert.ErrorContains(t, err, fmt.Sprintf("%q is not of the form ROWSxCOLUMNS", bad))
	}
}

func TestNewGridCoversThePlate(t *testing.T) {
	for _, c := range []struct{ ranks, rows, cols, p, q int }{
		{1, 5, 5, 1, 1}, {4, 100, 100, 2, 2}, {6, 360, 720, 2, 3}, {6, 720, 360, 3, 2},
		{7, 100, 100, 1, 7}, {16, 4, 1000, 1, 16}, {12, 3, 4, 3, 4},
	} {
		g, err := newGrid(c.ranks, config{rows: c.rows, cols: c.cols})
		require.NoError(t, err)
		cuts := (g.p-1)*c.cols + (g.q-1)*c.rows
		assert.Equal(t, (c.p-1)*c.cols+(c.q-1)*c.rows, cuts, "%+v chosen", g)
		seen := make([]int, c.rows*c.cols)
		for r := range c.ranks {
			s := g.span(r)
			assert.Positive(t, s.cells())
			for i := range s.cells() {
				seen[(s.row+i/s.cols)*c.cols+s.col+i%s.cols]++
			}
			for d, other := range g.neighbours(r) {
				if other != comm.ProcNull {
					assert.Equal(t, r, g.neighbours(other)[d^1])
				}
			}
		}
		assert.Equal(t, 1, slices.Min(seen))
		assert.Equal(t, 1, slices.Max(seen))
	}
}
