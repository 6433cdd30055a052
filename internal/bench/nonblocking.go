package bench

import (
	"time"

	"github.com/mpigo/mpigo/comm"
)

// nonblockingExercise measures a nonblocking collective, and how much it overlaps with computation.
// An iteration calls the collective twice. After the first, pure call it waits at once. After the
// second call, it computes for as long as a pure call takes, and then waits.
type nonblockingExercise[T element] struct {
	*collectiveExercise[T]
	matrix    matrix
	lastParts parts
}

// parts are the times of all iterations, except the total time of the calls with a computation.
type parts struct {
	pure    time.Duration // of the calls without computation
	compute time.Duration // of the computation, without calls of Test
}

// divided is an exercise that measures several times.
type divided interface {
	// parts returns the other times of the last run.
	parts() parts
}

// openNonblocking returns the function that opens a nonblocking collective.
func openNonblocking[T element](c collective[T]) func(j *job) (exercise, error) {
	return func(j *job) (exercise, error) {
		base, err := newCollective(j, &c, 2)
		return &nonblockingExercise[T]{collectiveExercise: base}, err
	}
}

// run returns the total time of the calls with a computation.
func (e *nonblockingExercise[T]) run(n int) (time.Duration, error) {
	e.lastParts = parts{}
	if n == 0 {
		return 0, nil
	}
	for range n {
		if err := e.pure(); err != nil {
			return 0, err
		}
	}
	target := e.lastParts.pure / time.Duration(n)
	if err := e.j.world.Barrier(); err != nil {
		return 0, err
	}
	var sum time.Duration
	for range n {
		took, err := e.overlapped(target)
		if err != nil {
			return 0, err
		}
		sum += took
	}
	return sum, nil
}

func (e *nonblockingExercise[T]) parts() parts { return e.lastParts }

func (e *nonblockingExercise[T]) pure() error {
	c, in, out := e.next()
	began := time.Since(e.epoch)
	r, err := e.begin(c, e.shape, in, out)
	if err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	e.lastParts.pure += time.Since(e.epoch) - began
	return e.separate()
}

func (e *nonblockingExercise[T]) overlapped(target time.Duration) (time.Duration, error) {
	c, in, out := e.next()
	began := time.Since(e.epoch)
	r, err := e.begin(c, e.shape, in, out)
	if err != nil {
		return 0, err
	}
	computes := time.Since(e.epoch)
	testing, err := e.computeAndTest(target, func() error {
		_, _, err := r.Test()
		return err
	})
	if err != nil {
		return 0, err
	}
	e.lastParts.compute += time.Since(e.epoch) - computes - testing
	if _, err := r.Wait(); err != nil {
		return 0, err
	}
	took := time.Since(e.epoch) - began
	return took, e.separate()
}

// computeAndTest computes for as long as target, with as many calls of test as -t says, spread
// evenly. It returns the time of these calls.
func (e *nonblockingExercise[T]) computeAndTest(target time.Duration, test func() error) (testing time.Duration, err error) {
	if e.j.cfg.tests == 0 {
		e.compute(target)
		return 0, nil
	}
	for range e.j.cfg.tests {
		e.compute(target / time.Duration(e.j.cfg.tests))
		began := time.Since(e.epoch)
		if err := test(); err != nil {
			return 0, err
		}
		testing += time.Since(e.epoch) - began
	}
	return testing, nil
}

// compute computes until its steps have taken as long as target, and does not call the library.
func (e *nonblockingExercise[T]) compute(target time.Duration) {
	for elapsed := time.Duration(0); elapsed < target; {
		began := time.Since(e.epoch)
		e.matrix.step()
		elapsed += time.Since(e.epoch) - began
	}
}

// matrixSide is the value of the OSU benchmarks. A step takes about a microsecond.
const matrixSide = 25

// matrix is the data of the computation. All numbers are 0 and stay 0, so none becomes infinite.
type matrix struct {
	a    [matrixSide][matrixSide]float32
	x, y [matrixSide]float32
}

func (m *matrix) step() {
	for i := range m.a {
		for j := range m.a[i] {
			m.x[i] += m.a[i][j]*m.a[j][i] + m.y[j]
		}
	}
}

// reportOverlap returns the means over all ranks, and the share of the pure calls' time that the
// computation hides.
func reportOverlap(j *job, m measured) ([]float64, error) {
	mine := []float64{m.micros(), m.perIteration(m.compute), m.perIteration(m.pure)}
	sums := make([]float64, len(mine))
	if err := comm.Reduce(j.world, mine, sums, comm.Sum, 0); err != nil {
		return nil, err
	}
	for i := range sums {
		sums[i] /= float64(j.world.Size())
	}
	overall, compute, pure := sums[0], sums[1], sums[2]
	return append(sums, overlap(overall, compute, pure)), nil
}

// overlap returns a percentage: 100 if the call adds no time to the computation, 0 if it adds the
// time of a pure call, or more.
func overlap(overall, compute, pure float64) float64 {
	if pure <= 0 {
		return 0
	}
	return max(0, 100*(1-(overall-compute)/pure))
}
