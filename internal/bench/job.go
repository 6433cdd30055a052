package bench

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/mpigo/mpigo/comm"
)

// job is one rank's view of a benchmark.
type job struct {
	cfg   config
	world *comm.Comm
	// comms are used in turn. Without --two-comms both are the world.
	comms [2]*comm.Comm
}

// largest returns the largest size that is measured.
func (j *job) largest() int { return slices.Max(j.cfg.sizes) }

// validations is the number of iterations of each size that --validate checks.
const validations = 3

// run runs a benchmark at one rank. Only rank 0 writes to out.
func run(world *comm.Comm, cfg config, out io.Writer) (err error) {
	if cfg.bench.open == nil {
		return nil
	}
	j := &job{cfg: cfg, world: world, comms: [2]*comm.Comm{world, world}}
	if cfg.twoComms {
		if j.comms[1], err = world.Dup(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, j.comms[1].Free()) }()
	}
	ex, err := cfg.bench.open(j)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ex.close()) }()
	runtime.GC() // now, so that it does not run during the measurement
	p, err := newPrinter(out, cfg, world)
	if err != nil {
		return err
	}
	if world.Rank() == 0 {
		if err := p.header(); err != nil {
			return err
		}
	}
	for _, bytes := range cfg.sizes {
		values, err := j.measure(ex, bytes)
		if err != nil {
			return fmt.Errorf("%s, %d bytes: %w", cfg.bench.name, bytes, err)
		}
		if world.Rank() == 0 {
			if err := p.row(bytes, values); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure measures one size.
func (j *job) measure(ex exercise, bytes int) ([]float64, error) {
	if err := ex.resize(bytes); err != nil {
		return nil, err
	}
	iterations, warmUp := j.cfg.iterationsAt(bytes)
	if _, err := ex.run(warmUp); err != nil {
		return nil, err
	}
	if err := j.world.Barrier(); err != nil {
		return nil, err
	}
	elapsed, err := ex.run(iterations)
	if err != nil {
		return nil, err
	}
	m := measured{bytes: bytes, iterations: iterations, elapsed: elapsed}
	if d, ok := ex.(divided); ok {
		m.parts = d.parts()
	}
	if j.cfg.validate {
		for seed := range validations {
			ex.fill(seed)
			if _, err := ex.run(1); err != nil {
				return nil, err
			}
			if err := ex.check(seed); err != nil {
				return nil, err
			}
		}
	}
	return j.cfg.bench.report(j, m)
}
