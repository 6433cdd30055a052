package bench

import (
	"errors"
	"time"

	"github.com/mpigo/mpigo/request"
)

// persistentExercise measures a persistent collective: the time from Start to the end of Wait. It
// alternates with the nonblocking form. With more ranks than cores, the time of either form depends
// more on which ranks share a core, and in which order, than on the form.
type persistentExercise[T element] struct {
	*collectiveExercise[T]
	request     request.Request
	out         *pool[T] // of the nonblocking calls
	nonblocking time.Duration
}

// openPersistentCollective returns the function that opens a persistent collective.
func openPersistentCollective[T element](c collective[T]) func(j *job) (exercise, error) {
	return func(j *job) (exercise, error) {
		base, err := newCollective(j, &c, 1)
		if err != nil {
			return nil, err
		}
		out, err := newPool[T](j, c.out(base.shape))
		if err != nil {
			return nil, errors.Join(err, base.close())
		}
		return &persistentExercise[T]{collectiveExercise: base, out: out}, nil
	}
}

func (e *persistentExercise[T]) resize(bytes int) error {
	if err := errors.Join(e.freeRequest(), e.collectiveExercise.resize(bytes)); err != nil {
		return err
	}
	e.out.resize(e.collective.out(e.shape))
	var err error
	e.request, err = e.prepare(e.j.world, e.shape, e.in.now, e.collectiveExercise.out.now)
	return err
}

func (e *persistentExercise[T]) run(n int) (time.Duration, error) {
	var sum time.Duration
	e.nonblocking = 0
	for range n {
		if err := e.runNonblocking(); err != nil {
			return 0, err
		}
		began := time.Since(e.epoch)
		if err := e.request.Start(); err != nil {
			return 0, err
		}
		if _, err := e.request.Wait(); err != nil {
			return 0, err
		}
		sum += time.Since(e.epoch) - began
		if err := e.separate(); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

func (e *persistentExercise[T]) runNonblocking() error {
	began := time.Since(e.epoch)
	r, err := e.begin(e.j.world, e.shape, e.in.now, e.out.now)
	if err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	e.nonblocking += time.Since(e.epoch) - began
	return e.separate()
}

func (e *persistentExercise[T]) parts() parts { return parts{pure: e.nonblocking} }

// reportPersistent returns the values of reportCollective, the mean of the nonblocking calls, and
// the ratio to it.
func reportPersistent(j *job, m measured) ([]float64, error) {
	persistent, err := reportCollective(j, m)
	if err != nil {
		return nil, err
	}
	m.elapsed = m.pure
	nonblocking, err := reportCollective(j, m)
	if err != nil {
		return nil, err
	}
	return append(persistent, nonblocking[0], persistent[0]/nonblocking[0]), nil
}

func (e *persistentExercise[T]) close() error {
	return errors.Join(e.freeRequest(), e.out.free(), e.collectiveExercise.close())
}

func (e *persistentExercise[T]) freeRequest() error {
	if e.request.IsNull() {
		return nil
	}
	return e.request.Free()
}
