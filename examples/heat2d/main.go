// Heat2d heats a plate and draws a picture of it.
//
//	mpirun-go -n 4 ./examples/heat2d -size 360x720 -steps 1500 -o heat2d.png
//
// The plate is cut into blocks, one for each rank, on a grid of ranks of any shape. A cell's next
// temperature depends on its four neighbours. So before each step every rank exchanges the edges of
// its block with the neighbouring ranks, by persistent requests, and computes the inside of its
// block meanwhile. The picture and every printed digit are the same for any number of ranks and any
// grid.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/mpigo/mpigo/comm"
)

// config holds the flags' values.
type config struct {
	rows, cols int       // of the plate, in cells
	p, q       int       // rows and columns of the grid of ranks; 0 to choose
	steps      int       // at most
	tolerance  float64   // stop when no cell changes by more than this in a step
	picture    string    // file to write; empty for none
	progress   io.Writer // where rank 0 reports progress; nil for nowhere
}

const (
	root       = 0
	checkEvery = 100 // steps between two checks of the residual

	tagBlock = directions // the tags of the halo are lower
)

func main() {
	var cfg config
	flags := flag.NewFlagSet("heat2d", flag.ContinueOnError)
	size := flags.String("size", "360x720", "size of the plate, `ROWSxCOLUMNS` of cells")
	grid := flags.String("grid", "", "grid of ranks, `ROWSxCOLUMNS` (default: the grid with the least exchange)")
	flags.IntVar(&cfg.steps, "steps", 1500, "number of time steps, at most")
	flags.Float64Var(&cfg.tolerance, "tol", 0, "stop when no cell changes by more than this in a step")
	flags.StringVar(&cfg.picture, "o", "heat2d.png", "`FILE` for the picture, which is overwritten; empty for none")
	verbose := flags.Bool("v", false, "report progress on standard error")
	check := func() (err error) {
		switch {
		case flags.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		case cfg.steps < 0:
			return fmt.Errorf("-steps is %d: it cannot be negative", cfg.steps)
		}
		if cfg.rows, cfg.cols, err = parseShape(*size); err != nil {
			return fmt.Errorf("-size: %w", err)
		}
		if *grid != "" {
			if cfg.p, cfg.q, err = parseShape(*grid); err != nil {
				return fmt.Errorf("-grid: %w", err)
			}
		}
		if *verbose {
			cfg.progress = os.Stderr
		}
		return nil
	}
	comm.Run(func(world *comm.Comm) error {
		if err := comm.ParseFlags(world, flags, os.Args[1:], check); err != nil {
			return err
		}
		return run(world, cfg, os.Stdout)
	})
}

// run is the program of one rank. Only the root writes to out and writes the picture.
func run(world *comm.Comm, cfg config, out io.Writer) (err error) {
	g, err := newGrid(world.Size(), cfg)
	if err != nil {
		return err
	}
	b := newBlock(cfg, g.span(world.Rank()))
	h, err := newHalo(world, b, g.neighbours(world.Rank()))
	defer func() { err = errors.Join(err, h.free()) }()
	if err != nil {
		return err
	}

	step, residual := 0, 0.0
	for step < cfg.steps {
		// The edges travel while the rank computes the inside.
		if err := h.start(b); err != nil {
			return err
		}
		change := b.stepInside()
		if err := h.finish(b); err != nil {
			return err
		}
		change = max(change, b.stepEdges())
		b.swap()
		step++

		if step%checkEvery != 0 && step != cfg.steps {
			continue
		}
		// A maximum does not depend on the order of reduction. A sum of floats would.
		worst := []float64{change}
		if err := comm.Allreduce(world, nil, worst, comm.Max); err != nil {
			return err
		}
		residual = worst[0]
		if world.Rank() == root && cfg.progress != nil {
			fmt.Fprintf(cfg.progress, "heat2d: step %d of %d, residual %.3g\n", step, cfg.steps, residual)
		}
		if residual <= cfg.tolerance {
			break
		}
	}

	plate, err := gather(world, cfg, g, b)
	if err != nil || world.Rank() != root {
		return err
	}
	if cfg.picture != "" {
		if err := writePicture(cfg.picture, plate, cfg.rows, cfg.cols); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("plate      %d x %d\nsteps      %d\nresidual   %v\nmean       %v\n",
		cfg.rows, cfg.cols, step, residual, mean(plate))
	if cfg.picture != "" {
		text += fmt.Sprintf("picture    %s\n", cfg.picture)
	}
	_, err = io.WriteString(out, text)
	return err
}

// gather returns the temperatures of the whole plate, row by row, at the root.
func gather(world *comm.Comm, cfg config, g grid, b *block) ([]float64, error) {
	// The root sends to itself, too, so its send must not wait for its receive.
	sent, err := comm.Isend(world, b.own(), root, tagBlock)
	if err != nil {
		return nil, err
	}
	var plate []float64
	if world.Rank() == root {
		plate = make([]float64, cfg.rows*cfg.cols)
		for rank := range world.Size() {
			s := g.span(rank)
			cells := make([]float64, s.cells())
			if _, err := comm.Recv(world, cells, rank, tagBlock); err != nil {
				return nil, err
			}
			for row := range s.rows {
				copy(plate[(s.row+row)*cfg.cols+s.col:], cells[row*s.cols:(row+1)*s.cols])
			}
		}
	}
	_, err = sent.Wait()
	return plate, err
}

// mean returns the mean of all cells, summed up in the order of the plate.
func mean(plate []float64) float64 {
	sum := 0.0
	for _, t := range plate {
		sum += t
	}
	return sum / float64(len(plate))
}
