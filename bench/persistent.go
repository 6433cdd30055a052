package main

import (
	"errors"
	"time"

	"github.com/mpigo/mpigo/request"
)

// persistentExercise measures a persistent collective: the time from Start to the end of Wait.
type persistentExercise[T element] struct {
	*collectiveExercise[T]
	request request.Request
}

// openPersistentCollective returns the function that opens a persistent collective.
func openPersistentCollective[T element](c collective[T]) func(j *job) (exercise, error) {
	return func(j *job) (exercise, error) {
		base, err := newCollective(j, &c, 1)
		return &persistentExercise[T]{collectiveExercise: base}, err
	}
}

func (e *persistentExercise[T]) resize(bytes int) error {
	if err := errors.Join(e.freeRequest(), e.collectiveExercise.resize(bytes)); err != nil {
		return err
	}
	var err error
	e.request, err = e.prepare(e.j.world, e.shape, e.in.now, e.out.now)
	return err
}

func (e *persistentExercise[T]) run(n int) (time.Duration, error) {
	var sum time.Duration
	for range n {
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

func (e *persistentExercise[T]) close() error {
	return errors.Join(e.freeRequest(), e.collectiveExercise.close())
}

func (e *persistentExercise[T]) freeRequest() error {
	if e.request.IsNull() {
		return nil
	}
	return e.request.Free()
}
