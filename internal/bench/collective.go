package bench

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// shape holds the sizes of a collective at one rank.
type shape struct {
	rank, ranks int
	count       int   // elements of the measured size
	shares      []int // elements of each rank, if the ranks share count
}

func newShape(rank, ranks, count int) shape {
	s := shape{rank, ranks, count, make([]int, ranks)}
	for r := range s.shares {
		s.shares[r] = (count + ranks - 1 - r) / ranks
	}
	return s
}

// collective describes a collective operation. Rank 0 is the root.
type collective[T element] struct {
	// in and out return how many elements a rank sends and receives.
	in, out func(s shape) int
	// The three forms: call is the blocking one, begin the nonblocking one, and prepare the Init
	// call of the persistent one. call is nil if the blocking form has a benchmark of its own.
	call           func(c *comm.Comm, s shape, in, out []T) error
	begin, prepare func(c *comm.Comm, s shape, in, out []T) (request.Request, error)
	// origin returns the source of element i of a rank's result: a rank, and an element of that
	// rank's input. The rank is all for the sum over all ranks.
	origin func(s shape, i int) (rank, element int)
	// synchronizes is set for a barrier, after which no other barrier is needed.
	synchronizes bool
}

const all = -1

// collectiveExercise measures a collective. It times each call by itself. A barrier after each call
// keeps every rank at most one call ahead of the others.
type collectiveExercise[T element] struct {
	*collective[T]
	j       *job
	shape   shape
	in, out *pool[T]
	epoch   time.Time
	turn    int
	calls   int // of the collective in an iteration
}

// openCollective returns the function that opens a collective.
func openCollective[T element](c collective[T]) func(j *job) (exercise, error) {
	return func(j *job) (exercise, error) { return newCollective(j, &c, 1) }
}

func newCollective[T element](j *job, c *collective[T], calls int) (*collectiveExercise[T], error) {
	e := &collectiveExercise[T]{collective: c, j: j, epoch: time.Now(), calls: calls}
	e.measure(j.largest())
	var err error
	e.in, e.out, err = newPools[T](j, c.in(e.shape), c.out(e.shape))
	return e, err
}

func (e *collectiveExercise[T]) measure(bytes int) {
	e.shape = newShape(e.j.world.Rank(), e.j.world.Size(), bytes/int(unsafe.Sizeof(*new(T))))
}

func (e *collectiveExercise[T]) resize(bytes int) error {
	e.measure(bytes)
	e.in.resize(e.collective.in(e.shape))
	e.out.resize(e.collective.out(e.shape))
	return nil
}

func (e *collectiveExercise[T]) run(n int) (time.Duration, error) {
	var sum time.Duration
	for range n {
		c, in, out := e.next()
		began := time.Since(e.epoch)
		if err := e.call(c, e.shape, in, out); err != nil {
			return 0, err
		}
		sum += time.Since(e.epoch) - began
		if err := e.separate(); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// next returns the communicator and the buffers of the next call.
func (e *collectiveExercise[T]) next() (c *comm.Comm, in, out []T) {
	e.turn++
	return e.j.comms[e.turn&1], e.in.take(), e.out.take()
}

// separate is called after each call.
func (e *collectiveExercise[T]) separate() error {
	if e.synchronizes {
		return nil
	}
	return e.j.world.Barrier()
}

func (e *collectiveExercise[T]) fill(seed int) {
	e.in.mark()
	e.out.mark()
	// Neither function returns an error.
	_ = e.in.sinceMark(e.calls, func(b []T) error {
		for i := range b {
			b[i] = T(datum(seed, e.shape.rank, i))
		}
		return nil
	})
	_ = e.out.sinceMark(e.calls, func(b []T) error {
		for i := range b {
			b[i] = 0xff
		}
		return nil
	})
}

func (e *collectiveExercise[T]) check(seed int) error {
	return e.out.sinceMark(e.calls, func(b []T) error {
		for i, got := range b {
			rank, element := e.origin(e.shape, i)
			if want := e.want(seed, rank, element); got != want {
				return fmt.Errorf("element %d of %d is %v, not %v", i, len(b), got, want)
			}
		}
		return nil
	})
}

func (e *collectiveExercise[T]) want(seed, rank, element int) T {
	if rank != all {
		return T(datum(seed, rank, element))
	}
	var sum T
	for r := range e.shape.ranks {
		sum += T(datum(seed, r, element))
	}
	return sum
}

func (e *collectiveExercise[T]) close() error { return errors.Join(e.in.free(), e.out.free()) }

// barrier has no data and needs no barrier after it. It times all calls together.
type barrier struct{ j *job }

func openBarrier(j *job) (exercise, error) { return barrier{j}, nil }

func (e barrier) run(n int) (time.Duration, error) {
	began := time.Now()
	for i := range n {
		if err := e.j.comms[i&1].Barrier(); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

func (barrier) resize(int) error { return nil }
func (barrier) fill(int)         {}
func (barrier) check(int) error  { return nil }
func (barrier) close() error     { return nil }

// reportCollective returns the mean, the minimum and the maximum over all ranks.
func reportCollective(j *job, m measured) ([]float64, error) {
	values := make([]float64, 3)
	for i, op := range []comm.Op[float64]{comm.Sum[float64], comm.Min[float64], comm.Max[float64]} {
		if err := comm.Reduce(j.world, []float64{m.micros()}, values[i:i+1], op, 0); err != nil {
			return nil, err
		}
	}
	values[0] /= float64(j.world.Size())
	return values, nil
}
